"""Reads that many share: once for each change, however many ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from jrs.sidecar.changes import Changes

T = TypeVar("T")


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
        self._begun: dict[str, tuple[int, asyncio.Task[T]]] = {}

    async def get(self, key: str) -> T:
        """Return what was read after the newest change that was heard. A read that has failed is
        made again.

        Raises:
            Whatever the read raises.
        """
        begun = self._begun.get(key)
        if begun is None or begun[0] < self._changes.generation or _has_failed(begun[1]):
            task = asyncio.create_task(asyncio.to_thread(self._read, key))
            begun = self._begun[key] = self._changes.generation, task
            while len(self._begun) > self._most:
                del self._begun[next(iter(self._begun))]
        return await asyncio.shield(begun[1])


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
