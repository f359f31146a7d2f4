"""By which time old results are expired, whatever the clock of the caller's host says."""

from __future__ import annotations

import socket

import pytest

from jrs.contract.backend import Backend
from jrs.records.model import JobResult, JobStatus, MasterInfo
from jrs.store import known_time
from jrs.store.cluster_history import LeadershipHistorian
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead

ABOUT = {"host": "h", "pid": 7, "ttl": 15.0}
DAY = 86400.0
NOW = 1_800_000_000.0
AHEAD = NOW + 365 * DAY


@pytest.fixture
def wrong(backend: Backend) -> JobResultStore:
    """Results of an hour, and of 100 days; on a host whose clock is a year ahead."""
    store = JobResultStore(backend, now=lambda: AHEAD)
    for job_id, age in (("new", 3600.0), ("old", 100 * DAY)):
        store.create_dirty(JobResult(job_id, JobStatus.FINISHED, finished_at=NOW - age), None)
        store.mark_clean(job_id, None)
    return store


def beats(backend: Backend, host: str, now: float) -> None:
    info = MasterInfo(f"m-{host}", host, 7, 0.0, 0.0)
    Registry(backend, now=lambda: now).put(info)


def test_what_ended_jobs_have_left(wrong: JobResultStore, backend: Backend) -> None:
    """Without a master, and again after the first call has written its own event."""
    assert wrong.expire(90 * DAY) == ["old"]
    assert wrong.expire(90 * DAY) == []
    assert "365 d" in known_time.doubt(backend, AHEAD, DAY)
    assert known_time.doubt(backend, AHEAD, 3600.0) == ""


def test_what_leaders_have_left(wrong: JobResultStore, backend: Backend) -> None:
    """The newest event of a leader counts, too: nothing has ended for a while."""
    with lead(backend) as leadership:
        later = NOW + 95 * DAY
        LeadershipHistorian(backend, leadership.fence, "m", ABOUT, lambda: later).elected()

    assert wrong.expire(90 * DAY) == ["new", "old"]


def test_heartbeats(wrong: JobResultStore, backend: Backend) -> None:
    """Those of other hosts count, and not those of a master next to the wrong clock."""
    beats(backend, socket.gethostname(), AHEAD)
    beats(backend, "other", NOW)
    assert wrong.expire(90 * DAY) == ["old"]
    assert known_time.doubt(backend, NOW + 60.0, DAY) == ""
    assert "2027-01-15" in known_time.doubt(backend, AHEAD, DAY)


def test_masters_of_this_host_alone(wrong: JobResultStore, backend: Backend) -> None:
    """A cluster of one host has its clock alone."""
    beats(backend, socket.gethostname(), AHEAD)
    assert wrong.expire(90 * DAY) == ["new", "old"]


def test_short_ages(wrong: JobResultStore) -> None:
    """This host's clock is enough for an hour: it does no more harm than that."""
    assert wrong.expire(3600.0) == ["new", "old"]


def test_a_clock_that_is_behind(wrong: JobResultStore, backend: Backend) -> None:
    """It deletes less, and nothing that is young."""
    behind = JobResultStore(backend, now=lambda: NOW - 50 * DAY)
    beats(backend, "other", NOW)
    assert behind.expire(60 * DAY) == []
    assert known_time.doubt(backend, NOW - 50 * DAY, DAY) == ""
