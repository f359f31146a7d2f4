"""The overview of a cluster: into which part a job is sorted."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jrs import Action, Client, JobResult, JobSpec, JobStatus, MasterInfo
from jrs.backends.file.backend import FileBackend
from jrs.client import overview as overviews
from jrs.client import plain
from jrs.client.overview import Overview, job_lines, overview
from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import T, decode
from jrs.records.model import AttemptRecord
from jrs.records.obstacles import Obstacle
from jrs.records.stop import StopMode, StopRecord, StopState
from jrs.store.masters import Registry
from jrs.testing.contract import lead
from tests.recovery.conftest import memory
from tests.recovery.support import FaultyMemory, put, spoil
from tests.support import rot

__all__ = ["memory"]


@pytest.fixture
def client(memory: FaultyMemory) -> Iterator[Client]:
    """A client of a cluster in which a master leads in epoch 1."""
    client = Client(memory)
    client.raise_cluster_format()
    with lead(memory) as leadership:
        info = MasterInfo("m1", "h", 1, time.time(), 0.0, leading=leadership.epoch)
        Registry(memory).put(info)
        yield client


def sorted_ids(found: Overview) -> dict[str, list[str]]:
    """Return the ids in each part that has some."""
    parts = ("running", "waiting", "held", "failed", "dirty")
    ids = {part: [one.job_id for one in getattr(found, part)] for part in parts}
    return {part: jobs for part, jobs in ids.items() if jobs}


def test_an_application_runs_in_the_epoch_of_the_leader(client: Client) -> None:
    """Its main runs in the leader. That of an earlier epoch, which the leader has not begun, and
    one that is being canceled, do not run."""
    for name, epoch in (("runs", 1), ("waits", 0), ("ends", 1)):
        main = ApplicationRecord(name, "d:main", started_at=1.0, master="m1", epoch=epoch)
        put(client.backend, keys.APPLICATIONS + name, main)
    client.job("ends").cancel()

    assert sorted_ids(overview(client)) == {"running": ["runs"], "waiting": ["ends", "waits"]}
    assert client.job("runs").explain().runs
    assert not client.job("waits").explain().runs


@pytest.mark.parametrize("spec", [True, False], ids=["with its spec", "alone"])
def test_a_job_whose_result_cannot_be_read_is_held(client: Client, spec: bool) -> None:
    """It is where those are that wait for an operator, once, and says what is decided about it."""
    if spec:
        put(client.backend, keys.JOBS + "bad", JobSpec("bad", "m:f"))
    spoil(client.backend, keys.RESULTS + "bad")
    spoil(client.backend, keys.DIRTY + "bad")
    found = overview(client)

    assert sorted_ids(found) == {"held": ["bad"]}
    assert (found.held[0].status, found.held[0].decision) == ("HELD", Action.HOLD.value)
    problem, _, decided = found.held[0].reason.partition("; ")
    assert problem.startswith("results/bad: not a record of jrs")
    assert client.fsck().held == (f"job 'bad': {decided}",)


def _could_not_start(backend: Backend) -> None:
    lacks = (Obstacle("m1", "h", "no module named 'm'", 1, 1.0),)
    put(backend, keys.ATTEMPTS + "zz", AttemptRecord("zz", 1, 1, "m1", 1.0, obstacles=lacks))


def _stopped(backend: Backend, job_id: str, mode: StopMode) -> None:
    put(backend, keys.STOPS + job_id, StopRecord(job_id, mode, StopState.DONE, reason="why"))


def _lost_result(backend: Backend) -> None:
    spoil(backend, keys.RESULTS + "zz")
    put(backend, keys.DIRTY + "zz", StopRecord("zz", StopMode.HOLD))


HOLDS: dict[str, Callable[[Backend], None]] = {
    "spec": lambda backend: spoil(backend, keys.JOBS + "zz"),
    "unreadable stop": lambda backend: spoil(backend, keys.STOPS + "zz"),
    "hold": lambda backend: _stopped(backend, "zz", StopMode.HOLD),
    "obstacle": _could_not_start,
    "result": _lost_result,
}
"""What holds the job zz, of which a spec is stored."""


def _many(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three jobs wait and three be suspended, and zz come after them; two are looked at."""
    monkeypatch.setattr(overviews, "MOST", 2)
    for number in range(3):
        for name in ("waits", "stopped"):
            put(client.backend, f"{keys.JOBS}{name}-{number}", JobSpec(f"{name}-{number}", "m:f"))
        _stopped(client.backend, f"stopped-{number}", StopMode.SUSPEND)
    put(client.backend, keys.JOBS + "zz", JobSpec("zz", "m:f"))


