"""The possible states of a recorded disk after a power cut.

Everything that a file's last sync covers is durable. After later writes, each sector may have its
content after any of them or before all of them, and the file may have its old length, the length of
the kept sectors, or its new length. Each later change of the names in a folder may be lost. Writes
are torn only at the edges of sectors.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import attrs

from jrs.testing.chaos.disk import ROOT, Event, Name, Sync, Write

SECTOR = 512
PAGE = 4096
_MANY = 16
"""Most sectors of a file for which every way to tear it is tried."""

Tree = dict[str, bytes | None]
"""The content of a disk: bytes by path, None for a folder."""

Change = tuple[str, int | None]


@attrs.frozen
class Crash:
    """A disk after a power cut.

    Attributes:
        tree: its content.
        at: the number of events before the power cut.
        how: what was lost, in words.
    """

    tree: Tree
    at: int
    how: str


@attrs.define
class _File:
    durable: bytes = b""
    pending: list[Write] = attrs.field(factory=list)


@attrs.define
class _Folder:
    durable: dict[str, int] = attrs.field(factory=dict)
    pending: list[tuple[Change, ...]] = attrs.field(factory=list)
    """One entry for each call."""


def crashes(events: Sequence[Event], rng: random.Random, most: int) -> Iterator[Crash]:
    """Yield the states after each event, without consecutive repeats; at most `most` per event."""
    disk = _Disk()
    for at, event in enumerate(events, 1):
        disk.add(event)
        yield from disk.crashes(at, rng, most)


def complete(events: Sequence[Event]) -> Tree:
    """Return the disk without a power cut, with everything that was written."""
    disk = _Disk()
    for event in events:
        disk.add(event)
    return disk.whole()


class _Disk:
    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {ROOT: _Folder()}

    def add(self, event: Event) -> None:
        if isinstance(event, Write):
            self._file(event.file).pending.append(event)
        elif isinstance(event, Name):
            folders = {folder for folder, _, _ in event.changes}
            for new in (file for _, _, file in event.changes if event.is_folder and file):
                self._folders[new] = _Folder()
            for folder in folders:
                mine = tuple((name, file) for into, name, file in event.changes if into == folder)
                self._folders[folder].pending.append(mine)
        elif isinstance(event, Sync):
            self._sync(event.file)

    def whole(self) -> Tree:
        return self._tree(
            {number: _written(file, len(file.pending)) for number, file in self._files.items()},
            {number: _named(folder, folder.pending) for number, folder in self._folders.items()},
        )

    def crashes(self, at: int, rng: random.Random, most: int) -> Iterator[Crash]:
        """Yield the possible states if the power fails now."""
        files = {n: f for n, f in self._files.items() if f.pending and self._reachable(n)}
        folders = {n: f for n, f in self._folders.items() if f.pending}
        choices: list[list[tuple[str, int, bytes | dict[str, int]]]] = []
        for number, file in files.items():
            choices.append([(how, number, data) for how, data in _torn(file, rng, most)])
        for number, folder in folders.items():
            choices.append([(how, number, names) for how, names in _lost(folder, rng)])
        sound_files = {n: f.durable for n, f in self._files.items()}
        sound_folders = {n: f.durable for n, f in self._folders.items()}
        seen = set()
        for chosen in _combined(choices, rng, most):
            contents, named = dict(sound_files), dict(sound_folders)
            for _, number, found in chosen:
                if isinstance(found, dict):
                    named[number] = found
                else:
                    contents[number] = found
            tree = self._tree(contents, named)
            identity = hash(frozenset(tree.items()))
            if identity not in seen:
                seen.add(identity)
                yield Crash(tree, at, "; ".join(how for how, _, _ in chosen if how))

    # -- inside ----------------------------------------------------------------------------

    def _file(self, number: int) -> _File:
        return self._files.setdefault(number, _File())

    def _sync(self, number: int) -> None:
        if number in self._folders:
            folder = self._folders[number]
            folder.durable = _named(folder, folder.pending)
            folder.pending = []
        elif number in self._files:
            file = self._files[number]
            file.durable = _written(file, len(file.pending))
            file.pending = []

    def _reachable(self, number: int) -> bool:
        return any(
            number in folder.durable.values()
            or any(file == number for call in folder.pending for _, file in call)
            for folder in self._folders.values()
        )

    def _tree(self, files: dict[int, bytes], folders: dict[int, dict[str, int]]) -> Tree:
        tree: Tree = {}

        def walk(folder: int, path: str) -> None:
            for name, number in folders.get(folder, {}).items():
                if number in folders:
                    tree[path + name] = None
                    walk(number, f"{path}{name}/")
                elif number in files:
                    tree[path + name] = files[number]
                else:
                    tree[path + name] = b""

        walk(ROOT, "")
        return tree


def _named(folder: _Folder, calls: Sequence[tuple[Change, ...]]) -> dict[str, int]:
    names = dict(folder.durable)
    for call in calls:
        for name, file in call:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
    return names


def _lost(folder: _Folder, rng: random.Random) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the names of a folder after losing changes since its last sync: none, all, each one,
    all but one, or some."""
    pending = folder.pending
    count = len(pending)
    subsets = [range(count), (), *([n for n in range(count) if n != lost] for lost in range(count))]
    if count <= 4:
        subsets = [*itertools.chain.from_iterable(
            itertools.combinations(range(count), size) for size in range(count, -1, -1)
        )]  # fmt: skip
    else:
        subsets += [[n for n in range(count) if rng.random() < 0.5] for _ in range(6)]
    for kept in subsets:
        lost = [pending[n][0][0] for n in range(count) if n not in kept]
        yield f"names lost: {lost}" if lost else "", _named(folder, [pending[n] for n in kept])


