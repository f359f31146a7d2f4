"""Snapshots where the storage has objects: a list of what the records name, and no copy.

The objects never change, and stay while a snapshot names them. So to take a snapshot costs one
small object and one commit, and to restore one only a commit: the next attempt fetches the
checkpoint that its head names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

from jrs.contract.errors import CorruptRecord, DamagedSnapshot, Unavailable, WrongState
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord
from jrs.records.objects import BatchManifest, OutputManifest, StoredFile, StoredObject
from jrs.records.snapshots import Manifest, SnapshotRecord

from ..storage import batches
from ..storage.objects import Objects
from ..storage.packed_copies import PAGE, in_threads, problems, read_record


def manifest_of(objects: Objects, record: SnapshotRecord) -> Manifest:
    """Return the manifest of a snapshot.

    Raises:
        DamagedSnapshot: it is missing, or was changed.
        Unavailable: from the store.
    """
    if record.objects is None:
        raise DamagedSnapshot(str(record), ("it was taken in a storage without objects",))
    try:
        return read_record(objects, Manifest, record.objects)
    except CorruptRecord as error:
        raise DamagedSnapshot(str(record), (str(error),)) from None


def discard_manifest(objects: Objects, record: SnapshotRecord) -> None:
    """Delete the manifest of a snapshot that is not listed. All else may be objects of other
    snapshots, or of the job: a sweep looks for it, and for a manifest that cannot be deleted now.
    """
    if record.objects is not None:
        with suppress(Unavailable):
            objects.delete([record.objects.name])


def check(
    objects: Objects,
    record: SnapshotRecord,
    *,
    thorough: bool,
    earlier: bool,
    progress: Callable[[int, int], None],
    instead_of: SnapshotRecord | None = None,
) -> None:
    """Raise `DamagedSnapshot` if an object that a snapshot needs is missing, or was changed.

    Args:
        thorough: compare every byte; False compares sizes only.
        earlier: also the rows of all earlier batches: one request for each file, and a job resumes
            without them. Without it, only the manifests that the next batches merge.
        instead_of: an older snapshot that is not needed next to this one. The outputs of finished
            stages that both have are not looked at: without them, it is no better.
    """
    found = manifest_of(objects, record)
    known = set[str]()
    if instead_of is not None:
        with suppress(DamagedSnapshot):
            older = manifest_of(objects, instead_of)
            known = {named.name for named in _outputs(older)}
    look = problems if thorough else _by_size
    try:
        files = list(files_in(objects, found, besides=known))
        count, further = len({one.object for one in files}), 0
        if earlier:
            for further, _ in enumerate(_earlier_rows(objects, found), 1):
                if further % PAGE == 0:
                    progress(0, count + further)
        else:
            for newest in _newest(objects, found):
                batches.read_listed(objects, newest)
        wrong = look(objects, files, lambda done, most: progress(done, most + further))
        # A stream of months has a million of them: they are not all kept in memory.
        rows = _earlier_rows(objects, found) if earlier else iter(())
        for first in range(0, further, PAGE):
            told = partial(_after, progress, count + first, count + further)
            wrong += look(objects, list(islice(rows, PAGE)), told)
    except CorruptRecord as error:
        raise DamagedSnapshot(str(record), (str(error),)) from None
    if wrong:
        raise DamagedSnapshot(str(record), tuple(wrong))


def files_in(
    objects: Objects, found: Manifest, *, rows: bool = True, besides: Collection[str] = ()
) -> Iterator[StoredFile]:
    """Yield the files of the checkpoints that a snapshot names, and of finished stages; and the
    rows of the newest batch of each stream.

    Args:
        besides: the names of manifests of finished stages that are left out.
    """
    for newest in _newest(objects, found):
        yield from newest.checkpoint
        if rows:
            yield from newest.files
    for named in _outputs(found):
        if named.name not in besides:
            yield from read_record(objects, OutputManifest, named).files


def refuse(what: str) -> WrongState:
    """Return the error of what snapshots in objects cannot do."""
    return WrongState(
        f"{what} is not possible where the storage has objects: snapshots there can be created, "
        "listed, verified, deleted and restored"
    )


# -- inside --------------------------------------------------------------------------------


def _newest(objects: Objects, found: Manifest) -> Iterator[BatchManifest]:
    """Yield the manifests of the newest batches that a snapshot names."""
    for named in (*found.heads.values(), *found.plans.values()):
        yield read_record(objects, BatchManifest, named)


def _outputs(found: Manifest) -> Iterator[StoredObject]:
    """Yield the manifests of the outputs of the finished stages that a snapshot names."""
    for key, stored in found.stored(keys.STAGES):
        stage = decode(StageRecord, stored, key)
        if stage.manifest is not None:
            yield stage.manifest


def _earlier_rows(objects: Objects, found: Manifest) -> Iterator[StoredFile]:
    """Yield the rows of all batches before the newest ones; each is an object of its own."""
    for newest in _newest(objects, found):
        rows = batches.files_of(objects, newest)
        yield from (file for batch, file in rows if batch < newest.batch)


def _after(
    progress: Callable[[int, int], None], before: int, total: int, done: int, _: int
) -> None:
    progress(before + done, total)


def _by_size(
    objects: Objects, files: Sequence[StoredFile], progress: Callable[[int, int], None]
) -> list[str]:
    """Return a line for each object that is missing, or too short for its files."""
    ends: dict[str, int] = {}
    for one in files:
        ends[one.object] = max(ends.get(one.object, 0), one.offset + one.size)
    names, wrong = list(ends), []
    for first in range(0, len(names), PAGE):
        some = names[first : first + PAGE]
        progress(first, len(names))
        stats = in_threads([partial(objects.stat, name) for name in some])
        for name, found in zip(some, stats, strict=True):
            if found is None:
                wrong.append(f"{objects.url}/{name} is missing")
            elif found.size < ends[name]:
                wrong.append(f"{objects.url}/{name} is shorter than its files")
    progress(len(names), len(names))
    return wrong
