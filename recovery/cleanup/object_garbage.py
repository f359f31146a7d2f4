"""Objects that nothing needs any more: of jobs that run, and of jobs that have ended.

A stream replaces parts of its checkpoint with each batch. What it has replaced is removed while it
runs; all else that no record names, on request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.contract.operations import Create, Fence, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.objects import BatchManifest, OutputIndex, StoredObject
from jrs.store import object_order, restores

from ..storage.objects import Listed, Objects
from ..storage.packed_copies import attempts_prefix, is_of_copies, is_of_snapshot, read_record
from ..storage.roots import Named, index_of
from .job_objects import index_in

_MARGIN = 60.0
"""Seconds by which the clocks of a store's servers may differ."""
_LIVE = re.compile(rb"([0-9]+)\.([0-9]+)\.[0-9a-f]+")


@attrs.frozen
class ObjectGarbage:
    """Finds and removes objects that no record of a job names, and none will."""

    _backend: Backend
    _objects: Objects

    def sweep_replaced(self, job_id: str, fence: Fence | None) -> list[Listed]:
        """Remove parts of checkpoints that a job's streams have replaced, manifests that were
        merged, and those of deleted snapshots; return them. In O(attempts and what is found): the
        rows are not listed. While a restore is not complete, nothing: its last commit names what it
        has written.

        Raises:
            CorruptRecord: it is not known what counts.
            Conflict: a snapshot is taken at this moment, or another process sweeps: try later.
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend or the store; the call may be repeated.
        """
        mine = object_order.next_op(self._backend, job_id)
        if restores.stored(self._backend, job_id) is not None:
            return []
        found = list(self._replaced(job_id))
        self._remove(found, mine, fence)
        return found

    def sweep_unnamed(
        self, job_id: str, until: float, *, ended: bool, dry_run: bool
    ) -> list[Listed]:
        """Remove all objects of a job that no record names, or find them only; return them. While
        an attempt runs, or a restore is not complete, only what `sweep_replaced` does.

        Args:
            until: only what was written before, in seconds since 1970.
            ended: whether the job has ended: no record can name any more then.

        Raises:
            As `sweep_replaced`.
        """
        mine = object_order.next_op(self._backend, job_id)
        if not ended and restores.stored(self._backend, job_id) is not None:
            return []
        listed = list(self._objects.under(job_id))
        if not ended and self._live(job_id) is not None:
            found = list(self._replaced(job_id))
        else:
            kept = set(self._kept(job_id))
            found = [one for one in listed if one.name not in kept]
            if found:
                self._check_index(job_id, ended=ended)
        found = [one for one in found if one.modified <= until]
        if ended and not dry_run:
            self._objects.delete(one.name for one in found)
        elif not dry_run:
            self._remove(found, mine, None)
        return found

    def sweep_copies(self, job_id: str, until: float, *, dry_run: bool) -> list[Listed]:
        """Remove copies that were made for a job which then did not come to exist, or find them
        only; return them.

        Args:
            until: only what was written before, in seconds since 1970. No snapshot has a note for
                the job that counted then, or since: a new note names another prefix.

        Raises:
            Unavailable: from the backend or the store; the call may be repeated.
        """
        listed = [one for one in self._objects.under(f"{job_id}/data") if is_of_copies(one.name)]
        found = [one for one in listed if one.modified <= until]
        if self._backend.get(keys.JOBS + job_id) is not None:
            return []  # Its restore is stored: the job exists by now.
        if not dry_run:
            self._objects.delete(one.name for one in found)
        return found

    def sweep_output(self, job_id: str, *, dry_run: bool) -> list[Listed]:
        """Remove the objects of a job whose output is kept no longer, except those that its
        snapshots name, or find them only; return them. The job has ended, and is clean or expired:
        no further snapshot of it can be listed.

        Its list of output is emptied, and stays as long as other objects: without it these would
        look like a loss.

        Raises:
            CorruptRecord: a snapshot cannot be read, so nothing is removed.
            Unavailable: from the backend or the store; the call may be repeated.
        """
        listed = list(self._objects.under(job_id))
        named = Named.by_snapshots(self._backend, self._objects, job_id)
        kept = set(named.objects(self._objects, checkpoints=True))
        own, empty = index_of(job_id), encode(OutputIndex(job_id))
        is_empty = bool(listed) and self._objects.get(own) == empty
        if kept and is_empty:
            kept.add(own)
        found = [one for one in listed if one.name not in kept]
        if listed and not dry_run:
            if not is_empty:
                # First: a list that names what is gone is damage. A store may be full, though.
                with suppress(Unavailable):
                    self._objects.put(own, empty)
            self._objects.delete(one.name for one in found if one.name != own)
            if not kept:
                self._objects.delete([own])
        return found

    # -- inside ----------------------------------------------------------------------------

    def _remove(self, found: list[Listed], mine: Create | Update, fence: Fence | None) -> None:
        if found:
            # From here on no snapshot can name them that did not before.
            commit_and_read_back(self._backend, mine, fence=fence)
            self._objects.delete(one.name for one in found)

    def _kept(self, job_id: str) -> Iterator[str]:
        named = Named.by_records(self._backend, self._objects, job_id)
        yield index_of(job_id)
        yield from named.objects(self._objects, checkpoints=True)
        index = index_in(self._objects, job_id)
        if index is not None:
            yield from Named.by_index(index).objects(self._objects, checkpoints=False)

    def _check_index(self, job_id: str, *, ended: bool) -> None:
        """Raise `CorruptRecord` if nothing says what the output of a job with a result is.

        Its records, which named it, may be gone: its cleanup lists the output first, unless a
        record cannot be read. Called after the records were read: they go once there is a result.
        """
        has_result = ended or self._backend.get(keys.DIRTY + job_id) is not None
        index = index_in(self._objects, job_id) if has_result else None
        if has_result and (index is None or not index.whole):
            where = f"{self._objects.url}/{index_of(job_id)}"
            raise CorruptRecord(
                f"no whole list of the job's output at {where}: all its objects are kept"
            )

    def _replaced(self, job_id: str) -> Iterator[Listed]:
        # First: what comes later is not in the listing.
        places = self._objects.folders(f"{job_id}/data")
        listed = list(self._batches(one for one in places if not is_of_snapshot(one)))
        live = self._live(job_id)
        named = Named.by_records(self._backend, self._objects, job_id)
        kept: set[str] = set()
        since: dict[str, float] = {}
        for newest in (*named.streams.values(), *named.plans.values(), *named.pinned):
            kept |= {newest.name, *self._named_by(newest)}
        for stage, newest in (*named.streams.items(), *named.plans.items()):
            found = self._objects.stat(newest.name)
            since[stage] = 0.0 if found is None else found.modified
        for stage, one in listed:
            is_live = live is not None and one.name.startswith(live)
            until = since.get(stage, 0.0) - _MARGIN
            if one.name not in kept and (not is_live or one.modified < until):
                yield one
        for place in filter(is_of_snapshot, places):
            if not any(one.name.startswith(f"{place}/") for one in named.inputs):
                # No entry names it: a process has died, or will find that a sweep was faster.
                yield from self._objects.under(place)

    def _batches(self, places: Iterable[str]) -> Iterator[tuple[str, Listed]]:
        """Yield the parts of checkpoints, and the manifests of single batches, with their stage."""
        for place in places:
            for stage in self._objects.folders(place):
                for kind in ("ck", "batch"):
                    for one in self._objects.under(f"{stage}/{kind}"):
                        yield stage.rpartition("/")[2], one

    def _live(self, job_id: str) -> str | None:
        """Return how the names of the attempt begin that may write now; None if none may."""
        stored = self._backend.get(keys.FENCES + job_id)
        found = None if stored is None else _LIVE.fullmatch(stored.value)
        if found is None:
            return None
        return f"{job_id}/data/{attempts_prefix(int(found[1]), int(found[2]))}"

    def _named_by(self, named: StoredObject) -> Iterator[str]:
        newest = read_record(self._objects, BatchManifest, named)
        yield from (one.object for one in newest.checkpoint)
        yield from (one.manifest.name for one in newest.earlier)
