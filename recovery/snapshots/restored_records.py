"""The records of a job that is restored: those of its snapshot in the place of the present ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from jrs.contract.errors import CorruptRecord, InvalidInput
from jrs.contract.operations import Create, Delete, Op, Record, Update
from jrs.records import keys, signing
from jrs.records.codec import decode, encode, to_plain, with_fields, with_job_id
from jrs.records.lineage import Lineage, LineageKind
from jrs.records.model import JobSpec, RunnerKind, StageRecord, StreamRecord
from jrs.records.snapshots import Manifest, as_stored
from jrs.records.stages import TAKEN_OVER
from jrs.store import heads
from jrs.store.historian import submitter
from jrs.store.tracing import current_traceparent

from . import outside_effects
from .index import SnapshotIndex

SPEC = "spec"
"""The name of the job's spec among the records of a snapshot."""


def check_spec(
    catalog: SnapshotIndex, found: Manifest, job_id: str, changes: Mapping[str, Any]
) -> None:
    """Raise `InvalidInput` if a snapshot's spec cannot be that of another job: it would lose its
    signature, or no master could run it."""
    if job_id == found.job_id or SPEC not in found.records:
        return
    stored = as_stored(found.records[SPEC])
    signing.check_key(stored, catalog.spec_key, found.job_id)
    new = decode(
        JobSpec, with_fields(stored, SPEC, **{**_of_no_application(stored), **changes}), SPEC
    )
    if new.only_in_driver:
        raise InvalidInput(
            f"only its application can run job {found.job_id!r} ({new.entry_point}), and job "
            f"{job_id!r} would be part of none; in a job that FAILED or was CANCELED, a retry can "
            f"name another entry point: jrs retry {found.job_id} --entry MODULE:FUNCTION"
        )


def spec(
    catalog: SnapshotIndex,
    found: Manifest,
    job_id: str,
    *,
    lineage: Lineage | None,
    changes: Mapping[str, Any],
) -> bytes:
    """Return the spec in a snapshot, for the job that it is restored as.

    Args:
        lineage: how a new job descends from that of the snapshot.
        changes: the fields that a new job has otherwise, as plain JSON.

    Raises:
        CorruptRecord: it cannot be read: no master can start such a job.
    """
    new = as_stored(found.records[SPEC])
    if job_id != found.job_id:
        signs, before = catalog.spec_key, new
        own = {
            **_of_no_application(before),
            "submitted_at": catalog.now(),
            "submitted_by": submitter(),
            "traceparent": current_traceparent(),
            "submission": "",
            "lineage": None if lineage is None else to_plain(lineage),
        }
        new = with_fields(with_job_id(before, job_id, SPEC), SPEC, **{**own, **changes})
        # Otherwise the old signature stays, and masters that have a key hold the job.
        if signs is not None and signs.has_signed(before, SPEC):
            new = signs.sign(new, SPEC)
    decode(JobSpec, new, SPEC)
    return new


