"""AgeClock: by which time a leader judges how old things are before it removes them.

What was removed does not come back, so the clock of one host is not enough. Masters on other hosts
whose heartbeats are heard confirm it. Where there are none, the newest time does that others have
written to the cluster at least an hour ago: what this host wrote since it started, by a clock that
is wrong, says nothing. After it has led for as long as its clock is ahead of that time, a day at
most, a leader believes its own clock: the cluster had been idle.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.runtime import Runtime
from jrs.contract.texts import span, when
from jrs.records.cluster import MasterInfo
from jrs.store import cluster_history, result_order
from jrs.store.masters import Registry

from ..rules.retention import APART, DAY, Now

_SET = "if it is wrong, set it (timedatectl, chronyc makestep)"


@attrs.frozen
class _Begin:
    """Since when the clock has run evenly, and what was known then."""

    wall: float
    monotonic: float
    written: float
    """The newest time that was written at least `APART` before."""

    @property
    def ahead(self) -> float:
        """How far the clock was ahead, in seconds."""
        return self.wall - self.written


@attrs.define(eq=False)
class AgeClock:
    """The clock by which one leadership judges ages. Safe for use by many threads.

    Args:
        say: reports that this host's clock, or that of another one, may be wrong; once for each.
    """

    _backend: Backend
    _runtime: Runtime
    _say: Callable[[str], None]
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    _begin: _Begin | None = attrs.field(default=None, init=False)
    _known: dict[str, MasterInfo] | None = attrs.field(default=None, init=False)
    _looked: float = attrs.field(default=0.0, init=False)
    """When the heartbeats were read, on the monotonic clock."""
    _said: str = attrs.field(default="", init=False)
    """About which clock, and which time."""

    def now(self) -> Now:
        """Return the time, as far as it is confirmed. Heartbeats count from the second call on.

        Raises:
            Unavailable: from the backend; the call may be repeated.
        """
        with self._lock:
            wall, monotonic = self._runtime.now(), self._runtime.clock()
            begin = self._begun(wall, monotonic)
            since, heard = monotonic - self._looked, self._heard(monotonic)
            last = min(heard, key=lambda info: info.seen_at, default=None)
            if last is not None:
                behind = wall - last.seen_at
                if behind <= APART + since:
                    return Now(wall, wall)
                self._report(last.name, f"of that of master {last.name} on {last.host}", behind, "")
                return Now(wall, last.seen_at)
            led = monotonic - begin.monotonic
            if led >= min(begin.ahead, DAY):
                return Now(wall, wall)
            if begin.ahead > DAY and begin.written:
                newest = f"the newest time in the cluster, {when(begin.written)}"
                until = " until this master has led for a day"
                self._report(str(begin.written), f"of {newest}", begin.ahead, until)
            return Now(wall, begin.written + led)

    def _report(self, about: str, what: str, ahead: float, until: str) -> None:
        if about != self._said:
            self._said = about
            ages = f"it does not count for ages{until}"
            self._say(f"the clock of this host is {span(ahead)} ahead {what}: {ages}; {_SET}")

    def _begun(self, wall: float, monotonic: float) -> _Begin:
        """Return since when the clock runs evenly: one that was set is not confirmed any more."""
        begin = self._begin
        if begin is None or abs(wall - begin.wall - (monotonic - begin.monotonic)) > APART:
            begin = self._begin = _Begin(wall, monotonic, self._newest_written(wall - APART))
        return begin

    def _newest_written(self, until: float) -> float:
        """Return the newest time up to a moment that the history of the cluster or a result has; 0
        if none has one."""
        try:
            events = cluster_history.read(self._backend)
        except CorruptRecord:
            events = ()  # fsck names it.
        first = result_order.FIRST_END
        ended = next(result_order.by_end(self._backend, since=first, until=until), None)
        times = [event.at for event in events if event.at <= until]
        if ended is not None and ended.result is not None:
            times.append(ended.result.finished_at)
        return max(times, default=0.0)

    def _heard(self, monotonic: float) -> list[MasterInfo]:
        """Return the masters on other hosts that have written a heartbeat since the last call."""
        host, before = socket.gethostname(), self._known
        found = {one.name: one for one in Registry(self._backend).masters() if one.host != host}
        self._known, self._looked = found, monotonic
        return [
            one
            for name, one in found.items()
            if before and name in before and before[name].seen_at != one.seen_at
        ]
