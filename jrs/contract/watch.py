"""Watching a prefix of the map."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Self


class Watch(abc.ABC):
    """A level-triggered hint that keys under a prefix may have changed: re-read, never replay.

    A new watch fires at once, so that no earlier change is missed. Use the watch as a context
    manager, from one thread.
    """

    @abc.abstractmethod
    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds; return whether a key may have changed."""

    def changes(self, timeout: float) -> frozenset[str] | None:
        """Wait up to `timeout` seconds; return the names of the keys that may have changed.

        A name is a key, or a prefix with a trailing slash where the backend knows no more. The set
        is empty if nothing changed. None means that any key may have changed: read all again. A
        new watch returns None first. Every change is named at least once, or None is returned
        instead. Call either `wait` or `changes` on a watch, not both.
        """
        return None if self.wait(timeout) else frozenset()

    @abc.abstractmethod
    def close(self) -> None:
        """Stop watching. Idempotent."""

    def __iter__(self) -> Iterator[None]:
        """Yield each time a key may have changed, forever."""
        while True:
            if self.wait(3600.0):
                yield None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
