"""Snapshots that are copied into another job, where the storage has objects: their entries say so.

No lock lies next to objects. So the process that copies writes a note into the entry of the
snapshot, and renews it while it works: nobody deletes the snapshot meanwhile. The note names the
prefix of the copies, by which a repeat finds those that are there. Meanwhile `gc` keeps all that
was written for the other job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import Conflict, JrsError, SnapshotInUse
from jrs.contract.operations import Fence, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.runtime import daemon, start_thread
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.snapshots import CopyNote, SnapshotRecord

from ..storage.packed_copies import copies_prefix
from .index import SnapshotIndex, current_entry, deleted

_PATIENCE = 900.0
"""Seconds for which a note counts that nobody renews: also clocks of hosts differ."""
_RENEW = 60.0


@contextmanager
def noted(
    catalog: SnapshotIndex, source: SnapshotRecord, job_id: str, fence: Fence | None
) -> Iterator[str]:
    """Keep a snapshot while another job is made from it; yield the name of the prefix for the
    copies: that of an earlier try that has not succeeded, if there was one.

    Raises:
        NoSuchSnapshot: the snapshot is gone.
        Unavailable: from the backend, or the system gives this process no thread.
        Fenced, OutcomeUnknown: from the backend.
    """
    note = _Note(catalog, source, job_id, fence)
    place = note.write(_PATIENCE)
    over = threading.Event()

    def renew() -> None:
        while not over.wait(_RENEW):
            with suppress(JrsError):  # If the snapshot is gone, the reservation says so.
                note.write(_PATIENCE)

    thread = daemon(renew, f"jrs-copying-{job_id}")
    left: float | None = 0.0
    try:
        start_thread(thread)
        yield place
        left = None
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
        with suppress(JrsError):
            note.write(left)


def check_none(record: SnapshotRecord, *, besides: str = "", now: Clock = time.time) -> None:
    """Raise `SnapshotInUse` if a process copies a snapshot into another job.

    Args:
        record: its entry, as it is now.
        besides: a job that does not count.
    """
    for job_id, note in record.copies.items():
        if job_id != besides and note.until > now():
            raise SnapshotInUse(
                f"{record} is being copied for job {job_id!r}; try again once that is done"
            )


def noted_jobs(backend: Backend, until: float, *, dry_run: bool) -> set[str]:
    """Return for which jobs a process copies, or a repeat may find what one has copied. Of notes
    that counted last before `until`, none stays, and no repeat finds it.

    Raises:
        CorruptRecord: an entry cannot be read, so it is not known which jobs it names.
        Fenced, Unavailable, OutcomeUnknown: from the backend.
    """
    found = set[str]()
    for stored in scan_whole(backend, keys.SNAPSHOTS):
        record = decode(SnapshotRecord, stored.value, stored.key)
        count = {job_id: note for job_id, note in record.copies.items() if note.until > until}
        if len(count) < len(record.copies) and not dry_run:
            try:
                value = encode(attrs.evolve(record, copies=count))
                backend.commit(Update(stored.key, value, stored.version))
            except Conflict:
                count = record.copies  # A repeat may have just found one.
        found.update(count)
    return found


# -- inside --------------------------------------------------------------------------------


@attrs.define(eq=False)
class _Note:
    """The note of one process, which another one may write, too: no lock excludes other hosts."""

    _catalog: SnapshotIndex
    _source: SnapshotRecord
    _job_id: str
    _fence: Fence | None
    _place: str = ""
    _own: float | None = None
    """Until when it counts by what this process has written."""
    _others: float = 0.0
    """Until when it counts by what another process has written."""

    def write(self, seconds: float | None) -> str:
        """Write the note that counts for some seconds from now, or for longer if another process
        needs it, or remove it if that is None; return the name of the prefix: that of the note that
        was there first, else a new one."""
        backend = self._catalog.backend
        while True:
            found = current_entry(backend, self._source)
            if found is None:
                raise deleted(self._source)
            entry, current = found
            copies = dict(current.copies)
            before = copies.pop(self._job_id, None)
            if before is not None and before.until != self._own:
                self._others = before.until
            if not self._place:
                self._place = copies_prefix() if before is None else before.place
            until: float | None = None
            if seconds is not None:
                until = max(self._catalog.now() + seconds, self._others)
                copies[self._job_id] = CopyNote(self._place, until)
            try:
                value = encode(attrs.evolve(current, copies=copies))
                commit_and_read_back(
                    backend, Update(entry.key, value, entry.version), fence=self._fence
                )
            except Conflict:
                continue  # Another restore has begun from it, or another note was written.
            self._own = until
            return self._place
