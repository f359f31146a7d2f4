"""The contents of a job's snapshot: the recovery points of its stages and their published output.

All of it is read while the job may run. A set of recovery points is consistent if it was true at
one moment: the batches are read twice, and the records before and after, until nothing changed in
between. The files of a committed batch never change, so gathering them may take longer than a
batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, NoSuchJob, Unavailable, WrongState
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import StageRecord
from jrs.records.snapshots import SnapshotFile, SnapshotStage, as_stored, as_text
from jrs.store.result_store import JobResultStore
from jrs.store.stored_result import how_it_ended

from ..checkpoint_format import checkpoint, relocation
from ..checkpoint_format.file_logs import LoggedFile
from ..checkpoint_format.sink_log import SINK_LOG, files_until, is_of_sink, sink_logs
from ..files import batch_folders, epoch_folders, written_root
from ..files.job_folders import JobStorage
from ..files.safe_listing import names_in
from . import left_out


@attrs.frozen
class Item:
    """One file to capture, and its path in the snapshot."""

    source: Path
    path: str
    final: bool = True
    """Whether the file is never changed: it is Spark's, the jrs sink's, or of a finished stage.
    User code may append to any other file."""


@attrs.frozen
class Contents:
    """The contents of a snapshot."""

    stages: tuple[SnapshotStage, ...]
    records: dict[str, str]
    items: tuple[Item, ...]
    links: dict[str, str]
    left_out: dict[str, int] | None
    """The published output that is not among the items, for the manifest; None if all of it is."""
    root: Path
    """The folder of the job by which its logs name it."""


def never_changes(file: SnapshotFile) -> bool:
    """Return whether a snapshot and its job may share a file, because nobody writes into it."""
    top, *inside = file.path.split("/", 3)  # streams/<stage>/ck/…
    if top == "streams":
        return checkpoint.is_sparks(inside[-1])
    return file.inode != 0  # It was linked, since it was `Item.final`.


def read_records(backend: Backend, job_id: str) -> dict[str, str]:
    """Return the records of a job that belong in a snapshot, as they are stored.

    Raises:
        CorruptRecord: the disk may have lost one of them.
        Unavailable: from the backend.
    """
    found = {}
    spec = backend.get(keys.JOBS + job_id)
    if spec is not None:
        found["spec"] = as_text(spec.value)
    for prefix in (keys.STAGES, keys.STREAMS):
        for record in scan_whole(backend, f"{prefix}{job_id}/"):
            name = record.key.removeprefix(f"{prefix}{job_id}/")
            found[f"{prefix}{name}"] = as_text(record.value)
    return found


def nothing_left(backend: Backend, job_id: str) -> NoSuchJob | WrongState:
    """Return the error of a job of which there is nothing to take a snapshot of: it has ended, or
    there never was one."""
    entry = JobResultStore(backend).get(job_id)
    if entry is None:
        return NoSuchJob(f"there is no job {job_id!r}")
    return WrongState(
        f"job {job_id!r} {how_it_ended(entry)}; nothing is left to take a snapshot of"
    )


def restored_meanwhile() -> Unavailable:
    """Return the error of a snapshot during which the job was restored."""
    return Unavailable(
        "the job was restored while its snapshot was taken, so nothing is listed; try again"
    )


def changes_too_fast(job_id: str) -> Unavailable:
    """Return the error of a job that has changed during each try to take a snapshot."""
    return Unavailable(f"job {job_id!r} changes faster than a snapshot can be taken; try again")


@contextmanager
def as_missing() -> Iterator[None]:
    """Report a path whose epoch folder was renamed as a missing file."""
    try:
        yield
    except NotADirectoryError as error:
        raise FileNotFoundError(2, "is missing", error.filename) from error


def gather(
    storage: JobStorage,
    job_id: str,
    records: dict[str, str],
    *,
    output: bool = True,
    batches: Mapping[str, int] | None = None,
) -> Contents:
    """Return the job's contents for a snapshot now, or at older retained `batches` by stage.

    Raises:
        FileNotFoundError: a file was just removed, or is lost: read again.
        NotADirectoryError, BeingTakenOver: a newer leader replaces the epoch's folder: read again.
        InvalidInput: a batch is not retained, a stage does not exist, or output cannot be part of a
            snapshot.
        CorruptRecord: a log or a record cannot be read.
    """
    epoch = epoch_folders.newest(storage.folder(job_id))
    streams = _streams(epoch)
    for name in batches or ():
        if name not in streams:
            raise InvalidInput(f"job {job_id!r} has no streaming stage {name!r}")
        if f"{keys.STAGES}{name}" in records:
            # Its record says that it is complete: no attempt would resume from an older batch.
            raise InvalidInput(
                f"stage {name!r} of job {job_id!r} has finished: it cannot be pinned at an older "
                "batch; leave it out"
            )
    pinned = _pin(streams, batches or {})
    stages, items = [], []
    for name, folder in streams.items():
        found = (
            checkpoint.Checkpoint(None, None, ())
            if pinned[name] is None
            else checkpoint.select(folder, pinned[name])
        )
        stages.append(SnapshotStage(name, found.batch, found.query))
        items += [
            Item(folder / path, f"streams/{name}/ck/{path}", final=checkpoint.is_sparks(path))
            for path in found.files
        ]
    finished = _finished(records)
    published = _published(storage, job_id, epoch, finished, pinned)
    left = None
    if output:
        items += published
    elif not _is_empty(published):
        left = left_out.of(storage.folder(job_id), epoch, finished, pinned)
    _check_streams(storage, job_id, epoch, records, streams)
    links = dict(_links(storage.folder(job_id), "in"))
    if epoch_folders.newest(storage.folder(job_id)) != epoch:
        # A newer leader has renamed it: its files look as if they had never existed.
        raise FileNotFoundError(2, "is missing", str(epoch))
    root = _root(storage, streams) / job_id
    return Contents(tuple(stages), records, tuple(items), links, left, root)


def check_spelling(items: Iterable[Item], root: Path) -> None:
    """Raise `InvalidInput` if a source's log names the job's own files by a path that is not below
    `root`: a restore elsewhere could not recognise them as the job's own."""
    real = root.resolve()
    for item in items:
        if not relocation.has_paths(item.path):
            continue
        with suppress(FileNotFoundError):  # It was removed since: another log has its entries.
            for folder in relocation.folders_in(item.source):
                if not folder.is_relative_to(root) and folder.resolve().is_relative_to(real):
                    raise InvalidInput(
                        f"{item.source} names {folder}, which is in {root} under another path; "
                        "name the storage as that log does"
                    )


