"""By which time things are judged old before they are deleted.

What was deleted does not come back, so the clock of one host is not enough. Masters on other hosts
that are heard say which time it is. Where there are none, the newest time counts that was written
to the cluster at least an hour ago, and that another one confirms, from a day to eight days older.
So neither what a wrong clock has just written counts, nor what it writes for less than a day. In a
cluster that is idle, less is old than this host's clock says. A leader that leads for long knows
more: see `jrs.recovery.leader.age_clock`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

from jrs.contract.backend import Backend
from jrs.contract.clock import APART
from jrs.contract.errors import CorruptRecord
from jrs.contract.texts import span, when
from jrs.store import cluster_history, result_order
from jrs.store.masters import Registry

_DAY = 86400.0
_CONFIRMED = 8 * _DAY
"""Seconds between a time and one that confirms it, at most: some jobs run once a week."""


def horizon(
    backend: Backend, now: float, age: float, notify: Callable[[str], None] = lambda said: None
) -> float:
    """Return the moment before which things are older than so many seconds. This host's clock is
    enough for ages up to `APART`: it does no more harm than that.

    It waits 7.5 seconds if the only masters on other hosts seem to be gone.

    Args:
        now: seconds since 1970, by the clock of this host.
        notify: called with a line for people if ages count up to a time that is more than two hours
            before `now`.

    Raises:
        Unavailable: from the backend.
    """
    if age <= APART:
        return now - age
    host = socket.gethostname()
    others = Registry(backend, now=lambda: now).heard(lambda info: info.host != host)
    last = min(others, key=lambda info: info.seen_at, default=None)
    if last is not None:
        known, why = last.seen_at, f"by the clock of master {last.name} on {last.host}"
        doubt = "one of the two hosts has a wrong clock"
    else:
        known, why = newest_written(backend, now - APART), "the newest time that is confirmed"
        doubt = f"the cluster was idle, or the clock of this host is {span(now - known)} ahead"
    if known and now - known > 2 * APART:
        notify(f"ages count up to {when(known)}, {why}: {doubt}")
    return min(now, known) - age


def newest_written(backend: Backend, until: float) -> float:
    """Return the newest time up to a moment that a leader or a job that ended has left in the
    store, and that another one confirms; the first one that there is needs none. 0 if there is no
    time at all.

    Raises:
        Unavailable: from the backend.
    """
    try:
        # A user's own events may have been written by the very clock that is judged.
        led = [event.at for event in cluster_history.read(backend) if event.epoch]
    except CorruptRecord:
        led = []  # fsck names it.

    def newest(until: float) -> float:
        first = result_order.FIRST_END
        ended = next(result_order.places(backend, None, None, first, until, None), None)
        times = [at for at in led if at <= until] + ([] if ended is None else [ended.ended_at])
        return max(times, default=0.0)

    found = newest(until)
    while (before := newest(found - _DAY)) and found - before > _CONFIRMED:
        found = before
    return found
