"""A layer between the code under test and the operating system, in this process.

While a `Layer` is entered, it replaces functions of `os` and `fcntl`, so that an observer sees
every call and can act before and after it. It does not see the calls of child processes.
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
"""Called with a call's name, its arguments and the real function; returns the call's result."""

WRITING = (
    "open", "close", "write", "writev", "pwrite", "fsync", "fdatasync", "link", "unlink", "remove",
    "rename", "replace", "mkdir", "rmdir", "truncate", "ftruncate", "symlink", "sendfile",
    "copy_file_range", "posix_fallocate",
)  # fmt: skip
"""The calls that change files or make changes durable."""
READING = ("read", "pread", "lseek", "fstat", "stat", "lstat", "listdir", "scandir", "access")
"""The calls that read files."""
_ELSEWHERE = {"flock": (fcntl, "flock"), "lockf": (fcntl, "lockf")}
LOCKING = tuple(_ELSEWHERE)
"""The calls that lock files."""


class Owners:
    """Knows the owner of each thread while it is entered: a thread has the owner of the thread that
    started it. Only one may be entered in a process at a time."""

    def __init__(self, default: str) -> None:
        self._default = default
        self._owner: dict[int, str] = {}
        self._start = threading.Thread.start

    def current(self) -> str:
        """Return the owner of the current thread."""
        return self._owner.get(threading.get_ident(), self._default)

    @contextmanager
    def acting(self, owner: str) -> Iterator[None]:
        """Let the current thread, and the threads that it starts, belong to `owner`."""
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
    """Passes the named calls to an observer while it is entered. Only one per process."""

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
