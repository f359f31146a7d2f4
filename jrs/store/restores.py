"""Restores that are under way, or that were interrupted: ``restores/<job>``.

A stored restore reserves its job: see `jrs.store.stop_transitions`. Until format 4 it had no key
of its own, and took the place of the job's spec. This module alone knows both forms.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, UnsupportedVersion, WrongState
from jrs.contract.operations import Absent, Record
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode, decode_once
from jrs.records.model import JobSpec
from jrs.records.snapshots import RestoreRecord, as_stored
from jrs.store import cluster_format
from jrs.store.stop_transitions import RESTORE, RestoreEvent, RestoreStep, step_after

SINCE_FORMAT = 4
"""The first cluster format in which a restore has a key of its own."""

_IN_PLACE_OF_SPEC = b'{"jrs":"restore/'


def key_for(backend: Backend, job_id: str) -> str:
    """Return the key under which a restore that begins now is stored."""
    own = cluster_format.is_at_least(backend, SINCE_FORMAT)
    return (keys.RESTORES if own else keys.JOBS) + job_id


def took_place_of(spec: Record) -> bool:
    """Return whether a restore has taken the place of a spec, readable or not."""
    return spec.value.startswith(_IN_PLACE_OF_SPEC)


def spec_of(spec: Record | None) -> bytes | None:
    """Return the readable spec that is stored under a job's key, also where a restore in the former
    form has taken its place; None if there is none."""
    found = readable_spec(spec)
    return None if found is None else found[1]


def readable_spec(spec: Record | None) -> tuple[JobSpec, bytes] | None:
    """Return what `spec_of` returns, as by `decode_once` and as it is stored."""
    if spec is None:
        return None
    try:
        value = spec.value
        if took_place_of(spec):
            kept = decode(RestoreRecord, spec.value, spec.key).spec or ""
            value = as_stored(kept)
        return decode_once(JobSpec, value, spec.key), value
    except CorruptRecord:
        return None


def stored(backend: Backend, job_id: str) -> Record | None:
    """Return the stored restore of a job, readable or not; None if there is none.

    Raises:
        CorruptRecord: the disk has lost it.
        Unavailable: the backend did not answer.
    """
    # In this order: a restore may move from the spec's place to its own key, and never back.
    spec, own = backend.get_many([keys.JOBS + job_id, keys.RESTORES + job_id])
    if isinstance(spec, CorruptRecord):
        raise spec
    if isinstance(own, CorruptRecord):
        raise own
    if own is None and spec is not None and took_place_of(spec):
        return spec
    return own


def of_job(backend: Backend, job_id: str) -> RestoreRecord | None:
    """Return the job's restore that is under way or was interrupted; None if there is none.

    Raises:
        CorruptRecord: there is one, and it cannot be read.
    """
    found = stored(backend, job_id)
    return None if found is None else decode(RestoreRecord, found.value, found.key)


def scan(backend: Backend) -> Iterator[Record]:
    """Yield all stored restores, readable or not; one that moves meanwhile perhaps twice."""
    yield from _former(backend)
    yield from backend.scan(keys.RESTORES)


def _former(backend: Backend) -> Iterator[Record]:
    return filter(took_place_of, backend.scan(keys.JOBS))


def begun(backend: Backend, *, whole: bool = True) -> Iterator[RestoreRecord]:
    """Yield the restores that are under way or were interrupted. Reads all specs.

    Args:
        whole: whether to raise if it is unknown of a restore what its source is; it is passed over
            otherwise.

    Raises:
        UnsupportedVersion: a newer jrs has begun a restore.
        CorruptRecord: the disk may have lost a restore; raised at the end.
    """
    own = scan_whole(backend, keys.RESTORES) if whole else backend.scan(keys.RESTORES)
    for found in chain(_former(backend), own):
        try:
            yield decode(RestoreRecord, found.value, found.key)
        except UnsupportedVersion:
            if whole:
                raise
        except CorruptRecord:
            continue  # No process can finish it, whatever its source is.


def none_of(job_id: str) -> Absent:
    """Return the condition that the job is not being restored, for the commit of any event that
    is not possible meanwhile. A restore in the former form fails a condition on the job's spec."""
    return Absent(keys.RESTORES + job_id)


def is_possible(backend: Backend, job_id: str, event: RestoreEvent) -> bool:
    """Return whether the job's restore, if there is one, allows an event."""
    step = RestoreStep.NONE if stored(backend, job_id) is None else RestoreStep.RESERVED
    return step_after(RESTORE, step, event) is not None


def check_possible(backend: Backend, job_id: str, event: RestoreEvent) -> None:
    """Raise `WrongState`, with the remedy, if the job's restore does not allow an event."""
    if not is_possible(backend, job_id, event):
        raise _under_way(job_id)


def check_none(backend: Backend, job_id: str) -> None:
    """Raise `WrongState`, with the remedy, if the job is being restored."""
    if stored(backend, job_id) is not None:
        raise _under_way(job_id)


def _under_way(job_id: str) -> WrongState:
    return WrongState(
        f"job {job_id!r} is being restored; wait for that, or: jrs snapshot restore --finish "
        f"{job_id}, or: jrs cancel {job_id}"
    )
