"""The client of a soak: submits jobs of all kinds, cancels and suspends some, looks for results."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import DuplicateJob, NoSuchJob, OutcomeUnknown, Unavailable, WrongState
from jrs.records.model import JobSpec, JobStatus, StopMode, StopState
from jrs.records.policies import RestartPolicy
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from jrs.testing.chaos.history import Expected, History

_ENTRY = "jrs.testing.chaos.jobs:"
_FINISHED = frozenset({JobStatus.FINISHED})
_FAILED = frozenset({JobStatus.FAILED})
_ENDED = frozenset({JobStatus.FINISHED, JobStatus.CANCELED})
_LASTING = RestartPolicy(attempts=10_000, delay=0.1, max_delay=1.0, on_exception=True)
"""For jobs that must finish however often they are killed or find the disk full."""


@attrs.frozen
class Planned:
    """A job that will be submitted.

    Attributes:
        then: the request after the submission: ``cancel``, ``suspend`` or none.
    """

    spec: JobSpec
    expected: Expected
    then: str = ""


def plan(rng: random.Random, count: int, longest: float) -> Iterator[Planned]:
    """Yield jobs of all kinds in turn; slow ones take up to `longest` seconds."""
    for number in range(count):
        seconds = round(rng.uniform(longest / 5, longest), 2)
        name = f"job-{number:04}"
        kind = number % 8
        if kind in (0, 1):
            yield _planned(name, "quick", {"number": number}, number * number)
        elif kind == 2:
            yield _planned(name, "slow", {"number": number, "seconds": seconds}, number + 1)
        elif kind == 3:
            value = {"written": number, "sum": 3 * number}
            yield _planned(name, "staged", {"number": number, "seconds": seconds}, value)
        elif kind == 4:
            spec = JobSpec(name, f"{_ENTRY}failing", {"number": number})
            yield Planned(spec, Expected(_FAILED))
        elif kind == 5:
            spec = JobSpec(name, f"{_ENTRY}exiting", {"number": number},
                           restart=RestartPolicy(attempts=2, delay=0.1))  # fmt: skip
            yield Planned(spec, Expected(_FAILED))
        else:
            arguments = {"number": number, "seconds": seconds}
            spec = JobSpec(name, f"{_ENTRY}slow", arguments, restart=_LASTING)
            if kind == 6:
                yield Planned(spec, Expected(_ENDED, number + 1), "cancel")
            else:
                yield Planned(spec, Expected(_FINISHED, number + 1), "suspend")


def _planned(name: str, function: str, arguments: dict[str, object], payload: object) -> Planned:
    spec = JobSpec(name, f"{_ENTRY}{function}", arguments, restart=_LASTING)
    return Planned(spec, Expected(_FINISHED, payload))


class Client:
    """Submits the planned jobs, a few at a time, and follows them up; `tick` does what is due.

    Args:
        seconds: the time over which submissions are spread.
        at_once: most jobs without a result at a time.
    """

    def __init__(
        self, backend: Backend, history: History, planned: list[Planned], rng: random.Random,
        *, seconds: float, at_once: int,
    ) -> None:  # fmt: skip
        self._history = history
        self._catalog = JobCatalog(backend)
        self._stops = JobStops(backend)
        self._store = JobResultStore(backend)
        self._rng = rng
        self._left = planned[::-1]
        self._pace = seconds / max(1, len(planned))
        self._at_once = at_once
        self._next = time.monotonic()
        self._held_back = False
        self._due: list[tuple[float, Callable[[], bool]]] = []

    @property
    def idle(self) -> bool:
        """Whether everything that may be submitted now is, is followed up, and has a result."""
        submitted = self._held_back or not self._left
        return submitted and not self._due and not any(self._history.missing())

    def tick(self) -> None:
        """Do what is due; if the backend cannot answer now, the next tick tries again."""
        try:
            self._look()
            self._submit()
            now = time.monotonic()
            due = [one for one in self._due if one[0] <= now]
            for one in due:
                if one[1]():
                    self._due.remove(one)
        except (Unavailable, OutcomeUnknown):
            pass

    def hold_back(self) -> int:
        """Submit nothing more until `hurry`; return how many jobs are left to submit."""
        self._held_back = True
        return len(self._left)

    def hurry(self) -> None:
        """Submit what is left without waiting."""
        self._held_back = False
        self._pace = 0.0

    # -- inside ----------------------------------------------------------------------------

    def _look(self) -> None:
        for entry in self._store.list():
            if entry.result is not None:
                self._history.saw(entry.result)
            elif entry.problem:
                self._history.problem(entry.problem)

    def _submit(self) -> None:
        while self._left and not self._held_back and time.monotonic() >= self._next:
            if sum(1 for _ in self._history.missing()) >= self._at_once:
                return
            planned = self._left[-1]
            try:
                self._catalog.submit(planned.spec)
            except DuplicateJob:
                pass  # It was stored, although the client did not learn it.
            self._history.submitted(planned.spec, planned.expected)
            self._left.pop()
            self._next = time.monotonic() + self._pace
            self._follow(planned.spec.job_id, planned.then)

    def _follow(self, job_id: str, then: str) -> None:
        at = time.monotonic() + self._rng.uniform(0.0, 2.0)
        if then == "cancel":
            self._due.append((at, lambda: self._cancel(job_id)))
        elif then == "suspend":
            self._due.append((at, lambda: self._suspend(job_id)))

    def _cancel(self, job_id: str) -> bool:
        try:
            self._catalog.cancel(job_id, "the soak wants it")
        except (NoSuchJob, WrongState):
            pass  # It has ended.
        return True

    def _suspend(self, job_id: str) -> bool:
        try:
            self._stops.request(job_id, StopMode.SUSPEND, grace=1.0)
        except (NoSuchJob, WrongState):
            return True  # It has ended.
        self._due.append((0.0, lambda: self._resume(job_id)))
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
