"""What a job has done outside of its folders since a snapshot: a restore takes none of it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Unavailable, WrongState
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.heads import JobGeneration, StreamPlan
from jrs.records.model import StageRecord, StreamRecord, StreamSink
from jrs.records.objects import BatchManifest
from jrs.records.snapshots import Manifest, SnapshotRecord
from jrs.store import heads

from ..checkpoint_format.checkpoint import commit_of
from ..checkpoint_format.position import position
from ..checkpoint_format.unreadable import UnreadableCheckpoint
from ..files import epoch_folders
from ..files.disk_errors import is_lost
from ..files.job_folders import JobStorage
from ..storage.packed_copies import read_record

_MOST = 3
"""The things that an error names; it counts the others."""


def check_accepted(
    backend: Backend, storage: JobStorage, found: Manifest, *, in_place: bool
) -> None:
    """Raise `WrongState` if the job of a snapshot has written with sinks that know its batches
    since. In place also if it has called functions of `foreachBatch`, or has published at places of
    its user's own: a new job calls and publishes under an id of its own."""
    unsafe = [*written(backend, storage, found), *_written_before(backend, found)]
    done = [*_called_or_published(backend, storage, found)] if in_place else []
    if not unsafe and not done:
        return
    way = (
        "Restore it with --accept-published (accept_published=True) if that may stay, or as a new "
        "job with --as"
    )
    if unsafe:
        way = (
            "Remove these batches first, with what the sink notes of them, and then restore it "
            "with --accept-published (accept_published=True); or fork it, and let the fork write "
            "to another place"
        )
    raise WrongState(
        f"a restore of job {found.job_id!r} from snapshot {found.number} does not take back what "
        f"the job has done elsewhere since: {named([*unsafe, *done])}. {way}"
    )


def named(done: list[str]) -> str:
    """Return some of what a job has done, and how much more there is."""
    some, more = done[:_MOST], len(done) - _MOST
    return "; ".join([*some, f"and {more} more"] if more > 0 else some)


def written(
    backend: Backend, storage: JobStorage, found: Manifest | SnapshotRecord
) -> Iterator[str]:
    """Yield, for people, what the job of a snapshot has written since with sinks that know a batch
    by its number. Such a sink leaves out the batches that the job then counts again, without an
    error, so their rows would be lost.

    Raises:
        Unavailable: the backend did not answer, or a checkpoint cannot be read now.
    """
    batches = _batches(found)
    folder = storage.folder(found.job_id)
    for record in backend.scan(keys.streams(found.job_id)):
        try:
            stream = decode(StreamRecord, record.value, record.key)
        except CorruptRecord:
            continue  # The leader holds the job because of it.
        sink = stream.sink
        if sink is None or not sink.knows_batches:
            continue
        if found.output and Path(sink.path).is_relative_to(folder):
            continue  # It goes back with the job.
        stage = record.key.removeprefix(keys.streams(found.job_id))
        before, newest = batches.get(stage, -1), _planned(folder, stage)
        first = max(before + 1, sink.since)
        if newest == -1 and stream.has_batches:
            newest = None
        # Behind the snapshot, it was lost, or another restore has put it there.
        which = "an unknown number of batches"
        if newest is not None and newest >= before:
            if newest < first:
                continue
            which = _range(first, newest)
        yield _left_out(stage, which, sink)


def _written_before(backend: Backend, found: Manifest) -> Iterator[str]:
    """Yield, for people, what the job of a snapshot has written since with sinks that it has no
    more, and gets back with the code that it had then."""
    batches = _batches(found)
    for key, data in found.stored(keys.STREAMS):
        stage = key.removeprefix(keys.STREAMS)
        record = backend.get(keys.stream(found.job_id, stage))
        try:
            then = decode(StreamRecord, data, key).sink
            now = None if record is None else decode(StreamRecord, record.value, record.key).sink
        except CorruptRecord:
            continue
        if then is None or now is None or not then.knows_batches or then.is_same_as(now):
            continue
        first = batches.get(stage, -1) + 1
        if now.since > first:
            yield _left_out(stage, _range(first, now.since - 1), then)


def _left_out(stage: str, which: str, sink: StreamSink) -> str:
    return (
        f"stage {stage!r} has written {which} to {sink}, which leaves out others of these numbers "
        "unless you remove them first"
    )


def _planned(folder: Path, stage: str) -> int | None:
    """Return the newest batch that a stage's checkpoint has planned; None if it cannot be read."""
    epoch = epoch_folders.in_place(folder)
    if epoch is None:
        return None
    checkpoint = epoch / "streams" / stage / "ck"
    try:
        return position(checkpoint).planned
    except UnreadableCheckpoint:
        return None
    except OSError as error:
        if is_lost(error):
            return None
        raise Unavailable(f"{checkpoint} cannot be read now: {error}") from error


def _batches(found: Manifest | SnapshotRecord) -> dict[str, int]:
    """Return the newest batch of each stream in a snapshot; -1 if it had committed none."""
    return {stage.name: -1 if stage.batch is None else stage.batch for stage in found.stages}


def _is_done(storage: JobStorage, found: Manifest, stage: str, batch: int) -> bool:
    """Return whether the objects of a snapshot have the state behind the batch of its plan."""
    if storage.objects is None:
        return False
    try:
        manifest = read_record(storage.objects, BatchManifest, found.plans[stage])
    except CorruptRecord:
        return False  # The restore is refused because of it.
    return manifest.has(commit_of(batch))


def _called_or_published(backend: Backend, storage: JobStorage, found: Manifest) -> Iterator[str]:
    """Yield, for people, which functions the job of a snapshot has called since, and what it has
    published at places of its user's own.

    Raises:
        Unavailable: the backend or the store did not answer.
    """
    now: JobGeneration | None = None
    with suppress(CorruptRecord):  # The restore begins one that no plan can be of.
        now = heads.begun_at(backend, found.job_id)
    batches = _batches(found)
    for record in backend.scan(keys.plans(found.job_id)):
        stage = record.key.removeprefix(keys.plans(found.job_id))
        before = batches.get(stage, -1)
        if before >= 0 and stage in found.plans and not _is_done(storage, found, stage, before):
            # Objects have the plan of that batch and the state before it: a restore computes the
            # batch again, and calls the function for it in another generation.
            before -= 1
        try:
            plan = decode(StreamPlan, record.value, record.key)
        except CorruptRecord:
            yield f"stage {stage!r} has called its function, it is not known for which batches"
            continue
        last = plan.batch
        if now is not None and plan.generation != now.generation and now.batches is not None:
            # What was called before the last restore counts up to where that put the stage.
            last = min(last, now.batches.get(stage, -1))
        if last > before:
            yield f"stage {stage!r} has called its function for {_range(before + 1, last)}"
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
