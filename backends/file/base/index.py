"""The index of a base and the trailer of a run: checksums that detect every change of the lines.

An index has one line for each block: the block's first key, its offset, and the CRC-32 of its bytes
(``-`` or ``!<crc>`` if the block already had a damaged line when it was written). In format 2 the
index is a file next to the base and begins with ``<crc of the lines>`` and a newline. In format 3
it is a part of the run itself::

    <the lines, sorted by key> <the index> <the checks> <the trailer>

    <crc> R 3 <bytes of lines> <records> <bytes of index> <digest> <bytes of checks> <digest>

The trailer of a run that lies on others begins with ``R 4`` and also names those.

The index's digest covers the checksum of every block, so the trailer protects the index and through
it each byte of the lines. In format 3 a line of the index also has the number of lines before its
block. The checks are the CRC-32 of every line, four bytes each. They are read only if a block is
damaged, to identify the sound lines in it.
"""

from __future__ import annotations

import hashlib
import zlib
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple, Self

from ..format.lines import checked, sealed

BLOCK = 16 << 10
"""Bytes after which a block ends: searching it takes a few microseconds."""

TRAILER_MOST = 2048
"""Bytes of the longest trailer."""


class Index:
    """The blocks of a base; empty without an index."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def find(self, key: bytes) -> int:
        """Return the number of the only block that may contain `key`."""
        # The tab behind a key sorts before every character that could continue the key.
        return max(0, bisect_left(self.lines, key + b"\n") - 1)

    def key(self, number: int) -> bytes | None:
        return self._field(number, 0)

    def start(self, number: int) -> int | None:
        field = self._field(number, 1)
        return None if field is None else int(field)

    def crc(self, number: int) -> bytes | None:
        return self._field(number, 2)

    def ordinal(self, number: int) -> int | None:
        """Return the number of lines before a block, in format 3."""
        field = self._field(number, 3)
        return None if field is None else int(field)

    def _field(self, number: int, at: int) -> bytes | None:
        return self.lines[number].split(b"\t")[at] if number < len(self.lines) else None


class Trailer(NamedTuple):
    """The last line of a run: the sizes and digests of its parts."""

    size: int
    """Bytes of its lines."""
    records: int
    """Records in it, not counting damaged lines."""
    index_size: int
    """Bytes of its index."""
    digest: bytes
    """The digest of its index, in hex."""
    checks_size: int
    """Bytes of its checks."""
    checks_digest: bytes
    below: Names = ()
    """The runs that it lies on."""

    def line(self) -> bytes:
        """Return the trailer's line; a newline separates it from the checks."""
        fields = [self.describe().replace(b":", b"\t"), *map(name, self.below)]
        return b"\n" + sealed(b"R\t%d\t%s" % (4 if self.below else 3, b"\t".join(fields)))

    def total(self) -> int:
        """Return the size of the whole file."""
        return self.size + self.index_size + self.checks_size + len(self.line())

    def describe(self) -> bytes:
        """Return the sizes and digests as one field."""
        return b"%d:%d:%d:%s:%d:%s" % self[:6]

    @classmethod
    def described(cls, field: bytes) -> Self:
        """Return the trailer of a field that `describe` made.

        Raises:
            ValueError: the field is invalid.
        """
        size, records, index_size, digest, checks_size, checks_digest = field.split(b":")
        return cls(
            int(size), int(records), int(index_size), digest, int(checks_size), checks_digest
        )

    @classmethod
    def at_the_end(cls, data: bytes) -> Self | None:
        """Return the trailer at the end of `data`, or None."""
        line = data[data.rfind(b"\n", 0, len(data) - 1) + 1 :]
        body = checked(line[:-1]) if line.endswith(b"\n") else None
        if body is None or not body.startswith((b"R\t3\t", b"R\t4\t")):
            return None
        fields = body.split(b"\t")
        return cls.described(b":".join(fields[2:8]))._replace(below=named(fields[8:]))


Names = tuple[tuple[int, Trailer], ...]
"""Runs, the newest first: the offset that names the file, and the file's trailer."""


def name(run: tuple[int, Trailer]) -> bytes:
    """Return the field that names a run."""
    return b"%d:%s" % (run[0], run[1].describe())


def named(fields: list[bytes]) -> Names:
    """Return the runs that these fields name; each lies on those behind it.

    Raises:
        ValueError: a field is invalid.
    """
    runs: Names = ()
    for field in reversed(fields):
        start, _, rest = field.partition(b":")
        runs = ((int(start), Trailer.described(rest)._replace(below=runs)), *runs)
    return runs


def digest_of(*parts: bytes | bytearray) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()


def parse(body: bytes) -> Index:
    return Index(body.removesuffix(b"\n").split(b"\n") if body else [])


def load(path: Path | None) -> Index | None:
    """Return the index of a separate file; None if the file is missing or damaged."""
    try:
        data = b"" if path is None else path.read_bytes()
    except OSError:
        return None
    crc, _, body = data.partition(b"\n")
    if crc != b"%08x" % zlib.crc32(body):
        return None
    return parse(body)
