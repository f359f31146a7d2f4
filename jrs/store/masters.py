"""The registry of masters: which masters run and which one leads.

No decision of a leader depends on it: people read it, and raising the cluster's format checks it.
"""

from __future__ import annotations

import os
import socket
import threading
import time

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import Conflict, CorruptRecord, JrsError
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.operations import Create, Delete, Update
from jrs.contract.runtime import RUNTIME, Runtime
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import MasterInfo

INTERVAL = 5.0
"""Seconds between two heartbeats."""
GONE_AFTER = 3 * INTERVAL
"""Seconds without a heartbeat after which a master is shown as gone."""
_FORGET_AFTER = 3600.0


class Registry:
    """The masters of one cluster."""

    def __init__(self, backend: Backend, *, now: Clock = time.time) -> None:
        self._backend = backend
        self._now = now

    def masters(self) -> list[MasterInfo]:
        """Return the registered masters in the order of their names, without unreadable records."""
        found = []
        for record in self._backend.scan(keys.MASTERS):
            try:
                found.append(decode(MasterInfo, record.value, record.key))
            except CorruptRecord:
                continue
        return found

    def running(self) -> list[MasterInfo]:
        """Return the masters whose heartbeat is at most `GONE_AFTER` seconds old."""
        return [info for info in self.masters() if info.seen_at >= self._now() - GONE_AFTER]

    def put(self, info: MasterInfo) -> None:
        """Write a master's heartbeat."""
        key = keys.MASTERS + info.name
        value = encode(attrs.evolve(info, seen_at=self._now()))
        stored = self._backend.get(key)
        self._backend.commit(
            Create(key, value) if stored is None else Update(key, value, stored.version)
        )

    def remove(self, name: str) -> None:
        """Remove a master. Idempotent."""
        try:
            self._backend.commit(Delete(keys.MASTERS + name))
        except Conflict:
            pass

    def forget_gone(self) -> None:
        """Remove masters without a heartbeat for an hour."""
        for info in self.masters():
            if info.seen_at < self._now() - _FORGET_AFTER:
                self.remove(info.name)


class Registration:
    """A registered master: a thread of its own writes the heartbeats until `close`."""

    def __init__(
        self, registry: Registry, name: str, *, max_attempts: int = 0, runtime: Runtime = RUNTIME
    ) -> None:
        self._registry = registry
        self._info = MasterInfo(
            name,
            socket.gethostname(),
            os.getpid(),
            runtime.now(),
            runtime.now(),
            reads_format=NEWEST_FORMAT,
            max_attempts=max_attempts,
        )
        self._changed = threading.Condition()
        self._closing = False
        self._thread = runtime.thread(self._run, "jrs-registry")
        self._thread.start()

    def leading(self, epoch: int | None) -> None:
        """Announce that this master leads in `epoch`; None announces that it does not lead."""
        with self._changed:
            self._info = attrs.evolve(self._info, leading=epoch)
            self._changed.notify()

    def close(self) -> None:
        """Stop the heartbeats and remove the master."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(INTERVAL)
        try:
            self._registry.remove(self._info.name)
        except JrsError:
            pass  # The master will be shown as gone.

    def _run(self) -> None:
        said: MasterInfo | None = None
        while True:
            with self._changed:
                if self._info is said and not self._closing:
                    self._changed.wait(INTERVAL)
                if self._closing:
                    return
                said = self._info
            try:
                self._registry.put(said)
            except JrsError:
                pass  # The next heartbeat repeats it.
