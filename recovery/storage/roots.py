"""What the records of a job name in objects, and what is left that nothing names.

Only a leader, or an operator, removes objects; and only those that no record names, and none will.
An attempt that runs has written objects which its next record is about to name.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.heads import StreamHead, StreamPlan
from jrs.records.objects import (
    BatchManifest,
    ClosedInput,
    OutputIndex,
    OutputManifest,
    StoredObject,
)
from jrs.records.snapshots import Manifest, SnapshotRecord, as_stored
from jrs.records.stages import StageRecord

from .batches import objects_of
from .objects import Objects
from .packed_copies import read_record


@attrs.frozen
class Named:
    """What the records of a job name, by kind."""

    outputs: dict[str, StoredObject] = attrs.field(factory=dict)
    """The manifests of finished batch stages, by the name of the stage."""
    temporary: dict[str, StoredObject] = attrs.field(factory=dict)
    """The same, of output that only later stages need, and of what is published elsewhere."""
    streams: dict[str, StoredObject] = attrs.field(factory=dict)
    """The manifests that the heads of streams name."""
    plans: dict[str, StoredObject] = attrs.field(factory=dict)
    """The manifests of the batches that functions of `foreachBatch` were called for."""
    inputs: list[StoredObject] = attrs.field(factory=list)
    """The listings of closed inputs, and the manifests of snapshots."""
    pinned: list[StoredObject] = attrs.field(factory=list)
    """What heads and plans named when a snapshot was taken."""
    kept: list[StoredObject] = attrs.field(factory=list)
    """The manifests of the output of stages that a snapshot has."""

    @classmethod
    def by_records(cls, backend: Backend, objects: Objects, job_id: str) -> Named:
        """Return what the records of a job name now, its snapshots among them.

        Raises:
            CorruptRecord: a record cannot be read, so it is not known what it names.
            Unavailable: from the backend or the store.
        """
        found = cls.by_output(backend, job_id)
        for stored in scan_whole(backend, keys.plans(job_id)):
            plan = decode(StreamPlan, stored.value, stored.key)
            if plan.manifest is not None:
                found.plans[plan.stage] = plan.manifest
        for stored in scan_whole(backend, f"{keys.INPUTS}{job_id}/"):
            found.inputs.append(decode(ClosedInput, stored.value, stored.key).listing)
        snapshots = cls.by_snapshots(backend, objects, job_id)
        found.inputs.extend(snapshots.inputs)
        return attrs.evolve(found, pinned=snapshots.pinned, kept=snapshots.kept)

    @classmethod
    def by_output(
        cls, backend: Backend, job_id: str, passed_over: list[CorruptRecord] | None = None
    ) -> Named:
        """Return what the records of finished stages and the heads of streams name.

        Args:
            passed_over: gets the error of each record that cannot be read, and the others count;
                without it, the first such error is raised.

        Raises:
            CorruptRecord: a record cannot be read; or the disk may have lost one, which a copy of
                its file brings back.
            Unavailable: from the backend.
        """
        found = cls()
        for prefix in (keys.stages(job_id), keys.heads(job_id)):
            for stored in scan_whole(backend, prefix):
                try:
                    found._add_output(stored)
                except CorruptRecord as error:
                    if passed_over is None:
                        raise
                    passed_over.append(error)
        return found

    @classmethod
    def by_snapshots(cls, backend: Backend, objects: Objects, job_id: str) -> Named:
        """Return what the snapshots of a job name. Raises as `by_records`."""
        found = cls()
        for stored in scan_whole(backend, keys.snapshots(job_id)):
            snapshot = decode(SnapshotRecord, stored.value, stored.key)
            if snapshot.objects is not None:
                try:
                    manifest = read_record(objects, Manifest, snapshot.objects)
                except CorruptRecord:
                    now = backend.get(stored.key)
                    if now is not None:
                        current = decode(SnapshotRecord, now.value, now.key)
                        if current.objects == snapshot.objects:
                            raise
                    continue  # It was deleted since it was listed, and its manifest with it.
                found._add(manifest, snapshot.objects)
        return found

    def _add_output(self, stored: Record) -> None:
        if stored.key.startswith(keys.HEADS):
            head = decode(StreamHead, stored.value, stored.key)
            if head.manifest is not None:
                self.streams[head.stage] = head.manifest
            return
        stage = decode(StageRecord, stored.value, stored.key)
        if stage.manifest is not None:
            # What is published at a place of the user's own has copies there.
            is_temporary = stage.temporary or stage.target is not None
            kept = self.temporary if is_temporary else self.outputs
            kept[stage.name] = stage.manifest

    def _add(self, snapshot: Manifest, named: StoredObject) -> None:
        self.inputs.append(named)
        self.pinned.extend((*snapshot.heads.values(), *snapshot.plans.values()))
        for key, text in snapshot.inputs.items():
            self.inputs.append(decode(ClosedInput, as_stored(text), key).listing)
        for key, stored in snapshot.stored(keys.STAGES):
            stage = decode(StageRecord, stored, key)
            if stage.manifest is not None:
                self.kept.append(stage.manifest)

    @classmethod
    def by_index(cls, index: OutputIndex) -> Named:
        """Return what is kept of a job that has ended."""
        return cls(outputs=dict(index.stages), streams=dict(index.streams))

    def manifests(self) -> Iterator[StoredObject]:
        """Yield what the records themselves name."""
        for kind in (self.outputs, self.temporary, self.streams, self.plans):
            yield from kind.values()
        for more in (self.inputs, self.pinned, self.kept):
            yield from more

    def objects(self, objects: Objects, *, checkpoints: bool) -> Iterator[str]:
        """Yield the names of all objects that count.

        Args:
            checkpoints: whether those of the streams' checkpoints do.

        Raises:
            CorruptRecord: a manifest is missing, or was changed.
            Unavailable: from the store.
        """
        for named in (*self.outputs.values(), *self.temporary.values(), *self.kept):
            yield named.name
            yield from (one.object for one in read_record(objects, OutputManifest, named).files)
        for named in (*self.streams.values(), *self.plans.values()):
            yield named.name
            newest = read_record(objects, BatchManifest, named)
            yield from objects_of(objects, newest, checkpoint=checkpoints)
        for named in self.pinned:
            yield named.name
            newest = read_record(objects, BatchManifest, named)
            yield from objects_of(objects, newest, checkpoint=True)
        yield from (named.name for named in self.inputs)


def index_of(job_id: str) -> str:
    """Return the name of the object that lists the output of a job that has ended."""
    return f"{job_id}/outputs"
