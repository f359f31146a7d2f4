"""The loop: one thread that takes turns when woken, when a moment has come, and each second.

It measures how late its turns begin: on an overloaded host, everything else of the leader is as
late, its heartbeats included.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jrs.contract.clock import Clock
from jrs.contract.errors import CorruptRecord, Fenced, OutcomeUnknown, Unavailable
from jrs.contract.texts import error_text

from ..rules.events import EventKind

TICK = 1.0
"""Seconds between two turns, at most; also the pause before a failed turn is repeated."""


class Loop:
    """Takes turns until it is over; an exception in a turn is reported and ends nothing.

    Args:
        turn: called for each turn.
        until_next: the seconds until the next turn that is due by the clock.
        over: whether to end.
        fenced: called when a newer leader exists.
        emit: called with the kind, the job and the message of each failure.
        late_after: how many seconds late a turn must begin to set `late`.
        turned: called after each turn.
        each_turn: called in each turn, before anything that needs the backend, until they return
            True; others may be added from any thread.
    """

    def __init__(
        self,
        *,
        turn: Callable[[], None],
        until_next: Callable[[], float],
        over: Callable[[], bool],
        fenced: Callable[[Fenced], None],
        emit: Callable[[EventKind, str, str], None],
        clock: Clock,
        late_after: float,
        turned: Callable[[], None],
        each_turn: list[Callable[[], bool]],
    ) -> None:
        self._turned = turned
        self._each_turn = each_turn
        self._turn = turn
        self._until_next = until_next
        self._over = over
        self._fenced = fenced
        self._emit = emit
        self._clock = clock
        self._late_after = late_after
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._woken_at = 0.0
        self.late = False

    def post(self, event: Callable[[], None]) -> None:
        """Have `event` called in the next turn, which begins at once. From any thread."""
        self._events.put(event)
        self.wake()

    @property
    def has_events(self) -> bool:
        """Whether posted events wait for the next turn."""
        return not self._events.empty()

    def wake(self) -> None:
        """Take the next turn at once. From any thread."""
        if not self._wake.is_set():
            self._woken_at = self._clock()
            self._wake.set()

    def run(self) -> None:
        """Take turns, in this thread, until it is over."""
        pause = 0.0
        while not self._over():
            planned = max(pause, min(TICK, self._until_next()))
            began = self._clock()
            woken = self._wake.wait(planned)
            due = max(began, self._woken_at) if woken else began + planned
            self.late = self._clock() - due > self._late_after
            self._wake.clear()
            pause = 0.0 if self._take_turn() else TICK
            self._turned()

    def _take_turn(self) -> bool:
        try:
            for call in [*self._each_turn]:
                if call():
                    self._each_turn.remove(call)
            while not self._events.empty() and not self._over():
                self._events.get()()
            self._turn()
        except Fenced as error:
            self._fenced(error)
        except (Unavailable, OutcomeUnknown) as error:
            self._emit(EventKind.WAITING, "", f"the backend does not answer: {error}")
        except CorruptRecord as error:
            self._emit(EventKind.HELD, "", str(error))
        except Exception as error:
            # A leader whose loop has ended would keep other masters from leading.
            self._emit(EventKind.ERROR, "", f"{error_text(error)}; checking again")
        else:
            return True
        return False
