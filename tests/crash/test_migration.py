"""kill -9 before and after each commit of a migration: repeated, it ends as if nothing happened."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jrs.client.migrate import migrate
from jrs.contract.errors import ClusterMoved, InvalidInput, WrongState
from jrs.records import keys
from jrs.records.history import HistoryEvent
from jrs.records.model import JobResult, JobSpec, JobStatus
from jrs.store import history, history_checks
from jrs.store.copying import moves
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.steering import Steering
from jrs.testing.contract import lead
from tests.forks import Forks

DIES = """
import os, signal, sys
from importlib import import_module

from jrs import migrate

source, target, cluster, fatal, when = sys.argv[1:6]
left = int(fatal)

def dies(name, kind):
    backend = getattr(import_module(name), kind)
    real = backend._commit

    def commit(self, *args):
        global left
        left -= 1
        if left == 0 and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *args)
        if left == 0 and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    backend._commit = commit

dies("jrs.backends.file.backend", "FileBackend")
if target.startswith("etcd:"):
    dies("jrs.backends.etcd.backend", "EtcdBackend")
migrate(source, target, cluster=cluster)
"""
MOST = 40
"""More commits than a migration of a few records has."""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks("jrs.client.migrate", "jrs.backends.file") as forks:
        yield forks


def fill(url: str, cluster: str) -> None:
    with open_backend(url, cluster=cluster) as backend:
        results = JobResultStore(backend)
        with lead(backend) as leadership:
            for name in ("one", "two"):
                result = JobResult(name, JobStatus.FINISHED, name)
                results.create_dirty(result, leadership.fence)
        JobCatalog(backend).submit(JobSpec("waits", "json:dumps"))
        for number in range(3):  # Enough for several commits.
            JobCatalog(backend).submit(
                JobSpec(f"big-{number}", "json:dumps", arguments={"a": "x" * 150_000})
            )
        Steering(backend).pause("me@here", "")


def submitted(url: str, cluster: str, job_id: str) -> bool:
    """Submit a job wherever the cluster is open; return whether that was acknowledged."""
    with suppress(ClusterMoved, WrongState, InvalidInput):
        with open_backend(url, cluster=cluster, create=False) as backend:
            JobCatalog(backend).submit(JobSpec(job_id, "json:dumps"))
            return True
    return False


def holds_anything(url: str, cluster: str) -> bool:
    """Return whether the cluster is open there and holds a record."""
    with suppress(WrongState, InvalidInput):
        return bool(contents(url, cluster, create=False))
    return False


def contents(url: str, cluster: str, *, create: bool = True) -> dict[str, bytes]:
    with open_backend(url, cluster=cluster, create=create) as backend:
        return {
            record.key: record.value
            for record in backend.scan("")
            if moves(record.key)
            and record.key != keys.EPOCH
            and not record.key.startswith(keys.TOLD)
        }


def histories(url: str, cluster: str) -> list[tuple[HistoryEvent, ...]]:
    """Return the histories of the jobs that were submitted; the migration folds them."""
    with open_backend(url, cluster=cluster) as backend:
        names = ["waits", *(f"big-{number}" for number in range(3))]
        assert not [problem for name in names for problem in history_checks.problems(backend, name)]
        return [history.read(backend, name) for name in names]


def die_and_repeat(
    forks: Forks, source: str, target: str, fatal: int, when: str, folder: Path
) -> bool:
    """Kill a migration at one commit, and repeat it; return whether it lived that long."""
    cluster = f"dies-{uuid.uuid4().hex[:8]}"
    fill(source, cluster)
    before, told = contents(source, cluster), histories(source, cluster)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = forks.run(
        DIES, source, target, cluster, fatal, when, folder=folder, environment=environment
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr

    at_source = submitted(source, cluster, "between")
    # As long as the source is open, nobody finds anything at the target.
    at_target = holds_anything(target, cluster) and submitted(target, cluster, "between")
    assert not (at_source and at_target)
    assert ended.returncode or at_target

    report = migrate(source, target, cluster=cluster)
    assert report.moved
    found = contents(target, cluster)
    assert (keys.JOBS + "between" in found) == (at_source or at_target)
    found.pop(keys.JOBS + "between", None)
    assert found == before
    assert histories(target, cluster) == told
    with pytest.raises(ClusterMoved):
        open_backend(source, cluster=cluster)
    with open_backend(target, cluster=cluster) as there, lead(there) as leadership:
        assert leadership.epoch > 2
        JobResultStore(there).mark_clean("one", leadership.fence)
    return ended.returncode != 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_die_at_every_commit(forks: Forks, tmp_path: Path, when: str) -> None:
    """From one folder to another, killed at each commit to either: a client sees at most one open
    cluster, no submission that was acknowledged is lost, and the repeated migration ends with all
    records and an epoch above all others."""
    killed = 0
    for fatal in range(1, MOST):
        source, target = ((tmp_path / f"{name}{fatal}").as_uri() for name in ("from", "to"))
        if not die_and_repeat(forks, source, target, fatal, when, tmp_path):
            break
        killed += 1
    assert 8 <= killed < MOST - 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_die_at_every_commit_to_etcd(
    forks: Forks, tmp_path: Path, when: str, request: pytest.FixtureRequest
) -> None:
    """The same to a server."""
    target: str = request.getfixturevalue("etcd_server").url()
    killed = 0
    for fatal in range(1, MOST):
        source = (tmp_path / f"from{fatal}").as_uri()
        if not die_and_repeat(forks, source, target, fatal, when, tmp_path):
            break
        killed += 1
    assert 8 <= killed < MOST - 1
