"""The shared feed: what happens is read and encoded once, however many streams follow it.

It keeps the newest events as they are sent. A stream whose cursor is among them gets what is behind
it; another one has to read for itself until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

import attrs

from jrs.contract.errors import NotFound
from jrs.sidecar.changes import Changes
from jrs.sidecar.shared_reads import Begun, is_fresh

_MOST = 256
"""Events that are kept."""


@attrs.frozen
class Sent:
    """Events as they are sent, and the cursor behind them."""

    data: bytes
    cursor: str


@attrs.frozen
class SentPage:
    """The events of a page one by one, and the cursor behind all that was looked at."""

    events: tuple[Sent, ...]
    cursor: str
    more: bool


class SharedFeed:
    """The newest events. Its methods are for the event loop's thread.

    Args:
        read: returns what is behind a cursor; called in a thread.
    """

    def __init__(
        self,
        changes: Changes,
        read: Callable[[str], SentPage],
        most: int = _MOST,
    ) -> None:
        self._changes = changes
        self._read = read
        self._most = most
        self._kept: deque[Sent] = deque()
        self._places: dict[str, int] = {}
        """How many events came before each cursor, since the feed began."""
        self._dropped = 0
        self._cursor = ""
        """Behind all that was read; empty before the feed begins."""
        self._begun: Begun[None] | None = None
        self._turn = asyncio.Lock()
        self._newest: tuple[str, Sent] | None = None
        """What was given last, and for which cursor: most streams ask for the same."""

    def begin(self, cursor: str) -> None:
        """Begin behind a cursor that a stream has reached, unless it has begun."""
        if cursor and not self._cursor:
            self._cursor = cursor
            self._places = {cursor: self._dropped + len(self._kept)}

    async def behind(self, cursor: str) -> Sent | None:
        """Return all that is behind a cursor, read after the newest change that was heard; None if
        the cursor is not among those that are kept, or the feed has not begun.

        Raises:
            Whatever the read raises.
        """
        if not self._cursor:
            return None
        # Looked up only then: while nobody followed, nothing was read, and a stream that has read
        # for itself may be further.
        await asyncio.shield(self._refreshed())
        if cursor not in self._places:
            return None
        if self._newest is None or (self._newest[0], self._newest[1].cursor) != (
            cursor,
            self._cursor,
        ):
            behind = islice(self._kept, self._places[cursor] - self._dropped, None)
            data = b"".join(event.data for event in behind)
            self._newest = cursor, Sent(data, self._cursor)
        return self._newest[1]

    def _refreshed(self) -> asyncio.Task[None]:
        begun = self._begun
        if begun is None or not is_fresh(begun, self._changes):
            begun = self._begun = self._changes.generation, asyncio.create_task(self._refresh())
        return begun[1]

    async def _refresh(self) -> None:
        async with self._turn:
            more = True
            while more:
                try:
                    page = await asyncio.to_thread(self._read, self._cursor)
                except NotFound:
                    # What comes next was swept: each stream finds out for itself.
                    self._kept.clear()
                    self._places.clear()
                    self._cursor, self._newest = "", None
                    return
                self._keep(page)
                more = page.more

    def _keep(self, page: SentPage) -> None:
        for event in page.events:
            self._kept.append(event)
            self._places[event.cursor] = self._dropped + len(self._kept)
        self._cursor = page.cursor
        self._places[page.cursor] = self._dropped + len(self._kept)
        surplus = len(self._kept) - self._most
        if surplus > 0:
            for _ in range(surplus):
                self._kept.popleft()
            self._dropped += surplus
            self._places = {
                cursor: place for cursor, place in self._places.items() if place >= self._dropped
            }
