"""A browser at the page of a demo, which sees both of its failovers happen."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs

from .support import BOUND, until


class Browser:
    """Opens a one-time link, which is used up then, and follows the history of everything."""

    def __init__(self, link: str) -> None:
        self._base = f"http://{urlsplit(link).netloc}"
        cookies = urllib.request.HTTPCookieProcessor(CookieJar())
        self._opener = urllib.request.build_opener(cookies)
        self.events: list[dict[str, Any]] = []
        """What the server has told, in its order."""
        self.problems: list[str] = []
        with self._opener.open(link, timeout=BOUND) as front:
            found = re.search(r'class="cluster">([^<]+)<', front.read().decode())
        assert found
        self.cluster = found[1]
        self._thread = threading.Thread(target=self._follow, name="browser")
        self._thread.start()

    def look(self, path: str) -> str:
        """Return a page."""
        with self._opener.open(f"{self._base}{path}", timeout=BOUND) as page:
            return str(page.read().decode())

    def shows_failover(self, epoch: int) -> bool:
        """Return whether the page says who leads in an epoch, and marks each failover up to it."""
        leads = re.search(rf" leads</h1>\s<p [^>]*>On \S+, in epoch {epoch}\b", self.look("/"))
        return leads is not None and self._marks() == epoch - 1

    def _marks(self) -> int:
        return self.look("/jobs/flights").count('class="failover"')

    def close(self) -> None:
        """Wait until the server has ended."""
        self._thread.join(BOUND)
        assert not self._thread.is_alive()

    def _follow(self) -> None:
        name = ""
        try:
            with self._opener.open(f"{self._base}/v1/history/events", timeout=BOUND) as stream:
                for line in stream:
                    what, _, text = line.decode().strip().partition(": ")
                    if what == "event":
                        name = text
                    elif what == "data" and name == "history":
                        self.events.append(json.loads(text))
                    elif what == "data":
                        self.problems.append(text)
        except (OSError, http.client.HTTPException):
            pass  # The server ends with the demo.


@attrs.frozen
class Watched:
    """A demo that has ended, and what a browser has seen of it."""

    status: int
    shown: str
    errors: str
    browser: Browser
    store: Path
    """A copy of what the demo had stored when it said its verdict."""


def watch(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Watched:
    """Run the demo of a pipeline. At each kill it is stopped until the page shows the failover; and
    while its store, if that is in its folder, is copied.

    Args:
        folder: for what the demo says on stderr, and the copy.
    """
    command = [sys.executable, "-m", "jrs", "demo", *arguments]
    with (folder / "errors").open("w+") as errors:
        demo = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
        with demo:
            watcher = _Watcher(demo, folder / "store")
            watcher.run()
        errors.seek(0)
        said = errors.read()
    assert watcher.browser is not None, watcher.shown + said
    watcher.browser.close()
    return Watched(demo.returncode, watcher.shown, said, watcher.browser, watcher.store)


class _Watcher:
    def __init__(self, demo: subprocess.Popen[str], store: Path) -> None:
        self.demo = demo
        self.shown = ""
        self.browser: Browser | None = None
        self.store = store
        self._files = Path()
        self._epoch = 1

    def run(self) -> None:
        assert self.demo.stdout is not None
        for line in self.demo.stdout:
            self.shown += line
            if found := re.search(r", files in (\S+)$", line):
                self._files = Path(found[1])
            elif found := re.match(r"Watch the failovers at (\S+) \(works once, ", line):
                self.browser = Browser(found[1])
            elif "kill -9 m" in line and self.browser is not None:
                self._see_failover(self.browser)
            elif line.startswith("EQUAL: ") and (self._files / "store").exists():
                with self._stopped():
                    shutil.copytree(self._files / "store", self.store)

    def _see_failover(self, browser: Browser) -> None:
        self._epoch += 1
        with self._stopped():
            if self._epoch == 3:  # The demo's next step, which it may have been stopped before.
                (self._files / f"{browser.cluster}.gate").touch()
            shown = f"the page shows epoch {self._epoch}"
            until(lambda: browser.shows_failover(self._epoch), shown)

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        self.demo.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.demo.send_signal(signal.SIGCONT)
