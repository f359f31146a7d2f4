"""What /proc shows of this process: its arguments and its environment.

exec puts both in memory once, and a forked child has those of its parent. Here they are overwritten
in place, so that the child is found by its own mark, and people see which program it has become.
Neither ``os.environ`` nor `setenv` does that: they put new texts elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

_ARGUMENTS, _ENVIRONMENT = 45, 47
"""Where /proc/self/stat says at which address each begins, and, next to it, ends. proc(5) counts
from 1, and the pid and the name precede what is counted here."""


class Shown:
    """What /proc shows of this process, and of the children that it forks.

    Args:
        variables: those that will be overwritten. The values that this process was started with are
            as long as their later values may be.

    Raises:
        ValueError: this process was started without one of them.
    """

    def __init__(self, *variables: str) -> None:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        begin, end = map(int, fields[_ENVIRONMENT : _ENVIRONMENT + 2])
        whole = ctypes.string_at(begin, end - begin)
        self._rooms: dict[str, tuple[int, int]] = {}
        for variable in variables:
            entry = f"\0{variable}=".encode()
            place = (b"\0" + whole).index(entry) + len(entry) - 1
            self._rooms[variable] = begin + place, whole.index(b"\0", place) - place
        begin, end = map(int, fields[_ARGUMENTS : _ARGUMENTS + 2])
        self._arguments = begin, end - begin - 1  # The last byte has to stay zero.

    def variable(self, name: str, value: str) -> None:
        """Show another value of a variable. ``os.environ`` stays as it is.

        Raises:
            ValueError: it is too long.
        """
        room = self._rooms[name]
        if len(value.encode()) > room[1]:
            raise ValueError(f"{name} is longer than {room[1]} bytes")
        _put(value.encode(), room)

    def arguments(self, words: Sequence[str]) -> None:
        """Show other arguments, or as much of them as there is room for."""
        _put("\0".join(words).encode()[: self._arguments[1]], self._arguments)


def _put(text: bytes, room: tuple[int, int]) -> None:
    begin, size = room
    ctypes.memmove(begin, text.ljust(size, b"\0"), size)
