"""The output that a snapshot leaves out: what of it was there, and whether it still is.

A restore of such a snapshot puts the state back, and lets the output be. So that has to be as it
was: of batches that are there already, the sinks would publish nothing; and of batches that another
restore has taken back, nothing would ever be published again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jrs.contract.errors import InvalidInput
from jrs.records.model import StageRecord
from jrs.records.snapshots import Manifest

from ..checkpoint_format import sink_log
from ..files import batch_folders
from ..files.disk_errors import reading
from ..files.job_folders import JobStorage
from ..files.safe_listing import is_folder, names_in

_TOPS = ("out", "tmp")


def newest_batch(folder: Path, until: int | None = None) -> int:
    """Return the newest batch that a stage's sinks have published, according to its folder; -1 if
    there is none.

    Args:
        until: the newest batch that counts; None if all do.
    """
    return max(_newest_batches(folder, until).values())


def of(
    folder: Path,
    epoch: Path | None,
    finished: Mapping[str, StageRecord],
    pinned: Mapping[str, int | None],
) -> dict[str, int]:
    """Return the published output of a job for `Manifest.left_out`.

    Args:
        folder: of the job.
        epoch: its newest epoch folder.
        finished: the records of the finished stages.
        pinned: the batch of each stream in the snapshot.
    """
    found = dict[str, int]()
    for name, last in pinned.items():
        for top in _TOPS:
            if last is not None and names_in(folder / top / name):
                newest = _newest_batches(folder / top / name, last)
                found |= {
                    path.relative_to(folder).as_posix(): each for path, each in newest.items()
                }
    for name, mark in finished.items():
        path = f"{'tmp' if mark.temporary else 'out'}/{name}"
        if name not in pinned and ((folder / path).is_dir() or _is_staged(mark, epoch)):
            found[path] = -1
    return found


def check(storage: JobStorage, found: Manifest) -> None:
    """Raise `InvalidInput` if the output that a snapshot has left out is not there as it was.

    Of streams the newest batch counts: users may have removed older ones.

    Raises:
        Unavailable: the output cannot be read now.
    """
    top, known = storage.folder(found.job_id), found.left_out
    for stage in found.stages:
        last = -1 if stage.batch is None else stage.batch
        for path in (f"{one}/{stage.name}" for one in _TOPS):
            most = last if known is None else _newest_below(path, known)
            with reading(f"reading {top / path}"):
                newest = newest_batch(top / path)
            if newest > most:
                raise InvalidInput(
                    f"the snapshot was taken without output, and {top / path} is at batch "
                    f"{newest}, ahead of batch {most}; restore one with output"
                )
    for path, batch in (known or {}).items():
        with reading(f"reading {top / path}"):
            _check_there(top / path, batch)


# -- inside --------------------------------------------------------------------------------


def _newest_batches(folder: Path, until: int | None) -> dict[Path, int]:
    """Return the newest batch of a stage's folder, -1 if it has none, and of each table of a file
    sink in it that has one, by their paths."""

    def counts(batch: int) -> bool:
        return until is None or batch <= until

    newest = next(filter(counts, batch_folders.published(folder)), -1)
    found = {folder: newest}
    # A stream of months has a million folders of batches, and no log in them.
    for log in sink_log.sink_logs(folder, batch_folders.is_named if newest >= 0 else None):
        if logged := list(filter(counts, sink_log.batches(log))):
            found[log.parent] = max(*logged, found.get(log.parent, -1))
    return found


def _newest_below(path: str, known: Mapping[str, int]) -> int:
    return max((each for of, each in known.items() if f"{of}/".startswith(f"{path}/")), default=-1)


def _is_staged(mark: StageRecord, epoch: Path | None) -> bool:
    """Return whether the output of a finished stage has not been renamed into its place yet."""
    if mark.published is None or mark.target is not None or epoch is None:
        return False
    return (epoch / mark.published).is_dir()


def _check_there(folder: Path, batch: int) -> None:
    """Raise `InvalidInput` if a batch is not in an output, or in the table of a file sink; with -1,
    if that is missing."""
    log, missing, has_log = folder / sink_log.SINK_LOG, folder, False
    if batch >= 0:
        missing, has_log = folder / f"batch={batch}", is_folder(log)
        if has_log and batch in sink_log.batches(log):
            return
    # An empty folder stands for no batch of a log; one of the sink of jrs may be next to the log.
    if is_folder(missing) and (not has_log or batch_folders.parts(missing)):
        return
    what = f"batch {batch}, the newest in {folder} then," if batch >= 0 else str(folder)
    way = "" if has_log else f"; or, if you have removed it yourself, create the folder {missing}"
    raise InvalidInput(
        f"the snapshot was taken without output, and {what} is missing now, so its rows would be "
        f"lost; restore one with output{way}"
    )
