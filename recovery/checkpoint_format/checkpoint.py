"""Which files of a Spark checkpoint a restart at a batch needs. Pure file names: no Spark, no JVM.

State is versioned: what batch N read and wrote is version N + 1. Each store of each partition is
restored from a base (``.snapshot`` or ``.zip``) and the changes (``.delta``, ``.changelog``) behind
it. With format 2 the names carry the unique id that the commit log names, since a batch that was
run again leaves files of the same version behind that nobody may read.

A query that runs goes on adding files, and its maintenance removes old ones. Whatever is found
missing is a `FileNotFoundError`: look again.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from jrs.contract.errors import CorruptRecord, InvalidInput

_VERSIONED = re.compile(r"([0-9]+)(?:_([0-9a-fA-F-]{36}))?\.(delta|changelog|snapshot|zip)")
_LOGGED = re.compile(r"([0-9]+)(\.compact)?")
_SHARED = {"SSTs": "sstFiles", "logs": "logFiles"}
_LOGS = ("offsets", "commits", "sources", "state")


@attrs.frozen
class Checkpoint:
    """What a restart needs.

    Attributes:
        batch: the batch it goes on behind; None if none was committed: it begins again.
        query: the id of the streaming query.
        files: relative to the checkpoint, sorted.
    """

    batch: int | None
    query: str | None
    files: tuple[str, ...]


def batches(checkpoint: Path) -> list[int]:
    """Return the batches whose commit is still retained, oldest first; none if there is no log."""
    return sorted(_numbers(checkpoint / "commits"))


def select(checkpoint: Path, batch: int | None = None) -> Checkpoint:
    """Return what a restart behind `batch` needs; behind the newest committed one by default.

    Raises:
        InvalidInput: `batch` was not committed, or is not retained any more.
        FileNotFoundError: something is missing: it was removed in this moment, or is lost.
        CorruptRecord: a log that cannot be read.
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
        if batch - 1 in _numbers(checkpoint / log):
            found.append(f"{log}/{batch - 1}")
    if f"offsets/{batch - 1}" in found:
        _planned(checkpoint / "offsets" / str(batch - 1))
    _check_commit(checkpoint / "commits" / str(batch))
    found += _sources(checkpoint, batch)
    found += _state(checkpoint, batch)
    for entry in _entries(checkpoint):
        if entry.name not in _LOGS and entry.name != "metadata":
            found += _everything(checkpoint, entry.name)
    for name in found:
        path = checkpoint / name
        if not path.is_file():
            raise FileNotFoundError(2, "is missing", str(path))
        # Spark does not sync them: after a power cut one may be there, and empty. The log files
        # that RocksDB itself has may be so at any time.
        may_be_empty = not name.startswith(("state/", "sources/")) or path.parent.name == "logs"
        if not may_be_empty and path.stat().st_size == 0:
            raise CorruptRecord(f"{path} is empty: what Spark had written was lost")
    return Checkpoint(batch, _query(checkpoint), tuple(sorted(found)))


def is_computed(checkpoint: Path, batch: int) -> bool:
    """Return whether every partition has state of a batch, committed or not: whether the batch was
    once computed, all of it.

    Raises:
        CorruptRecord: how it was planned cannot be read.
    """
    partitions = _partitions(checkpoint / "offsets" / str(batch))
    folders = [
        Path(entry.path)
        for operator in _entries(checkpoint / "state")
        for entry in _entries(Path(operator.path))
        if entry.name.isdigit() and int(entry.name) < partitions
    ]
    return bool(folders) and all(any(_of_version(folder, batch + 1)) for folder in folders)


def newest_logged(folder: Path) -> int:
    """Return the newest entry of a compacted log; -1 if there is none."""
    found = (_LOGGED.fullmatch(entry.name) for entry in _entries(folder))
    return max((int(match[1]) for match in found if match), default=-1)


