"""A layer between the code under test and the operating system, in this process.

Functions of `os` and `fcntl` are replaced while a `Layer` is entered, so whatever the code
calls passes by an observer, who can act before and after it. What a child process calls is not
seen.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
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


class Owners:
    """Tells while it is entered on whose behalf a thread runs: a thread belongs to the one on whose
    behalf it was started. One at a time in a process."""

    def __init__(self, default: str) -> None:
        self._default = default
        self._owner: dict[int, str] = {}
        self._start = threading.Thread.start

    def current(self) -> str:
        """Return the owner of the current thread."""
        return self._owner.get(threading.get_ident(), self._default)

    @contextmanager
    def acting(self, owner: str) -> Iterator[None]:
        """Let the current thread, and those that it starts, run on behalf of `owner`."""
        mine = threading.get_ident()
        before = self._owner.get(mine)
        self._owner[mine] = owner
        try:
            yield
        finally:
            if before is None:
                del self._owner[mine]
            else:
                self._owner[mine] = before

    def __enter__(self) -> Self:
        owners, start = self, self._start

        def owned(thread: threading.Thread) -> None:
            owner, run = owners.current(), thread.run

            def run_owned() -> None:
                with owners.acting(owner):
                    run()

            thread.run = run_owned  # type: ignore[method-assign]
            start(thread)

        threading.Thread.start = owned  # type: ignore[method-assign, assignment]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        threading.Thread.start = self._start  # type: ignore[method-assign]


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
