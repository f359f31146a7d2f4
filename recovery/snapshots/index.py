"""SnapshotIndex: the listed snapshots of a cluster's jobs; reading and verifying them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import (
    Conflict,
    DamagedSnapshot,
    InvalidInput,
    NoSuchSnapshot,
    WrongState,
)
from jrs.contract.operations import Absent, Fence, Op, Record, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.signing import SpecKey
from jrs.records.snapshots import Manifest, SnapshotRecord
from jrs.store.historian import Historian

from ..files import transfer
from ..files.job_folders import JobStorage
from . import folders, in_objects
from .open import check, opened

_BEFORE_SLASH = re.compile(r"[-.]")
"""The characters of a job's id that sort before a slash."""

_MAY_BEGIN, _MOST = 8, 64
"""Snapshots of one job that may begin while another is listed; and those that are looked for."""

SnapshotRef = int | str
"""A snapshot's number, or its name."""


class SnapshotIndex:
    """The listed snapshots of one cluster's jobs, and what working on them needs.

    Args:
        storage: where the jobs keep their files.
        now: the clock of time stamps.
        sleep: waits between two checks of a job that changes.
        spec_key: signs the spec of a job that is restored under another id, if it was signed
            before; see `jrs.records.signing`.
        historian: of the leader or the attempt that uses it; None: by the fence of each call, that
            of a leader or of the user of this process.
    """

    def __init__(
        self,
        backend: Backend,
        storage: JobStorage,
        *,
        now: Clock = time.time,
        sleep: Callable[[float], None] = time.sleep,
        spec_key: SpecKey | None = None,
        historian: Historian | None = None,
    ) -> None:
        self.backend = backend
        self.storage = storage
        self.now = now
        self.sleep = sleep
        self.spec_key = spec_key
        self._historian = historian

    def historian(self, fence: Fence | None) -> Historian:
        """Return what records what is done with that fence."""
        return self._historian or Historian.of(self.backend, fence, self.now)

    def list(self, job_id: str) -> list[SnapshotRecord]:
        """Return the job's snapshots, oldest first.

        Raises:
            CorruptRecord: a record cannot be read.
        """
        check_job_id(job_id)
        return [
            decode(SnapshotRecord, record.value, record.key)
            for record in self.backend.scan(keys.snapshots(job_id))
        ]

    def jobs(self, after: str = "") -> Iterator[str]:
        """Yield the ids of the jobs that have snapshots, each once, in order.

        Args:
            after: only ids that come after this one.
        """
        behind = keys.SNAPSHOTS + check_job_id(after) if after else None
        last, asked = "", set[str]()
        for record in self.backend.scan(keys.SNAPSHOTS, after=behind):
            job_id = keys.job_of(record.key)
            if job_id == last:
                continue
            last = job_id
            # The keys of "a-b" and "a.b" come before those of "a", whose id is followed by a slash.
            early = [job_id[: found.start()] for found in _BEFORE_SLASH.finditer(job_id)]
            for one in early:
                if one > after and one not in asked and self._has_any(one):
                    yield one
            if job_id > after and job_id not in asked:
                yield job_id
            # All keys that begin with "a-", "a." or "a/" are neighbours: no other "a" comes again.
            asked = set(early)

    def _has_any(self, job_id: str) -> bool:
        return next(iter(self.backend.scan(keys.snapshots(job_id), limit=1)), None) is not None

    def get(self, job_id: str, which: SnapshotRef) -> SnapshotRecord:
        """Return a snapshot by its number or its name.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
        """
        for record in reversed(self.list(job_id)):
            if which in (record.number, str(record.number), record.name):
                return record
        raise NoSuchSnapshot(f"job {job_id!r} has no snapshot {shown(which)}")

    def manifest(self, job_id: str, which: SnapshotRef) -> Manifest:
        """Return the manifest of a snapshot: its files by name, size and digest.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            DamagedSnapshot: its manifest is missing or damaged.
        """
        record = self.get(job_id, which)
        with damaged_or_deleted(self.backend, record):
            if self.storage.objects is not None:
                return in_objects.manifest_of(self.storage.objects, record)
            with opened(self.storage, record) as found:
                return found.manifest

    def verify(
        self,
        job_id: str,
        which: SnapshotRef,
        *,
        thorough: bool = True,
        progress: transfer.Progress = transfer.silent,
    ) -> SnapshotRecord:
        """Return the snapshot if all its files exist and are unchanged.

        Args:
            thorough: compare every byte; False compares names and sizes only. Where the storage
                has objects, it then leaves out what a job resumes without: the rows of all batches
                but the newest.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            DamagedSnapshot: `problems` lists everything that is wrong.
            UnsupportedVersion: a newer jrs has taken it.
            Unavailable: its storage is missing.
        """
        record = self.get(job_id, which)
        self._check(record, thorough=thorough, earlier=thorough, progress=progress)
        return record

    def verify_usable(
        self, job_id: str, which: SnapshotRef, progress: transfer.Progress = transfer.silent
    ) -> SnapshotRecord:
        """Return the snapshot if all that a job resumes with exists, and no byte of it is changed.

        Raises as `verify`.
        """
        record = self.get(job_id, which)
        self._check(record, thorough=True, earlier=False, progress=progress)
        return record

    def verify_instead_of(self, record: SnapshotRecord, older: SnapshotRecord) -> None:
        """Raise as `verify` if a job could not resume from a snapshot as well as from an older one:
        names and sizes are compared, where the storage has objects only of what differs."""
        self._check(
            record, thorough=False, earlier=False, progress=transfer.silent, instead_of=older
        )

    def _check(
        self,
        record: SnapshotRecord,
        *,
        thorough: bool,
        earlier: bool,
        progress: transfer.Progress,
        instead_of: SnapshotRecord | None = None,
    ) -> None:
        objects = self.storage.objects
        with damaged_or_deleted(self.backend, record):
            if objects is not None:
                in_objects.check(
                    objects, record, thorough=thorough, earlier=earlier, progress=progress,
                    instead_of=instead_of,
                )  # fmt: skip
                return
            with opened(self.storage, record) as found:
                check(str(record), found, thorough=thorough, progress=progress)


