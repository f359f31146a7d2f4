"""Reading the newest records of a directory, although ZooKeeper lists nothing by transaction.

A shard's znode has the transaction that created or deleted a child of it last. So one read of all
shards, at one moment, tells in which of them there is anything new, and the names of these alone
are read. What was created behind that moment is left out: the shards in which it lies may not be
among them, and it would hide what was created before it elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jrs.contract.clock import Deadline
from jrs.contract.operations import Record

from .layout import directory_of, key_of, shards_of
from .protocol import codec
from .protocol.multi_read import read
from .scan import ReadContext

_AT_ONCE = 1000
"""Records in one request."""
_NAMES = 20_000
"""Names in one reply, about."""


def created_since(
    place: ReadContext, prefix: str, version: int, deadline: Deadline
) -> list[Record]:
    """Return the records under a prefix of one directory that were created by the transaction
    `version` or a later one.

    Raises:
        Unavailable: not within the deadline.
    """
    layout, connection = place.layout, place.connection
    directory = directory_of(prefix)
    paths = [f"{layout.directory(directory)}/{shard}" for shard in shards_of(directory)]
    nodes = read(connection, [codec.get_data(path) for path in paths], deadline)
    moment = max((one.below for one in nodes if isinstance(one, codec.Node)), default=0)
    keys: list[str] = []
    for batch in _batches(paths, nodes, version):
        for names in read(connection, [codec.get_children(path) for path in batch], deadline):
            if isinstance(names, list):
                keys += [key_of(directory, name) for name in names]
    keys = [key for key in keys if key.startswith(prefix)]
    found = []
    for first in range(0, len(keys), _AT_ONCE):
        some = keys[first : first + _AT_ONCE]
        answers = read(connection, [codec.get_data(layout.record(key)) for key in some], deadline)
        for key, node in zip(some, answers, strict=True):
            if isinstance(node, codec.Node) and version <= node.created <= moment:
                found.append(Record(key, node.value, node.modified))
    return found


def _batches(
    paths: Sequence[str], nodes: Sequence[codec.Read], version: int
) -> Iterator[list[str]]:
    """Yield the shards that have changed since `version`, as many as one reply has room for."""
    batch: list[str] = []
    size = 0
    for path, node in zip(paths, nodes, strict=True):
        if not isinstance(node, codec.Node) or node.below < version or not node.children:
            continue
        if batch and size + node.children > _NAMES:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += node.children
    if batch:
        yield batch
