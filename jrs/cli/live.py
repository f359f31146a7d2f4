"""What a terminal shows live: one picture after the other, of a server that may hang or be away."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait

import attrs
from rich.console import Group, RenderableType
from rich.text import Text

from jrs.cli.common import shortened, when
from jrs.contract.clock import Clock
from jrs.contract.errors import Unavailable
from jrs.contract.runtime import JrsThread
from jrs.contract.texts import bounded, printable

_LONGEST_WHY = 300
"""Characters that say why it cannot be read."""

Draw = Callable[[], RenderableType]
"""Reads and draws what is shown now."""


@attrs.frozen
class Pace:
    """How long a reader of a cluster waits, in seconds."""

    silence: float = 1.0
    """Without an answer, until the terminal says so."""
    slower: float = 2.0
    """The same, as a multiple of the time that the last picture took: a large cluster is no server
    that hangs."""
    now: Clock = time.time
    clock: Clock = time.monotonic


class Pictures:
    """The pictures that a terminal shows. While none can be read, the last one stays, below a line
    that says since when and why.

    Args:
        show: puts what is drawn on the screen.
    """

    def __init__(
        self, draw: Draw, show: Callable[[RenderableType], None], pace: Pace = Pace()
    ) -> None:
        self._draw = draw
        self._show = show
        self._pace = pace
        self._took = 0.0
        self._drawn: RenderableType = ""
        self._read_at = 0.0
        self._is_new = False

    def first(self) -> RenderableType:
        """Return the first picture; raises what drawing raises, and waits as long as that does."""
        began = self._pace.clock()
        drawn = self._draw()
        self._keep(drawn, began)
        return drawn

    def renew(self) -> bool:
        """Show a new picture; return whether there is one."""
        pace, began, asked_at = self._pace, self._pace.clock(), self._pace.now()
        reading = _in_thread(self._draw)
        wait([reading], max(pace.silence, pace.slower * self._took))
        if not reading.done() and self._is_new:
            self._show_old(f"no answer since {when(asked_at)} UTC")
        try:
            self._keep(reading.result(), began)
        except Unavailable as error:
            self._is_new = False
            why = shortened(printable(bounded(str(error))), _LONGEST_WHY)
            since = f"cannot be read since {when(self._read_at)} UTC, and is tried again"
            self._show_old(f"{since}: {why}")
            return False
        self._show(self._drawn)
        return True

    def _keep(self, drawn: RenderableType, began: float) -> None:
        self._drawn, self._read_at, self._is_new = drawn, self._pace.now(), True
        self._took = self._pace.clock() - began

    def _show_old(self, said: str) -> None:
        self._show(Group(Text(said, "bold red"), self._drawn))


def _in_thread(draw: Draw) -> Future[RenderableType]:
    """Draw in a thread that does not keep the process: it may hang."""
    made = Future[RenderableType]()

    def run() -> None:
        try:
            made.set_result(draw())
        except BaseException as error:
            made.set_exception(error)

    JrsThread(target=run, name="jrs-top", daemon=True).start()
    return made
