"""Reads that many share: once for each change, however many ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from jrs.sidecar.changes import Changes

T = TypeVar("T")

Begun = tuple[int, asyncio.Task[T]]
"""A read, and the generation of changes after which it began."""


class SharedReads(Generic[T]):
    """The newest read of each key. Its methods are for the event loop's thread.

    Args:
        read: reads a key, in a thread.
        most: how many keys are remembered.
    """

    def __init__(self, changes: Changes, read: Callable[[str], T], most: int) -> None:
        self._changes = changes
        self._read = read
        self._most = most
        self._begun: dict[str, Begun[T]] = {}

    async def get(self, key: str) -> T:
        """Return what was read after the newest change that was heard. A read that has failed is
        made again.

        Raises:
            Whatever the read raises.
        """
        begun = self._begun.get(key)
        if begun is None or not is_fresh(begun, self._changes):
            task = asyncio.create_task(asyncio.to_thread(self._read, key))
            begun = self._begun[key] = self._changes.generation, task
            while len(self._begun) > self._most:
                del self._begun[next(iter(self._begun))]
        return await asyncio.shield(begun[1])


def is_fresh(begun: Begun[Any], changes: Changes) -> bool:
    """Return whether a read began after the newest change that was heard, and has not failed."""
    generation, task = begun
    failed = task.done() and (task.cancelled() or task.exception() is not None)
    return generation >= changes.generation and not failed
