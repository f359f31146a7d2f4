"""LeaderTask: work of a leader that nothing waits for."""

from __future__ import annotations

import abc
import threading
from typing import Self

from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable
from jrs.contract.runtime import start_thread

from ..rules.events import EventKind
from .context import LeaderContext


class LeaderTask(abc.ABC):
    """Work of a leader that nothing waits for, in a thread of its own; a context manager, which
    runs it. An interruption at any point leaves only work for the next pass. On a host without a
    thread for it, the leader does without it, and asks for the thread again in each turn.

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
            self._context.emit(EventKind.ERROR, "", f"{error}; trying again")
            self._context.each_turn.append(self._has_begun)
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

    def _has_begun(self) -> bool:
        """Return whether no further try is needed, after one more if it is."""
        if not self._is_over():
            try:
                start_thread(self._thread)
            except Unavailable:
                return False  # It was reported.
        return True

    def _is_over(self) -> bool:
        return self._over.is_set() or self._context.leadership.lost.is_set()


class RepeatedTask(LeaderTask):
    """A task that does a pass now and then. What fails is tried again in the next pass.

    Args:
        context: of the leadership.
        name: of the thread.
        pause: seconds between two passes, and before the first one.
        failed: what an error of a pass means, for people; each is reported once in a row.
    """

    def __init__(self, context: LeaderContext, name: str, pause: float, failed: str) -> None:
        super().__init__(context, name)
        self._pause = pause
        self._failed = failed

    @abc.abstractmethod
    def _pass(self) -> None:
        """Do one pass; raises what it cannot help."""

    def _run(self) -> None:
        last_reported = ""
        while not self._over.wait(self._pause):
            try:
                self._pass()
            except Fenced:
                return  # The dispatcher notices it, too.
            except (OutcomeUnknown, Unavailable):
                continue  # Others report it.
            except (JrsError, OSError) as error:
                if str(error) != last_reported:
                    last_reported = str(error)
                    said = f"{self._failed}: {error}; trying again"
                    self._context.emit(EventKind.ERROR, "", said)
