"""A layer between the code under test and the operating system, in this process.

Functions of `os` and `fcntl` are replaced while a `Layer` is entered, so whatever the code
calls passes by an observer, who can act before and after it. What a child process calls is not
seen.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

Observer = Callable[[str, tuple[Any, ...], dict[str, Any], Callable[..., Any]], Any]
"""Called with a call's name, its arguments and the real function; returns what the call returns."""

WRITING = (
    "open", "close", "write", "writev", "pwrite", "fsync", "fdatasync", "link", "unlink", "remove",
    "rename", "replace", "mkdir", "rmdir", "truncate", "ftruncate", "symlink", "sendfile",
    "copy_file_range", "posix_fallocate",
)  # fmt: skip
"""What changes files, or makes changes durable."""
READING = ("read", "pread", "lseek", "fstat", "stat", "lstat", "listdir", "scandir", "access")
"""What looks at files."""
_ELSEWHERE = {"flock": (fcntl, "flock"), "lockf": (fcntl, "lockf")}
LOCKING = tuple(_ELSEWHERE)
"""What locks files."""


class Layer:
    """Passes the named calls to an observer while it is entered. One at a time in a process."""

    _entered = False

    def __init__(self, names: Iterable[str], observer: Observer) -> None:
        self._names = tuple(names)
        self._observer = observer
        self._real: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Self:
        if Layer._entered:
            raise RuntimeError("a layer is entered already")
        Layer._entered = True
        for name in self._names:
            owner, attribute = _ELSEWHERE.get(name, (os, name))
            real = getattr(owner, attribute)
            self._real.append((owner, attribute, real))
            setattr(owner, attribute, self._wrapped(name, real))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for owner, attribute, real in self._real:
            setattr(owner, attribute, real)
        self._real.clear()
        Layer._entered = False

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        observer = self._observer

        def call(*arguments: Any, **named: Any) -> Any:
            return observer(name, arguments, named, real)

        return call
