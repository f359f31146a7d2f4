"""The registry of masters: which masters run and which one leads.

No decision of a leader depends on it: people read it, and what requires that no master runs checks
it. A heartbeat has the time of its master's host, so that a reader whose clock differs by more than
`GONE_AFTER` takes masters for gone that run, or for running that are gone; `Registry.heard` listens
before it says that none runs.
"""

from __future__ import annotations

import enum
import os
import socket
import threading
import time
from collections.abc import Callable

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import Conflict, CorruptRecord, JrsError
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.operations import Delete, create_or_update
from jrs.contract.runtime import RUNTIME, Runtime, call_until, start_thread
from jrs.contract.texts import when
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord, MasterInfo
from jrs.store import applications

INTERVAL = 5.0
"""Seconds between two heartbeats."""
GONE_AFTER = 3 * INTERVAL
"""Seconds without a heartbeat after which a master is shown as gone."""
_FORGET_AFTER = 3600.0
_LISTENS = 1.5 * INTERVAL
"""Seconds in which a master that runs is heard."""
_sleep = time.sleep


class MasterRole(enum.StrEnum):
    """What a master does now, as far as its heartbeats tell."""

    LEADER = "leader"
    """It has recovered the jobs of the newest epoch, and leads."""
    STANDBY = "standby"
    """It campaigns, or recovers the jobs before it leads."""
    FORMER = "former"
    """It led an epoch that is over, and was not heard since: it may be dead, or hang."""
    GONE = "gone"
    """Its heartbeats have stopped, and it was not closed."""


@attrs.frozen
class MasterView:
    """A registered master, for people and for tools."""

    info: MasterInfo
    """What the master has registered."""
    role: MasterRole
    """What it does now, as far as its heartbeats tell."""


@attrs.frozen
class LeaderView:
    """Which master leads now, as far as the heartbeats tell."""

    epoch: int | None
    """The newest epoch; None if no master has ever led, or if there is a `problem`."""
    leader: MasterInfo | None
    """The master that leads; None if none does."""
    elected: str = ""
    """The running master that was elected and does not lead yet: it recovers the jobs."""
    since: float = 0.0
    """Since when no master leads, in seconds since 1970, by its last heartbeat; 0 if unknown."""
    standby: bool = False
    """Whether no master leads now, but a standby master will take over."""
    application: str = ""
    """An application that waits for a replica of its own while no master leads: any other master
    that led would keep it from running. Empty if there is none."""
    held: str = ""
    """The masters that run and must not lead before an operator has repaired something, each with
    the reason, if no other one stands by."""
    problem: str = ""
    """Why the record of the epoch cannot be read, so that nobody can tell who leads; else empty."""

    @property
    def needs_master(self) -> bool:
        """Whether no master leads or will, and one that is started now has something to do."""
        return self.leader is None and not (self.elected or self.standby or self.application)

    def __str__(self) -> str:
        """Return it for people, in one line."""
        if self.leader is not None:
            return f"{self.leader.name} on {self.leader.host} leads, epoch {self.epoch}"
        if self.problem:
            return f"which master leads cannot be told: {self.problem}; see 'jrs fsck --repair'"
        if self.epoch is None:
            return "no master has ever led this cluster: start one with 'jrs master'"
        since = f" since {when(self.since)}" if self.since else ""
        if self.elected:
            return f"no master leads{since}; {self.elected} is elected and recovers the jobs"
        if self.standby:
            return f"no master leads{since}; a master that stands by takes over"
        if self.held:
            return f"no master leads{since}: {self.held}"
        if self.application:
            return (
                f"no master leads{since}: start the program of the application "
                f"{self.application!r} again"
            )
        return f"no master leads{since}: start one with 'jrs master'"


def newest_epoch(backend: Backend) -> EpochRecord | None:
    """Return the newest epoch; None if no master has ever led, or its record cannot be read."""
    try:
        return _epoch(backend)
    except CorruptRecord:
        return None


