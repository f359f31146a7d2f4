"""What the records of a job say about its streams, for people."""

from __future__ import annotations

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.codec import T, decode
from jrs.records.heads import BatchReport, StreamHead, StreamPlan, StreamProgress
from jrs.records.stages import StreamRecord


@attrs.frozen
class StreamStatus:
    """One streaming stage of a job, as far as its records tell."""

    stage: str
    """The name of the stage."""
    bounded: bool | None
    """Whether it ends by itself; None if that is unknown."""
    started_at: float
    """When its query was started first, in seconds since 1970; 0 if unknown."""
    batch: int | None
    """Its newest batch; None before the first, and if its sink is one whose batches jrs does not
    see."""
    by_function: bool
    """Whether its batches go to a function (`foreachBatch`): `batch` is then the newest for which
    the function was called, and not necessarily done."""
    batch_at: float | None
    """When that batch was recorded, in seconds since 1970; None if that is unknown."""
    progress: StreamProgress | None
    """The newest that Spark had reported by then, of the batch before or of an earlier one."""
    problem: str
    """Why a record of it cannot be read; empty if each can."""


def of_job(
    backend: Backend, job_id: str, *, with_finished: bool = False
) -> tuple[StreamStatus, ...]:
    """Return the streaming stages of a job that have not finished, in the order of their names.

    What a job has recorded of them is removed with it: a job that was cleaned up has none.

    Args:
        with_finished: whether to return finished ones, too.

    Raises:
        Unavailable: the backend did not answer.
    """
    begun = _records(backend, keys.streams(job_id))
    heads = _records(backend, keys.heads(job_id))
    plans = _records(backend, keys.plans(job_id))
    if not begun and not heads and not plans:
        return ()
    finished = {} if with_finished else _records(backend, keys.stages(job_id))
    names = sorted((begun.keys() | heads.keys() | plans.keys()) - finished.keys())
    return tuple(_status(name, begun.get(name), heads.get(name), plans.get(name)) for name in names)


# -- inside --------------------------------------------------------------------------------


def _records(backend: Backend, prefix: str) -> dict[str, bytes]:
    return {one.key.removeprefix(prefix): one.value for one in backend.scan(prefix)}


def _status(name: str, begun: bytes | None, head: bytes | None, plan: bytes | None) -> StreamStatus:
    problems: list[str] = []
    record = _read(StreamRecord, begun, name, problems)
    newest: StreamHead | StreamPlan | None = _read(StreamHead, head, name, problems)
    if newest is None:
        newest = _read(StreamPlan, plan, name, problems)
    report = newest.report if newest is not None else None
    return StreamStatus(
        stage=name,
        bounded=record.bounded if record is not None else None,
        started_at=record.started_at if record is not None else 0.0,
        batch=newest.batch if newest is not None and newest.batch >= 0 else None,
        by_function=isinstance(newest, StreamPlan),
        batch_at=_moment(newest, report),
        progress=report.progress if report is not None else None,
        problem="; ".join(problems),
    )


def _moment(newest: StreamHead | StreamPlan | None, report: BatchReport | None) -> float | None:
    """Return when the newest batch was recorded. An older jrs leaves an earlier report there."""
    same = newest is not None and report is not None and report.batch == newest.batch
    return report.at if same and report is not None else None


def _read(kind: type[T], value: bytes | None, name: str, problems: list[str]) -> T | None:
    if value is None:
        return None
    try:
        return decode(kind, value, f"the {kind.__name__} of stage {name!r}")
    except CorruptRecord as error:
        problems.append(str(error))
        return None