def ops(
    catalog: SnapshotIndex, found: Manifest, job_id: str, spec: bytes, *, from_elsewhere: bool
) -> list[Op]:
    """Return the operations that replace the records of a job's stages and streams; of a new job
    whose files are objects, also its heads, plans and closed inputs.

    Args:
        spec: of the job, as it will be.
        from_elsewhere: whether the snapshot is only a folder, perhaps of another cluster.
    """
    backend = catalog.backend
    wanted = {}
    for name, data in found.stored():
        if job_id != found.job_id:
            data = with_job_id(data, job_id, name)
        if name != SPEC:
            kind, _, stage = name.partition("/")
            if f"{kind}/" == keys.STAGES:
                if job_id != found.job_id:
                    data = with_fields(data, name, attempt=TAKEN_OVER)
                if catalog.storage.objects is None:
                    data = _without_output(catalog, job_id, data, name)
            wanted[f"{kind}/{job_id}/{stage}"] = data
    if SPEC in found.records and _is_changed(spec, as_stored(found.records[SPEC])):
        # Its new queries continue from these checkpoints.
        for key in wanted:
            if key.startswith(keys.STREAMS):
                wanted[key] = encode(decode(StreamRecord, wanted[key], key).of_any_plan())
    batches = {one.name: one.batch for one in found.stages}
    prefixes = [keys.STAGES, keys.STREAMS]
    if job_id != found.job_id and catalog.storage.objects is not None:
        # They name the copies of this try. An earlier one may have stored some of its own.
        prefixes += [keys.HEADS, keys.PLANS, keys.INPUTS]
        wanted |= heads.adopted(job_id, batches, found.heads, found.plans)
        wanted |= {f"{keys.INPUTS}{job_id}/{key}": as_stored(text)
                   for key, text in found.inputs.items()}  # fmt: skip
    found_ops: list[Op] = []
    for prefix in prefixes:
        for record in backend.scan(f"{prefix}{job_id}/"):
            if record.key not in wanted:
                if not _stays(record):
                    found_ops.append(Delete(record.key, record.version))
            else:
                value = _with_sink(wanted.pop(record.key), record, batches)
                if value != record.value and not _stays(record):
                    found_ops.append(Update(record.key, value, record.version))
    found_ops += [Create(key, value) for key, value in wanted.items()]
    if job_id == found.job_id:
        # A snapshot that is only a folder may be of another cluster, with generations of its own.
        least = int(catalog.now()) if from_elsewhere else 0
        found_ops += heads.restored_ops(
            backend, job_id, batches, least=least, manifests=found.heads, plans=found.plans
        )
    return found_ops


def _of_no_application(spec: bytes) -> dict[str, Any]:
    """Return the fields of a job's spec that belong to its application, as another job has them.

    An application waits for the jobs that its own program names, and lends them its process. No
    other job may end with it, or run inside it.
    """
    own: dict[str, Any] = {"application": "", "function": ""}
    if decode(JobSpec, spec, SPEC).only_in_driver:
        own["runner"] = RunnerKind.PROCESS.value
    return own


def _is_changed(spec: bytes, before: bytes) -> bool:
    """Return whether a job's code may be another one than that of the snapshot: it was upgraded
    since, or it is retried after a fault was fixed."""
    now, then = _readable(spec), _readable(before)
    retried = now and now.lineage and now.lineage.how is LineageKind.RETRY
    return bool(retried) or (now and now.entry_point) != (then and then.entry_point)


def _readable(spec: bytes) -> JobSpec | None:
    try:
        return decode(JobSpec, spec, SPEC)
    except CorruptRecord:
        return None


def _stays(record: Record) -> bool:
    """Return whether a record is of output published at a path of the user's own. That is neither
    taken back nor published twice."""
    return record.key.startswith(keys.STAGES) and outside_effects.published_at(record) is not None


def _with_sink(wanted: bytes, record: Record, batches: dict[str, int | None]) -> bytes:
    """Return a stream's record with its present sink, if the snapshot is older than such records;
    any other record as it is."""
    if not record.key.startswith(keys.STREAMS):
        return wanted
    then = decode(StreamRecord, wanted, record.key)
    try:
        sink = decode(StreamRecord, record.value, record.key).sink
    except CorruptRecord:
        return wanted
    if then.sink is not None or sink is None:
        return wanted
    batch = batches.get(then.name)
    first = 0 if batch is None else batch + 1
    return encode(attrs.evolve(then, sink=attrs.evolve(sink, since=min(sink.since, first))))


def _without_output(catalog: SnapshotIndex, job_id: str, data: bytes, where: str) -> bytes:
    """Return a stage's record without what it says of its output, unless that is in place."""
    record = decode(StageRecord, data, where)
    place = catalog.storage.published(job_id, record.name, temporary=record.temporary)
    if not (record.published or record.has_rows) or place.exists():
        return data
    return encode(attrs.evolve(record, published=None, has_rows=False))
