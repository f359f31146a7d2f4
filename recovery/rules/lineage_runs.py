"""Runs: what the history of jobs says of attempts, for programs that collect lineage.

An attempt is a run: it starts once and ends once. What is returned depends on the events alone, so
that a leader that reads them again says the same again.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator, MutableMapping

import attrs

from jrs.records.history import HistoryEvent, HistoryKind
from jrs.records.model import JobStatus
from jrs.store.history_texts import attempt_of, is_held

_RUNS = uuid.UUID("9762e29d-3b65-542c-8ba8-bbe0fa334ee0")
"""The name space of the ids of runs; never changed."""
LEFT = "it ended with its leader"


class RunState(enum.StrEnum):
    """A step of a run, by OpenLineage's names."""

    START = "START"
    COMPLETE = "COMPLETE"
    """The job has finished with it."""
    FAIL = "FAIL"
    """It died, or the job failed, or is held."""
    ABORT = "ABORT"
    """It was ended: by a cancel, by a suspend, with its leader, or by what interrupted it."""


@attrs.frozen
class RunEvent:
    """One step of a run."""

    state: RunState
    job_id: str
    attempt: int
    at: float
    """Seconds since 1970, as the history has it."""
    why: str = ""
    """Why it did not complete."""


def namespace(cluster: str) -> str:
    """Return the name space of a cluster's jobs."""
    return f"jrs://{cluster}"


def run_id(cluster: str, job_id: str, attempt: int) -> str:
    """Return the id of an attempt as a run: the same on every master."""
    return str(uuid.uuid5(_RUNS, f"{cluster}/{job_id}/{attempt}"))


def advance(running: MutableMapping[str, int], event: HistoryEvent) -> Iterator[RunEvent]:
    """Yield what an event of the history says of runs.

    Args:
        running: the attempts that have started and not ended, by job; brought up to date.
    """
    named = attempt_of(event)
    known = running.get(event.job_id, 0)
    if not event.job_id or (named and named < known):
        return  # It is of the cluster; or it was read before, and a later attempt runs.
    if event.known_kind is HistoryKind.ATTEMPT:
        yield from _begun(running, event, named)
    elif (end := _end(event)) is not None:
        if named > known:
            yield from _begun(running, event, named)  # Its start was swept from the feed.
        if event.job_id in running:
            attempt = running.pop(event.job_id)
            yield RunEvent(end, event.job_id, attempt, event.at, _why(event, end))


def _begun(
    running: MutableMapping[str, int], event: HistoryEvent, attempt: int
) -> Iterator[RunEvent]:
    before = running.get(event.job_id)
    # A host that lacks what the job needs gives the attempt's number back: it is the same run.
    if attempt and attempt != before:
        if before is not None:
            yield RunEvent(RunState.ABORT, event.job_id, before, event.at, LEFT)
        running[event.job_id] = attempt
        yield RunEvent(RunState.START, event.job_id, attempt, event.at)


def _end(event: HistoryEvent) -> RunState | None:
    """Return how the attempt of a job has ended by an event; None if it has not."""
    match event.known_kind:
        case HistoryKind.DIED:
            return RunState.FAIL
        case HistoryKind.SUSPENDED | HistoryKind.INTERRUPTED:
            return RunState.ABORT
        case HistoryKind.STOP if is_held(event):
            return RunState.FAIL
        case HistoryKind.ENDED:
            status = event.text.partition(":")[0]
            return _STATES.get(status, RunState.ABORT)
    return None


_STATES = {JobStatus.FINISHED.value: RunState.COMPLETE, JobStatus.FAILED.value: RunState.FAIL}


def _why(event: HistoryEvent, end: RunState) -> str:
    if end is RunState.COMPLETE:
        return ""
    _, colon, why = event.text.partition(": ")
    return why if colon and event.known_kind is not HistoryKind.STOP else event.text
