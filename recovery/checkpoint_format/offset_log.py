"""The offset log, ``offsets/N``: the plan of a batch.

The first line is the version. The second is JSON: the watermark and the pinned configuration. Each
further line is the offset of one source; ``-`` stands for a source without any. Version 1 tells the
sources apart by their order. In version 2 each line begins with the source's name and a colon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from .unreadable import (
    UnreadableCheckpoint,
    check_version,
    decode,
    is_long,
    load_object,
    optional_long,
)

KNOWN = ("v1", "v2")
PARTITIONS = "spark.sql.shuffle.partitions"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"

_WHAT = "an offset log"
_VOID = "-"
_PARTITIONS = re.compile(r"[0-9]{1,9}")


@attrs.frozen
class SourceOffset:
    """Where a batch ends in one source."""

    name: str
    """The name of the source's folder in ``sources``."""
    offset: str | None
    """What the source wrote; only the source understands it. None if the source wrote nothing."""
    log_end: int | None
    """The last entry of the source's log in this batch; None for a source of another kind."""


@attrs.frozen
class OffsetLog:
    """The plan of a batch."""

    version: str
    watermark: int | None
    """In milliseconds since 1970; None if the plan names none."""
    conf: Mapping[str, str]
    """The configuration that Spark pins with the state."""
    partitions: int | None
    """The number of partitions of the state; None if the plan does not pin it."""
    sources: tuple[SourceOffset, ...]
    _metadata: str
    """The second line, unchanged: it says more than jrs reads."""

    def at(self, watermark: int, timestamp: int) -> OffsetLog:
        """Return the same plan with another watermark and another time, in milliseconds."""
        body = json.loads(self._metadata)
        body["batchWatermarkMs"] = watermark
        body["batchTimestampMs"] = timestamp
        line = json.dumps(body, separators=(",", ":"))
        return attrs.evolve(self, watermark=watermark, metadata=line)

    def text(self) -> str:
        """Return the text of the file."""
        return "\n".join([self.version, self._metadata, *map(self._line, self.sources)])

    def _line(self, source: SourceOffset) -> str:
        offset = _VOID if source.offset is None else source.offset
        return offset if self.version == "v1" else f"{source.name}:{offset}"


def parse(data: bytes, where: Path) -> OffsetLog:
    """Parse a file of the offset log.

    Raises:
        UnreadableCheckpoint: the file holds something else, or has an unknown version.
    """
    lines = decode(data, where).split("\n")
    version = check_version(lines[0], KNOWN, _WHAT, where)
    if len(lines) < 2:
        raise UnreadableCheckpoint(f"{where}: not {_WHAT} of Spark: it ends behind its version")
    if len(lines) > 2 and not lines[-1]:
        lines.pop()  # The file was edited. Spark accepts an ended last line as well.
    body = load_object(lines[1], _WHAT, where)
    conf = _conf(body, where)
    return OffsetLog(
        version,
        optional_long(body, "batchWatermarkMs", _WHAT, where),
        MappingProxyType(conf),
        _partitions(conf, where),
        tuple(_source(version, index, line, where) for index, line in enumerate(lines[2:])),
        lines[1],
    )


def read(path: Path) -> OffsetLog:
    """Read a file of the offset log.

    Raises:
        FileNotFoundError: the file is missing.
        UnreadableCheckpoint: the file holds something else, or has an unknown version.
    """
    return parse(path.read_bytes(), path)


# -- inside --------------------------------------------------------------------------------


def _conf(body: dict[str, Any], where: Path) -> dict[str, str]:
    conf = body.get("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(each, str) for each in conf.values()):
        raise UnreadableCheckpoint(f"{where}: not {_WHAT} of Spark: its conf is {conf!r:.40}")
    return conf


def _partitions(conf: dict[str, str], where: Path) -> int | None:
    text = conf.get(PARTITIONS)
    if text is None:
        return None  # Old releases of Spark pinned none.
    if not _PARTITIONS.fullmatch(text):
        raise UnreadableCheckpoint(f"{where}: not {_WHAT} of Spark: {PARTITIONS} is {text[:40]!r}")
    return int(text)


def _source(version: str, index: int, line: str, where: Path) -> SourceOffset:
    name, offset = str(index), line
    if version == "v2":
        name, colon, offset = line.partition(":")
        if not colon:
            raise UnreadableCheckpoint(f"{where}: not {_WHAT} of Spark: {line[:40]!r} has no name")
    if offset == _VOID:
        return SourceOffset(name, None, None)
    return SourceOffset(name, offset, _log_end(offset))


def _log_end(offset: str) -> int | None:
    try:
        found = json.loads(offset)
    except (ValueError, RecursionError):
        return None  # The source is of another kind.
    end = found.get("logOffset") if isinstance(found, dict) else None
    return end if is_long(end) else None