def log_until(folder: Path, last: int, *, whole: bool) -> list[str]:
    """Return the names of a compacted log's files that hold its entries up to `last`.

    Raises:
        FileNotFoundError: `whole` was asked for, and an entry is missing.
        CorruptRecord: `whole` was asked for, and an entry has no version: it was never written.
    """
    compact: set[int] = set()
    single: set[int] = set()
    for entry in _entries(folder):
        if match := _LOGGED.fullmatch(entry.name):
            (compact if match[2] else single).add(int(match[1]))
    base = max((number for number in compact if number <= last), default=-1)
    wanted = range(base + 1, last + 1)
    if whole:
        for number in wanted:
            if number not in single:
                raise FileNotFoundError(2, "is missing", str(folder / str(number)))
    names = [f"{base}.compact"] if base >= 0 else []
    names += [str(number) for number in sorted(single) if number in wanted]
    for name in names if whole else ():
        with open(folder / name, "rb") as file:
            if file.read(1) != b"v":
                raise CorruptRecord(f"{folder / name}: not a log of Spark: it has no version")
    return names


def read(path: Path) -> str:
    """Return what is in a log of Spark's.

    Raises:
        CorruptRecord: it is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"{path}: not a text: {error}") from error


# -- inside --------------------------------------------------------------------------------


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, sorted; names with a dot are half-written or nobody's."""
    try:
        with os.scandir(folder) as found:
            return sorted(
                (entry for entry in found if not entry.name.startswith(".")),
                key=lambda entry: entry.name,
            )
    except FileNotFoundError:
        return []


def _everything(checkpoint: Path, name: str) -> Iterator[str]:
    if (checkpoint / name).is_dir():
        for entry in _entries(checkpoint / name):
            yield from _everything(checkpoint, f"{name}/{entry.name}")
    else:
        yield name


def _numbers(folder: Path) -> set[int]:
    return {int(entry.name) for entry in _entries(folder) if entry.name.isdigit()}


