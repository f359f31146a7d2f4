"""Objects that nothing needs any more: of jobs that run, and of jobs that have ended.

A stream replaces parts of its checkpoint with each batch. What it has replaced is removed while it
runs; all else that no record names, on request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.objects import BatchManifest, StoredObject

from ..storage.copies import read_record
from ..storage.objects import Listed, Objects
from ..storage.roots import Named
from .job_objects import index_in

_MARGIN = 60.0
"""Seconds by which the clocks of a store's servers may differ."""
_LIVE = re.compile(rb"([0-9]+)\.([0-9]+)\.[0-9a-f]+")


@attrs.frozen
class ObjectGarbage:
    """Finds objects that no record of a job names, and none will."""

    _backend: Backend
    _objects: Objects

    def replaced(self, job_id: str) -> Iterator[Listed]:
        """Yield parts of checkpoints that a job's streams have replaced, and manifests that were
        merged. In O(attempts and what is found): the rows are not listed.

        Raises:
            CorruptRecord: it is not known what counts.
            Unavailable: from the backend or the store.
        """
        listed = list(self._batches(job_id))  # First: what comes later is not in the listing.
        live = self._live(job_id)
        named = Named.by_records(self._backend, job_id)
        kept: set[str] = set()
        since: dict[str, float] = {}
        for stage, newest in (*named.streams.items(), *named.plans.items()):
            kept |= {newest.name, *self._named_by(newest)}
            found = self._objects.stat(newest.name)
            since[stage] = 0.0 if found is None else found.modified
        for stage, one in listed:
            is_live = live is not None and one.name.startswith(live)
            until = since.get(stage, 0.0) - _MARGIN
            if one.name not in kept and (not is_live or one.modified < until):
                yield one

    def unnamed(self, job_id: str) -> Iterator[Listed]:
        """Yield all objects of an ended job, or of a job that does not run now, that no record
        names. Raises as `replaced`."""
        listed = list(self._objects.under(job_id))
        if self._live(job_id) is not None:
            yield from self.replaced(job_id)
            return
        named = Named.by_records(self._backend, job_id)
        kept = {f"{job_id}/outputs", *named.objects(self._objects, checkpoints=True)}
        index = index_in(self._objects, job_id)
        if index is not None:
            kept.update(Named.by_index(index).objects(self._objects, checkpoints=False))
        yield from (one for one in listed if one.name not in kept)

    # -- inside ----------------------------------------------------------------------------

    def _batches(self, job_id: str) -> Iterator[tuple[str, Listed]]:
        """Yield the parts of checkpoints, and the manifests of single batches, with their stage."""
        for place in self._objects.folders(f"{job_id}/data"):
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
        return f"{job_id}/data/e{found[1].decode()}.a{found[2].decode()}."

    def _named_by(self, named: StoredObject) -> Iterator[str]:
        newest = read_record(self._objects, BatchManifest, named)
        yield from (one.object for one in newest.checkpoint)
        yield from (one.manifest.name for one in newest.earlier)
