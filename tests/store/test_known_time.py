"""By which time old results are expired, whatever the clock of the caller's host says."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from jrs.contract.backend import Backend
from jrs.records.history import HistoryKind
from jrs.records.model import JobResult, JobStatus, MasterInfo
from jrs.store import cluster_history, masters
from jrs.store.cluster_history import LeadershipHistorian
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead

ABOUT = {"host": "h", "pid": 7, "ttl": 15.0}
DAY = 86400.0
NOW = 1_800_000_000.0
AHEAD = NOW + 365 * DAY
HERE = socket.gethostname()

Expire = Callable[..., tuple[list[str], str]]


def ended(store: JobResultStore, job_id: str, at: float) -> None:
    store.create_dirty(JobResult(job_id, JobStatus.FINISHED, finished_at=at), None)
    store.mark_clean(job_id, None)


@pytest.fixture
def expire(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Expire:
    """Expires what is as old as that, by a clock that is a year ahead unless `now` says otherwise,
    in a cluster of weekly jobs; returns the ids and what is said before. No master is waited for.
    """
    monkeypatch.setattr(masters, "_sleep", lambda seconds: None)
    store = JobResultStore(backend)
    ended(store, "new", NOW - 5000.0)
    for days in range(7, 107, 7):
        ended(store, f"d{days:03}", NOW - days * DAY)

    def expiring(age: float, now: float = AHEAD) -> tuple[list[str], str]:
        said = list[str]()
        gone = JobResultStore(backend, now=lambda: now).expiring(age, notify=said.append)
        before = "; ".join(said)
        return sorted(gone), before

    return expiring


def beats(backend: Backend, host: str, now: float) -> None:
    info = MasterInfo(f"m-{host}", host, 7, 0.0, 0.0)
    Registry(backend, now=lambda: now).put(info)


def test_what_ended_jobs_have_left(expire: Expire) -> None:
    """Without a master, and again after the first call has written its own event."""
    gone, said = expire(90 * DAY)
    assert gone == ["d091", "d098", "d105"]
    assert "2027-01-15" in said
    assert "365 d 1 h ahead" in said
    assert expire(90 * DAY)[0] == []


def test_what_the_wrong_clock_has_written(expire: Expire, backend: Backend) -> None:
    """A master of its host, jobs that ended there, and its user's commands confirm nothing, for as
    long as they do not reach over a day."""
    beats(backend, HERE, AHEAD)
    for hours in range(20):
        at = AHEAD - hours * 3600.0
        ended(JobResultStore(backend), f"wrong-{hours}", at)
    times = iter([AHEAD - days * DAY for days in range(5)])
    for _ in range(5):
        cluster_history.record(backend, HistoryKind.UPKEEP, "expired", lambda: next(times))

    assert expire(90 * DAY)[0] == ["d091", "d098", "d105"]


def test_what_leaders_have_left(expire: Expire, backend: Backend) -> None:
    """Events of leaders count, too: nothing has ended for a while."""
    with lead(backend) as leadership:
        at = NOW + 5 * DAY
        historian = LeadershipHistorian(backend, leadership.fence, "m", ABOUT, lambda: at)
        historian.elected()
        at += 5 * DAY
        historian.elected()

    assert expire(90 * DAY)[0] == ["d084", "d091", "d098", "d105"]


def test_a_clock_that_is_right(expire: Expire, backend: Backend) -> None:
    """On one host, it loses little more than an hour, and says nothing."""
    assert expire(90 * DAY, NOW) == (["d091", "d098", "d105"], "")


def test_a_master_on_another_host_that_beats(
    expire: Expire, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts whatever this host has written for long."""
    for days in range(30):
        ended(JobResultStore(backend), f"wrong-{days}", AHEAD - days * DAY)
    beats(backend, "other", NOW - 5.0)
    monkeypatch.setattr(masters, "_sleep", lambda seconds: beats(backend, "other", NOW))

    gone, said = expire(90 * DAY)
    assert gone == ["d091", "d098", "d105"]
    assert "2027-01-15" in said
    assert "the clock of master m-other on other" in said


def test_a_master_on_another_host_that_is_right(expire: Expire, backend: Backend) -> None:
    beats(backend, "other", NOW)
    assert expire(90 * DAY, NOW + 5.0) == (["d091", "d098", "d105"], "")


def test_a_dead_master_on_another_host(expire: Expire, backend: Backend) -> None:
    """It outweighs nothing that was written since."""
    beats(backend, "other", NOW - 80 * DAY)
    beats(backend, HERE, NOW)
    assert expire(90 * DAY, NOW) == (["d091", "d098", "d105"], "")


def test_short_ages(expire: Expire) -> None:
    """This host's clock is enough for an hour: it does no more harm than that."""
    gone, said = expire(3600.0)
    assert "new" in gone
    assert said == ""


def test_a_clock_that_is_behind(expire: Expire, backend: Backend) -> None:
    """It deletes less, and nothing that is young."""
    beats(backend, "other", NOW)
    assert expire(60 * DAY, NOW - 50 * DAY) == ([], "")


def test_no_result_is_read(
    expire: Expire, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time costs no payload: nothing is old, and nothing is read but the index."""
    read = list[str]()
    monkeypatch.setattr(type(backend), "get_many", lambda self, names, **_: read.extend(names))
    assert expire(200 * DAY)[0] == []
    assert read == []