# -- inside --------------------------------------------------------------------------------


def _root(storage: JobStorage, streams: Mapping[str, Path]) -> Path:
    """Return the root of the storage by which the logs of streams name their files."""
    found = {written_root.noted(folder.parent) or storage.root for folder in streams.values()}
    if len(found) > 1:
        raise InvalidInput(
            f"the storage was moved to {storage.root}, and not all of the job's files have been "
            "relocated yet: resume the job first"
        )
    return next(iter(found), storage.root)


def _check_streams(
    storage: JobStorage,
    job_id: str,
    epoch: Path | None,
    records: Mapping[str, str],
    streams: Mapping[str, Path],
) -> None:
    """Raise `FileNotFoundError` if a stage has output but no checkpoint. A stage without output may
    be about to begin."""
    for key in records:
        name = key.removeprefix(keys.STREAMS)
        if name == key or name in streams or keys.STAGES + name in records:
            continue
        if _has_output(storage.published(job_id, name, temporary=False)):
            folder = storage.folder(job_id) if epoch is None else epoch
            raise FileNotFoundError(2, "is missing", str(folder / "streams" / name / "ck"))


def _streams(epoch: Path | None) -> dict[str, Path]:
    if epoch is None or not (epoch / "streams").is_dir():
        return {}
    found = {}
    for name in sorted(os.listdir(epoch / "streams")):
        folder = epoch / "streams" / name / "ck"
        if folder.is_dir():
            found[name] = folder
        elif any(name.startswith("ck.") for name in names_in(folder.parent)):
            # It is being rescaled: another checkpoint is about to take its place.
            raise FileNotFoundError(2, "is missing", str(folder))
    return found


def _pin(streams: Mapping[str, Path], wanted: Mapping[str, int]) -> dict[str, int | None]:
    """Return the newest committed batch of each stage, all read at one moment."""
    before: dict[str, int | None] | None = None
    while True:
        now = {
            name: wanted.get(name, max(checkpoint.batches(folder), default=None))
            for name, folder in streams.items()
        }
        if now == before:
            return now
        before = now


def _finished(records: Mapping[str, str]) -> dict[str, StageRecord]:
    """Return the records of the finished stages, by name."""
    found = (
        decode(StageRecord, as_stored(text), key)
        for key, text in records.items()
        if key.startswith(keys.STAGES)
    )
    return {record.name: record for record in found}


def _published(
    storage: JobStorage,
    job_id: str,
    epoch: Path | None,
    finished: Mapping[str, StageRecord],
    pinned: Mapping[str, int | None],
) -> Iterator[Item]:
    for name in sorted({*finished, *pinned}):
        for temporary in (False, True):
            folder = storage.published(job_id, name, temporary=temporary)
            path = f"{'tmp' if temporary else 'out'}/{name}"
            if name in pinned:
                if folder.is_dir():
                    yield from _until(folder, path, pinned[name])
            elif (mark := finished[name]).temporary is temporary:
                if folder.is_dir():
                    yield from _final(_whole(folder, path))
                elif mark.published is not None:
                    # Finished, but not renamed into place yet: its record is the commit.
                    staged = None if epoch is None else epoch / mark.published
                    if mark.target is not None and (staged is None or not staged.is_dir()):
                        continue  # Its output is at a path of the user's own.
                    if staged is None:
                        raise FileNotFoundError(2, "is missing", str(folder))
                    yield from _final(_whole(staged, path))


