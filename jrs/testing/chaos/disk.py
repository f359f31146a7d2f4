"""A disk, recorded call by call: every write, sync and change of a name below a folder."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from jrs.testing.chaos.calls import WRITING, Layer


@attrs.frozen
class Write:
    """Bytes that were written to a file, or (if `data` is None) the file's new length."""

    file: int
    offset: int
    data: bytes | None


@attrs.frozen
class Sync:
    """All of a file, or all names of a folder, are durable."""

    file: int


@attrs.frozen
class Name:
    """Names that a call changed: (folder, name, the object that it names now or None); and whether
    that object is a new folder."""

    changes: tuple[tuple[int, str, int | None], ...]
    is_folder: bool = False


@attrs.frozen
class Note:
    """A note of the workload at this point."""

    what: str
    number: int


Event = Write | Sync | Name | Note

ROOT = 0
"""The number of the folder that is recorded."""

_BY_DESCRIPTOR = re.compile(r"/proc/self/fd/(\d+)(/.*|)")
"""A path of an open folder, and what is below it."""


class Recorder:
    """Records all calls below a folder, which must be empty at first."""

    def __init__(self, root: Path) -> None:
        self.events: list[Event] = []
        self.before_sync: Callable[[], None] = lambda: None
        """Called before each sync of a file, by the thread that is about to sync."""
        self._root = os.path.realpath(root)
        self._lock = threading.RLock()
        self._folders: dict[int, dict[str, int]] = {ROOT: {}}
        self._fds: dict[int, int] = {}
        self._next = ROOT + 1
        self._layer = Layer(WRITING, self._observe)

    def note(self, what: str, number: int) -> None:
        with self._lock:
            self.events.append(Note(what, number))

    def __enter__(self) -> Recorder:
        self._layer.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._layer.__exit__(*exc)

    # -- inside ----------------------------------------------------------------------------

    def _observe(
        self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], real: Any
    ) -> Any:
        if name in ("fsync", "fdatasync") and arguments[0] in self._fds:
            if self._fds[arguments[0]] not in self._folders:
                self.before_sync()
            result = real(*arguments, **named)
            with self._lock:
                self.events.append(Sync(self._fds[arguments[0]]))
            return result
        with self._lock:
            handler = getattr(self, f"_on_{name}", None)
            if handler is None:
                if any(fd in self._fds for fd in arguments if isinstance(fd, int)):
                    raise RuntimeError(f"os.{name} is not recorded yet")
                return real(*arguments, **named)
            return handler(real, *arguments, **named)

    def _place(self, path: Any) -> tuple[int, str] | None:
        """Return the folder and the name of a path, or None if it is elsewhere."""
        text = os.path.abspath(os.fsdecode(path))
        folder: int | None
        if found := _BY_DESCRIPTOR.fullmatch(text):
            folder, below = self._fds.get(int(found[1])), found[2]
        elif text == self._root or text.startswith(self._root + os.sep):
            folder, below = ROOT, text[len(self._root) :]
        else:
            folder = None
        if folder is None:
            return None
        parts = below.split(os.sep)[1:]
        if not parts:
            return folder, ""
        for part in parts[:-1]:
            folder = self._folders[folder][part]
        return folder, parts[-1]

    def _file(self, place: tuple[int, str]) -> int | None:
        return place[0] if not place[1] else self._folders[place[0]].get(place[1])

    def _change(self, *changes: tuple[int, str, int | None], is_folder: bool = False) -> None:
        for folder, name, file in changes:
            if file is None:
                self._folders[folder].pop(name, None)
            else:
                self._folders[folder][name] = file
        self.events.append(Name(changes, is_folder))

    def _new(self) -> int:
        self._next += 1
        return self._next

    def _opened(self, place: tuple[int, str], fd: int, flags: int) -> None:
        file = self._file(place)
        if file is None:
            file = self._new()
            self._change((*place, file))
        elif flags & os.O_TRUNC:
            self.events.append(Write(file, 0, None))
        self._fds[fd] = file

    def _on_open(self, real: Any, path: Any, flags: int, *more: Any, **named: Any) -> int:
        fd: int = real(path, flags, *more, **named)
        try:
            place = self._place(path)
        except KeyError:
            place = None
        if place is not None:
            self._opened(place, fd, flags)
        return fd

    def _on_close(self, real: Any, fd: int) -> None:
        self._fds.pop(fd, None)
        real(fd)

    def _on_write(self, real: Any, fd: int, data: Any) -> int:
        if fd not in self._fds:
            return int(real(fd, data))
        written = int(real(fd, data))
        offset = os.lseek(fd, 0, os.SEEK_CUR) - written
        self.events.append(Write(self._fds[fd], offset, bytes(data[:written])))
        return written

    def _on_pwrite(self, real: Any, fd: int, data: Any, offset: int) -> int:
        written = int(real(fd, data, offset))
        if fd in self._fds:
            self.events.append(Write(self._fds[fd], offset, bytes(data[:written])))
        return written

    def _on_ftruncate(self, real: Any, fd: int, length: int) -> None:
        real(fd, length)
        if fd in self._fds:
            self.events.append(Write(self._fds[fd], length, None))

    def _on_truncate(self, real: Any, path: Any, length: int) -> None:
        real(path, length)
        if isinstance(path, int):
            file = self._fds.get(path)
        else:
            place = self._place(path)
            file = None if place is None else self._file(place)
        if file is not None:
            self.events.append(Write(file, length, None))

    def _on_mkdir(self, real: Any, path: Any, *more: Any, **named: Any) -> None:
        real(path, *more, **named)
        place = self._place(path)
        if place is not None:
            folder = self._new()
            self._folders[folder] = {}
            self._change((*place, folder), is_folder=True)

    def _on_link(self, real: Any, source: Any, target: Any, **named: Any) -> None:
        real(source, target, **named)
        place, new = self._place(source), self._place(target)
        if place is not None and new is not None:
            self._change((*new, self._file(place)))

    def _on_unlink(self, real: Any, path: Any, **named: Any) -> None:
        real(path, **named)
        place = self._place(path)
        if place is not None:
            self._change((*place, None))

    _on_remove = _on_rmdir = _on_unlink

    def _on_rename(self, real: Any, source: Any, target: Any, **named: Any) -> None:
        real(source, target, **named)
        place, new = self._place(source), self._place(target)
        if place is not None and new is not None:
            self._change((*new, self._file(place)), (*place, None))

    _on_replace = _on_rename
