"""An operator of a chaos run: cancels jobs, suspends and resumes them, while everything breaks."""

from __future__ import annotations

import enum
import random
import threading
import time
from collections.abc import Callable
from typing import Self

from jrs.contract.backend import Backend
from jrs.contract.errors import NoSuchJob, OutcomeUnknown, Unavailable, WrongState
from jrs.records.model import StopMode, StopState
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops

_TURN = 0.2
"""Seconds between two looks at what is due."""


class Then(enum.Enum):
    """What is asked for, some time after a job was submitted."""

    NOTHING = enum.auto()
    CANCEL = enum.auto()
    SUSPEND = enum.auto()
    """And resumed, once it is suspended."""


class Operator:
    """Follows jobs in a thread of its own, while it is entered.

    Attributes:
        problems: what went wrong with what was asked for.
    """

    def __init__(self, backend: Backend, rng: random.Random) -> None:
        self._catalog = JobCatalog(backend)
        self._stops = JobStops(backend)
        self._store = JobResultStore(backend)
        self._rng = rng
        self._lock = threading.Lock()
        self._due: list[tuple[float, Callable[[], bool]]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jrs-chaos-operator", daemon=True)
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def follow(self, job_id: str, then: Then) -> None:
        """Have this asked for up to two seconds after the job was submitted."""
        asks = {Then.CANCEL: self._cancel, Then.SUSPEND: self._suspend}
        if then in asks:
            self._at(0.0, lambda: self._when_submitted(job_id, asks[then]))

    def _at(self, at: float, ask: Callable[[], bool]) -> None:
        with self._lock:
            self._due.append((at, ask))

    def _run(self) -> None:
        while not self._over.wait(_TURN):
            now = time.monotonic()
            with self._lock:
                due = [one for one in self._due if one[0] <= now]
            for one in due:
                try:
                    is_done = one[1]()
                except (Unavailable, OutcomeUnknown):
                    continue  # Tried again with the next turn.
                except Exception as error:
                    self.problems.append(f"{type(error).__name__}: {error}")
                    is_done = True
                if is_done:
                    with self._lock:
                        self._due.remove(one)

    def _when_submitted(self, job_id: str, ask: Callable[[str], bool]) -> bool:
        try:
            self._catalog.view(job_id)
        except NoSuchJob:
            return False
        self._at(time.monotonic() + self._rng.uniform(0.0, 2.0), lambda: ask(job_id))
        return True

    def _cancel(self, job_id: str) -> bool:
        try:
            self._catalog.cancel(job_id, "the operator wants it")
        except (NoSuchJob, WrongState):
            pass  # It has ended.
        return True

    def _suspend(self, job_id: str) -> bool:
        try:
            self._stops.request(job_id, StopMode.SUSPEND, grace=1.0)
        except (NoSuchJob, WrongState):
            return True  # It has ended.
        self._at(0.0, lambda: self._resume(job_id))
        return True

    def _resume(self, job_id: str) -> bool:
        """Resume the job once it is suspended; return whether nothing is left to do."""
        stop = self._stops.get(job_id)
        if stop is None or self._store.has_entry(job_id):
            return True
        if stop.state is not StopState.DONE:
            return False
        try:
            self._stops.resume(job_id)
        except (NoSuchJob, WrongState):
            pass
        return True
