"""Bringing the checkpoints of a job to this host, where the storage has objects.

The head of a stream names the manifest of its newest batch, and so the checkpoint. What is on this
host is only a copy, perhaps one of long ago: it is kept if it continues from that manifest, and is
fetched otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, JobHeld
from jrs.contract.operations import Fence
from jrs.contract.runtime import RUNTIME, Runtime
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.heads import StreamPlan
from jrs.records.model import StreamRecord
from jrs.records.objects import BatchManifest, StoredObject
from jrs.store import heads

from ..files import copied_from
from ..files.job_folders import JobStorage
from ..files.safe_listing import everything_below
from ..storage.objects import Objects
from ..storage.packed_copies import fetch, read_record, sha256_of


@attrs.frozen
class CheckpointCopies:
    """The copies of the checkpoints of one leader's jobs."""

    _backend: Backend
    _storage: JobStorage
    _objects: Objects
    _fence: Fence
    _runtime: Runtime = RUNTIME

    def bring(self, job_id: str) -> list[str]:
        """Fetch the checkpoints of a job's unfinished streams that this host lacks; return their
        stages.

        The job's attempt is shut out, and its folder is taken over. Idempotent.

        Raises:
            JobHeld: an object is missing, or was changed; or a record cannot be read.
            Unavailable: from the backend or the storage; the call may be repeated.
        """
        try:
            streams = self._streams(job_id)
            for left in streams.glob(".*"):
                self._storage.discard(job_id, left)  # A death has left it half fetched.
            wanted = list(self._wanted(job_id))
            return [one[0] for one in wanted if self._bring(job_id, *one)]
        except CorruptRecord as error:
            raise JobHeld(str(error)) from None

    def is_as_stored(self, job_id: str, stage: str) -> bool:
        """Return whether the checkpoint on this host is the one that objects have, so that to fetch
        it again would bring the same: it has those files, and no others.

        Raises: as `bring`.
        """
        try:
            named = self._named(job_id, stage, heads.generation_of(self._backend, job_id))
            if named is None:
                return False
            files = read_record(self._objects, BatchManifest, named).checkpoint
        except CorruptRecord as error:
            raise JobHeld(str(error)) from None
        live = self._streams(job_id) / stage / "ck"
        try:
            files_here = (path for path in everything_below(live) if path.is_file())
            here = {path.relative_to(live).as_posix() for path in files_here}
            names = {one.path for one in files}
            return _without_checksums(here) == _without_checksums(names) and all(
                sha256_of(live / one.path) == one.sha256 for one in files
            )
        except OSError:
            return False  # A file is missing, or the disk has lost it.

    def forget(self, job_id: str, stage: str) -> None:
        """Stop using the checkpoint on this host, which was found to be damaged."""
        copied_from.forget(self._streams(job_id) / stage)
        self._storage.forget_damage(job_id, self._fence.epoch, stage)

    # -- inside ----------------------------------------------------------------------------

    def _streams(self, job_id: str) -> Path:
        return self._storage.epoch_folder(job_id, self._fence.epoch) / "streams"

    def _wanted(self, job_id: str) -> Iterator[tuple[str, int, StoredObject | None]]:
        """Yield the stages that have begun and not finished: their generation and manifest."""
        generation = heads.generation_of(self._backend, job_id)
        for stored in self._backend.scan(keys.streams(job_id)):
            stage = decode(StreamRecord, stored.value, stored.key).name
            if self._backend.get(keys.stage(job_id, stage)) is None:
                yield stage, generation, self._named(job_id, stage, generation)

    def _named(self, job_id: str, stage: str, generation: int) -> StoredObject | None:
        head = heads.stored(self._backend, job_id, stage)
        stored = self._backend.get(keys.plan(job_id, stage))
        plan = None if stored is None else decode(StreamPlan, stored.value, stored.key)
        if plan is not None and plan.generation != generation:
            plan = None
        if heads.plan_decides(head and head[0], plan):
            return None if plan is None else plan.manifest
        if head is not None and head[0].manifest is None and head[0].batch >= 0:
            raise JobHeld(
                f"stage {stage!r} has committed batch {head[0].batch} to a folder, and the storage "
                "has objects: name the storage that it was begun with"
            )
        return head and head[0].manifest

    def _bring(self, job_id: str, stage: str, generation: int, named: StoredObject | None) -> bool:
        folder = self._streams(job_id) / stage
        if named is not None and copied_from.continues(folder, generation, named.name):
            return False
        if named is None:
            self._storage.discard(job_id, folder)  # No batch counts: the query begins again.
            return False
        manifest = read_record(self._objects, BatchManifest, named)
        building = folder.with_name(f".{stage}.{self._runtime.token()}")
        self._storage.make_folder(building / "ck")
        fetch(self._objects, manifest.checkpoint, building / "ck")
        copied_from.note(building, generation, named.name)
        self._storage.discard(job_id, folder)
        os.rename(building, folder)
        return True


def _without_checksums(names: Iterable[str]) -> set[str]:
    """Return the names of files without those that Spark keeps next to some, and makes again."""
    return {name for name in names if not name.endswith(".crc")}
