"""How long a cluster is without a leader: masters of jrs, killed and stopped, and bare elections.

What has to wait for a ttl to pass does so while the others are measured.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import attrs
from bare import ELECTIONS
from measure import Figure, answer, finish_process

from jrs.records.model import JobSpec
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.processes import guardians
from jrs.testing.servers import Server

BARE = Path(__file__).with_name("bare.py")
WAITING_JOB = f"{Path(__file__).with_name('waiting.py')}:wait"
_SETTLED = 1.0
"""Seconds after which a candidate that has registered waits for its turn."""


@attrs.frozen
class Failovers:
    """How much of it is measured."""

    runs: int
    ttl: float
    """Of the leaders whose sessions nobody ends."""
    lone: int
    """Runs in which the guardian is killed, too."""


class Trial:
    """One cluster, with a leader that runs a job, and another master that waits."""

    def __init__(self, url: str, cluster: str, folder: Path, ttl: float) -> None:
        self.masters = Masters(url, cluster=cluster, storage=folder, ttl=ttl)
        JobCatalog(self.masters.backend).submit(JobSpec("waits", WAITING_JOB))
        self._names = (f"m{number}" for number in range(1, 1000))

    def prepare(self) -> MasterProcess:
        """Complete the cluster; return its leader."""
        masters = self.masters
        while sum(master.alive for master in masters.all) < 2:
            masters.start(next(self._names))
        living = {master.name for master in masters.all if master.alive}
        registry = Registry(masters.backend)
        masters.until(
            lambda: living <= {one.name for one in registry.masters()}, "all have registered"
        )
        leader = masters.leader()
        masters.event(
            lambda event: event.kind == "attempt" and event.master == leader.name, "its job runs"
        )
        time.sleep(_SETTLED)
        return leader

    def decided(self, leader: MasterProcess, since: float, timeout: float) -> float:
        """Return the seconds until another master told of its first decision."""
        event = self.masters.event(
            lambda one: one.kind == "decision" and one.master != leader.name and one.at > since,
            "the new leader decides",
            timeout,
        )
        return event.at - since

    def kill(self) -> float:
        leader = self.prepare()
        return self.decided(leader, leader.kill(), 60.0)

    def kill_with_guardian(self, ttl: float) -> float:
        leader = self.prepare()
        time.sleep(random.uniform(0, ttl / 3))  # At some moment between two heartbeats.
        for guardian in guardians(leader.process.pid):
            os.kill(guardian, signal.SIGKILL)
        return self.decided(leader, leader.kill(), 4 * ttl)

    def stop(self) -> float:
        leader = self.prepare()
        since = time.time()
        leader.process.send_signal(signal.SIGTERM)
        seconds = self.decided(leader, since, 60.0)
        leader.process.wait(30.0)
        return seconds


def bare_election(kind: str, hosts: str, ttl: float, count: int) -> list[float]:
    """Kill a process that leads in `count` elections; return when another one won each."""
    with _elector(kind, hosts, ttl, count) as first:
        for _ in range(count):
            answer(first)
        with _elector(kind, hosts, ttl, count) as second:
            time.sleep(ttl / 3 + 2 * _SETTLED)
            killed = time.time()
            first.kill()
            return [answer(second)["at"] - killed for _ in range(count)]


@contextlib.contextmanager
def _elector(kind: str, hosts: str, ttl: float, count: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, BARE, kind, hosts, str(ttl), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        finish_process(process)


def failover(
    kind: str,
    server: Server,
    folder: Path,
    plan: Failovers,
    ttl: float,
    tick: Callable[[str], None],
) -> list[Figure]:
    """Measure it on one server; `ttl` is that of the leaders who are not waited for."""
    tick(f"{kind}: waiting for leaders whose sessions nobody ends")
    with contextlib.ExitStack() as stack:

        def trial(name: str, ttl: float) -> Trial:
            made = Trial(server.url(), name, folder / name, ttl)
            stack.enter_context(made.masters)
            return made

        pool = stack.enter_context(ThreadPoolExecutor(plan.lone + 1))
        bare = pool.submit(bare_election, kind, server.url_part, plan.ttl, plan.runs)
        lone: list[Future[float]] = [
            pool.submit(trial(f"lone-{number}", plan.ttl).kill_with_guardian, plan.ttl)
            for number in range(plan.lone)
        ]
        usual = trial("usual", ttl)
        kills, stops = [], []
        for turn in range(plan.runs):
            tick(f"{kind}: killing leader {turn + 1} of {plan.runs}")
            kills.append(usual.kill())
            tick(f"{kind}: stopping leader {turn + 1} of {plan.runs}")
            stops.append(usual.stop())
        tick(f"{kind}: waiting for the ttl")
        others = [one.result() for one in lone]
        elections = bare.result()
    return [
        _figure(f"{kind}: kill -9 of the leader (ttl {ttl:g} s)", kills, 1.0),
        _figure(f"{kind}: graceful stop", stops, 0.2),
        _figure(
            f"{kind}: kill -9 of leader and guardian (ttl {plan.ttl:g} s)", others, plan.ttl + 1
        ),
        _figure(f"{kind}: {ELECTIONS[kind][0]}: kill -9 (ttl {plan.ttl:g} s)", elections, None),
    ]


def _figure(what: str, seconds: list[float], target: float | None) -> Figure:
    return Figure(
        what,
        f"{min(seconds):.2f} / {statistics.median(seconds):.2f} / {max(seconds):.2f} s",
        f"least / median / most of {len(seconds)}",
        "" if target is None else f"< {target:g} s",
        None if target is None else max(seconds) < target,
    )
