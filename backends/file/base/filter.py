"""The filter of a run: a Bloom filter in a file of its own, which tells most absent keys at once.

Nearly every commit creates keys that no run has. Without filters, evaluating it reads a block of
each run, and a process that opens the log does so for each commit in the tail::

    <crc> F 1 <digest of the run's trailer> <bytes of bits> <digest of the bits>
    <the bits>

The file follows from the run. If it is missing, damaged or of another run, look-ups read the run
itself. A key that the filter does not have was never in the run, so a look-up finds it below, even
if the block where it would be is damaged. Reading in order uses no filters: there, damage hides all
keys that it may have hit, and merging holds them. A run that holds keys because of older damage
gets no filter, because it does not name all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import cast

from jrs.contract.errors import Unavailable

from ..format.folder import write_all
from ..format.lines import checked, sealed
from .index import Trailer, digest_of
from .line_file import LineFile

_BITS = 16
"""Bits for each key; with three of them set by a key, one of 200 absent keys is not told."""

_IN_MEMORY = 8 << 20
"""Bytes of bits that are kept in memory, at most."""
_CHUNK = 1 << 20
_SLOWER = "look-ups are slower without it"
_LEAST = 64
_HEAD_MOST = 256
_split = Struct("<3I").unpack

Hashes = tuple[int, int, int]
"""What of a key chooses its bits."""


def hashes_of(key: bytes) -> Hashes:
    first, second, third = _split(blake2b(key, digest_size=12).digest())
    return first, second, third


def path_of(run: Path) -> Path:
    """Return the file of a run's filter: next to the run."""
    return run.with_suffix(".filter")


class FilterWriter:
    """Collects the keys of a run that is being written.

    Args:
        keys: about how many keys it will have; with more of them it tells fewer absent ones.
    """

    def __init__(self, keys: int) -> None:
        self._bits = bytearray(max(_LEAST, keys * _BITS // 8))
        self.is_whole = True
        """Whether it has all keys of the run, so that the run may have it."""

    def add(self, key: bytes) -> None:
        bits, count = self._bits, len(self._bits) * 8
        for each in hashes_of(key):
            at = each % count
            bits[at >> 3] |= 1 << (at & 7)

    def give_up(self) -> None:
        """The run holds keys that it does not name."""
        self.is_whole = False

    def write(self, fd: int, trailer: Trailer) -> None:
        """Write the file for a run with this trailer, and sync it."""
        bits = self._bits
        head = b"F\t1\t%s\t%d\t%s" % (digest_of(trailer.line()), len(bits), digest_of(bits))
        write_all(fd, sealed(head))
        write_all(fd, bits)
        os.fsync(fd)


class Filter:
    """The filter of an open run: a small one in memory, a large one in its file.

    It is not mapped, for the reason that `LineFile` gives. Reading single bytes from the file takes
    five times as long as memory, which each commit would notice. But with two bytes for each key,
    10 million results would take 100 MB of each process.

    Args:
        file: the file, which this closes.
        begin: where its bits begin.
    """

    def __init__(self, file: LineFile, begin: int) -> None:
        self._file = file
        self._begin = begin
        self._count = (file.size - begin) * 8
        self._byte_at: Callable[[int], int] = self._read
        if file.size - begin <= _IN_MEMORY:
            bits = file.read(begin, file.size).ljust(file.size - begin, b"\xff")  # See `_read`.
            self._byte_at = cast(Callable[[int], int], bits.__getitem__)
            file.close()

    def close(self) -> None:
        self._file.close()

    def may_have(self, hashes: Hashes) -> bool:
        """Return whether the run may have the key; False is certain.

        Raises:
            Unavailable: the disk did not return it.
        """
        byte_at, count = self._byte_at, self._count
        for each in hashes:
            at = each % count
            if not byte_at(at >> 3) >> (at & 7) & 1:
                return False
        return True

    def _read(self, at: int) -> int:
        found = self._file.read(self._begin + at, self._begin + at + 1)
        return found[0] if found else 0xFF  # It was cut off.


def load(path: Path, trailer: Trailer) -> tuple[Filter | None, str]:
    """Return the filter of the run with this trailer, and what is wrong with the file.

    A file that is missing is no flaw: former versions write none.
    """
    try:
        file = LineFile(path)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{path}: cannot be read ({error.strerror}); {_SLOWER}"
    try:
        begin, found = _checked_begin(file, trailer)
        if begin is not None:
            return Filter(file, begin), ""
    except Unavailable as error:
        file.close()
        return None, f"{error}; {_SLOWER}"
    file.close()
    return None, found and f"{path}: {found}; {_SLOWER}"


def _checked_begin(file: LineFile, trailer: Trailer) -> tuple[int | None, str]:
    """Return where the bits begin; None if they cannot be used, and why, if that is damage."""
    head, newline, _ = file.read(0, _HEAD_MOST).partition(b"\n")
    fields = (checked(head) or b"").split(b"\t")
    if len(fields) != 5 or fields[0] != b"F":
        return None, "it is damaged"
    if fields[1] != b"1" or fields[2] != digest_of(trailer.line()):
        return None, ""  # Of another run with this name, which lost; or of a newer version.
    begin = len(head) + len(newline)
    parts = (file.read(at, at + _CHUNK) for at in range(begin, file.size, _CHUNK))
    if file.size != begin + int(fields[3]) or digest_of(*parts) != fields[4]:
        return None, "it is damaged"
    return begin, ""
