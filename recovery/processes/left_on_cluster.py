"""The Spark application that an earlier attempt of a job has left on a cluster.

Its driver is dead or cut off, and it is shut out of the store. But its executors hold their cores,
and the next attempt waits for them. If the driver's host is cut off, the executors end after a
minute, and a standalone cluster starts others in their place, as long as nothing tells it that the
driver is gone. So the leader asks the cluster to end the application. No data depends on that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import (
    HTTPCookieProcessor,
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from jrs.contract.clock import Deadline
from jrs.records.attempts import SparkApplication

from .pools import side_by_side

UI_PORT = 8080
"""Where the master of a standalone cluster serves its user interface, by default."""
_TIMEOUT = 2.0
"""Seconds for one answer."""
_TRIES, _PAUSE = 3, 0.5
"""How often the cluster is asked, and the seconds in between."""
_ALL = 10.0
"""Seconds for all tries together: a start waits for them, and packets may go nowhere."""
_LONGEST = 8 * 1024 * 1024
"""Bytes of a page that are read."""
_PROBLEMS = (OSError, HTTPException, ValueError, LookupError, TypeError)
_FIELD = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)"')


def end(application: SparkApplication, *, ui_port: int = UI_PORT) -> str:
    """Ask the cluster to end an application; return what came of it, for people.

    Empty if the cluster does not run it, or is of a kind that jrs cannot ask. Idempotent. Never
    raises.

    Args:
        ui_port: of the user interface of the cluster's master.
    """
    cluster, name = application.master, application.id
    ask = _KINDS.get(urlsplit(cluster).scheme)
    if ask is None:
        return ""
    tries = Retrying(
        stop=stop_after_attempt(_TRIES),
        wait=wait_fixed(_PAUSE),
        retry=retry_if_exception_type(_PROBLEMS),
        reraise=True,
    )
    calls = [partial(tries, ask, application, ui_port)]
    [asked] = side_by_side("jrs-end-application", calls, Deadline.after(_ALL))
    if asked.hangs or asked.error is not None:
        why = asked.error or f"no answer in {_ALL:g} s"
        return f"{cluster} was not asked to end {name}: {why}"
    return f"had {cluster} end its application {name}" if asked.value else ""


class _NoRedirect(HTTPRedirectHandler):
    """Goes nowhere else: the cluster's master alone is asked."""

    def redirect_request(self, *_: object) -> None:
        return None


def _standalone(application: SparkApplication, ui_port: int) -> bool:
    """Ask each master of a standalone cluster; the one that leads knows the application."""
    problem: Exception | None = None
    for place in urlsplit(application.master).netloc.split(","):
        try:
            if _by_form(f"http://{place.rpartition(':')[0] or place}:{ui_port}", application.id):
                return True
        except _PROBLEMS as error:
            problem = error
    if problem is not None:
        raise problem
    return False


def _by_form(page: str, name: str) -> bool:
    """Send the form of an application on a master's page; return whether the master runs it.

    The form it has to be: since Spark 4.3 it has a token.

    Raises:
        ValueError: the page has no form for it.
    """
    browser = build_opener(ProxyHandler({}), _NoRedirect(), HTTPCookieProcessor())
    with _opened(browser, page) as answer:
        forms = answer.read(_LONGEST).decode(errors="replace").split("<form ")[1:]
    for form in forms:
        fields = dict(_FIELD.findall(form.partition("</form>")[0]))
        if fields.get("id") == name:
            sent = Request(f"{page}/app/kill/", urlencode(fields).encode())
            try:
                _opened(browser, sent).close()
            except HTTPError as error:
                if not 300 <= error.code < 400:  # Done, it leads back to the page.
                    raise
            return True
    with _opened(browser, f"{page}/json/") as answer:
        running = json.loads(answer.read(_LONGEST))["activeapps"]
    if any(one["id"] == name for one in running):
        raise ValueError("its page has no form for that; is spark.ui.killEnabled false?")
    return False


def _opened(browser: OpenerDirector, what: str | Request) -> Any:
    """Return the answer to a request. One that refuses is closed before it is raised."""
    try:
        return browser.open(what, timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        raise


_KINDS: dict[str, Callable[[SparkApplication, int], bool]] = {"spark": _standalone}
"""How applications are ended, by the kind of cluster."""
