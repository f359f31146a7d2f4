"""By which time a client judges how old things are before it deletes them.

What was deleted does not come back, so the clock of one host is not enough: ages count up to the
newest time that the cluster knows. That is the newest heartbeat of a master on another host. Where
there is none, it is the newest one of this host, or what leaders and ended jobs have left in the
store. In a cluster that is idle, less is old than this host's clock says.
"""

from __future__ import annotations

import socket

from jrs.contract.backend import Backend
from jrs.contract.clock import APART
from jrs.contract.errors import CorruptRecord
from jrs.contract.texts import span, when
from jrs.store import cluster_history, result_order
from jrs.store.masters import Registry


def horizon(backend: Backend, now: float, age: float) -> float:
    """Return the moment before which things are older than so many seconds. This host's clock is
    enough for ages up to `APART`: it does no more harm than that.

    Args:
        now: seconds since 1970, by the clock of this host.

    Raises:
        Unavailable: from the backend.
    """
    return (now if age <= APART else min(now, _newest(backend, now))) - age


def doubt(backend: Backend, now: float, age: float) -> str:
    """Return, for people, up to when such an age counts, if that is more than `APART` before this
    host's time; else an empty text. Raises as `horizon`."""
    newest = 0.0 if age <= APART else _newest(backend, now)
    if now - newest <= APART or not newest:
        return ""
    return (
        f"ages counted up to {when(newest)}, the newest time that the cluster knows: it is idle, "
        f"or the clock of this host is {span(now - newest)} ahead"
    )


def _newest(backend: Backend, now: float) -> float:
    masters, host = Registry(backend).masters(), socket.gethostname()
    others = [info.seen_at for info in masters if info.host != host]
    if others:
        return max(others)
    times = [info.seen_at for info in masters]
    try:
        # A user's own events may have been written by the very clock that is judged.
        times += [event.at for event in cluster_history.read(backend) if event.epoch]
    except CorruptRecord:
        pass  # fsck names it.
    ended = next(result_order.by_end(backend, since=result_order.FIRST_END, until=now), None)
    if ended is not None and ended.result is not None:
        times.append(ended.result.finished_at)
    return max(times, default=0.0)
