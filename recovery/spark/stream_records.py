"""The record of a streaming stage: which query its checkpoint belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jrs.contract.errors import Conflict, JobHeld
from jrs.contract.operations import Create, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import StreamRecord, StreamSink

from ..attempt.context import AttemptContext
from .checkpoint_reads import position
from .plan_hashes import PlanHashes, plan_hashes

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def is_new(context: AttemptContext, name: str) -> bool:
    """Return whether no attempt has begun a stage, of this job or of the one it was made from.

    Raises:
        Unavailable: the backend did not answer.
    """
    return context.backend.get(keys.stream(context.job_id, name)) is None


def record_query(
    context: AttemptContext, record: StreamRecord, writer: DataStreamWriter
) -> StreamRecord:
    """Record the query of a stage's checkpoint, or refuse a checkpoint of another query. Durable.

    Args:
        record: without the query.

    Returns:
        What is recorded.

    Raises:
        JobHeld: the checkpoint is of another query, or is damaged.
        Fenced: this attempt was shut out.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    job_id, name = record.job_id, record.name
    plan = plan_hashes(writer, str(context.storage.folder(job_id)))
    record = attrs.evolve(
        record, plan=plan.printed, query=plan.query, started_at=context.runtime.now()
    )
    key = keys.stream(job_id, name)
    own, said = Create(key, encode(record)), f"stage {name} was started"
    try:
        with context.historian.recorded(job_id, HistoryKind.STREAM, said) as event:
            commit_and_read_back(context.backend, own, *event, fence=context.fence)
        return record
    except Conflict:
        stored = context.backend.get(key)
    if stored is None:
        return record  # It was just cleaned up: the leader that did so has fenced this attempt.
    before = decode(StreamRecord, stored.value, key)
    committed = position(context.storage.checkpoint(job_id, context.epoch, name)).committed
    record = attrs.evolve(
        record,
        sink=_sink(before, record, committed),
        has_batches=before.has_batches or committed >= 0,
    )
    if before.plan:
        if not _is_same(before, record, plan):
            raise JobHeld(
                f"stage {name!r} of job {job_id!r} is not the query of its checkpoint: deploy the "
                "code that wrote it, or cancel the job and submit it under another id"
            )
        record = _renewed(before, record)
    if record != before:
        commit_and_read_back(
            context.backend, Update(key, encode(record), stored.version), fence=context.fence
        )
    return record


def _is_same(before: StreamRecord, record: StreamRecord, plan: PlanHashes) -> bool:
    """Return whether a query may be the recorded one."""
    if before.bounded != record.bounded:
        return False
    if before.spark != record.spark:
        return True
    if before.query:
        return before.query == record.query
    # An older version of jrs recorded it, with the seeds that were drawn then.
    return plan.has_drawn or before.plan == record.plan


def _renewed(before: StreamRecord, record: StreamRecord) -> StreamRecord:
    """Return what is recorded of the same query from now on."""
    # Attempts of older versions of jrs compare `plan`, which may have seeds that were drawn.
    plan = before.plan if before.spark == record.spark else record.plan
    return attrs.evolve(
        before, plan=plan, query=record.query, spark=record.spark, sink=record.sink,
        has_batches=record.has_batches,
    )  # fmt: skip


def _sink(before: StreamRecord, record: StreamRecord, committed: int) -> StreamSink | None:
    """Return what is recorded of a stage's sink from now on. Another one than before gets the
    batches that the checkpoint has not committed."""
    old, new = before.sink, record.sink
    if old is None or new is None:
        return new
    if old.is_same_as(new):
        return attrs.evolve(old, knows_batches=new.knows_batches)
    return attrs.evolve(new, since=committed + 1)
