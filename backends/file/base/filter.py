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
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from struct import Struct

from ..format.folder import write_all
from ..format.lines import checked, sealed
from .index import Trailer, digest_of

_BITS = 16
"""Bits for each key; with three of them set by a key, one of 200 absent keys is not told."""

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
    """The filter of an open run, in memory: two bytes for each key.

    It is not mapped, for the reason that `LineFile` gives. Reading single bytes from the file takes
    five times as long, which is noticed in each commit.
    """

    def __init__(self, bits: bytes) -> None:
        self._bits = bits
        self._count = len(bits) * 8

    def may_have(self, hashes: Hashes) -> bool:
        """Return whether the run may have the key; False is certain."""
        bits, count = self._bits, self._count
        for each in hashes:
            at = each % count
            if not bits[at >> 3] >> (at & 7) & 1:
                return False
        return True


def load(path: Path, trailer: Trailer) -> tuple[Filter | None, str]:
    """Return the filter of the run with this trailer, and what is wrong with the file.

    A file that is missing is no flaw: former versions write none.
    """
    try:
        with path.open("rb") as file:
            bits, found = _checked_bits(file, trailer)
            if bits is not None:
                return Filter(bits), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        found = f"cannot be read ({error.strerror})"
    return None, found and f"{path}: {found}; look-ups are slower without it"


def _checked_bits(file: BufferedReader, trailer: Trailer) -> tuple[bytes | None, str]:
    """Return the bits; None if they cannot be used, and why, if that is damage."""
    head = file.readline(_HEAD_MOST)
    fields = (checked(head[:-1]) or b"").split(b"\t")
    if len(fields) != 5 or fields[0] != b"F":
        return None, "it is damaged"
    if fields[1] != b"1" or fields[2] != digest_of(trailer.line()):
        return None, ""  # Of another run with this name, which lost; or of a newer version.
    bits = file.read()
    if len(bits) != int(fields[3]) or digest_of(bits) != fields[4]:
        return None, "it is damaged"
    return bits, ""
