"""Selecting the files of a checkpoint that a restart at a batch needs.

State of batch N is version N + 1. Spark restores each store of each partition from a base and the
changes after it. A batch that ran again leaves files of the same version, which must not be read.
With format 2 the names carry a unique id, and the commit log names the ids that count.

A running query adds files, and its maintenance removes old ones. A missing file raises
`FileNotFoundError`: look again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

from jrs.contract.errors import InvalidInput

from . import commit_log, metadata, offset_log, state_files
from .commit_log import CommitLog
from .file_logs import log_until
from .listing import entries, number, numbers
from .offset_log import OffsetLog
from .state_files import SHARED, StateFile, parse_name
from .unreadable import UnreadableCheckpoint

_LOGS = ("offsets", "commits", "sources", "state")
_OF_SOURCES = re.compile(r"sources/[^/]+/\.?[0-9]+(\.compact)?(\.crc)?")


@attrs.frozen
class Checkpoint:
    """What a restart needs.

    Attributes:
        batch: the batch after which it resumes; None if none was committed: it begins again.
        query: the id of the streaming query.
        files: relative to the checkpoint, sorted.
    """

    batch: int | None
    query: str | None
    files: tuple[str, ...]


def batches(checkpoint: Path) -> list[int]:
    """Return the batches whose commit is retained, oldest first; none if the log is missing."""
    return sorted(numbers(checkpoint / "commits"))


def is_sparks(path: str) -> bool:
    """Return whether a file of a checkpoint is named as Spark names its own, which never change.
    Sources of others keep files of their own below ``sources/<i>/``, and may change them."""
    return not path.startswith("sources/") or _OF_SOURCES.fullmatch(path) is not None


def commit_of(batch: int) -> str:
    """Return the path of a batch's commit below its checkpoint."""
    return f"commits/{batch}"


def select(checkpoint: Path, batch: int | None = None) -> Checkpoint:
    """Return what a restart after `batch` needs; by default after the newest committed one.

    Raises:
        InvalidInput: `batch` was not committed, or is not retained any more.
        FileNotFoundError: a file is missing: Spark removed it in this moment, or it is lost.
        UnreadableCheckpoint: a file cannot be read.
    """
    committed = batches(checkpoint)
    if batch is None:
        if not committed:
            return Checkpoint(None, None, ())
        batch = committed[-1]
    elif batch not in committed:
        known = f"{committed[0]} to {committed[-1]}" if committed else "none"
        raise InvalidInput(f"{checkpoint}: batch {batch} is not retained (retained: {known})")
    found = ["metadata"]
    for log in ("offsets", "commits"):
        found.append(f"{log}/{batch}")
        if batch - 1 in numbers(checkpoint / log):
            found.append(f"{log}/{batch - 1}")
    if f"offsets/{batch - 1}" in found:
        offset_log.read(checkpoint / "offsets" / str(batch - 1))
    # Spark does not sync it: after a power cut it may exist, and be empty.
    commit_log.read(checkpoint / "commits" / str(batch))
    plan = offset_log.read(checkpoint / "offsets" / str(batch))
    found += _sources(checkpoint, batch, plan)
    found += _state(checkpoint, batch, plan)
    for entry in entries(checkpoint):
        if entry.name not in _LOGS and entry.name != "metadata":
            found += _everything(checkpoint, entry.name)
    for name in found:
        _check_there(checkpoint, name)
    query = metadata.read(checkpoint / "metadata").id
    return Checkpoint(batch, query, tuple(sorted(found)))


def is_computed(checkpoint: Path, batch: int) -> bool:
    """Return whether an earlier run computed a batch completely, committed or not: whether every
    partition has state of it.

    Raises:
        FileNotFoundError: the batch was not planned.
        UnreadableCheckpoint: its plan cannot be read.
    """
    partitions = _partitions(offset_log.read(checkpoint / "offsets" / str(batch)))
    folders = [
        Path(entry.path)
        for operator in entries(checkpoint / "state")
        for entry in entries(Path(operator.path))
        if (partition := number(entry.name)) is not None and partition < partitions
    ]
    return bool(folders) and all(any(_of_version(folder, batch + 1)) for folder in folders)


# -- inside --------------------------------------------------------------------------------


def _check_there(checkpoint: Path, name: str) -> None:
    path = checkpoint / name
    if not path.is_file():
        raise FileNotFoundError(2, "is missing", str(path))
    # Spark does not sync them: after a power cut one may exist, and be empty. The log files of
    # RocksDB itself, and what a source of others keeps, may be empty at any time.
    has_content = name.startswith("state/") or _OF_SOURCES.fullmatch(name) is not None
    may_be_empty = not has_content or path.parent.name == "logs"
    if not may_be_empty and path.stat().st_size == 0:
        raise UnreadableCheckpoint(f"{path} is empty: what Spark had written was lost")


