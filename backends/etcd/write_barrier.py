"""Gate: makes reading back final. What has not happened by then never will.

A request that was not answered may still be on its way: in the socket of a server that hangs, say,
to be carried out when it goes on. So every request of a handle is conditional on a key that does
not exist, the handle's gate. After an unknown outcome, and before this handle reads or writes
anything again, the key is created: from then on the late request is refused by its own condition.
The handle goes on with another gate.
"""

from __future__ import annotations

import threading
import uuid
from typing import Any

from jrs.contract.clock import Deadline

from ._etcd3 import rpc
from .connection import Connection

_KEPT = 3600
"""Seconds for which a gate stays closed: longer than any request can be late."""


class WriteBarrier:
    """The present gate of one handle. Safe for many threads."""

    def __init__(self, connection: Connection, root: bytes) -> None:
        self._connection = connection
        self._root = root
        self._turn = threading.Lock()
        self._late = threading.Event()
        self.key = self._new()

    def check(self) -> Any:
        """Return the condition that the gate is open."""
        compare = rpc.Compare
        return compare(result=compare.EQUAL, target=compare.CREATE, key=self.key, create_revision=0)

    def note_late(self) -> None:
        """Take note that a request may still be carried out."""
        self._late.set()

    def close_behind(self, deadline: Deadline) -> None:
        """Shut out whatever may still be carried out; at once if there is nothing.

        Raises:
            Unavailable: not within the deadline; so nothing can be read for certain, either.
        """
        if not self._late.is_set():
            return
        with self._turn:
            if not self._late.is_set():
                return
            # Either may be repeated, and so is, until it is known to be done.
            grant = rpc.LeaseGrantRequest(TTL=_KEPT)
            lease = self._connection.read(lambda stubs: stubs.lease.LeaseGrant, grant, deadline).ID
            put = rpc.PutRequest(key=self.key, value=b"closed", lease=lease)
            self._connection.read(lambda stubs: stubs.kv.Put, put, deadline)
            # In this order: what is late from here on may have gone through the new gate.
            self._late.clear()
            self.key = self._new()

    def _new(self) -> bytes:
        return self._root + b"gate/" + uuid.uuid4().hex.encode()
