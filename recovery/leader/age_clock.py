"""AgeClock: by which time a leader judges how old things are before it removes them.

What was removed does not come back, so the clock of one host is not enough. Masters on other hosts
whose heartbeats are heard confirm it, or contradict it, for a day. Where there are none, the newest
time counts that was written to the cluster at least an hour ago. Behind a gap of more than a week,
times count only once they reach over a day: this host may have written them by a clock that is
wrong. After a leader has led for as long as its clock is ahead of that time, a day at most, it
believes its own clock: the cluster had been idle.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from itertools import pairwise

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.runtime import Runtime
from jrs.contract.texts import span, when
from jrs.records.cluster import MasterInfo
from jrs.store import cluster_history, result_order
from jrs.store.masters import Registry

from ..rules.retention import APART, DAY, Now

_GAP = 8 * DAY
"""Seconds without any time, in a cluster that is used: some jobs run once a week."""
_TIMES = 2000
"""Times that are read, at most."""
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


@attrs.frozen
class _Heard:
    """The last heartbeat of a master on another host."""

    info: MasterInfo
    changed_at: float | None = None
    """When it was seen to have changed, on the monotonic clock; None: it may be an old one."""
    ahead: float = 0.0
    """How far this host's clock was ahead of it then, in seconds."""
    tolerated: float = 0.0
    """How far it may be, if both clocks are right."""


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
    _masters: dict[str, _Heard] = attrs.field(factory=dict, init=False)
    """Also those whose records are gone."""
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
            heard = self._heard(wall, monotonic)
            last = max(heard, key=lambda one: one.ahead - one.tolerated, default=None)
            if last is not None:
                if last.ahead <= last.tolerated:
                    return Now(wall, wall)
                name = last.info.name
                self._report(name, f"of that of master {name} on {last.info.host}", last.ahead, "")
                return Now(wall, wall - last.ahead)
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
            self._masters.clear()
        return begin

    def _newest_written(self, until: float) -> float:
        """Return the newest time up to a moment that the history of the cluster or a result has; 0
        if none has one. Times behind a gap do not count until they reach over a day: a clock that
        is wrong may have written them."""
        try:
            events = cluster_history.read(self._backend)
        except CorruptRecord:
            events = ()  # fsck names it.
        times = [event.at for event in events if event.at <= until]
        first = result_order.FIRST_END
        for ended in result_order.by_end(self._backend, since=first, until=until):
            if ended.result is not None:
                times.append(ended.result.finished_at)
            if len(times) >= _TIMES:
                break
        times.sort(reverse=True)
        newest = times[0] if times else 0.0
        for time, before in pairwise(times):
            if newest - time >= DAY:
                break
            if time - before > _GAP:
                newest = before
        return newest

    def _heard(self, wall: float, monotonic: float) -> list[_Heard]:
        """Return the masters on other hosts that have written a heartbeat in the last day, between
        two looks at it."""
        host, since = socket.gethostname(), monotonic - self._looked
        for info in Registry(self._backend).masters():
            known = self._masters.get(info.name)
            if info.host == host or (known and known.info.seen_at == info.seen_at):
                continue
            found = _Heard(info)
            if known is not None:
                found = _Heard(info, monotonic, wall - info.seen_at, APART + since)
            self._masters[info.name] = found
        self._looked = monotonic
        return [
            one
            for one in self._masters.values()
            if one.changed_at is not None and monotonic - one.changed_at < DAY
        ]
