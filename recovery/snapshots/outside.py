"""What a job has done outside of its folders since a snapshot: a restore takes none of it back."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, WrongState
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.heads import StreamPlan
from jrs.records.model import StageRecord
from jrs.records.snapshots import Manifest
from jrs.store import heads

_MOST = 3
"""The things that an error names; it counts the others."""


def check_accepted(backend: Backend, found: Manifest) -> None:
    """Raise `WrongState` if the job of a snapshot has called functions of `foreachBatch` since, or
    has published at places of its user's own."""
    done = list(since(backend, found))
    if not done:
        return
    named, more = done[:_MOST], len(done) - _MOST
    if more > 0:
        named.append(f"and {more} more")
    raise WrongState(
        f"a restore of job {found.job_id!r} from snapshot {found.number} does not take back what "
        f"the job has done elsewhere since: {'; '.join(named)}. Restore it with "
        "--accept-published (accept_published=True) if that may stay, or as a new job with --as"
    )


def since(backend: Backend, found: Manifest) -> Iterator[str]:
    """Yield, for people, what the job of a snapshot has done since, outside of its folders.

    Raises:
        Unavailable: the backend did not answer.
    """
    try:
        generation = heads.generation_of(backend, found.job_id)
    except CorruptRecord:
        generation = None  # The restore begins one that no plan can be of.
    batches = {stage.name: -1 if stage.batch is None else stage.batch for stage in found.stages}
    for record in backend.scan(keys.plans(found.job_id)):
        stage = record.key.removeprefix(keys.plans(found.job_id))
        before = batches.get(stage, -1)
        if before >= 0 and stage in found.plans:
            # Objects have the plan of that batch and the state before it: a restore computes the
            # batch again, and calls the function for it in another generation.
            before -= 1
        try:
            plan = decode(StreamPlan, record.value, record.key)
        except CorruptRecord:
            yield f"stage {stage!r} has called its function, it is not known for which batches"
            continue
        if generation in (None, plan.generation) and plan.batch > before:
            yield f"stage {stage!r} has called its function for {_range(before + 1, plan.batch)}"
    for record in backend.scan(keys.stages(found.job_id)):
        target, stage = published_at(record), record.key.removeprefix(keys.stages(found.job_id))
        if target is not None and keys.STAGES + stage not in found.records:
            yield f"{target} was published"


def published_at(record: Record) -> str | None:
    """Return the place of the user's own where a stage's record says that it was published; None
    if there is none, or the record cannot be read."""
    try:
        return decode(StageRecord, record.value, record.key).target
    except CorruptRecord:
        return None


def _range(first: int, last: int) -> str:
    return f"batch {first}" if first == last else f"batches {first} to {last}"
