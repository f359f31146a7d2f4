"""Multi-read: many znodes as they are at one moment, not earlier than the read began."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate

from jrs.contract.clock import Deadline
from jrs.contract.errors import TooLarge, Unavailable

from . import codec
from .connection import Connection
from .request import Request, refusal

ROOM = 1_000_000
"""Most bytes of the parts of one read, with some room below what a server takes."""
_LIMIT = 0xFFFFF - 8
"""Most bytes of a request: a server ends the connection at a longer one (jute.maxbuffer)."""


def fitting(parts: Sequence[bytes], room: int = ROOM) -> int:
    """Return how many of the parts, from the first one on, fit into so many bytes."""
    return sum(end <= room for end in accumulate(map(len, parts)))


class Reading:
    """A multi-read that is repeated if the connection is lost.

    A server answers reads from its own state, which may be older than that of other servers. So a
    *sync* on the same connection precedes each read: the server first catches up with the
    ensemble's leader. (An ensemble leader that is cut off may answer for a few more ticks; see the
    package.)

    Args:
        notify: called once the read has ended, on the thread that reads replies; see `answers`.

    Raises:
        TooLarge: no server takes a request of so many bytes.
    """

    def __init__(
        self,
        connection: Connection,
        wanted: Sequence[bytes],
        deadline: Deadline,
        notify: Callable[[Reading], None],
    ) -> None:
        self._connection = connection
        self._body = codec.multi(wanted)
        if len(self._body) > _LIMIT:
            raise TooLarge(
                f"{connection.where}: a read of {len(self._body):,} bytes; limit {_LIMIT:,}"
            )
        self._deadline = deadline
        self._notify = notify
        self._canceled = False
        self._closed: Unavailable | None = None
        self._begin()

    def answers(self, *, refused: bool = False) -> list[codec.Read]:
        """Return the answers to the parts; `codec.NO_NODE` for an absent znode.

        Args:
            refused: return the error code for a part that may not be read, instead of raising.

        Raises:
            Unavailable: not within the deadline.
            AccessDenied: a part may not be read.
        """
        where = self._connection.where
        problem = self._closed or self._sync.problem(where) or self._read.problem(where)
        if problem is not None:
            raise problem
        if self._read.reply is None:
            raise Unavailable(f"{where}: no answer within the deadline")
        answers = codec.parts(*self._read.reply)
        for answer in answers:
            if isinstance(answer, int) and answer != codec.NO_NODE and not refused:
                raise refusal(answer, where)
        return answers

    def cancel(self) -> None:
        """Stop the read; `notify` is not called."""
        self._canceled = True
        self._sync.cancel()
        self._read.cancel()

    def _begin(self) -> None:
        self._sync = Request(codec.SYNC, codec.text("/"), lambda _: None)
        self._read = Request(codec.MULTI_READ, self._body, self._answered)
        self._connection.submit(self._sync, self._read)

    def _answered(self, read: Request) -> None:
        sync = self._sync
        again = read.lost or sync.lost or sync.generation != read.generation
        if sync.error is not None and not sync.lost:
            again = False  # A server that requires a login refuses once and ends the connection.
        if self._canceled:
            return
        if again and not self._deadline.expired:
            try:
                self._begin()
                return
            except Unavailable as error:
                self._closed = error
        self._notify(self)


def read(
    connection: Connection, wanted: Sequence[bytes], deadline: Deadline, *, refused: bool = False
) -> list[codec.Read]:
    """Read the parts and wait for the answers; see `Reading.answers`."""
    ready = threading.Lock()
    ready.acquire()
    reading = Reading(connection, wanted, deadline, lambda _: ready.release())
    if not ready.acquire(timeout=deadline.bounded()):
        reading.cancel()
    return reading.answers(refused=refused)
