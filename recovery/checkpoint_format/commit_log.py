"""The commit log, ``commits/N``: a batch that is done, and the ids of the state that it wrote.

Versions 2 and 3 name a unique id for each store of each partition, in the order of the partitions.
A batch that ran twice left its state twice, under two ids, and only the named one counts. Version 3
adds facts about a sink that has a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from .unreadable import UnreadableCheckpoint, check_version, decode, load_object, optional_long

KNOWN = ("v1", "v2", "v3")

_WHAT = "a commit log"


@attrs.frozen
class CommitLog:
    """The commit of a batch."""

    version: str
    watermark: int | None
    """The next batch's, in milliseconds since 1970; None if the commit names none."""
    state_ids: Mapping[str, tuple[tuple[str, ...], ...]]
    """By operator: for each partition, the unique ids of its stores. Version 1 has none."""

    def is_of(self, unique: str, operator: str, partition: int) -> bool:
        """Return whether a store of a partition has this id. If the commit names no ids for the
        operator, every id counts."""
        if operator not in self.state_ids:
            return True
        stores = self.state_ids[operator]
        return partition < len(stores) and unique in stores[partition]


def parse(data: bytes, where: Path) -> CommitLog:
    """Parse a file of the commit log.

    Raises:
        UnreadableCheckpoint: the file holds something else, or has an unknown version.
    """
    lines = decode(data, where).split("\n")
    version = check_version(lines[0], KNOWN, _WHAT, where)
    if len(lines) < 2:
        raise UnreadableCheckpoint(f"{where}: not {_WHAT} of Spark: it ends behind its version")
    body = load_object(lines[1], _WHAT, where)
    watermark = optional_long(body, "nextBatchWatermarkMs", _WHAT, where)
    return CommitLog(version, watermark, MappingProxyType(_ids(body, where)))


def read(path: Path) -> CommitLog:
    """Read a file of the commit log.

    Raises:
        FileNotFoundError: the file is missing.
        UnreadableCheckpoint: the file holds something else, or has an unknown version.
    """
    return parse(path.read_bytes(), path)


def _ids(body: dict[str, Any], where: Path) -> dict[str, tuple[tuple[str, ...], ...]]:
    found = body.get("stateUniqueIds")
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(map(_are_ids, found.values())):
        raise UnreadableCheckpoint(
            f"{where}: not {_WHAT} of Spark: its ids of state are {found!r:.40}"
        )
    return {operator: tuple(map(tuple, partitions)) for operator, partitions in found.items()}


def _are_ids(partitions: Any) -> bool:
    return isinstance(partitions, list) and all(
        isinstance(stores, list) and all(isinstance(unique, str) for unique in stores)
        for stores in partitions
    )
