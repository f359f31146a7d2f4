"""Waiting for a job, and reporting meanwhile what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from jrs.client.connection import Connection
from jrs.contract.clock import Deadline
from jrs.contract.errors import NotFound, Unavailable, WrongState
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobResult, ResultState, StageRecord, StageSummary, StopRecord
from jrs.recovery.inspect.explain import Explainer, Explanation, explain
from jrs.recovery.inspect.history import HistoryEntry, history, recorded_entries
from jrs.store.stored_result import how_it_ended

_FIRST, _LAST = 1.0, 8.0
"""Seconds between two looks at what happens to a job: the first, and the longest."""
_LOOK = 1.0

T = TypeVar("T")


def for_result(
    connection: Connection,
    job_id: str,
    timeout: float | None,
    notify: Callable[[Explanation], None],
) -> JobResult:
    """Wait for a result; see `JobHandle.result`."""
    wait = partial(connection.results.wait, job_id)
    try:
        return _notifying(connection, job_id, timeout, wait, _carrying(notify))
    except TimeoutError:
        raise TimeoutError(f"job {job_id!r} has no result after {timeout:g} s") from None
    except _OfTheCaller as raised:
        raise raised.error from None


def for_stop(
    connection: Connection,
    job_id: str,
    timeout: float | None,
    progress: Callable[[StopRecord], None],
    notify: Callable[[Explanation], None],
) -> StopRecord | None:
    """Wait for a stop; see `JobHandle.wait_stopped`."""
    seen: StopRecord | None = None
    tell = _carrying(progress)

    def changed(stop: StopRecord) -> None:
        nonlocal seen
        if stop != seen:
            seen = stop
            tell(stop)

    def wait(seconds: float) -> StopRecord | None:
        return connection.stops.wait(job_id, seconds, changed)

    try:
        return _notifying(connection, job_id, timeout, wait, notify)
    except _OfTheCaller as raised:
        raise raised.error from None


class _OfTheCaller(Exception):
    """Carries a `TimeoutError` of the caller's own function past who waits for the wait's."""

    def __init__(self, error: TimeoutError) -> None:
        super().__init__(error)
        self.error = error


def _carrying(call: Callable[[T], None]) -> Callable[[T], None]:
    def carrying(value: T) -> None:
        try:
            call(value)
        except TimeoutError as error:
            raise _OfTheCaller(error) from error

    return carrying


def _notifying(
    connection: Connection,
    job_id: str,
    timeout: float | None,
    wait: Callable[[float], T],
    notify: Callable[[Explanation], None],
) -> T:
    """Return what `wait` returns, and call `notify` whenever something else happens to the job.

    Args:
        wait: called with a number of seconds, after which it raises `TimeoutError`.

    Raises:
        TimeoutError: not within `timeout` seconds.
        Whatever else `wait` raises.
    """
    deadline = Deadline.of_wait(timeout)
    backend, seen, reported, pause = connection.backend, "", "", _FIRST
    while True:
        try:
            return wait(min(pause, deadline.bounded()))
        except TimeoutError:
            if deadline.expired:
                raise
        try:
            # The queue moves whenever a job starts, and to read it takes as long as it is.
            view = connection.jobs.view(job_id)
            found = str(Explainer(backend, queue=False).explain(view))
            if found == seen:
                pause = min(2 * pause, _LAST)
                continue
            explained = explain(backend, view)
        except (NotFound, Unavailable):
            continue  # It was not submitted yet; or the next wait says that the backend is away.
        seen, pause = found, _FIRST
        if str(explained) != reported:
            reported = str(explained)
            notify(explained)


def for_history(
    connection: Connection, job_id: str, after: str, timeout: float | None
) -> Iterator[HistoryEntry]:
    """Yield what happens to a job until it is cleaned up; see `JobHandle.follow_history`."""
    deadline = Deadline.of_wait(timeout)
    backend, begun = connection.backend, bool(after)
    with backend.watch(keys.history(job_id)) as watch:
        while True:
            entry = connection.results.get(job_id)  # First: its last event is read behind it.
            if after and entry is not None and entry.state is ResultState.EXPIRED:
                return  # Its history is gone with its result.
            if begun:
                found = recorded_entries(backend, job_id, after)
            else:
                found, begun = history(backend, connection.jobs.view(job_id)), True
            yield from found
            after = found[-1].id if found and found[-1].id else after
            if entry is not None and entry.state is not ResultState.DIRTY:
                return
            if deadline.expired:
                raise TimeoutError(f"job {job_id!r} is not cleaned up after {timeout:g} s")
            watch.wait(min(_LOOK, deadline.bounded()))


def for_stage(
    connection: Connection, job_id: str, name: str, timeout: float | None
) -> StageSummary:
    """Wait until a stage has finished, by its record or by the job's result."""
    deadline = Deadline.of_wait(timeout)
    key = keys.stage(job_id, name)
    with connection.backend.watch(keys.stages(job_id)) as watch:
        while True:
            # The result first: a stage's record is removed only after the result is there.
            entry = connection.results.get(job_id)
            stored = connection.backend.get(key)
            if stored is not None:
                return decode(StageRecord, stored.value, key).summary()
            if entry is not None:
                for stage in entry.result.stages if entry.result is not None else ():
                    if stage.name == name:
                        return stage
                raise WrongState(
                    f"job {job_id!r} {how_it_ended(entry)}; no stage {name!r} of it is known"
                )
            if deadline.expired:
                raise TimeoutError(f"stage {name!r} of job {job_id!r} has not finished yet")
            watch.wait(min(_LOOK, deadline.bounded()))