def _query(checkpoint: Path) -> str | None:
    path = checkpoint / "metadata"
    try:
        query = json.loads(path.read_bytes())["id"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecord(f"{path}: not the metadata of a query: {error}") from error
    return str(query)


def _sources(checkpoint: Path, batch: int) -> Iterator[str]:
    ends = _source_ends(checkpoint / "offsets" / str(batch))
    for entry in _entries(checkpoint / "sources"):
        end = ends.get(entry.name)
        # A file source counts its own log; a file that it has listed for a batch to come is not
        # part of this one, and is found again.
        folder = checkpoint / "sources" / entry.name
        last = batch if end is None else end
        for name in log_until(folder, last, whole=end is not None):
            yield f"sources/{entry.name}/{name}"


def _check_commit(path: Path) -> None:
    # Spark does not sync it: after a power cut it may be there, and empty.
    try:
        version, body = read(path).splitlines()[:2]
        if not version.startswith("v") or not isinstance(json.loads(body), dict):
            raise ValueError("it has no version")
    except ValueError as error:
        raise CorruptRecord(f"{path}: not a commit log of Spark: {error}") from error


def _planned(path: Path) -> tuple[str, list[str]]:
    """Return what a batch was planned with: its configuration, and a line for each source."""
    lines = read(path).splitlines()
    if len(lines) < 2 or not lines[0].startswith("v"):
        raise CorruptRecord(f"{path}: not an offset log of Spark")
    return lines[1], lines[2:]


def _source_ends(path: Path) -> dict[str, int]:
    """Return, by source, where the log of each file source ends in a batch's offsets."""
    _, sources = _planned(path)
    ends = {}
    for index, line in enumerate(sources):
        name, text = str(index), line
        if not line.startswith(("{", "-", "[", '"')) and ":" in line:
            name, _, text = line.partition(":")
        try:
            offset = json.loads(text)
        except ValueError:
            continue  # Another source's own business.
        if isinstance(offset, dict) and isinstance(offset.get("logOffset"), int):
            ends[name] = offset["logOffset"]
    return ends


def _partitions(path: Path) -> float:
    """Return over how many partitions a batch's state was spread, as its offset log has it."""
    text, _ = _planned(path)
    try:
        return int(json.loads(text)["conf"]["spark.sql.shuffle.partitions"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # Written by a Spark that pinned none.


def _of_version(folder: Path, version: int) -> Iterator[Path]:
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        match = _VERSIONED.fullmatch(path.name)
        if match and int(match[1]) == version:
            yield path


def _state(checkpoint: Path, batch: int) -> Iterator[str]:
    commits = _Commits(checkpoint)
    # Folders beyond it are of before a rescale, or behind it: no state of this batch.
    partitions = _partitions(checkpoint / "offsets" / str(batch))
    for operator in _entries(checkpoint / "state"):
        where = f"state/{operator.name}"
        for entry in _entries(checkpoint / where):
            if entry.name.isdigit():
                if int(entry.name) < partitions:
                    yield from _partition(checkpoint, f"{where}/{entry.name}", batch, commits)
            else:
                yield from _everything(checkpoint, f"{where}/{entry.name}")


def _partition(checkpoint: Path, where: str, batch: int, commits: _Commits) -> Iterator[str]:
    entries = _entries(checkpoint / where)
    stores = []
    for entry in entries:
        if entry.name.startswith("_"):
            yield from _everything(checkpoint, f"{where}/{entry.name}")
        elif entry.is_dir() and entry.name not in _SHARED:
            stores.append(f"{where}/{entry.name}")
    if not stores or any(_VERSIONED.fullmatch(entry.name) for entry in entries):
        yield from _store(checkpoint, where, batch, commits)
    for store in stores:
        for entry in _entries(checkpoint / store):
            if entry.name.startswith("_"):
                yield from _everything(checkpoint, f"{store}/{entry.name}")
        yield from _store(checkpoint, store, batch, commits)


def _store(checkpoint: Path, where: str, batch: int, commits: _Commits) -> Iterator[str]:
    """Yield the newest base and the changes behind it, one for each version up to the batch's."""
    names = {entry.name for entry in _entries(checkpoint / where)}
    bases: dict[int, list[str]] = {}
    changes: dict[int, list[str]] = {}
    for name in sorted(names):
        match = _VERSIONED.fullmatch(name)
        if match is None or int(match[1]) > batch + 1:
            continue
        version, unique = int(match[1]), match[2]
        if unique is not None and not commits.name(unique, version, where):
            continue  # Left behind by a batch that was run again.
        kind = bases if match[3] in ("snapshot", "zip") else changes
        kind.setdefault(version, []).append(name)
    first = max(bases, default=0)
    for version in range(first + 1, batch + 2):
        if version not in changes:
            missing = checkpoint / where / f"{version}.*"
            raise FileNotFoundError(2, "is missing", str(missing))
    chosen = list(bases.get(first, ()))
    for version in range(max(1, first), batch + 2):
        chosen += changes.get(version, ())
    for name in chosen:
        yield f"{where}/{name}"
        if f"{name}.crc" in names:
            yield f"{where}/{name}.crc"
        if name.endswith(".zip"):
            yield from (f"{where}/{shared}" for shared in _named_in(checkpoint / where / name))


class _Commits:
    """What the commit log says of unique ids; each commit is read once."""

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "commits"
        self._read: dict[int, dict[str, list[list[str]]] | None] = {}

    def name(self, unique: str, version: int, where: str) -> bool:
        """Return whether `unique` is the id of a version of a store of the partition `where`."""
        if version not in self._read:
            self._read[version] = self._ids(version)
        ids = self._read[version]
        operator, partition = where.split("/")[1:3]
        if ids is None or operator not in ids:
            return True  # Retained no longer: whatever was kept of that version belongs to it.
        stores = ids[operator]
        return int(partition) < len(stores) and unique in stores[int(partition)]

    def _ids(self, version: int) -> dict[str, list[list[str]]] | None:
        path = self._folder / str(version - 1)
        try:
            lines = read(path).splitlines()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(lines[1]).get("stateUniqueIds")
            if found is not None and not isinstance(found, dict):
                raise ValueError("its ids of state are no object")
        except (ValueError, IndexError, AttributeError) as error:
            raise CorruptRecord(f"{path}: not a commit log of Spark: {error}") from error
        return found


def _named_in(path: Path) -> Iterator[str]:
    """Yield the shared files that a RocksDB snapshot consists of, relative to its folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read("metadata").decode()
        body = json.loads(text[text.index("{") :])
        for folder, key in _SHARED.items():
            for file in body.get(key) or ():
                name = file.get("dfsSstFileName") or file["dfsLogFileName"]
                if "/" in name or name.startswith("."):
                    raise ValueError(f"the name {name!r}")
                yield f"{folder}/{name}"
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError, TypeError) as error:
        raise CorruptRecord(f"{path}: not a snapshot of RocksDB: {error}") from error
