"""Sights: what a handle has read lately, in the terms in which ZooKeeper can be asked to check it.

A record's version is the number of the transaction that wrote it, which grows whatever happens to
the key. ZooKeeper cannot check that. It checks how often a znode was written *since it was
created*, and that number comes again when the key is deleted and created again. So a commit also
checks the record's shard, which counts the deletions below it: if that number is what it was when
the record was read, the record is the same one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

import attrs

from .protocol.codec import Node

_MOST = 20_000


@attrs.define(eq=False)
class ShardGeneration:
    """How many deletions a shard had; shared by what was seen at the same moment."""

    deletions: int


@attrs.frozen
class CachedVersion:
    """A record as it was seen.

    Attributes:
        version: of the record, as the contract has it.
        writes: how often it was written since it was created.
        guard: none of the deletions up to this number was one of this record.
    """

    version: int
    writes: int
    guard: ShardGeneration


class VersionCache:
    """The sights of one handle, the ones used last. Safe for use by many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._sights: OrderedDict[str, CachedVersion] = OrderedDict()
        self._guards: dict[str, ShardGeneration] = {}

    def of(self, key: str) -> CachedVersion | None:
        with self._mutex:
            sight = self._sights.get(key)
            if sight is not None:
                self._sights.move_to_end(key)
            return sight

    def saw(self, key: str, node: Node, shard: str, deletions: int) -> CachedVersion:
        """Note a record that was read with, or after, its shard."""
        with self._mutex:
            guard = self._guards.get(shard)
            if guard is None or guard.deletions < deletions:
                guard = self._guards[shard] = ShardGeneration(deletions)
            elif guard.deletions > deletions:
                guard = ShardGeneration(deletions)  # Read before others were: of no use to them.
            sight = CachedVersion(node.modified, node.version, guard)
            known = self._sights.get(key)
            if known is None or (known.version, known.guard.deletions) <= (
                sight.version,
                deletions,
            ):
                self._sights[key] = sight
                self._sights.move_to_end(key)
                if len(self._sights) > _MOST:
                    self._sights.popitem(last=False)
            return sight

    def deleted(self, keys: Iterable[str], shard: str, deletions: int) -> None:
        """Note that we deleted the keys, which was the shard's deletion of that number.

        If we know of all the earlier ones, our own one does not outdate what else we saw there.
        """
        with self._mutex:
            for key in keys:
                self._sights.pop(key, None)
            guard = self._guards.get(shard)
            if guard is not None and guard.deletions == deletions - 1:
                guard.deletions = deletions
