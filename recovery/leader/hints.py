"""Hints: the leader passes on what the backend's watch says may have changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jrs.contract.runtime import call_until

from ..rules.events import EventKind
from .context import LeaderContext
from .loop import TICK

_POLL = 0.05


def pass_on(
    context: LeaderContext,
    over: Callable[[], bool],
    hear: Callable[[frozenset[str] | None], None],
    wait: Callable[[float], object],
) -> None:
    """Pass on the changes that the backend reports, until it is over.

    Args:
        hear: called with the names of what may have changed; None: any may have.
        wait: called with seconds, after an error and before the next watch.
    """

    def follow() -> None:
        with context.backend.watch("") as watch:
            while not over():
                names = watch.changes(_POLL)
                if names is None or names:
                    hear(names)

    def miss() -> None:
        hear(None)
        wait(TICK)

    say = partial(context.emit, EventKind.ERROR, "")
    call_until(over, follow, pause=miss, report=say, failing="changes are not heard")
