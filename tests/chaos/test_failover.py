"""Failover: who takes over when a master's process dies, when its whole host does, or on request.

The promise is asserted: nobody waits out a ttl for a process that died. How long it really took is
printed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.processes import guardians
from jrs.testing.servers import Server
from tests.chaos.support import TTL, Stamps, newest
from tests.support import BOUND

LONG = 3600.0
"""A ttl that nobody waits for."""


@contextmanager
def pair(
    url: str, folder: Path, cluster: str, ttl: float
) -> Iterator[tuple[Masters, MasterProcess, Stamps]]:
    """Two masters, of which the given one leads and runs a job."""
    with Masters(url, cluster=cluster, storage=folder / "jobs", ttl=ttl) as masters:
        first = masters.start("m1")

        assert masters.leader() is first

        stamps = Stamps(folder)
        stamps.submit(masters.backend)
        stamps.await_newest(masters)
        masters.start("m2")
        masters.until(lambda: candidates(masters) == 2, "the second one campaigns")
        yield masters, masters.leader(), stamps


def candidates(masters: Masters) -> int:
    """Return how many masters have a guardian: each one that campaigns does."""
    return sum(bool(guardians(master.process.pid)) for master in masters.all if master.alive)


def taken_over(
    masters: Masters, first: MasterProcess, since: float, stamps: Stamps, ttl: float = LONG
) -> str:
    """Wait until the other master leads and runs the job; return how long each took."""
    masters.until(lambda: newest(masters.backend)[1] != first.name, "another one leads")
    led = time.monotonic() - since
    epoch = stamps.await_newest(masters, 1)
    last = stamps.finish_in_order(masters.backend)

    assert newest(masters.backend)[1] != first.name
    assert epoch == last == 2 or (ttl < LONG and 2 <= epoch <= last)

    return f"led after {led:.2f} s, its job ran after {stamps.of(epoch)[0] - since:.2f} s"


def test_a_master_that_is_killed(server: Server, tmp_path: Path, cluster: str) -> None:
    """After kill -9 of its process another one leads and runs its jobs long before the ttl."""
    with pair(server.url(), tmp_path, cluster, LONG) as (masters, first, stamps):
        since = time.monotonic()
        first.kill()
        took = taken_over(masters, first, since, stamps)
    print(f"{server.scheme}, kill -9 of the master, ttl {LONG:g} s: {took}")


def test_a_master_that_is_killed_in_an_ensemble(
    ensemble: Server, tmp_path: Path, cluster: str
) -> None:
    """The same where the guardian has one of three members to ask, and one is dead."""
    ensemble[(ensemble.leader() + 1) % 3].kill()
    with pair(ensemble.url(), tmp_path, cluster, LONG) as (masters, first, stamps):
        since = time.monotonic()
        first.kill()
        took = taken_over(masters, first, since, stamps)
    print(f"{ensemble.scheme} of three, one of them dead, ttl {LONG:g} s: {took}")


def test_a_master_and_its_guardian_that_are_killed(
    server: Server, tmp_path: Path, cluster: str
) -> None:
    """As when a host dies: another one leads when the ttl is over."""
    with pair(server.url(), tmp_path, cluster, TTL) as (masters, first, stamps):
        since = time.monotonic()
        first.pause()  # So that it does not start another one.
        for pid in guardians(first.process.pid):
            os.kill(pid, 9)
        first.kill()
        took = taken_over(masters, first, since, stamps, TTL)
    print(f"{server.scheme}, master and guardian killed, ttl {TTL:g} s: {took}")


def test_a_master_that_is_stopped_gracefully(server: Server, tmp_path: Path, cluster: str) -> None:
    """It ends its attempt and hands over long before the ttl."""
    with pair(server.url(), tmp_path, cluster, LONG) as (masters, first, stamps):
        since = time.monotonic()
        first.process.terminate()
        took = taken_over(masters, first, since, stamps)

        assert first.process.wait(BOUND) == 0

    print(f"{server.scheme}, graceful stop, ttl {LONG:g} s: {took}")


def test_masters_that_are_killed_in_turn(server: Server, tmp_path: Path, cluster: str) -> None:
    """Each time another one leads, and every epoch is greater than the one before."""
    with Masters(server.url(), cluster=cluster, storage=tmp_path, ttl=LONG) as masters:
        masters.start("m0")
        masters.leader()
        epochs = [newest(masters.backend)[0].epoch]
        took = []
        for number in range(1, 5):
            masters.start(f"m{number}")
            masters.until(lambda: candidates(masters) == 2, "another one campaigns")
            since = time.monotonic()
            masters.leader().kill()
            masters.until(
                lambda: newest(masters.backend)[0].epoch > epochs[-1], "another one leads"
            )
            took.append(time.monotonic() - since)
            epochs.append(newest(masters.backend)[0].epoch)

        assert sorted(set(epochs)) == epochs

    print(f"{server.scheme}, killed in turn: {', '.join(f'{one:.2f}' for one in took)} s")
