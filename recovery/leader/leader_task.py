"""LeaderTask: work of a leader that nothing waits for."""

from __future__ import annotations

import abc
import threading
from typing import Self

from jrs.contract.errors import Unavailable
from jrs.contract.runtime import start_thread

from ..rules.events import EventKind
from .context import LeaderContext


class LeaderTask(abc.ABC):
    """Work of a leader that nothing waits for, in a thread of its own; a context manager, which
    runs it. An interruption at any point leaves only work for the next pass. On a host without a
    thread for it, this leadership does without it.

    Args:
        context: of the leadership.
        name: of the thread.
    """

    def __init__(self, context: LeaderContext, name: str) -> None:
        self._context = context
        self._over = threading.Event()
        self._thread = context.runtime.thread(self._run, name)

    def __enter__(self) -> Self:
        try:
            start_thread(self._thread)
        except Unavailable as error:
            said = f"{error}; that is left to the next leader"
            self._context.emit(EventKind.ERROR, "", said)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(
                0.5
            )  # A call that hangs is abandoned; the fence refuses what it writes.

    @abc.abstractmethod
    def _run(self) -> None:
        """Do the work, until the task is over."""

    def _is_over(self) -> bool:
        return self._over.is_set() or self._context.leadership.lost.is_set()
