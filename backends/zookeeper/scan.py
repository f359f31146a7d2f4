"""Scanning: yields keys in order, page by page, although ZooKeeper lists names in no order.

A scan first reads the names of a directory, as they are at one moment. Then it reads the records,
page by page, each page as it is at one moment. It returns a page if the page is consistent with
*one* of the two moments: nothing in the directory has changed since the names were read, or at
least none of the page's own records. Otherwise it reads the names again and, in the same request,
the records that they probably name; if that fails as well, fewer records.

A directory of more than 20,000 keys has too many names for one reply, and a scan of everything may
ask for more names than fit into one request, if the root and the cluster have long names. There the
records of a page are consistent, but a key that is created while the names are being read may be
missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.operations import Record

from .cluster import removed
from .layout import Layout, directory_of, key_of, prefix_of, shards_of, touches
from .protocol import codec, multi_read
from .protocol.connection import Connection
from .protocol.multi_read import ROOM, read
from .versions import VersionCache

_AT_ONCE = 20_000
"""Most names in one reply."""
_WINDOW = 50_000
"""Most names in memory. Of more names, the first are kept; the rest is read again later."""
_FIRST, _MOST = 64, 1000
"""Most records in the first request, when their size is unknown, and in any later request."""
_BYTES = 4 << 20
"""Most bytes of a reply, estimated from the last reply."""
_PATIENCE = 40
"""Attempts to read a consistent page; afterwards the page is returned as it is."""


def fitting(count: int, size: int) -> int:
    """Return how many records to request if the last `count` records took `size` bytes."""
    return max(1, min(_MOST, _BYTES * count // max(size, 1)))


@attrs.define
class _Names:
    """The keys of some directories at one moment.

    Attributes:
        keys: all keys or the first ones, in order.
        changed: for each directory, the transaction that changed it last.
        deletions: the number of deletions by the path of the shard.
        whole: `keys` has all keys.
        exact: all names are of one moment.
        there: the directories at that moment.
        nodes: records of that moment, if any were read in the same request.
    """

    keys: list[str] = attrs.field(factory=list)
    changed: dict[str, int] = attrs.field(factory=dict)
    deletions: dict[str, int] = attrs.field(factory=dict)
    whole: bool = True
    exact: bool = True
    there: set[str] = attrs.field(factory=set)
    nodes: dict[str, codec.Read] = attrs.field(factory=dict)


@attrs.frozen
class ReadContext:
    """The shared context of all scans of a handle.

    Attributes:
        sizes: the number of names in each directory when it was last read.
    """

    connection: Connection
    layout: Layout
    cache: VersionCache
    sizes: dict[str, int] = attrs.field(factory=dict)


class Scan:
    """One scan of the keys that start with `prefix`, behind `after`."""

    def __init__(self, place: ReadContext, prefix: str, after: str | None) -> None:
        self._place = place
        self._layout = place.layout
        self._prefix = prefix
        self._after = after or ""
        self._names: _Names | None = None
        self._at = 0
        self._size = _FIRST

    def page(self, limit: int, deadline: Deadline) -> list[Record]:
        """Return the next records, at most `limit` of them; none at the end.

        Raises:
            Unavailable: not within the deadline.
            Refused: the cluster was removed.
        """
        guess: list[str] = []
        for attempt in count(1):
            names = self._names
            if names is None or (self._at == len(names.keys) and not names.whole):
                names = self._names = self._list(deadline, guess)
                self._at = 0
            keys = names.keys[self._at : self._at + min(limit, self._size)]
            if not keys:
                break
            if attempt == _PATIENCE:
                names.exact = False
            found = self._read(keys, names, deadline)
            if found is not None:
                self._at += len(keys)
                self._after = keys[-1]
                if found:
                    return found
                continue
            self._names = None
            guess = sorted({*guess, *keys})[: 2 * self._size]
            if attempt % 3 == 0:
                self._size = max(1, self._size // 2)
        return []

    def _read(self, keys: list[str], names: _Names, deadline: Deadline) -> list[Record] | None:
        """Read the records of a page; None if they and the names are of different moments."""
        layout = self._layout
        together, names.nodes = names.nodes, {}
        guessed = all(key in together for key in keys)
        if together and names.exact and not guessed:
            return None  # Another process changed the names that we had guessed.
        if guessed:
            nodes = [together[key] for key in keys]
        else:
            wanted = [codec.get_data(layout.directory(name)) for name in names.changed]
            wanted += [codec.get_data(layout.record(key)) for key in keys]
            answers = read(self._place.connection, wanted, deadline)
            now, nodes = answers[: len(names.changed)], answers[len(names.changed) :]
            if names.exact and not self._fits(keys, nodes, now, names):
                return None
        found = []
        size = 0
        for key, node in zip(keys, nodes, strict=True):
            if isinstance(node, codec.Node):
                shard = layout.shard(key)
                self._place.cache.record(key, node, shard, names.deletions[shard])
                found.append(Record(key, node.value, node.modified))
                size += len(node.value) + 100
        self._size = min(fitting(len(keys), size), self._size * 16)
        return found

    def _fits(
        self, keys: list[str], nodes: list[codec.Read], now: list[codec.Read], names: _Names
    ) -> bool:
        if all(
            isinstance(node, codec.Node) and node.modified == changed
            for node, changed in zip(now, names.changed.values(), strict=True)
        ):
            return True
        return all(
            isinstance(node, codec.Node) and node.modified <= names.changed[directory_of(key)]
            for key, node in zip(keys, nodes, strict=True)
        )

    # -- names -----------------------------------------------------------------------------

    def _list(self, deadline: Deadline, guess: list[str]) -> _Names:
        """Read the names and, in the same request, the records that are probably needed."""
        if "/" in self._prefix:
            return self._list_all([directory_of(self._prefix)], guess, deadline)
        while True:
            (there,) = read(
                self._place.connection, [codec.get_children(self._layout.map)], deadline
            )
            if not isinstance(there, list):
                raise removed(self._layout, self._place.connection.where)
            names = self._list_all(sorted(there), guess, deadline)
            if not names.exact or names.there == set(there):
                return names

    def _list_all(self, there: list[str], guess: list[str], deadline: Deadline) -> _Names:
        names = _Names()
        wanted = [name for name in there if touches(name, self._prefix) and self._reaches(name)]
        batches = list(self._batches(wanted, deadline))
        names.exact = len(batches) == 1
        sizes = dict.fromkeys(wanted, 0)
        for batch in batches:
            self._list_some(batch, names, sizes, guess if names.exact else [], deadline)
        self._place.sizes.update(sizes)
        names.keys.sort()
        _cut(names)
        return names

    def _reaches(self, directory: str) -> bool:
        """Return whether the directory has keys behind `after`."""
        own = prefix_of(directory)
        return not own or self._after < own or self._after.startswith(own)

    def _list_some(
        self,
        batch: list[tuple[str, str]],
        names: _Names,
        sizes: dict[str, int],
        guess: list[str],
        deadline: Deadline,
    ) -> None:
        layout = self._layout
        directories = list(dict.fromkeys(directory for directory, _ in batch))
        wanted = [codec.get_children(layout.map)]
        wanted += [codec.get_data(layout.directory(name)) for name in directories]
        for directory, shard in batch:
            path = f"{layout.directory(directory)}/{shard}"
            wanted += [codec.get_data(path), codec.get_children(path)]
        room = ROOM - sum(map(len, wanted))
        records = [codec.get_data(layout.record(key)) for key in guess]
        guess = guess[: multi_read.fitting(records, room)]
        wanted += records[: len(guess)]
        there, *answers = read(self._place.connection, wanted, deadline)
        if guess:
            names.nodes = dict(zip(guess, answers[-len(guess) :], strict=True))
            del answers[-len(guess) :]
        if not isinstance(there, list):
            raise removed(layout, self._place.connection.where)
        names.there = set(there)
        for name, node in zip(directories, answers, strict=False):
            if isinstance(node, codec.Node):
                names.changed.setdefault(name, node.modified)
        rest = answers[len(directories) :]
        for (directory, shard), node, children in zip(batch, rest[::2], rest[1::2], strict=True):
            if isinstance(node, codec.Node) and isinstance(children, list):
                names.deletions[f"{layout.directory(directory)}/{shard}"] = node.version
                sizes[directory] += len(children)
                keys = (key_of(directory, child) for child in children)
                names.keys += [
                    key for key in keys if key > self._after and key.startswith(self._prefix)
                ]
        if len(names.keys) > 2 * _WINDOW:
            names.keys.sort()
            _cut(names)

    def _batches(
        self, directories: list[str], deadline: Deadline
    ) -> Iterator[list[tuple[str, str]]]:
        """Yield batches of directories and shards that fit into one request and its reply."""
        shards = [(name, shard) for name in directories for shard in shards_of(name)]
        paths = [f"{self._layout.directory(name)}/{shard}" for name, shard in shards]
        batch: list[tuple[str, str]] = []
        size = asked = 0
        for shard, path, children in zip(
            shards, paths, self._sizes(directories, paths, deadline), strict=True
        ):
            length = len(codec.get_data(path)) + len(codec.get_children(path))
            if batch and (size + children > _AT_ONCE or asked + length > ROOM):
                yield batch
                batch, size, asked = [], 0, 0
            batch.append(shard)
            size += children
            asked += length
        yield batch

    def _sizes(self, directories: list[str], paths: list[str], deadline: Deadline) -> Iterator[int]:
        """Yield about how many names each of the shards has."""
        known = [self._place.sizes.get(name) for name in directories]
        if None not in known and sum(filter(None, known)) < _AT_ONCE // 2:
            yield from [0] * len(paths)  # They were small when they were last read.
            return
        wanted = [codec.get_data(path) for path in paths]
        while wanted:
            some = wanted[: multi_read.fitting(wanted) or 1]
            del wanted[: len(some)]
            for node in read(self._place.connection, some, deadline):
                yield node.children if isinstance(node, codec.Node) else 0


def _cut(names: _Names) -> None:
    if len(names.keys) > _WINDOW:
        del names.keys[_WINDOW:]
        names.whole = False
