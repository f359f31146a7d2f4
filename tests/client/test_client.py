"""Client: submitting jobs and working with them over one connection."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import pytest

import jrs
from jrs import (
    Action,
    AttemptRecord,
    Client,
    Create,
    DuplicateJob,
    InvalidInput,
    JobStatus,
    NoSuchJob,
    RestartPolicy,
    RunnerKind,
    StopMode,
    Unavailable,
)
from jrs.records import keys
from jrs.records.codec import encode
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.testing.contract import lead
from tests.recovery.conftest import memory, root
from tests.recovery.support import FaultyMemory, Leader
from tests.support import until

__all__ = ["memory", "root"]


def doubled(job: jrs.Job, number: int = 1) -> int:
    """A job."""
    return 2 * number


@pytest.fixture
def client(memory: FaultyMemory, root: Path) -> Client:
    return Client(memory, storage=root)


def test_connect(tmp_path: Path) -> None:
    """A URL and a cluster's id are all it takes; the connection is closed with the block."""
    url = (tmp_path / "store").as_uri()
    with jrs.connect(url, cluster="etl") as client:
        client.submit("etl.jobs:nightly", id="nightly", day="2026-11-20")
        assert client.job("nightly").status() is JobStatus.CREATED
        view = client.job("nightly").view()

    assert view.spec is not None
    assert (view.spec.entry_point, view.spec.arguments) == (
        "etl.jobs:nightly",
        {"day": "2026-11-20"},
    )
    with pytest.raises(Unavailable, match="closed"):
        client.job("nightly").status()
    with jrs.connect(url, cluster="etl", create=False) as again:
        assert [job.id for job in again.jobs()] == ["nightly"]
    with pytest.raises(InvalidInput, match="there is no jrs cluster 'other'"):
        jrs.connect(url, cluster="other", create=False)


def test_a_job_from_its_function_to_its_result(client: Client, root: Path) -> None:
    """A function is submitted by its name, and its result is returned."""
    with Leader(client.backend, root, runner=ThreadRunner()):
        job = client.submit(doubled, id="job", runner=RunnerKind.THREAD, number=21)
        result = job.result(timeout=60)

    assert repr(job) == "JobHandle('job')"
    assert (result.status, result.payload) == (JobStatus.FINISHED, 42)
    assert [each.id for each in client.jobs(status=JobStatus.FINISHED)] == ["job"]
    assert list(client.jobs(status=JobStatus.FAILED)) == []


def test_an_id_that_is_taken(client: Client) -> None:
    """It is refused; `exist_ok` gives a handle on the job that has it."""
    client.submit("m:f", id="job")

    with pytest.raises(DuplicateJob):
        client.submit("m:g", id="job")
    view = client.submit("m:g", id="job", exist_ok=True).view()
    assert view.spec is not None
    assert view.spec.entry_point == "m:f"


@pytest.mark.parametrize(
    "function", [lambda job: 1, functools.partial(doubled), object()], ids=["lambda", "partial", ""]
)
def test_a_function_without_a_name(client: Client, function: Any) -> None:
    """What another process could not import is refused at once, with the remedy."""
    with pytest.raises(InvalidInput, match="define it at the top level of a module"):
        client.submit(function, id="job")
    assert list(client.jobs()) == []


@pytest.mark.parametrize("id", ["", "a/b", "x" * 129, 7])
def test_what_is_no_id(client: Client, id: Any) -> None:
    """It is refused where the handle is made."""
    with pytest.raises(InvalidInput):
        client.job(id)


def test_an_unknown_job(client: Client) -> None:
    """Every question about it says that there is none."""
    job = client.job("nobody")
    for call in (job.status, job.view, job.suspend, job.drain, job.resume, job.cancel):
        with pytest.raises(NoSuchJob):
            call()
    with pytest.raises(TimeoutError):
        job.result(timeout=0)


def test_suspend_and_resume(client: Client, root: Path) -> None:
    """A job is suspended, waited for and resumed by its handle."""
    job = client.submit("m:f", id="job")
    with Leader(client.backend, root) as leader:
        until(lambda: job.status() is JobStatus.RUNNING, "it runs")
        job.suspend(reason="a release", grace=0.0)
        stop = job.wait_suspended(timeout=60)
        assert stop is not None
        assert (stop.mode, stop.reason) == (StopMode.SUSPEND, "a release")
        assert job.status() is JobStatus.SUSPENDED
        job.resume()
        until(lambda: job.status() is JobStatus.RUNNING, "it runs again")
        job.cancel("enough")
        result = job.result(timeout=60)
        assert leader.store.has_entry("job")

    assert result.status is JobStatus.CANCELED


def test_rescale_and_upgrade(client: Client) -> None:
    """What a job is to be from now on is recorded."""
    job = client.submit("m:f", id="job", partitions=4)
    job.rescale(16)
    view = job.view()
    assert view.spec is not None
    assert view.spec.partitions == 16
    with pytest.raises(InvalidInput):
        job.upgrade(doubled)  # It is being suspended for the first change.


def test_snapshots_need_a_storage(memory: FaultyMemory) -> None:
    """Where none is known, the message says how to name it."""
    with pytest.raises(InvalidInput, match=r"jrs.connect\(…, storage=DIR\)"):
        Client(memory).job("job").snapshots.list()


@pytest.mark.parametrize(
    ("deaths", "retry_in", "action", "reason"),
    [
        (0, None, Action.LEAVE, "an attempt is running here"),
        (1, 60.0, Action.WAIT, "the restart policy's delay has not passed"),
        (1, -60.0, Action.RECOVER, "no attempt is running"),
        (2, 60.0, Action.FAIL, "as often as its restart policy allows"),
    ],
    ids=["running", "backing off", "due", "spent"],
)
def test_explain_knows_how_the_attempt_ended(
    client: Client, deaths: int, retry_in: float | None, action: Action, reason: str
) -> None:
    """A job whose attempt has died is not said to run."""
    backend = client.backend
    job = client.submit("m:f", id="job", restart=RestartPolicy(attempts=2))
    with lead(backend) as leadership:
        record = AttemptRecord(
            "job",
            epoch=leadership.epoch,
            master="m1",
            deaths=deaths,
            retry_at=0.0 if retry_in is None else time.time() + retry_in,
        )
        backend.commit(Create(keys.ATTEMPTS + "job", encode(record)), fence=leadership.fence)

        found = job.explain()

    assert found.action is action
    assert reason in found.reason
    assert "attempt 1 was started by m1 in epoch 1" in found.details


def test_prefix(client: Client) -> None:
    """Jobs are listed in the order of their ids, all or those with a prefix."""
    for id in ("b-1", "a-2", "a-1"):
        client.submit("m:f", id=id)

    assert [job.id for job in client.jobs()] == ["a-1", "a-2", "b-1"]
    assert [job.id for job in client.jobs(prefix="a-")] == ["a-1", "a-2"]
    assert client.masters() == []
