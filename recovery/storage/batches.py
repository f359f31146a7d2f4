"""The batches of a stream in objects: one manifest names the newest one and all before it.

The manifest of a batch lists the earlier batches that have rows. Where 64 entries of a level have
come together, one object of the next level takes their place, so that neither a commit nor a look
costs more as the stream grows older: at the first level it has the names of their files, above that
the names of such objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import attrs

from jrs.records.objects import (
    BatchFiles,
    BatchManifest,
    EarlierBatches,
    MergedBatches,
    StoredFile,
    StoredObject,
)

from .objects import Objects
from .packed_copies import PrefixWriter, in_threads, read_record

WIDTH = 64
"""Entries of one level that are merged into one of the next."""


def follow(
    objects: Objects, writer: PrefixWriter, before: BatchManifest, named: StoredObject
) -> tuple[EarlierBatches, ...]:
    """Return what the manifest of the batch after `before` lists as earlier.

    Args:
        named: how records name `before`.

    Raises:
        CorruptRecord: a manifest that has to be merged is missing, or was changed.
        Unavailable, StorageRefused: from the store; the call may be repeated.
    """
    if not before.files:
        return before.earlier
    listed = [*before.earlier, EarlierBatches(before.batch, before.batch, 0, named)]
    if _full_level(listed) == 0:
        some = listed[-WIDTH:]
        merged = MergedBatches(before.job_id, before.stage, tuple(_below(objects, some, -1)))
        listed[-WIDTH:] = [_put(writer, merged, some[0].first, some[-1].last, 1)]
        _merge(writer, before.job_id, before.stage, listed)
    return tuple(listed)


def merged_of(
    writer: PrefixWriter, job_id: str, stage: str, batches: Iterator[BatchFiles]
) -> tuple[EarlierBatches, ...]:
    """Return what a manifest lists as earlier that comes after batches with rows, as if each of
    them had been followed. Few of them are in memory at once.

    Raises:
        Unavailable, StorageRefused: from the store; the call may be repeated.
    """
    listed: list[EarlierBatches] = []
    while files := tuple(islice(batches, WIDTH)):
        merged = MergedBatches(job_id, stage, files)
        listed.append(_put(writer, merged, files[0].batch, files[-1].batch, 1))
        _merge(writer, job_id, stage, listed)
    return tuple(listed)


def files_of(
    objects: Objects, newest: BatchManifest, *, behind: int = -1
) -> Iterator[tuple[int, StoredFile]]:
    """Yield the files with rows after the batch `behind`, with their batches, oldest first.

    Raises:
        CorruptRecord: a manifest is missing, or was changed.
        Unavailable, StorageRefused: from the store.
    """
    for one in _below(objects, newest.earlier, behind):
        yield from ((one.batch, file) for file in one.files)
    if newest.batch > behind:
        yield from ((newest.batch, file) for file in newest.files)


def read_listed(objects: Objects, newest: BatchManifest) -> None:
    """Read the manifests that one lists, without those below them: what the next batches merge. At
    most 63 of each level.

    Raises as `files_of`.
    """
    _read_all(objects, newest.earlier)


def in_batch(batch: int, file: StoredFile) -> StoredFile:
    """Return a file with rows under its path in a stage's output: in the folder of its batch."""
    return attrs.evolve(file, path=f"batch={batch}/{file.path}")


def objects_of(objects: Objects, newest: BatchManifest, *, checkpoint: bool) -> Iterator[str]:
    """Yield the objects that a manifest names, and those that they name: rows, other manifests and,
    if wanted, the checkpoint. Raises as `files_of`."""
    yield from (one.object for one in newest.files)
    if checkpoint:
        yield from (one.object for one in newest.checkpoint)
    yield from _names(objects, newest.earlier)


# -- inside --------------------------------------------------------------------------------


def _full_level(listed: Sequence[EarlierBatches]) -> int | None:
    """Return the level of the last entries, if there are enough of them to be merged."""
    last = listed[-WIDTH:]
    level = last[-1].level
    return level if len(last) == WIDTH and last[0].level == level else None


def _merge(writer: PrefixWriter, job_id: str, stage: str, listed: list[EarlierBatches]) -> None:
    """Merge entries at the end of a list, from the first level on, while there are enough."""
    while (level := _full_level(listed)) is not None:
        some = tuple(listed[-WIDTH:])
        merged = MergedBatches(job_id, stage, (), some)
        listed[-WIDTH:] = [_put(writer, merged, some[0].first, some[-1].last, level + 1)]


def _put(
    writer: PrefixWriter, merged: MergedBatches, first: int, last: int, level: int
) -> EarlierBatches:
    named = writer.put_record(f"{merged.stage}/merged", merged)
    return EarlierBatches(first, last, level, named)


def _below(
    objects: Objects, entries: Sequence[EarlierBatches], behind: int
) -> Iterator[BatchFiles]:
    wanted = [entry for entry in entries if entry.last > behind]
    for entry, found in zip(wanted, _read_all(objects, wanted), strict=True):
        if isinstance(found, BatchManifest):
            yield BatchFiles(found.batch, found.files)
        elif entry.level == 1:
            yield from (one for one in found.batches if one.batch > behind)
        else:
            yield from _below(objects, found.earlier, behind)


def _names(objects: Objects, entries: Sequence[EarlierBatches]) -> Iterator[str]:
    for entry, found in zip(entries, _read_all(objects, entries), strict=True):
        yield entry.manifest.name
        if isinstance(found, BatchManifest):
            yield from (file.object for file in found.files)
        else:
            yield from (file.object for one in found.batches for file in one.files)
            yield from _names(objects, found.earlier)


def _read_all(
    objects: Objects, entries: Sequence[EarlierBatches]
) -> list[BatchManifest | MergedBatches]:
    def reading(entry: EarlierBatches) -> Callable[[], BatchManifest | MergedBatches]:
        if entry.level == 0:
            return lambda: read_record(objects, BatchManifest, entry.manifest)
        return lambda: read_record(objects, MergedBatches, entry.manifest)

    return in_threads([reading(entry) for entry in entries])
