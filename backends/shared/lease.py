"""The leadership lease: valid while its heartbeats are acknowledged, by the leader's own clock.

A server reports the end of a session only to reachable clients, so a leader that is cut off has to
detect it by itself; a folder reports nothing to a leader that hangs. A lease is valid until a safe
fraction of the ttl after the last acknowledged heartbeat was *sent*. No other process can count
from an earlier moment, so the leader knows before another process can lead. This protects the
leader's actions outside the map; inside the map the fence decides, and no clock is trusted.
"""

from __future__ import annotations

import logging
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
from jrs.contract.runtime import JrsThread, start_thread

_log = logging.getLogger("jrs.backends.lease")

SAFE = 0.75
"""The part of the ttl for which a heartbeat is valid; the rest is for ending running attempts."""

BEATS = 5
"""Heartbeats in one ttl."""


class SessionGuard(Protocol):
    """A process that ends the session of a dead leader: the guardian process of a server."""

    def beat(self) -> None:
        """Report that the session is alive. May raise, which ends no session."""

    def dismiss(self, *, ended: bool = True) -> None:
        """Dismiss the guardian. Unless the session has `ended`, the guardian ends it first."""


class LeadershipLease(Leadership):
    """A leadership, its heartbeat and its guardian.

    Args:
        epoch, fence: the result of the campaign.
        ttl: the ttl of the session, in seconds.
        sent: the time, by `lease_time`, at which the last acknowledged heartbeat was sent.
        beat: keeps the session alive once, within the deadline. Raises `Refused` if the session is
            over, anything else if its state is unknown.
        end: ends the session at once, so that the next candidate leads. May raise `JrsError`.
        held: the descriptor for the lifeline; see `Lifeline`.
        guardian: guards this session, if it needs one; dismissed together with the leadership.
        beats: heartbeats in one ttl.

    Raises:
        Unavailable: this host is short of descriptors, memory or threads. The session is not ended.
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
        # On a slow link, winning took a part of the ttl.
        self._first_pause = max(0.0, sent + self._interval - lease_time())
        self._clock = _SharedMoment(sent + ttl * SAFE)
        self.lifeline = Lifeline(until=self._clock.fd, held=held)
        self._ending = threading.Lock()
        self._ended = False
        # A separate thread watches the clock, because a heartbeat may hang in a client library.
        self._beating = JrsThread(
            target=self._heartbeat, name=f"jrs-heartbeat-e{epoch}", daemon=True
        )
        self._watching = JrsThread(
            target=self._watch_clock, name=f"jrs-lease-e{epoch}", daemon=True
        )
        self._start()

    def _start(self) -> None:
        # The heartbeat last: if a start fails, no heartbeat is under way that could hang.
        threads = (self._watching, self._beating)
        try:
            for thread in threads:
                start_thread(thread)
        except BaseException as error:
            # The caller closes what a heartbeat writes to, and its number may be given again.
            self.lost.set()
            for thread in threads:
                if thread.is_alive():
                    thread.join(self._ttl)
            self._clock.close()
            if isinstance(error, Unavailable):
                raise Unavailable(f"{error}; this process cannot lead") from error.__cause__
            raise

    @property
    def valid_until(self) -> float:
        """The time, by `lease_time`, at which this leadership ends unless a heartbeat succeeds."""
        return self._clock.read()

    def remaining(self) -> float:
        return self.valid_until - lease_time()

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
            except Exception:
                # The handle is closed, no server answers, or this host is short of threads or
                # memory: the guardian has its own connection.
                # If the guardian fails, too, the session ends after its ttl.
                if self._guardian is not None:
                    self._guardian.dismiss(ended=False)
            else:
                if self._guardian is not None:
                    self._guardian.dismiss()
            self._clock.close()

    def _heartbeat(self) -> None:
        pause = self._first_pause
        while not self.lost.wait(pause):
            pause = self._interval
            sent = lease_time()
            try:
                self._beat(Deadline.after(self._interval))
            except Refused:
                self.lost.set()
            except Exception as error:
                # The state is unknown, also if this host is short of threads or memory: the clock
                # decides, and the next heartbeat may succeed.
                if not isinstance(error, JrsError):
                    _log.warning("the heartbeat of epoch %d failed: %r", self.epoch, error)
            else:
                with self._ending:
                    if lease_time() >= self.valid_until:
                        self.lost.set()
                    if self.lost.is_set():
                        return  # Too late: the leadership is over, and its clock may be closed.
                    self._clock.write(sent + self._ttl * SAFE)
                if self._guardian is not None:
                    # A guardian that cannot be restarted must not end the heartbeat.
                    with suppress(Exception):
                        self._guardian.beat()

    def _watch_clock(self) -> None:
        while not self.lost.wait(min(NAP, max(0.0, self.valid_until - lease_time()))):
            if lease_time() >= self.valid_until:
                self.lost.set()


class _SharedMoment:
    """A moment by `lease_time`, in memory that other processes of this host can share."""

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
            why = f"no clock can be created: {error.strerror}; this process cannot lead"
            raise Unavailable(why) from error
        self._last = at
        self.write(at)

    def read(self) -> float:
        return self._last

    def write(self, at: float) -> None:
        self._last = at
        # Eight aligned bytes: a reader sees either the old moment or the new one.
        self._FORMAT.pack_into(self._memory, 0, at)

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
