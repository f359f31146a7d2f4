"""The heads of a job's streams: ``heads/<job>/<stage>`` says which batches count.

The sink of jrs stages the rows of a batch under a name of their own. Then the attempt moves the
head, under its fence, and only then it publishes the rows. So no attempt that was shut out can
publish a batch, whatever its filesystem lets it do; and what was committed but not published, the
next attempt finds by the head.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import (
    Absent,
    Check,
    Create,
    Fence,
    Op,
    Record,
    Update,
    create_or_update,
    unchanged,
)
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import JobGeneration, StreamHead, StreamPlan
from jrs.records.objects import StoredObject
from jrs.records.stages import StreamRecord
from jrs.store import cluster_format, restores

SINCE_FORMAT = 6
"""The first cluster format in which streams have heads."""


def are_kept(backend: Backend) -> bool:
    """Return whether the cluster's streams have heads; raises as `cluster_format.format_of`."""
    return cluster_format.is_at_least(backend, SINCE_FORMAT)


def stored(backend: Backend, job_id: str, stage: str) -> tuple[StreamHead, Record] | None:
    """Return the head of a stage, and the record that holds it; None if it has none.

    Raises:
        CorruptRecord: the record cannot be read.
        Unavailable: the backend did not answer.
    """
    record = backend.get(keys.head(job_id, stage))
    return None if record is None else (decode(StreamHead, record.value, record.key), record)


def of_job(backend: Backend, job_id: str) -> Iterator[StreamHead | CorruptRecord]:
    """Yield the heads of a job's stages; an error for one that cannot be read or may be lost.

    Raises:
        Unavailable: the backend did not answer.
    """
    try:
        for record in scan_whole(backend, keys.heads(job_id)):
            try:
                yield decode(StreamHead, record.value, record.key)
            except CorruptRecord as error:
                yield error
    except CorruptRecord as lost:
        yield lost


def generation_of(backend: Backend, job_id: str) -> int:
    """Return the generation of a job's batches: 1, and one more for each restore, after which the
    numbers of batches are used again.

    Raises:
        CorruptRecord: the record cannot be read.
        Unavailable: the backend did not answer.
    """
    return begun_at(backend, job_id).generation


def begun_at(backend: Backend, job_id: str) -> JobGeneration:
    """Return the generation of a job's batches, with the batches that its restore began at.

    Raises:
        CorruptRecord: the record cannot be read.
        Unavailable: the backend did not answer.
    """
    stored = backend.get(keys.GENERATIONS + job_id)
    if stored is None:
        return JobGeneration(job_id, 1)
    return decode(JobGeneration, stored.value, stored.key)


def same_generation(backend: Backend, job_id: str) -> Check | Absent:
    """Return the condition that no restore of the job has begun a new generation since.

    Raises:
        Unavailable: the backend did not answer.
    """
    key = keys.GENERATIONS + job_id
    return unchanged(key, backend.get(key))


def restored_ops(
    backend: Backend,
    job_id: str,
    batches: Mapping[str, int | None],
    *,
    least: int = 0,
    manifests: Mapping[str, StoredObject] | None = None,
    plans: Mapping[str, StoredObject] | None = None,
) -> list[Op]:
    """Return the operations that begin a new generation of a job: they move its heads to the
    batches of a snapshot, and write again those that cannot be read.

    Args:
        batches: the batch of each stage in the snapshot; None for one that had not committed any.
        least: the generation is at least this.
        manifests: what the heads name, where the storage has objects.
        plans: the same, of the plans for functions of `foreachBatch`.
    """
    if not are_kept(backend):
        return []
    newest = {stage: -1 if batch is None else batch for stage, batch in batches.items()}
    generation, begin = _begin_generation(backend, job_id, least, newest)
    ops: list[Op] = [begin]
    for record in backend.scan(keys.heads(job_id)):
        stage = record.key.removeprefix(keys.heads(job_id))
        named = (manifests or {}).get(stage)
        moved = StreamHead(job_id, stage, generation, newest.get(stage, -1), manifest=named)
        ops.append(Update(record.key, encode(moved), record.version))
    for stage, named in (plans or {}).items():
        key = keys.plan(job_id, stage)
        stored = backend.get(key)
        batch = batches.get(stage)
        plan = StreamPlan(job_id, stage, generation, batch or 0, 0, 0, manifest=named)
        ops.append(create_or_update(key, encode(plan), stored and stored.version))
    return ops


