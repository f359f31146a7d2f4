"""LeaderTask: work of a leader that nothing waits for. Upkeep: such work in passes. `running` runs
such tasks."""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, Unavailable
from jrs.contract.runtime import call_until, start_thread

from ..rules.events import EventKind
from .context import LeaderContext

_LEAVE = 0.5
"""Seconds for the tasks of a leadership to end, all of them together."""


class LeaderTask(abc.ABC):
    """Work of a leader that nothing waits for, in a thread of its own. An interruption at any point
    leaves only work for the next pass. On a host without a thread for it, the leader does without
    it, and asks for the thread again in each turn.

    Args:
        context: of the leadership.
        name: of the thread.
    """

    def __init__(self, context: LeaderContext, name: str) -> None:
        self._context = context
        self._over = threading.Event()
        self._thread = context.runtime.thread(self._run, name)

    def begin(self) -> None:
        try:
            start_thread(self._thread)
        except Unavailable as error:
            self._context.emit(EventKind.ERROR, "", f"{error}; trying again")
            self._context.each_turn.append(self._has_begun)

    def stop(self) -> None:
        """Have the work end soon."""
        self._over.set()

    def join(self, deadline: Deadline) -> None:
        """Wait for its end, after `stop`. A call that hangs is abandoned; the fence refuses what it
        writes."""
        if self._thread.is_alive():
            self._thread.join(deadline.bounded())

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


@contextmanager
def running(*tasks: LeaderTask) -> Iterator[None]:
    """Run tasks meanwhile. At the end, one that hangs does not hold up the others."""
    try:
        for task in tasks:
            task.begin()
        yield
    finally:
        for task in tasks:
            task.stop()
        deadline = Deadline.after(_LEAVE)
        for task in tasks:
            task.join(deadline)


class Upkeep(LeaderTask):
    """Work of a leader that keeps the cluster small, in passes with pauses. A pass that fails is
    reported, and shows in the metrics until one succeeds; the next one tries again.

    Args:
        what: which of `UPKEEP` it is.
        failing: what fails, as the beginning of a sentence.
        first: seconds before the first pass: a new leader has more urgent work.
        pause: seconds before each other one.
    """

    def __init__(
        self, context: LeaderContext, what: str, failing: str, *, first: float, pause: float
    ) -> None:
        super().__init__(context, f"jrs-{what}")
        self._what = what
        self._failing = failing
        self._first, self._pause = first, pause

    @abc.abstractmethod
    def _work(self) -> bool:
        """Do one pass; return whether it could do all.

        Raises:
            Fenced: a newer leader exists.
            Exception: it broke off.
        """

    def _run(self) -> None:
        say = partial(self._context.emit, EventKind.ERROR, "")
        # The pause before the next pass is that of each.
        call_until(self._rest, self._pass, pause=lambda: None, report=say, failing=self._failing)

    def _rest(self) -> bool:
        """Pause; return whether the task is over."""
        seconds, self._first = self._first, self._pause
        return self._over.wait(seconds) or self._is_over()

    def _pass(self) -> None:
        done = False
        try:
            done = self._work()
        except Fenced:
            self._over.set()  # The dispatcher notices it, too.
        finally:
            if not self._is_over():
                self._context.health.upkeep_ended(self._what, not done)