def _everything(checkpoint: Path, name: str) -> Iterator[str]:
    if (checkpoint / name).is_dir():
        for entry in entries(checkpoint / name):
            yield from _everything(checkpoint, f"{name}/{entry.name}")
    else:
        yield name


def _sources(checkpoint: Path, batch: int, plan: OffsetLog) -> Iterator[str]:
    ends = {source.name: source.log_end for source in plan.sources}
    for entry in entries(checkpoint / "sources"):
        end = ends.get(entry.name)
        # A file source counts the entries of its own log. An entry for a later batch is not part
        # of this one, and the source finds its files again.
        where = f"sources/{entry.name}"
        if end is not None:
            for name in log_until(checkpoint / where, end, whole=True):
                yield f"{where}/{name}"
            continue
        until = log_until(checkpoint / where, batch, whole=False)
        for found in entries(checkpoint / where):
            path = f"{where}/{found.name}"
            if found.is_dir() or not is_sparks(path):
                yield from _everything(checkpoint, path)
            elif found.name in until:
                yield path


def _partitions(plan: OffsetLog) -> float:
    """Return the number of partitions of a batch's state, as far as the plan bounds it."""
    return math.inf if plan.partitions is None else plan.partitions


def _of_version(folder: Path, version: int) -> Iterator[Path]:
    for entry in entries(folder):
        for found in (entry, *(entries(Path(entry.path)) if entry.is_dir() else ())):
            file = parse_name(found.name)
            if file is not None and file.version == version:
                yield Path(found.path)


def _state(checkpoint: Path, batch: int, plan: OffsetLog) -> Iterator[str]:
    commits = _Commits(checkpoint)
    # Higher folders belong to batches before or after a rescale: they hold no state of this one.
    partitions = _partitions(plan)
    for operator in entries(checkpoint / "state"):
        where = f"state/{operator.name}"
        for entry in entries(checkpoint / where):
            partition = number(entry.name)
            if partition is None:
                yield from _everything(checkpoint, f"{where}/{entry.name}")
            elif partition < partitions:
                yield from _partition(checkpoint, f"{where}/{entry.name}", batch, commits)


def _partition(checkpoint: Path, where: str, batch: int, commits: _Commits) -> Iterator[str]:
    found = entries(checkpoint / where)
    stores = []
    for entry in found:
        if entry.name.startswith("_"):
            yield from _everything(checkpoint, f"{where}/{entry.name}")
        elif entry.is_dir() and entry.name not in SHARED:
            stores.append(f"{where}/{entry.name}")
    if not stores or any(parse_name(entry.name) for entry in found):
        yield from _store(checkpoint, where, batch, commits)
    for store in stores:
        for entry in entries(checkpoint / store):
            if entry.name.startswith("_"):
                yield from _everything(checkpoint, f"{store}/{entry.name}")
        yield from _store(checkpoint, store, batch, commits)


def _store(checkpoint: Path, where: str, batch: int, commits: _Commits) -> Iterator[str]:
    """Yield the newest base and the changes after it, one for each version up to the batch's."""
    names = {entry.name for entry in entries(checkpoint / where)}
    bases: dict[int, list[StateFile]] = {}
    changes: dict[int, list[StateFile]] = {}
    for file in filter(None, map(parse_name, sorted(names))):
        if file.version <= batch + 1 and commits.count(file, where):
            kind = bases if file.is_base else changes
            kind.setdefault(file.version, []).append(file)
    first = max(bases, default=0)
    for version in range(first + 1, batch + 2):
        if version not in changes:
            missing = checkpoint / where / f"{version}.*"
            raise FileNotFoundError(2, "is missing", str(missing))
    chosen = list(bases.get(first, ()))
    for version in range(max(1, first), batch + 2):
        chosen += changes.get(version, ())
    for file in chosen:
        yield f"{where}/{file.name}"
        if f"{file.name}.crc" in names:
            yield f"{where}/{file.name}.crc"
        if file.is_zip:
            shared = state_files.read_zip(checkpoint / where / file.name)
            yield from (f"{where}/{each}" for each in shared)


class _Commits:
    """The unique ids in the commit log; each commit is read once."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "commits"
        self._read: dict[int, CommitLog | None] = {}

    def count(self, file: StateFile, where: str) -> bool:
        """Return whether a file counts: whether the commit names its unique id for the partition
        `where`. A file without an id always counts."""
        if file.unique is None:
            return True
        if file.version not in self._read:
            self._read[file.version] = self._of(file.version)
        commit = self._read[file.version]
        operator, partition = where.split("/")[1:3]
        # If the commit is no longer retained, Spark has kept only the files that belong to it.
        return commit is None or commit.is_of(file.unique, operator, int(partition))

    def _of(self, version: int) -> CommitLog | None:
        try:
            return commit_log.read(self._folder / str(version - 1))
        except FileNotFoundError:
            return None