def current_entry(backend: Backend, record: SnapshotRecord) -> tuple[Record, SnapshotRecord] | None:
    """Return the entry of a snapshot as it is now, stored and decoded; None if it is gone, and its
    number perhaps another snapshot's."""
    key = keys.snapshot(record.job_id, record.number)
    if (stored := backend.get(key)) is None:
        return None
    current = decode(SnapshotRecord, stored.value, key)
    return (stored, current) if current.created_at == record.created_at else None


def deleted(record: SnapshotRecord) -> NoSuchSnapshot:
    """Return the error of a snapshot that was deleted since its entry was read."""
    return NoSuchSnapshot(f"{record} was just deleted; nothing was changed")


@contextmanager
def damaged_or_deleted(backend: Backend, record: SnapshotRecord) -> Iterator[None]:
    """Raise `NoSuchSnapshot` where the block raises `DamagedSnapshot` because it was deleted."""
    try:
        yield
    except DamagedSnapshot as error:
        if current_entry(backend, record) is None:
            raise deleted(record) from error
        raise


def refuse_taken(known: Iterable[SnapshotRecord], name: str | None) -> None:
    """Raise `InvalidInput` if one of a job's snapshots has the name."""
    for each in known:
        if name is not None and each.name == name:
            raise InvalidInput(f"job {each.job_id!r} has a snapshot named {name!r} already")


def none_listed_meanwhile(catalog: SnapshotIndex, own: SnapshotRecord) -> tuple[Absent, ...]:
    """Return the conditions that no other snapshot of the job is listed before `own`, whose folder
    is whole. Then read which are listed. They leave no record, so they fit each cluster format."""
    job_id = own.job_id
    taken = folders.unfinished(catalog.storage, job_id)  # Before those that it may become.
    whole = {own.number, *folders.whole(catalog.storage, job_id)}
    numbers = {*taken, *whole}
    # One that begins now has a number behind all whole ones.
    numbers.update(range(max(whole) + 1, max(numbers) + 1 + _MAY_BEGIN))
    numbers -= {own.number, *(each.number for each in catalog.list(job_id))}
    return tuple(Absent(keys.snapshot(job_id, one)) for one in sorted(numbers)[-_MOST:])


@contextmanager
def recorded_if_kept(historian: Historian, job_id: str, text: str) -> Iterator[tuple[Op, ...]]:
    """Yield the operations that record what happens to a snapshot, for the commit in the block.

    Yields no operations if the job's result was expired: its history is gone with it. If that
    happens at this moment, the block raises `Conflict`, and the caller repeats it.
    """
    backend, tombstone = historian.backend, keys.TOMBSTONES + job_id
    known = any(backend.get(prefix + job_id) for prefix in (keys.JOBS, keys.RESULTS))
    if not known or backend.get(tombstone) is not None:
        yield ()
        return
    # In a chain of its own: the result may be expired at this moment.
    with historian.recorded(job_id, HistoryKind.SNAPSHOT, text, repeatable=True) as event:
        yield (Absent(tombstone), *event)


def replace_entry(
    catalog: SnapshotIndex,
    record: SnapshotRecord,
    fence: Fence | None,
    text: str = "",
    **changes: Any,
) -> SnapshotRecord:
    """Change the entry of a snapshot in the catalogue; return the new one. Durable.

    Args:
        record: the entry, as it was read.
        text: what the history says of the change; empty if it says nothing.
        changes: the new values of fields of the entry.

    Raises:
        NoSuchSnapshot: the snapshot was deleted meanwhile.
        WrongState: the entry was changed meanwhile.
        OutcomeUnknown: it may be changed.
    """
    historian, changed = catalog.historian(fence), attrs.evolve(record, **changes)
    while True:
        found = current_entry(catalog.backend, record)
        if found is None:
            raise NoSuchSnapshot(f"{record} was just deleted by another process")
        stored, now = found
        if now != record:
            raise WrongState(
                f"{record} was just moved or converted by another process: look where it is now"
            )
        if changed == record:
            return changed
        update = Update(stored.key, encode(changed), stored.version)
        history = recorded_if_kept(historian, record.job_id, text) if text else nullcontext(())
        try:
            with history as event:
                commit_and_read_back(catalog.backend, update, *event, fence=fence)
            return changed
        except Conflict:
            continue  # A restore has begun from it, or the result of its job was just expired.