def _final(items: Iterator[Item]) -> Iterator[Item]:
    return (attrs.evolve(item, final=True) for item in items)


def _is_empty(published: Iterator[Item]) -> bool:
    try:
        return next(published, None) is None
    except (InvalidInput, FileNotFoundError, CorruptRecord):
        return False  # Something exists, whatever it is.


def _until(folder: Path, path: str, batch: int | None) -> Iterator[Item]:
    """Yield what a streaming sink had published by `batch`, and nothing of later batches."""
    if batch is None:
        return
    if (folder / SINK_LOG).is_dir():
        yield from _logged(folder, path, batch)
        return
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        number = batch_folders.number_of(Path(entry.path))
        if number <= batch if number is not None else not entry.name.startswith("."):
            found = _whole(Path(entry.path), f"{path}/{entry.name}", batch)
            yield from found if number is None else map(_of_batch, found)


def _of_batch(item: Item) -> Item:
    # Others may still write into what they have put into the folder of a batch.
    return attrs.evolve(item, final=batch_folders.is_part(item.source.name))


def _logged(folder: Path, path: str, batch: int) -> Iterator[Item]:
    """Yield what a file sink had published by `batch`, according to its log, and what others have
    written there."""
    for name, files in files_until(folder / SINK_LOG, batch):
        log = folder / SINK_LOG / name
        yield Item(log, f"{path}/{SINK_LOG}/{name}")
        yield from _named_in(folder, path, log, files)
    yield from _of_others(folder, folder, path, batch)


def _of_others(table: Path, folder: Path, path: str, batch: int) -> Iterator[Item]:
    """Yield what functions of the job have written into a table of a file sink: no log names it.
    Links and the like are left out."""
    with os.scandir(folder) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        inner, below = Path(entry.path), f"{path}/{entry.name}"
        if entry.name.startswith(".") or entry.name == SINK_LOG:
            continue
        if entry.is_dir(follow_symlinks=False):
            if (inner / SINK_LOG).is_dir():
                yield from _logged(inner, below, batch)
            else:
                yield from _of_others(table, inner, below, batch)
        elif entry.is_file(follow_symlinks=False) and not is_of_sink(inner.relative_to(table)):
            yield Item(inner, below, final=False)


def _has_output(folder: Path) -> bool:
    """Return whether a streaming sink, of jrs or of files, has published anything."""
    published = next(batch_folders.published(folder), None)
    return published is not None or any(map(names_in, sink_logs(folder)))


def _named_in(folder: Path, path: str, log: Path, files: Iterable[LoggedFile]) -> Iterator[Item]:
    """Yield the data files that one file of a sink's log names."""
    for named in files:
        file = Path(named.path)
        if not file.is_relative_to(folder) or ".." in file.parts:
            raise InvalidInput(f"{log} names {named.uri!r}, which is not in {folder}: it was moved")
        if not os.path.lexists(file):
            continue  # No maintenance removes rows: a user has pruned old ones.
        relative = file.relative_to(folder)
        yield Item(file, f"{path}/{relative.as_posix()}")


def _links(folder: Path, path: str) -> Iterator[tuple[str, str]]:
    """Yield the links of the closed inputs of the job's stages."""
    if (folder / path).is_symlink():
        yield path, os.readlink(folder / path)
    elif (folder / path).is_dir():
        for name in sorted(os.listdir(folder / path)):
            if not name.startswith("."):
                yield from _links(folder, f"{path}/{name}")


def _whole(top: Path, path: str, batch: int | None = None) -> Iterator[Item]:
    """Yield everything below a folder, whatever process has written it. If a file sink has a folder
    of its own there, yield its files up to `batch`, if given."""
    if top.is_symlink():
        raise InvalidInput(f"{top} is a link: it cannot be part of a snapshot; leave output out")
    if batch is not None and (top / SINK_LOG).is_dir():
        yield from _logged(top, path, batch)
    elif top.is_dir():
        for name in sorted(os.listdir(top)):
            yield from _whole(top / name, f"{path}/{name}", batch)
    elif top.is_file():
        yield Item(top, path, final=False)
    elif not top.exists():
        raise FileNotFoundError(2, "is missing", str(top))
    else:
        raise InvalidInput(f"{top} is not a file: it cannot be in a snapshot; leave output out")