def _epoch(backend: Backend) -> EpochRecord | None:
    record = backend.get(keys.EPOCH)
    return None if record is None else decode(EpochRecord, record.value, keys.EPOCH)


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
        return [info for info in self.masters() if self._is_running(info)]

    def heard(self, among: Callable[[MasterInfo], bool] = lambda info: True) -> list[MasterInfo]:
        """Return the masters that run: those of `running` or, if there are none, those whose
        heartbeat changes while this waits for one, whatever the clocks of the hosts say. For a
        reader whose clock is behind, a killed master counts as running for so much longer.

        It waits 7.5 seconds if masters are registered and seem to be gone, else not at all.

        Args:
            among: which masters matter; the others are left out, and not waited for.
        """
        before = {info.name: info for info in self.masters() if among(info)}
        running = [info for info in before.values() if self._is_running(info)]
        if running or not before:
            return running
        _sleep(_LISTENS)
        after = [info for info in self.masters() if among(info)]
        return [info for info in after if self._has_beaten(info, before.get(info.name))]

    def views(self) -> list[MasterView]:
        """Return the registered masters with their roles, in the order of their names."""
        masters = self.masters()
        try:
            newest = _epoch(self._backend)
            epoch = None if newest is None else newest.epoch
        except CorruptRecord:
            # What the masters say of themselves is all that is known.
            epoch = max((info.leading or 0 for info in masters), default=None)
        return [MasterView(info, self._role(info, epoch)) for info in masters]

    def leading(self) -> LeaderView:
        """Return which master leads."""
        try:
            newest = _epoch(self._backend)
        except CorruptRecord as error:
            return LeaderView(None, None, problem=str(error))
        if newest is None:
            return LeaderView(None, None)
        masters = self.masters()
        led = [info for info in masters if info.leading == newest.epoch]
        running = [info for info in led if self._is_running(info)]
        if running:
            return LeaderView(newest.epoch, running[0])
        ready = [info for info in masters if info.leading is None and self._is_running(info)]
        held = "; ".join(f"{info.name} must not lead: {info.held}" for info in ready if info.held)
        ready = [info for info in ready if not info.held]
        elected = [info.name for info in ready if info.name == newest.candidate]
        last = max((info.seen_at for info in masters if info.leading is not None), default=0.0)
        # One that led an earlier epoch may have died since its heartbeat.
        waiting = next(iter(applications.waiting(self._backend)), "")
        return LeaderView(
            newest.epoch,
            None,
            elected=elected[0] if elected else "",
            since=last,
            standby=bool(ready),
            application=waiting,
            held=held,
        )

    def put(self, info: MasterInfo) -> None:
        """Write a master's heartbeat."""
        key = keys.MASTERS + info.name
        value = encode(attrs.evolve(info, seen_at=self._now()))
        stored = self._backend.get(key)
        self._backend.commit(create_or_update(key, value, stored and stored.version))

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

    def _is_running(self, info: MasterInfo) -> bool:
        return info.seen_at >= self._now() - GONE_AFTER

    def _has_beaten(self, info: MasterInfo, before: MasterInfo | None) -> bool:
        return self._is_running(info) or before is None or info.seen_at != before.seen_at

    def _role(self, info: MasterInfo, epoch: int | None) -> MasterRole:
        if not self._is_running(info):
            return MasterRole.GONE
        if epoch is None or info.leading is None:
            return MasterRole.STANDBY
        # A master that lives says at once that it lost its lead.
        return MasterRole.LEADER if info.leading == epoch else MasterRole.FORMER


class Registration:
    """A registered master: a thread of its own writes the heartbeats until `close`.

    Args:
        application: of which it is a replica; empty if it runs none.
        acknowledged: called after each heartbeat that the backend has acknowledged.
        report: called with why heartbeats fail, unless the backend does not answer.

    Raises:
        Unavailable: this host has no thread left for it.
    """

    def __init__(
        self,
        registry: Registry,
        name: str,
        *,
        max_attempts: int = 0,
        application: str = "",
        runtime: Runtime = RUNTIME,
        acknowledged: Callable[[], None] = lambda: None,
        report: Callable[[str], None] = lambda said: None,
    ) -> None:
        self._acknowledged = acknowledged
        self._report = report
        self._now = runtime.now
        self._registry = registry
        self._info = MasterInfo(
            name,
            socket.gethostname(),
            os.getpid(),
            runtime.now(),
            runtime.now(),
            reads_format=NEWEST_FORMAT,
            max_attempts=max_attempts,
            application=application,
        )
        self._said: MasterInfo | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._thread = runtime.thread(self._run, "jrs-registry")
        start_thread(self._thread)

    def leading(self, epoch: int | None) -> None:
        """Announce that this master leads in `epoch`; None announces that it does not lead."""
        with self._changed:
            since = 0.0 if epoch is None else self._now()
            self._info = attrs.evolve(self._info, leading=epoch, led_since=since)
            self._changed.notify()

    def held(self, why: str) -> None:
        """Announce why this master must not lead; empty if it may."""
        with self._changed:
            if self._info.held != why:
                self._info = attrs.evolve(self._info, held=why)
                self._changed.notify()

    def yielding(self, epoch: int) -> None:
        """Announce that this master lets another one lead first once `epoch` is over."""
        with self._changed:
            self._info = attrs.evolve(self._info, yields=epoch)
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
        # No pause after a heartbeat that failed: `_beat` waits for the next one.
        call_until(
            lambda: self._closing,
            self._beat,
            pause=lambda: None,
            report=self._report,
            failing="heartbeats fail",
        )

    def _beat(self) -> None:
        """Write a heartbeat once one is due, or there is something new to say."""
        with self._changed:
            if self._info is self._said and not self._closing:
                self._changed.wait(INTERVAL)
            if self._closing:
                return
            self._said = self._info
        self._registry.put(self._said)
        self._acknowledged()
