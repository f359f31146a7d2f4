"""The leadership lease: it lasts as long as its heartbeats are acknowledged, by our own clock.

A server reports the end of a session only to those it can talk to, so whoever is cut off has to
know by itself; a folder reports nothing to a leader that hangs. A lease is valid until a safe
fraction of the ttl after the last acknowledged heartbeat was *sent*: nobody can have counted from
an earlier moment, so the leader knows before anybody else can lead. That is for the sake of what a
leader does outside of the map; inside of it the fence decides, and no clock is trusted.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from jrs.contract.clock import NAP, Deadline, lease_time
from jrs.contract.errors import JrsError, Refused, Unavailable
from jrs.contract.leadership import Leadership, Lifeline
from jrs.contract.operations import Fence

SAFE = 0.75
"""The part of the ttl for which a heartbeat counts: the rest is for ending what is running."""

BEATS = 5
"""Heartbeats in one ttl."""


class SessionGuard(Protocol):
    """What ends the session of a leader that dies: the guardian process of a server's backend."""

    def beat(self) -> None:
        """Say that the session is known to be alive. May raise `JrsError`."""

    def dismiss(self, *, ended: bool = True) -> None:
        """Let it go. It ends the session itself first, unless that has `ended`."""


class LeadershipLease(Leadership):
    """A leadership, its heartbeat and its guardian.

    Args:
        epoch, fence: what the campaign won.
        ttl: of the session, in seconds.
        sent: when, by `lease_time`, the last acknowledged request that kept the session alive was
            sent.
        beat: keeps the session alive once, within the deadline. Raises `Refused` if it is over,
            any other `JrsError` if that is not known.
        end: ends the session at once, so that the next candidate leads. May raise `JrsError`.
        held: for the lifeline; see `Lifeline`.
        guardian: guards this session, if it needs one; dismissed along with the leadership.
        beats: heartbeats in one ttl.

    Raises:
        Unavailable: this host is short of descriptors or memory. The session is not ended.
    """

    def __init__(
        self,
        epoch: int,
        fence: Fence,
        *,
        ttl: float,
        sent: float,
        beat: Callable[[Deadline], None],
        end: Callable[[], None],
        held: int,
        guardian: SessionGuard | None = None,
        beats: int = BEATS,
    ) -> None:
        self.epoch = epoch
        self.fence = fence
        self.lost = threading.Event()
        self._ttl = ttl
        self._beat = beat
        self._end = end
        self._guardian = guardian
        self._interval = ttl / beats
        self._clock = _SharedMoment(sent + ttl * SAFE)
        self.lifeline = Lifeline(until=self._clock.fd, held=held)
        self._ending = threading.Lock()
        self._ended = False
        # The clock has a thread of its own: a heartbeat may hang in a client library.
        self._beating = threading.Thread(
            target=self._heartbeat, name=f"jrs-heartbeat-e{epoch}", daemon=True
        )
        self._watching = threading.Thread(
            target=self._watch_clock, name=f"jrs-lease-e{epoch}", daemon=True
        )
        self._beating.start()
        self._watching.start()

    @property
    def valid_until(self) -> float:
        """When, by `lease_time`, this leadership is over unless a heartbeat succeeds."""
        return self._clock.read()

    def resign(self) -> None:
        self.lost.set()
        for thread in (self._beating, self._watching):
            if thread is not threading.current_thread():
                thread.join(self._ttl)
        with self._ending:
            if self._ended:
                return
            self._ended = True
            try:
                self._end()
            except JrsError:
                # The handle is closed, or nobody answers: the guardian has a connection of its
                # own. If it fails, too, the session ends by itself, after its ttl.
                if self._guardian is not None:
                    self._guardian.dismiss(ended=False)
            else:
                if self._guardian is not None:
                    self._guardian.dismiss()
            self._clock.close()

    def _heartbeat(self) -> None:
        while not self.lost.wait(self._interval):
            sent = lease_time()
            try:
                self._beat(Deadline.after(self._interval))
            except Refused:
                self.lost.set()
            except JrsError:
                continue  # Not known: the clock decides.
            else:
                with self._ending:
                    if lease_time() >= self.valid_until:
                        self.lost.set()
                    if self.lost.is_set():
                        return  # Too late: what is over is not prolonged, and may be closed.
                    self._clock.write(sent + self._ttl * SAFE)
                if self._guardian is not None:
                    # What keeps it from starting again must not end the heartbeat, too.
                    with suppress(JrsError):
                        self._guardian.beat()

    def _watch_clock(self) -> None:
        while not self.lost.wait(min(NAP, max(0.0, self.valid_until - lease_time()))):
            if lease_time() >= self.valid_until:
                self.lost.set()


class _SharedMoment:
    """A moment by `lease_time`, in memory that other processes of this host can be given."""

    _FORMAT = struct.Struct("d")

    def __init__(self, at: float) -> None:
        try:
            self.fd = os.memfd_create("jrs-lease", os.MFD_CLOEXEC)
            try:
                os.ftruncate(self.fd, self._FORMAT.size)
                self._memory = mmap.mmap(self.fd, self._FORMAT.size)
            except BaseException:
                os.close(self.fd)
                raise
        except OSError as error:
            why = f"no clock can be kept: {error.strerror}; nobody can lead from here"
            raise Unavailable(why) from error
        self._last = at
        self.write(at)

    def read(self) -> float:
        return self._last

    def write(self, at: float) -> None:
        self._last = at
        # Eight aligned bytes: a reader sees the old moment or the new one.
        self._FORMAT.pack_into(self._memory, 0, at)

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
