"""The heads of a job's streams: ``heads/<job>/<stage>`` says which batches count.

The sink of jrs stages the rows of a batch under a name of their own. Then the attempt moves the
head, under its fence, and only then it publishes the rows. So no attempt that was shut out can
publish a batch, whatever its filesystem lets it do; and what was committed but not published, the
next attempt finds by the head.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Create, Fence, Op, Record, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import EndedGenerations, StreamHead
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
    """Yield the heads of a job's stages; an error for one that cannot be read.

    Raises:
        Unavailable: the backend did not answer.
    """
    for record in backend.scan(keys.heads(job_id)):
        try:
            yield decode(StreamHead, record.value, record.key)
        except CorruptRecord as error:
            yield error


def restored_ops(backend: Backend, job_id: str, batches: Mapping[str, int | None]) -> list[Op]:
    """Return the operations that move a job's heads to the batches of a snapshot, and that write
    again those that cannot be read.

    Args:
        batches: the batch of each stage in the snapshot; None for one that had not committed any.
    """
    ops: list[Op] = []
    for record in backend.scan(keys.heads(job_id)):
        stage = record.key.removeprefix(keys.heads(job_id))
        batch = batches.get(stage)
        moved = StreamHead(job_id, stage, _generation(record) + 1, -1 if batch is None else batch)
        ops.append(Update(record.key, encode(moved), record.version))
    return ops


def _generation(head: Record) -> int:
    """Return the generation of a stored head; of a damaged one, one that no other has had."""
    try:
        return decode(StreamHead, head.value, head.key).generation
    except CorruptRecord:
        return int(time.time())


def keep_generations(backend: Backend, job_id: str, fence: Fence | None) -> None:
    """Keep the generations of a job's streams beyond its heads, which may then be removed.

    A restore that was interrupted and is given up may have taken batches back, so it counts as one.
    Durable and idempotent.

    Raises:
        Fenced: a newer leader exists.
        Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    try:
        given_up = restores.stored(backend, job_id) is not None
    except CorruptRecord:
        given_up = True
    found: dict[str, int] = {}
    for record in backend.scan(keys.heads(job_id)):
        generation = _generation(record) + given_up
        if generation > 1:
            found[record.key.removeprefix(keys.heads(job_id))] = generation
    if not found:
        return
    key = keys.GENERATIONS + job_id
    stored = backend.get(key)
    known: dict[str, int] = {}
    if stored is not None:
        with suppress(CorruptRecord):
            known = decode(EndedGenerations, stored.value, key).generations
    if known | found == known:
        return
    value = encode(EndedGenerations(job_id, known | found))
    op = Create(key, value) if stored is None else Update(key, value, stored.version)
    commit_and_read_back(backend, op, fence=fence)


def ended_generation(backend: Backend, job_id: str, stage: str) -> int:
    """Return the generation of a stage of a job whose heads were removed.

    Raises:
        CorruptRecord: the record cannot be read.
        Unavailable: the backend did not answer.
    """
    key = keys.GENERATIONS + job_id
    stored = backend.get(key)
    if stored is None:
        return 1
    return decode(EndedGenerations, stored.value, key).generations.get(stage, 1)
