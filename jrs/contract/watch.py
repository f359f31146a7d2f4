"""Watching a prefix of the map."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Self


class Watch(abc.ABC):
    """A level-triggered hint that something under a prefix may have changed: re-read, never replay.

    A new watch fires at once, so that what happened before it is not missed. Use it as a context
    manager; it belongs to one thread.
    """

    @abc.abstractmethod
    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; return True if something may have changed."""

    def changes(self, timeout: float) -> frozenset[str] | None:
        """Wait up to `timeout` seconds; return the names of what may have changed.

        A name is a key, or ends with a slash where the backend only knows below which prefix. The
        set is empty if nothing did. None says that anything may have changed: read all again. A
        new watch returns None at first. Every change is named, or None is returned in its place;
        it may be named several times. A watch is asked by `wait` or by `changes`, not by both.
        """
        return None if self.wait(timeout) else frozenset()

    @abc.abstractmethod
    def close(self) -> None:
        """Stop watching. Idempotent."""

    def __iter__(self) -> Iterator[None]:
        """Yield each time something may have changed, forever."""
        while True:
            if self.wait(3600.0):
                yield None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
