"""What has to be done before a cluster can be moved to another backend."""

from __future__ import annotations

import time

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import WrongState
from jrs.contract.formats import NEWEST_FORMAT
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.checks import bounded_text
from jrs.records.cluster import ClosedRecord
from jrs.records.codec import decode
from jrs.store.cluster_format import format_of
from jrs.store.masters import GONE_AFTER, Registry
from jrs.store.opening import closing_of


def obstacles(source: Backend, now: Clock = time.time) -> list[str]:
    """Return what has to be done before a cluster can be moved, one line each.

    Raises:
        ClusterMoved: it was moved. WrongState: it is a copy that is not complete.
    """
    closed = source.get(keys.CLOSED)
    if closed is not None:
        raise closing_of(source).error(closed.value)
    found = []
    if format_of(source) != NEWEST_FORMAT:
        found.append(other_format(source, format_of(source)))
    if source.get(keys.PAUSE) is None:
        found.append(f"{named(source)} is not paused: run jrs pause first")
    running = Registry(source, now=now).heard()
    if running:
        found.append(
            f"master {running[0].name!r} runs on {running[0].host}: stop all masters and "
            f"applications first; a killed one counts as running for {GONE_AFTER:g} s"
        )
    return found


def refuse(obstacles: list[str]) -> None:
    """Raise `WrongState` if anything has to be done first."""
    for obstacle in obstacles:
        raise WrongState(obstacle)


def refuse_to_lose(source: Backend, closed: Record, target: str, *, copy_lost: bool) -> None:
    """Refuse to open a source again whose target holds nothing, unless that is known to be a loss.

    Args:
        closed: the record that closes the source.
        target: the URL of the target, without secrets.
        copy_lost: whether a person has said that the target has lost the cluster.

    Raises:
        WrongState: the cluster left for another backend; or nobody has said it.
    """
    left = decode(ClosedRecord, closed.value, closed.key)
    if left.arriving:
        raise closing_of(source).error(closed.value)
    if not copy_lost or left.url != bounded_text(target):
        raise WrongState(
            f"{named(source)} left for {left.url}, may be used there, and {target} holds nothing: "
            f"name {left.url} as the target, and only if that has lost the cluster for good, add "
            "--copy-lost"
        )


def other_format(backend: Backend, version: int) -> str:
    return (
        f"{named(backend)} has format {version}, and a cluster is moved in format "
        f"{NEWEST_FORMAT}: run jrs cluster-format --raise first"
    )


def named(backend: Backend) -> str:
    return f"cluster {backend.cluster!r} at {backend.url}"
