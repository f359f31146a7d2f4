"""Giving another job what a snapshot in objects names: copies, so that neither job needs the other.

Rows and the output of stages are copied by the store itself, unless a file is large. Checkpoints go
through this host, since some of their files hold paths of the job, and the id of the query.

The name of a copy follows from that of its source. So a repeat finds what an earlier try has
copied; only the checkpoints and the manifests are its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from pathlib import Path

import attrs

from jrs.contract.errors import CorruptRecord, DamagedSnapshot, StorageRefused, Unavailable
from jrs.records import keys
from jrs.records.codec import decode, encode, to_plain, with_fields
from jrs.records.model import StageRecord
from jrs.records.objects import (
    BatchFiles,
    BatchManifest,
    ClosedInput,
    InputListing,
    OutputManifest,
    StoredFile,
    StoredObject,
)
from jrs.records.snapshots import Manifest, as_stored, as_text

from ..checkpoint_format import relocation
from ..storage.batches import files_of, merged_of
from ..storage.objects import Objects
from ..storage.packed_copies import (
    PrefixWriter,
    copies_prefix,
    fetch,
    in_threads,
    name_of_copy,
    read_record,
)

_PAGE = 1000
"""Batches whose rows are copied before those of the next are read."""
_TRIES = 8
_LONGEST = 60.0
"""Seconds between two tries."""


def adopt(
    objects: Objects,
    found: Manifest,
    job_id: str,
    place: str,
    folder: Path,
    work: Path,
    *,
    fork: bool,
    sleep: Callable[[float], None],
) -> Manifest:
    """Return the manifest of a snapshot for another job, which names copies. Tries again while the
    store does not answer, and copies then what is missing.

    Args:
        place: the name of the prefix for the copies; those that are there are not made again.
        folder: of the other job, on each host.
        work: a folder of this process, for one checkpoint after the other.
        fork: its queries get new ids.
        sleep: waits between two tries.

    Raises:
        DamagedSnapshot: an object is missing, or was changed.
        Unavailable: from the store, in all tries since the last copy; begin again. What was copied
            nothing names, and stays.
        StorageRefused: the same, at once.
        OSError: the disk is full, or fails; the same holds.
    """
    one = _Adoption(objects, found, job_id, place, str(folder), work, fork)
    failed, known = 0, one.copied
    while True:
        try:
            return one.whole(found)
        except CorruptRecord as error:
            what = f"snapshot {found.number} of job {found.job_id!r}"
            raise DamagedSnapshot(what, (str(error),)) from None
        except StorageRefused:
            raise
        except Unavailable:
            failed, known = (0 if one.copied > known else failed + 1), one.copied
            if failed == _TRIES:
                raise
            sleep(min(_LONGEST, 2.0**failed))


class _Adoption:
    def __init__(
        self,
        objects: Objects,
        found: Manifest,
        job_id: str,
        place: str,
        folder: str,
        work: Path,
        fork: bool,
    ) -> None:
        self._objects = objects
        self._job_id = job_id
        self._old, self._new = found.root, folder
        self._work = work
        self._fork = fork
        self._writer = PrefixWriter(objects, job_id, copies_prefix())
        self._place = f"{job_id}/data/{place}"
        self._copies = {one.name: one.size for one in objects.under(self._place)}

    @property
    def copied(self) -> int:
        """How many copies there are."""
        return len(self._copies)

    def whole(self, found: Manifest) -> Manifest:
        """Return the manifest of the snapshot, which names copies. Copies what is missing."""
        return attrs.evolve(
            found,
            heads={stage: self.batch(stage, named) for stage, named in found.heads.items()},
            plans={stage: self.batch(stage, named) for stage, named in found.plans.items()},
            inputs={key: self.input(text) for key, text in found.inputs.items()},
            records={key: self.record(key, text) for key, text in found.records.items()},
        )

    def batch(self, stage: str, named: StoredObject) -> StoredObject:
        """Copy all that the manifest of a batch names; return the manifest of the copies."""
        newest = read_record(self._objects, BatchManifest, named)
        earlier = merged_of(self._writer, self._job_id, stage, self._earlier(stage, newest))
        files = tuple(self._copied(f"{stage}/rows", list(newest.files)))
        checkpoint = self._checkpoint(stage, newest)
        whole = BatchManifest(self._job_id, stage, 1, newest.batch, files, checkpoint, earlier)
        return self._writer.put_record(f"{stage}/batch", whole)

    def record(self, key: str, text: str) -> str:
        """Return a record of the job; that of a stage names the copies of its output."""
        if not key.startswith(keys.STAGES):
            return text
        data = as_stored(text)
        named = decode(StageRecord, data, key).manifest
        if named is None:
            return text
        stage = key.removeprefix(keys.STAGES)
        files = read_record(self._objects, OutputManifest, named).files
        copies = OutputManifest(
            self._job_id, stage, tuple(self._copied(f"{stage}/out", list(files)))
        )
        manifest = to_plain(self._writer.put_record(f"{stage}/out", copies))
        return as_text(with_fields(data, key, manifest=manifest))

    def input(self, text: str) -> str:
        """Return the record of a closed input, with a listing of the other job's own."""
        known = decode(ClosedInput, as_stored(text), "the closed input")
        links = read_record(self._objects, InputListing, known.listing).links
        listing = InputListing(self._job_id, known.stage, links)
        named = self._writer.put_record(f"{known.stage}/in", listing)
        closed = ClosedInput(self._job_id, known.stage, known.source, named)
        return as_text(encode(closed))

    # -- inside ----------------------------------------------------------------------------

    def _copied(self, what: str, files: list[StoredFile]) -> list[StoredFile]:
        """Have the store copy the objects of files, each of which has its own."""
        place = f"{self._place}/{what}"
        copies = [attrs.evolve(one, object=name_of_copy(place, one.object)) for one in files]

        def copying(old: StoredFile, new: StoredFile) -> Callable[[], None]:
            def copy() -> None:
                self._objects.copy(old.object, new.object, old.size)
                self._copies[new.object] = new.size

            return copy

        in_threads([
            copying(old, new)
            for old, new in zip(files, copies, strict=True)
            if self._copies.get(new.object) != new.size
        ])  # fmt: skip
        return copies

    def _earlier(self, stage: str, newest: BatchManifest) -> Iterator[BatchFiles]:
        """Copy the rows of the batches before the newest one, by pages; yield the copies."""
        rows = (one for one in files_of(self._objects, newest) if one[0] < newest.batch)
        groups = groupby(rows, key=lambda one: one[0])
        while page := [
            (batch, [file for _, file in group]) for batch, group in islice(groups, _PAGE)
        ]:
            files = [file for _, some in page for file in some]
            copies = iter(self._copied(f"{stage}/rows", files))
            for batch, some in page:
                yield BatchFiles(batch, tuple(islice(copies, len(some))))

    def _checkpoint(self, stage: str, newest: BatchManifest) -> tuple[StoredFile, ...]:
        with tempfile.TemporaryDirectory(dir=self._work) as work:
            top = Path(work)
            fetch(self._objects, newest.checkpoint, top)
            for one in newest.checkpoint:
                if relocation.has_paths(f"streams/{stage}/ck/{one.path}"):
                    relocation.relocate(top / one.path, self._old, self._new)
            if self._fork and (top / "metadata").is_file():
                relocation.give_new_id(top / "metadata")
            files = {one.path: top / one.path for one in newest.checkpoint}
            return self._writer.put_files(f"{stage}/ck", files, together=True)
