"""Two versions of jrs in one cluster, while it is upgraded master by master."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import WrongState
from jrs.contract.formats import NEWEST_FORMAT
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobSpec, JobStatus, StopMode, StopState
from jrs.store import attempt_fence, cluster_format
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from jrs.testing.masters import MasterProcess, Masters
from tests.older_versions import OlderVersion
from tests.support import BOUND, until

JOBS = Path(__file__).parents[1] / "chaos" / "jobs.py"


BACKENDS = ["file", "etcd", "zookeeper"]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return (tmp_path / "store").as_uri()
    return str(request.getfixturevalue(f"{request.param}_server").url())


@pytest.fixture
def cluster() -> str:
    return f"upgrade-{uuid.uuid4().hex[:12]}"


def stamps(folder: Path, job_id: str) -> list[str]:
    """Return the arguments of ``jrs submit`` for a job that runs until `let_end`."""
    return [job_id, f"{JOBS}:stamp", "--arg", f"path={folder / job_id}", "--no-check"]


def let_end(folder: Path, job_id: str) -> None:
    (folder / f"{job_id}.stop").touch()


def attempt_of(backend: Backend, job_id: str) -> int:
    stored = backend.get(keys.ATTEMPTS + job_id)
    return 0 if stored is None else decode(AttemptRecord, stored.value, stored.key).attempt


def in_turn(masters: Masters, leader: MasterProcess, successor: MasterProcess) -> MasterProcess:
    """Kill the leader; return its successor once it leads."""
    leader.kill()
    masters.event(
        lambda event: event.kind == "leading" and event.master == successor.name,
        f"{successor.name} leads",
    )
    return successor


def registered(backend: Backend, name: str) -> bool:
    return any(info.name == name for info in Registry(backend).running())


@pytest.mark.parametrize(
    ("url", "rolling"), [*((name, 2) for name in BACKENDS), ("file", 3)], indirect=True
)
def test_leadership_goes_back_and_forth(
    url: str, cluster: str, tmp_path: Path, rolling: OlderVersion
) -> None:
    """S6: masters of an older version and of this one share a cluster: each recovers the other's
    jobs, nothing of a newer form is written; then the format is raised, and the older version
    refuses the cluster in one line."""
    folder = tmp_path / "stamps"
    folder.mkdir()
    done = rolling.jrs(url, cluster, "submit", *stamps(folder, "long"))
    assert done.returncode == 0, done.stderr

    with Masters(url, cluster=cluster, storage=tmp_path / "jobs", ttl=10.0) as masters:
        backend = masters.backend
        jobs, stops, store = JobCatalog(backend), JobStops(backend), JobResultStore(backend)
        assert cluster_format.format_of(backend) == rolling.format

        leader = rolling.start(masters, "old-1")
        masters.until(lambda: attempt_of(backend, "long") == 1, "the older version starts it")
        leader = in_turn(masters, leader, masters.start("new-1"))
        masters.until(lambda: attempt_of(backend, "long") == 2, "this version recovers it")
        jobs.submit(JobSpec("paused", f"{JOBS}:stamp", {"path": str(folder / "paused")}))
        masters.until(lambda: attempt_of(backend, "paused") == 1, "this version starts another")
        leader = in_turn(masters, leader, rolling.start(masters, "old-2"))
        masters.until(
            lambda: (attempt_of(backend, "long"), attempt_of(backend, "paused")) == (3, 2),
            "the older version recovers both",
        )
        stops.request("paused", StopMode.SUSPEND)
        stop = stops.wait("paused", BOUND)
        assert stop is not None
        assert stop.state is StopState.DONE
        leader = in_turn(masters, leader, masters.start("new-2"))
        masters.until(lambda: attempt_of(backend, "long") == 4, "this version recovers it again")
        stops.resume("paused")
        masters.until(lambda: attempt_of(backend, "paused") == 3, "this version resumes it")
        if rolling.format < attempt_fence.SINCE_FORMAT:
            assert not list(backend.scan(keys.FENCES))
        assert backend.get(keys.FORMAT) is None

        behind = rolling.start(masters, "old-3")
        until(lambda: registered(backend, "old-3"), "the older master is registered")
        with pytest.raises(WrongState, match="old-3"):
            cluster_format.raise_format(backend)
        assert cluster_format.format_of(backend) == rolling.format
        behind.stop()
        until(lambda: not registered(backend, "old-3"), "the older master has signed off")
        gone = {"old-1", "new-1", "old-2"}
        for name in gone:  # They were killed, and would count for some seconds more.
            Registry(backend).remove(name)
        assert cluster_format.raise_format(backend) == rolling.format
        assert cluster_format.format_of(backend) == NEWEST_FORMAT

        refused = rolling.jrs(url, cluster, "master", "--storage", str(tmp_path / "jobs"))
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert f"format {NEWEST_FORMAT}" in refused.stderr

        in_turn(masters, leader, masters.start("new-3"))
        masters.until(lambda: attempt_of(backend, "long") == 5, "it is recovered once more")
        assert list(backend.scan(keys.FENCES))
        for job_id in ("long", "paused"):
            let_end(folder, job_id)
            assert store.wait(job_id, BOUND).status is JobStatus.FINISHED
        until(lambda: all(map(store.has_clean, ("long", "paused"))), "both are cleaned up")


@pytest.mark.parametrize("url", BACKENDS, indirect=True)
def test_from_format_1_offline(
    url: str, cluster: str, tmp_path: Path, format_1: OlderVersion
) -> None:
    """S6: a cluster of the last version that refuses unknown fields is converted once its masters
    have stopped; that version then refuses it in one line and writes nothing."""
    folder = tmp_path / "stamps"
    folder.mkdir()
    done = format_1.jrs(url, cluster, "submit", *stamps(folder, "long"))
    assert done.returncode == 0, done.stderr
    let_end(folder, "long")
    storage = str(tmp_path / "jobs")
    prefix = format_1.prefix()
    arguments = ["--backend", url, "--cluster", cluster, "master", "--storage", storage]
    old = MasterProcess("old", [*arguments, "--name", "old"], {}, prefix)
    try:
        until(
            lambda: "FINISHED" in format_1.jrs(url, cluster, "list").stdout,
            "the older version has run it",
        )
        with pytest.raises(WrongState, match=r"older jrs.* stop all "):
            Masters(url, cluster=cluster)
        old.stop()
    finally:
        old.close()
    with Masters(url, cluster=cluster, storage=tmp_path / "jobs", ttl=10.0) as masters:
        backend = masters.backend
        assert cluster_format.format_of(backend) == 2
        assert JobResultStore(backend).wait("long", BOUND).status is JobStatus.FINISHED
        masters.start("new")
        JobCatalog(backend).submit(JobSpec("more", f"{JOBS}:stamp", {"path": str(folder / "more")}))
        let_end(folder, "more")
        assert JobResultStore(backend).wait("more", BOUND).status is JobStatus.FINISHED
        before = {record.key for record in backend.scan(keys.JOBS)}
        for command in (["master", "--storage", storage], ["submit", *stamps(folder, "late")]):
            refused = format_1.jrs(url, cluster, *command)
            assert refused.returncode == 2
            assert refused.stderr.count("\n") == 1
            assert "upgrade it" in refused.stderr
        assert {record.key for record in backend.scan(keys.JOBS)} <= before