def _written(file: _File, count: int) -> bytes:
    data = bytearray(file.durable)
    for write in file.pending[:count]:
        _apply(data, write)
    return bytes(data)


def _apply(data: bytearray, write: Write) -> None:
    if write.data is None:
        del data[write.offset :]
        data.extend(bytes(write.offset - len(data)))
        return
    end = write.offset + len(write.data)
    data.extend(bytes(max(0, end - len(data))))
    data[write.offset : end] = write.data


def _torn(file: _File, rng: random.Random, most: int) -> Iterator[tuple[str, bytes]]:
    """Yield a file with only parts of its writes since its last sync."""
    versions = [_written(file, count) for count in range(len(file.pending) + 1)]
    full = max(map(len, versions))
    sectors = [
        number
        for number in range(-(-full // SECTOR))
        if len({_sector(version, number) for version in versions}) > 1
    ]
    newest = len(versions) - 1
    yield "", versions[newest]
    yield "nothing written", versions[0]
    yield "nothing but the length", versions[0] + bytes(max(0, full - len(versions[0])))
    for choice in _ways(sectors, newest, rng, most):
        yield from _pieced(versions, full, choice)


def _ways(
    sectors: list[int], newest: int, rng: random.Random, most: int
) -> Iterator[dict[int, int]]:
    """Yield a version for each sector: torn at each edge, from either side; any page lost; each
    sector lost alone; random ones."""
    edges = range(1, len(sectors))
    if len(sectors) > _MANY:
        edges = rng.sample(edges, _MANY)  # type: ignore[assignment]
    for older in {0, newest - 1}:
        for edge in edges:
            yield {s: newest if n < edge else older for n, s in enumerate(sectors)}
            yield {s: older if n < edge else newest for n, s in enumerate(sectors)}
        for lost in sectors if len(sectors) <= _MANY else rng.sample(sectors, _MANY):
            yield {s: older if s == lost else newest for s in sectors}
    pages = sorted({s * SECTOR // PAGE for s in sectors})
    for _ in range(min(2 ** len(pages), most // 4)):
        kept = {page for page in pages if rng.random() < 0.5}
        yield {s: newest if s * SECTOR // PAGE in kept else 0 for s in sectors}
    for _ in range(min(len(sectors), most // 4)):
        yield {s: rng.randrange(newest + 1) for s in sectors}


def _pieced(
    versions: list[bytes], full: int, choice: dict[int, int]
) -> Iterator[tuple[str, bytes]]:
    """Yield the file with these versions of its sectors, for each possible length."""
    data = bytearray(versions[0])
    end = len(data)
    data.extend(bytes(max(0, full - end)))
    for sector, version in choice.items():
        found = _sector(versions[version], sector)
        at = sector * SECTOR
        piece = found.ljust(SECTOR, b"\0")[: full - at]
        data[at : at + len(piece)] = piece
        if version and found:
            end = max(end, at + len(found))
    how = "sectors " + " ".join(f"{s}:{v}" for s, v in choice.items())
    yield how, bytes(data)
    if end < full:
        yield f"{how}, cut", bytes(data[:end])


def _sector(data: bytes, number: int) -> bytes:
    return data[number * SECTOR : (number + 1) * SECTOR]


def _combined(
    choices: list[list[tuple[str, int, bytes | dict[str, int]]]], rng: random.Random, most: int
) -> Iterator[tuple[tuple[str, int, bytes | dict[str, int]], ...]]:
    """Yield combinations of one choice each: all of them, or if they are too many, each choice next
    to unchanged ones, and some random combinations."""
    total = 1
    for choice in choices:
        total *= len(choice)
    if total <= most:
        yield from itertools.product(*choices)
        return
    left = most
    single = [
        tuple(other[0] if other is not choice else one for other in choices)
        for choice in choices
        for one in choice
    ]
    for combination in rng.sample(single, min(len(single), most * 2 // 3)):
        left -= 1
        yield combination
    for _ in range(left):
        yield tuple(rng.choice(choice) for choice in choices)
