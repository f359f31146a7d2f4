"""The version cache: recently read versions, in the form that ZooKeeper can check.

A record's version is the number of the transaction that wrote it, which always grows. ZooKeeper
cannot check that number. It checks how often a znode was written *since it was created*, and that
number repeats when the key is deleted and created again. So a commit also checks the record's
shard, which counts the deletions below it: if that number is unchanged since the record was read,
the record is the same one.
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
    """The number of deletions of a shard, shared by all records that were read at that number."""

    deletions: int


@attrs.frozen
class CachedVersion:
    """The version of a record when it was read.

    Attributes:
        version: the record's version in the terms of the contract.
        writes: how often the record was written since it was created.
        guard: the shard's number of deletions when the record existed at this version.
    """

    version: int
    writes: int
    guard: ShardGeneration


class VersionCache:
    """The most recently used versions of one handle. Safe for use by many threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._cache: OrderedDict[str, CachedVersion] = OrderedDict()
        self._guards: dict[str, ShardGeneration] = {}

    def of(self, key: str) -> CachedVersion | None:
        with self._mutex:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
            return known

    def record(self, key: str, node: Node, shard: str, deletions: int) -> CachedVersion:
        """Cache the version of a record that was read with, or after, its shard."""
        with self._mutex:
            guard = self._guards.get(shard)
            if guard is None or guard.deletions < deletions:
                guard = self._guards[shard] = ShardGeneration(deletions)
            elif guard.deletions > deletions:
                guard = ShardGeneration(deletions)  # Older than the shared one: do not share it.
            read = CachedVersion(node.modified, node.version, guard)
            known = self._cache.get(key)
            if known is None or (known.version, known.guard.deletions) <= (read.version, deletions):
                self._cache[key] = read
                self._cache.move_to_end(key)
                if len(self._cache) > _MOST:
                    self._cache.popitem(last=False)
            return read

    def deleted(self, keys: Iterable[str], shard: str, deletions: int) -> None:
        """Record that this handle deleted the keys, as the shard's deletion of that number.

        If this handle knows all earlier deletions, the other cached versions stay valid.
        """
        with self._mutex:
            for key in keys:
                self._cache.pop(key, None)
            guard = self._guards.get(shard)
            if guard is not None and guard.deletions == deletions - 1:
                guard.deletions = deletions
