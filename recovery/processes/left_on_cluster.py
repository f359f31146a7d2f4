"""The Spark application that an earlier attempt of a job has left on a cluster.

Its driver is dead or cut off, and it is shut out of the store. But its executors hold their cores
until the cluster notices, which takes minutes, and the next attempt waits for them. So the leader
asks the cluster to end it. That is best effort: nothing depends on it but time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from http.client import HTTPException
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

from jrs.records.attempts import SparkApplication

UI_PORT = 8080
"""Where the master of a standalone cluster serves its user interface, by default."""
_TIMEOUT = 2.0
"""Seconds for one answer."""
_FIELD = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)"')


def end(application: SparkApplication, *, ui_port: int = UI_PORT) -> str:
    """Ask the cluster to end an application; return what came of it, for people.

    Empty if the cluster does not run it. Idempotent. Never raises. Takes seconds at most.

    Args:
        ui_port: of the user interface of the cluster's master.
    """
    cluster, name = application.master, application.id
    ask = _KINDS.get(urlsplit(cluster).scheme)
    if ask is None:
        return f"executors of {name} on {cluster} may keep their cores for a minute"
    try:
        ended = ask(application, ui_port)
    except (OSError, HTTPException, ValueError) as error:
        return f"{cluster} was not asked to end {name}: {error}"
    return f"had {cluster} end its application {name}" if ended else ""


def _standalone(application: SparkApplication, ui_port: int) -> bool:
    """Ask each master of a standalone cluster; the one that leads knows the application.

    A master takes the request from the form of its page alone: since Spark 4.3 that has a token.
    """
    browser = build_opener(HTTPCookieProcessor())
    for place in urlsplit(application.master).netloc.split(","):
        ui = f"http://{place.rpartition(':')[0] or place}:{ui_port}"
        with browser.open(ui, timeout=_TIMEOUT) as answer:
            forms = answer.read().decode(errors="replace").split("<form ")[1:]
        for form in forms:
            fields = dict(_FIELD.findall(form.partition("</form>")[0]))
            if fields.get("id") == application.id:
                sent = urlencode(fields).encode()
                with browser.open(Request(f"{ui}/app/kill/", sent), timeout=_TIMEOUT):
                    return True
    return False


_KINDS: dict[str, Callable[[SparkApplication, int], bool]] = {"spark": _standalone}
"""How applications are ended, by the kind of cluster."""