def adopted(
    job_id: str,
    batches: Mapping[str, int | None],
    manifests: Mapping[str, StoredObject],
    plans: Mapping[str, StoredObject],
) -> dict[str, bytes]:
    """Return the heads and plans of a new job, which name objects of its own, by their keys and in
    stored form. The arguments are as in `restored_ops`."""
    found: dict[str, bytes] = {}
    for stage, named in manifests.items():
        head = StreamHead(job_id, stage, 1, batches.get(stage) or 0, manifest=named)
        found[keys.head(job_id, stage)] = encode(head)
    for stage, named in plans.items():
        plan = StreamPlan(job_id, stage, 1, batches.get(stage) or 0, 0, 0, manifest=named)
        found[keys.plan(job_id, stage)] = encode(plan)
    return found


def changed_code_ops(
    backend: Backend, job_id: str, most: int, commit: Callable[[list[Op]], None]
) -> list[Op]:
    """Return at most `most` operations on the records of a job's streams for the changed code that
    it gets, for the commit of the change. What is more is committed before; what an attempt that
    still runs records meanwhile is seen.

    Args:
        commit: commits some operations.

    Raises:
        CorruptRecord: it is not known which queries the streams have.
        Unavailable: the backend did not answer.
    """
    while True:
        found = list(_of_changed_code(backend, job_id))
        updates: list[Op] = [op for op in found if isinstance(op, Update)]
        if len(updates) <= most:
            return [*updates, *(op for op in found if isinstance(op, Check))][:most]
        commit(updates[:most])


def _of_changed_code(backend: Backend, job_id: str) -> Iterator[Update | Check]:
    for stored in backend.scan(keys.streams(job_id)):
        stream = decode(StreamRecord, stored.value, stored.key)
        if stream.of_any_plan() == stream:
            yield Check(stored.key, stored.version)
        else:
            yield Update(stored.key, encode(stream.of_any_plan()), stored.version)
    for stored in backend.scan(keys.plans(job_id)):
        try:
            plan = decode(StreamPlan, stored.value, stored.key)
        except CorruptRecord:
            continue  # The next attempt holds the job because of it.
        if plan.of_changed_code() != plan:
            yield Update(stored.key, encode(plan.of_changed_code()), stored.version)


def give_up_restore(backend: Backend, job_id: str, fence: Fence | None) -> None:
    """Begin a new generation if a restore was interrupted and is given up: it may have taken
    batches back. Also if the job's generation cannot be read.

    Durable.

    Raises:
        Fenced: a newer leader exists.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    if not are_kept(backend):
        return
    try:
        generation_of(backend, job_id)
        if restores.stored(backend, job_id) is None:
            return
    except CorruptRecord:
        pass
    commit_and_read_back(backend, _begin_generation(backend, job_id, 0, None)[1], fence=fence)


def _begin_generation(
    backend: Backend, job_id: str, least: int, batches: dict[str, int] | None
) -> tuple[int, Create | Update]:
    key = keys.GENERATIONS + job_id
    stored = backend.get(key)
    try:
        newest = 1 if stored is None else decode(JobGeneration, stored.value, key).generation
    except CorruptRecord:
        newest = int(time.time())  # One that no other has had.
    generation = max(newest + 1, least)
    value = encode(JobGeneration(job_id, generation, batches))
    return generation, create_or_update(key, value, stored and stored.version)


def plan_decides(head: StreamHead | None, plan: StreamPlan | None) -> bool:
    """Return whether the newest checkpoint of a stage in objects is the one that its plan names,
    and not its head's.

    A stage has both if its sink was changed between that of jrs and a function: then the one that
    is further counts. At the same batch both have the state before it at least.

    Args:
        plan: of the job's generation.
    """
    return head is None or (plan is not None and plan.batch >= head.batch)
