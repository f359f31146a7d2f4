"""Write barrier: once a read-back has returned, no earlier write of this handle can take effect.

A request without an answer may still be on its way, for example in the socket of a server that
hangs, and be carried out when the server continues. So every request of a handle has the condition
that a certain key, the handle's barrier, does not exist. After an unknown outcome, and before the
handle reads or writes again, it creates the key: from then on the late request fails its own
condition. The handle continues with a new barrier.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable

from ._etcd3 import rpc
from .connection import Connection

_KEPT = 3600
"""Seconds for which a barrier stays closed: longer than any request can be delayed."""


class WriteBarrier:
    """The current barrier of one handle. Safe for use by many threads."""

    def __init__(self, connection: Connection, root: bytes) -> None:
        self._connection = connection
        self._root = root
        self._turn = threading.Lock()
        self._late = threading.Event()
        self.key = self._new()

    def check(self) -> Any:
        """Return the condition that the barrier is open."""
        compare = rpc.Compare
        return compare(result=compare.EQUAL, target=compare.CREATE, key=self.key, create_revision=0)

    def note_late(self) -> None:
        """Record that a request may still be carried out."""
        self._late.set()

    def close_behind(self, deadline: Deadline) -> None:
        """Shut out all requests that may still be carried out; does nothing if there are none.

        Raises:
            Unavailable: not within the deadline, so that no read would be final.
            WrongProcess: the handle was opened before a fork.
        """
        if self._late.is_set():
            self._connection.check_process()  # A child has no thread that would make the call.
            # An interrupt in the middle would leave the handle with a closed barrier, for good.
            self._connection.safe_calls.run(lambda: self._replace(deadline))

    def _replace(self, deadline: Deadline) -> None:
        # The thread that has the turn may have a longer deadline.
        if not self._turn.acquire(timeout=deadline.bounded()):
            raise Unavailable(
                f"{self._connection.address.url}: an earlier write could not be shut out in time; "
                "nothing was changed"
            )
        try:
            if not self._late.is_set():
                return
            # Both requests are idempotent, and so are repeated until they succeed.
            grant = rpc.LeaseGrantRequest(TTL=_KEPT)
            lease = self._connection.read(lambda stubs: stubs.lease.LeaseGrant, grant, deadline).ID
            put = rpc.PutRequest(key=self.key, value=b"closed", lease=lease)
            self._connection.read(lambda stubs: stubs.kv.Put, put, deadline)
            # In this order: a request that is late from here on may use the new barrier.
            self._late.clear()
            self.key = self._new()
        finally:
            self._turn.release()

    def _new(self) -> bytes:
        # The name that the first releases gave to the keys.
        return self._root + b"gate/" + uuid.uuid4().hex.encode()
