"""A host whose clock is wrong removes nothing that is not old, and a right clock is believed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from jrs.contract.runtime import Runtime
from jrs.records.cluster import MasterInfo
from jrs.records.history import HistoryKind
from jrs.records.model import JobResult, JobStatus
from jrs.records.policies import SnapshotPolicy
from jrs.recovery.leader.context import LeaderContext
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.leader.retention import Retention
from jrs.recovery.rules.retention import APART, DAY, Kind, RetentionPolicy
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.store import cluster_history
from jrs.store.masters import Registry
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory, Leader, leader_context

YEAR = 365 * DAY
POLICY = RetentionPolicy(results=30 * DAY, logs=None, failed_logs=None)


@attrs.define
class Host:
    """A leader on a host whose clocks the test sets, and a result that has just ended."""

    memory: FaultyMemory
    leader: Leader
    ahead: float = 0.0
    passed: float = 0.0
    said: list[str] = attrs.field(factory=list)

    def now(self) -> float:
        return time.time() + self.ahead + self.passed

    def context(self) -> LeaderContext:
        runtime = Runtime(clock=lambda: self.passed, now=self.now)
        return leader_context(
            self.leader.leadership,
            self.memory,
            self.leader.storage,
            runtime=runtime,
            report=lambda event: self.said.append(event.message),
        )

    def retention(self) -> Retention:
        return Retention(self.context(), POLICY)

    def ended(self, name: str, ago: float) -> None:
        at = time.time() - ago
        self.leader.store.create_dirty(
            JobResult(name, JobStatus.FINISHED, None, None, finished_at=at), None
        )
        self.leader.store.mark_clean(name, None)

    def elected(self, at: float) -> None:
        cluster_history.record(self.memory, HistoryKind.ELECTED, "elected", lambda: at)

    def beat(self, ahead: float = 0.0) -> None:
        """Have a master on another host write a heartbeat."""
        info = MasterInfo("m2", "elsewhere", 1, 0.0, 0.0)
        Registry(self.memory, now=lambda: time.time() + self.passed + ahead).put(info)


@pytest.fixture
def host(memory: FaultyMemory, tmp_path: Path) -> Iterator[Host]:
    leader = Leader(memory, tmp_path)
    found = Host(memory, leader)
    found.ended("young", DAY)
    for weeks in range(1, 7):  # The cluster is in use.
        found.elected(time.time() - weeks * 7 * DAY)
    yield found
    leader.stop()
    leader.leadership.resign()


def test_a_clock_that_is_far_ahead_at_an_election(host: Host) -> None:
    """Nothing goes, that is said once with what to do, and a clock that was set is believed."""
    host.ahead = YEAR
    host.elected(host.now())  # This host's own event is no evidence, nor one before a restart.
    retention = host.retention()
    for _ in range(3):
        assert retention.run_once() == {}
        host.passed += 600

    assert len(host.said) == 1
    assert "the clock of this host is 366 d ahead" in host.said[0]
    assert "set it (timedatectl" in host.said[0]

    host.ahead = 0.0
    host.ended("old", 40 * DAY)
    assert retention.run_once() == {Kind.RESULTS: 1}
    assert host.leader.store.has_clean("young")


def test_a_clock_that_is_set_far_ahead_while_its_master_leads(host: Host) -> None:
    """It is believed no more."""
    retention = host.retention()
    host.passed += DAY
    assert retention.run_once() == {}
    host.ahead = YEAR
    host.passed += APART

    assert retention.run_once() == {}
    assert len(host.said) == 1


def test_a_cluster_that_was_idle(host: Host) -> None:
    """Its leader believes its clock after it has led for a day."""
    host.ahead = 60 * DAY  # The world, and the host with it, is that much further.
    retention = host.retention()
    assert retention.run_once() == {}
    host.passed += DAY + 1

    assert retention.run_once() == {Kind.RESULTS: 1}


def test_a_leader_that_leads_for_minutes(host: Host) -> None:
    """It removes what was old when the one before it led, and what is to go at once."""
    host.ended("old", 40 * DAY)

    assert host.retention().run_once() == {Kind.RESULTS: 1}
    assert host.leader.store.has_clean("young")

    at_once = attrs.evolve(POLICY, results=0)
    assert Retention(host.context(), at_once).run_once() == {Kind.RESULTS: 1}


@pytest.mark.parametrize("behind", [True, False])
def test_another_host_that_is_heard(host: Host, behind: bool) -> None:
    """Its heartbeats confirm the clock at once, or say that one of the two is wrong."""
    host.ahead = 60 * DAY
    host.beat(0.0 if behind else host.ahead)
    retention = host.retention()
    assert retention.run_once() == {}
    host.said.clear()
    host.passed += DAY + 1 if behind else 5
    for _ in range(2):
        host.beat(0.0 if behind else host.ahead)
        assert retention.run_once() == ({} if behind else {Kind.RESULTS: 1})
        if not behind:
            return

    assert len(host.said) == 1
    assert "60 d ahead of that of master m2 on elsewhere" in host.said[0]


def test_another_host_counts_for_a_day_without_a_further_heartbeat(host: Host) -> None:
    """Two looks may be closer than two heartbeats, and the record of a master that is right may be
    removed: the clock that it contradicts would be believed."""
    host.ahead = YEAR
    retention = host.retention()
    for _ in range(3):
        host.beat()
        assert retention.run_once() == {}
        host.passed += DAY / 2
    Registry(host.memory).remove("m2")

    for _ in range(2):
        assert retention.run_once() == {}


def test_a_clock_that_is_wrong_does_not_confirm_itself_over_a_restart(host: Host) -> None:
    """What it wrote before, for an hour, is no evidence."""
    host.ahead = YEAR
    host.elected(host.now())
    assert host.retention().run_once() == {}
    host.passed += APART + 600
    host.elected(host.now())

    assert host.retention().run_once() == {}


def test_snapshots_of_a_job_that_runs(host: Host) -> None:
    """A wrong clock does not make the snapshots before it too old."""
    job = FakeJob(host.memory, host.leader.storage)
    catalog = SnapshotCatalog(host.memory, host.leader.storage)
    policy = SnapshotPolicy(max_age=7 * DAY)
    points = RecoveryPoints(host.context())
    for _ in range(2):
        job.run()
        points.take_scheduled_snapshot("job", policy)
    host.ahead = YEAR
    job.run()
    RecoveryPoints(host.context()).take_scheduled_snapshot("job", policy)

    assert [one.number for one in catalog.list("job")] == [1, 2, 3]
