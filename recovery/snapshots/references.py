"""References: whose files the jobs and the snapshots of a cluster still need."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath

from jrs.contract.errors import CorruptRecord, DamagedSnapshot, Unavailable
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.snapshots import SnapshotRecord

from ..checkpoint_format import relocation
from ..files import epoch_folders
from ..files.disk_errors import is_lost, reading
from ..files.job_folders import JobStorage
from ..files.safe_listing import is_file, names_in, walk
from . import folders
from .index import SnapshotIndex
from .open import OpenSnapshot, opened


def jobs_in_use(catalog: SnapshotIndex) -> set[str]:
    """Return the jobs whose published output is still needed: by a job that has not ended or is not
    cleaned up, which reads it, or by a listed snapshot.

    What a job and a snapshot hand over to each other meanwhile is found with one of them. A restore
    stores its job before it unlists the snapshot, so the jobs are read after the snapshots; a
    cleanup lists a snapshot before it removes its job, so new snapshots are read at the end.

    Raises:
        CorruptRecord: a snapshot cannot be read, so it may refer to any job.
        Unavailable: the storage of a snapshot is not mounted, or what a job reads cannot be listed
            now.
    """
    known: set[SnapshotRecord] = set()
    seen: set[str] = set()
    return (
        _needed_by_snapshots(catalog, known, seen)
        | _needed_by_jobs(catalog)
        | _needed_by_snapshots(catalog, known, seen)
    )


# -- inside --------------------------------------------------------------------------------


def _needed_by_snapshots(
    catalog: SnapshotIndex, known: set[SnapshotRecord], seen: set[str]
) -> set[str]:
    """Return the jobs whose output listed snapshots need.

    Args:
        known: those that need not be read again; what is read is added.
        seen: likewise the digests of logs: snapshots of one job share most.
    """
    storage, found = catalog.storage, set()
    for stored in scan_whole(catalog.backend, keys.SNAPSHOTS):
        record = decode(SnapshotRecord, stored.value, stored.key)
        if record in known:
            continue
        known.add(record)
        if not record.output:
            found.add(record.job_id)
        if record.objects is not None:
            continue  # It names objects of its own job only, and no path.
        with opened(storage, record) as snapshot:
            for path in _read_by_restored(record, snapshot, seen):
                found |= _owners(storage, path)
    return found


def _needed_by_jobs(catalog: SnapshotIndex) -> set[str]:
    storage, backend = catalog.storage, catalog.backend
    live = {
        keys.job_of(record.key)
        for prefix in (keys.JOBS, keys.DIRTY)
        for record in scan_whole(backend, prefix)
    }
    return {owner for path in _read_by_jobs(storage, live) for owner in _owners(storage, path)}


def _read_by_jobs(storage: JobStorage, live: Iterable[str]) -> Iterator[str]:
    """Yield what jobs read: the targets of their closed inputs, and the folders that the logs of
    their file sources name; also in what is restored of them, and not in its place yet. Raises
    `Unavailable` as `jobs_in_use`."""
    for job_id in live:
        folder = storage.folder(job_id)
        with reading(f"listing what job {job_id!r} reads"):
            epochs = epoch_folders.left(folder)
            # First: from there they are moved into place.
            restored = folders.restoring(storage, job_id)
            states = [restored / "epoch", *epochs]
            for top in (restored / "in", folder / "in"):
                yield from _links_in(top)
            for log in (log for state in states for log in _source_logs(state)):
                try:
                    yield from map(str, relocation.folders_in(log))
                except FileNotFoundError:
                    continue  # Spark has just compacted it.
            if epoch_folders.left(folder) != epochs:
                raise Unavailable(f"job {job_id!r} is being taken over: what it reads is not known")


def _links_in(top: Path) -> Iterator[str]:
    for where, _, others in walk(top, missing_ok=True):
        links = (where / name for name in others)
        yield from (os.readlink(link) for link in links if link.is_symlink())


def _source_logs(epoch: Path) -> Iterator[Path]:
    """Yield the logs of file sources in the checkpoints of an epoch's folder.

    A source of another kind may keep folders there, whose names are numbers as well.
    """
    for stage in names_in(epoch / "streams"):
        sources = epoch / "streams" / stage / "ck" / "sources"
        for source in names_in(sources):
            logs = (sources / source / name for name in names_in(sources / source))
            named = (log for log in logs if relocation.has_paths(log.relative_to(epoch).as_posix()))
            yield from filter(is_file, named)


def _read_by_restored(
    record: SnapshotRecord, snapshot: OpenSnapshot, seen: set[str]
) -> Iterator[str]:
    """Yield what a job that is restored from a snapshot reads, as `_read_by_jobs` does."""
    yield from snapshot.manifest.links.values()
    for file in snapshot.manifest.files:
        of_source = file.path.startswith("streams/") and relocation.has_paths(file.path)
        if of_source and file.sha256 not in seen:
            try:
                yield from map(str, relocation.folders_in(snapshot.locate(file)))
            except OSError as error:
                if not is_lost(error):
                    raise Unavailable(f"{record}: {file.path} cannot be read: {error}") from error
                raise DamagedSnapshot(str(record), (f"{file.path}: {error.strerror}",)) from error
            seen.add(file.sha256)


def _owners(storage: JobStorage, path: str) -> set[str]:
    """Return the jobs into whose output a path may lead.

    What a job reads may have been written when the storage had another path, which nothing has
    noted. So each name above an ``out`` counts: that keeps more than it has to, and loses nothing.
    """
    parts = PurePosixPath(path).parts
    found = {above for above, below in pairwise(parts) if below == "out"}
    try:
        inside = Path(os.path.realpath(path)).relative_to(storage.root.resolve())
    except ValueError:
        return found
    except OSError as error:
        raise CorruptRecord(f"{path} cannot be resolved: {error}") from error
    return {*found, *inside.parts[:1]}
