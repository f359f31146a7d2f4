"""Taking a snapshot where the storage has objects: what the records name at one moment."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Absent, Create, Fence
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import StreamHead, StreamPlan
from jrs.records.history import HistoryKind
from jrs.records.model import StreamRecord
from jrs.records.objects import StoredObject
from jrs.records.snapshots import (
    Manifest,
    SnapshotFormat,
    SnapshotRecord,
    SnapshotStage,
    TakenBy,
    as_stored,
    as_text,
)
from jrs.store import heads, object_order, restores
from jrs.store.history_texts import snapshot_taken
from jrs.store.stop_transitions import RestoreEvent

from ..storage.objects import Objects
from ..storage.packed_copies import PrefixWriter, snapshot_prefix
from . import contents as job_contents
from .in_objects import discard_manifest, files_in
from .index import SnapshotIndex, refuse_taken

_TRIES = 30


def create(
    catalog: SnapshotIndex,
    objects: Objects,
    job_id: str,
    name: str | None,
    format: SnapshotFormat,
    taken_by: TakenBy,
    fence: Fence | None,
    *,
    at_end: bool = False,
    for_fork: str = "",
) -> SnapshotRecord:
    """Take a snapshot and list it; see `SnapshotCatalog.create`."""
    if format is not SnapshotFormat.LINK:
        raise InvalidInput(
            f"the storage has objects, where a snapshot has no format {format.value!r}: use 'link'"
        )
    backend = catalog.backend
    for attempt in range(_TRIES):
        if attempt:
            catalog.sleep(0.01 * attempt)
        mine = object_order.next_op(backend, job_id)
        same_generation = heads.same_generation(backend, job_id)
        if not restores.is_possible(backend, job_id, RestoreEvent.SNAPSHOT):
            raise Unavailable(f"job {job_id!r} is being restored: no snapshot is taken of it")
        known = catalog.list(job_id)
        refuse_taken(known, name)
        number = max((each.number for each in known), default=0) + 1
        described = _described(catalog, job_id, number, name)
        if described is None:
            continue
        record = attrs.evolve(
            _listed(objects, described, taken_by), at_end=at_end, for_fork=for_fork
        )
        create_record = Create(keys.snapshot(job_id, number), encode(record))
        ended = () if at_end else (keys.RESULTS, keys.TOMBSTONES)
        running = [Absent(prefix + job_id) for prefix in ended]
        historian = catalog.historian(fence)
        try:
            said = snapshot_taken(number, name)
            with historian.recorded(job_id, HistoryKind.SNAPSHOT, said) as event:
                conditions = (mine, same_generation, *running)
                commit_and_read_back(backend, create_record, *conditions, *event, fence=fence)
        except Conflict as error:
            discard_manifest(objects, record)
            if error.op in running:
                raise WrongState(
                    f"job {job_id!r} has ended: no snapshot is taken of what its cleanup removes"
                ) from None
            if error.op == same_generation:
                raise job_contents.restored_meanwhile() from None
            continue  # Another snapshot, or a sweep, was faster.
        return record
    raise job_contents.changes_too_fast(job_id)


def is_anything_new(catalog: SnapshotIndex, job_id: str, known: Manifest) -> bool:
    """Return whether a batch or a stage was committed since a snapshot was taken."""
    described = _described(catalog, job_id, known.number, known.name)
    if described is None:
        return True
    return (described.heads, described.plans, described.records) != (
        known.heads, known.plans, known.records
    )  # fmt: skip


# -- inside --------------------------------------------------------------------------------


def _described(
    catalog: SnapshotIndex, job_id: str, number: int, name: str | None
) -> Manifest | None:
    """Return what a job's records name at one moment; None if they have changed meanwhile."""
    backend = catalog.backend
    records = job_contents.read_records(backend, job_id)
    if not records:
        raise job_contents.nothing_left(backend, job_id)
    before = _heads(catalog, job_id), _plans(catalog, job_id)
    if _heads(catalog, job_id) != before[0] or _plans(catalog, job_id) != before[1]:
        return None
    if job_contents.read_records(backend, job_id) != records:
        return None
    named = before[0]
    # A head that is behind has the rows of the sink that was replaced; a plan has none.
    plans = {
        stage: plan
        for stage, plan in before[1].items()
        if heads.plan_decides(named.get(stage), plan)
    }
    stages = []
    for key, text in records.items():
        if key.startswith(keys.STREAMS):
            stage = decode(StreamRecord, as_stored(text), key).name
            head, plan = named.get(stage), plans.get(stage)
            batch = plan.batch if plan is not None else None if head is None else head.batch
            stages.append(SnapshotStage(stage, None if batch == -1 else batch))
    return Manifest(
        job_id, number, SnapshotFormat.LINK, catalog.now(),
        str(catalog.storage.folder(job_id)), name,
        stages=tuple(stages), records=records,
        heads=_manifests(named), plans=_manifests(plans), inputs=_inputs(catalog, job_id),
    )  # fmt: skip


def _heads(catalog: SnapshotIndex, job_id: str) -> dict[str, StreamHead]:
    scanned = scan_whole(catalog.backend, keys.heads(job_id))
    found = (decode(StreamHead, one.value, one.key) for one in scanned)
    return {head.stage: head for head in found}


def _plans(catalog: SnapshotIndex, job_id: str) -> dict[str, StreamPlan]:
    scanned = scan_whole(catalog.backend, keys.plans(job_id))
    found = (decode(StreamPlan, one.value, one.key) for one in scanned)
    generation = heads.generation_of(catalog.backend, job_id)
    return {plan.stage: plan for plan in found if plan.generation == generation}


def _inputs(catalog: SnapshotIndex, job_id: str) -> dict[str, str]:
    prefix = f"{keys.INPUTS}{job_id}/"
    return {
        one.key.removeprefix(prefix): as_text(one.value)
        for one in scan_whole(catalog.backend, prefix)
    }


def _manifests(found: Mapping[str, StreamHead | StreamPlan]) -> dict[str, StoredObject]:
    return {stage: one.manifest for stage, one in found.items() if one.manifest is not None}


def _listed(objects: Objects, described: Manifest, taken_by: TakenBy) -> SnapshotRecord:
    """Write a snapshot's manifest; return its entry in the catalogue."""
    try:
        files = list(files_in(objects, described, rows=False))
    except CorruptRecord as error:
        raise CorruptRecord(f"job {described.job_id!r} cannot be in a snapshot: {error}") from None
    writer = PrefixWriter(objects, described.job_id, snapshot_prefix(described.number))
    named = writer.put_record("snapshot", described)
    return SnapshotRecord(
        described.job_id, described.number, described.format, described.created_at,
        named.sha256, len(files), sum(one.size for one in files), 0, described.name,
        stages=described.stages, taken_by=taken_by, objects=named,
    )  # fmt: skip