@pytest.mark.parametrize("held", HOLDS)
def test_a_held_job_is_found_among_many(
    client: Client, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """However many jobs wait, and are suspended: the overview has each job that fsck calls held."""
    _many(client, monkeypatch)
    HOLDS[held](client.backend)
    found = overview(client)

    assert [one.job_id for one in found.held] == ["zz"]
    assert [said.partition(":")[0] for said in client.fsck().held] == ["job 'zz'"]
    assert not found.is_clear
    counts = {part: found.count(part) for part in overviews.PARTS}
    assert counts == {"running": "0+", "waiting": "4+", "held": "1", "failed": "0", "dirty": "0"}
    assert (found.plain()["left_out"], found.plain()["cut"]) == (True, ["running", "waiting"])


def test_a_job_is_held_by_a_record_that_the_disk_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: no scan shows that record. The overview finds the job among many others."""
    backend = FileBackend(tmp_path)
    with Client(backend) as client:
        client.raise_cluster_format()
        _many(client, monkeypatch)
        for job_id in ("zy", "zz", "zzz"):
            _stopped(backend, job_id, StopMode.SUSPEND)
        backend.compact()
        rot(tmp_path, keys.STOPS + "zz")

        found = overview(client)
        assert "zz" in [one.job_id for one in found.held]
        assert client.fsck().held


def test_all_clear_while_very_many_jobs_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is held, which is known of all jobs; each record was decoded once for that."""
    _many(client, monkeypatch)
    assert overview(client).is_clear

    decoded: list[str] = []

    def counted(kind: type[T], data: bytes, where: str) -> T:
        decoded.append(where)
        return decode(kind, data, where)

    monkeypatch.setattr("jrs.recovery.inspect.holds.decode", counted)
    put(client.backend, keys.JOBS + "zzz", JobSpec("zzz", "m:f"))
    found = overview(client)
    assert (found.is_clear, set(found.cut)) == (True, {"running", "waiting"})
    assert decoded == [keys.JOBS + "zzz"]


def test_more_jobs_are_held_than_it_shows(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overviews, "MOST", 2)
    for number in range(8):
        put(client.backend, f"{keys.JOBS}job-{number}", JobSpec(f"job-{number}", "m:f"))
        _stopped(client.backend, f"job-{number}", StopMode.HOLD)
    found = overview(client)

    assert found.count("held") == "6+"
    assert "held" in found.cut


def test_it_keeps_no_results(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of many jobs that are not cleaned up take much memory."""
    payload = "a payload of this test"
    for number in range(40):
        put(client.backend, f"{keys.JOBS}job-{number:02}", JobSpec(f"job-{number:02}", "m:f"))
        client.results.create_dirty(
            JobResult(f"job-{number:02}", JobStatus.FINISHED, payload, finished_at=9.0), None
        )
    kept: list[int] = []
    of_cluster = plain.of_cluster

    def counted(client: Client) -> dict[str, object]:
        results = (one for one in gc.get_objects() if isinstance(one, JobResult))
        kept.append(sum(one.payload == payload for one in results))
        return of_cluster(client)

    monkeypatch.setattr(overviews, "of_cluster", counted)
    assert overview(client).count("dirty") == "40"
    assert kept == [0]


def test_a_line_says_what_is_known_of_a_job(client: Client) -> None:
    """`jrs list`, `jrs top`, the page and the API say the same of a job: they have its line."""
    backend, why = client.backend, "the offset is gone"
    for name in ("held", "stopped"):
        put(backend, keys.JOBS + name, JobSpec(name, "m:f"))
    put(backend, keys.STOPS + "held", StopRecord("held", StopMode.HOLD, StopState.DONE, reason=why))
    put(backend, keys.STOPS + "stopped", StopRecord("stopped", StopMode.SUSPEND, reason=why))
    attempt = AttemptRecord("stopped", 1, epoch=1, master="m1", started_at=1.0)
    put(backend, keys.ATTEMPTS + "stopped", attempt)
    main = ApplicationRecord(
        "main", "d:main", started_at=1.0, master="m1", epoch=1, attempts=2, error="ValueError: no"
    )
    put(backend, keys.APPLICATIONS + "main", main)
    views = [client.job(name).view() for name in ("held", "main", "stopped")]
    held, main_line, stopped = job_lines(client, views)

    assert (held.status, held.reason.count(why)) == ("HELD", 1)
    assert (main_line.attempt, main_line.runs) == (2, True)
    assert main_line.reason.endswith("; main raised ValueError: no")
    assert stopped.reason.endswith(f"; suspend requested: {why}")


def test_a_line_says_why_while_no_master_leads(memory: FaultyMemory) -> None:
    """The line has why a job is held, which record is damaged, what stops it, and since when no
    master leads."""
    client, why = Client(memory), "the offset is gone"
    info = MasterInfo("m1", "h", 1, 0.0, 0.0, leading=1)
    with lead(memory):
        Registry(memory, now=lambda: 1_000_000_000.0).put(info)
    for name in ("damaged", "held", "stopped"):
        put(memory, keys.JOBS + name, JobSpec(name, "m:f"))
    spoil(memory, keys.stages("damaged") + "x")
    put(memory, keys.STOPS + "held", StopRecord("held", StopMode.HOLD, StopState.DONE, reason=why))
    put(memory, keys.STOPS + "stopped", StopRecord("stopped", StopMode.SUSPEND, reason=why))
    damaged, held, stopped = (line.reason for line in job_lines(client, client.views()))

    since = "no master leads since 2001-09-09 01:46:40 UTC"
    assert all(since in said for said in (damaged, held, stopped))
    assert damaged.startswith("stages/damaged/x: not a record of jrs")
    assert (held.startswith("held: "), held.count(why)) == (True, 1)
    assert stopped.endswith(f"; suspend requested: {why}")
