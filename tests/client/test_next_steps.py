"""The commands that the overview of a job proposes: none of them would be refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs import (
    AttemptRecord,
    Client,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    MasterInfo,
    RunnerKind,
    StopMode,
    StopRecord,
    StopState,
)
from jrs.client.job_overview import job_overview
from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.obstacles import Obstacle
from jrs.records.policies import Keep, SnapshotPolicy
from jrs.records.snapshots import RestoreRecord
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead
from tests.recovery.conftest import memory, root
from tests.recovery.support import FaultyMemory, put, spoil

__all__ = ["memory", "root"]

MAIN = ApplicationRecord("job", "d:main", started_at=1.0, master="m1", host="h", pid=1, epoch=1)
KEPT_NOTHING = SnapshotPolicy(on_failed=Keep.DELETE)


@pytest.fixture
def client(memory: FaultyMemory, root: Path) -> Client:
    client = Client(memory, storage=root)
    client.raise_cluster_format()
    return client


def leads(backend: Backend, epoch: int) -> None:
    Registry(backend).put(MasterInfo("m1", "h", 1, time.time(), 0.0, leading=epoch))


def submitted(backend: Backend, **fields: object) -> None:
    put(backend, keys.JOBS + "job", JobSpec("job", "m:f", **fields))  # type: ignore[arg-type]


def began(backend: Backend, **fields: object) -> None:
    submitted(backend, **fields)
    put(backend, keys.ATTEMPTS + "job", AttemptRecord("job", 1, 1, "m1", 1.0))


def stopped(backend: Backend, mode: StopMode, state: StopState) -> None:
    began(backend)
    put(backend, keys.STOPS + "job", StopRecord("job", mode, state, 1.0, "damage"))


def restoring(backend: Backend) -> None:
    stopped(backend, StopMode.SUSPEND, StopState.DONE)
    restore = RestoreRecord("job", "3", "job", 1.0, False, False)
    put(backend, keys.RESTORES + "job", restore)


def unreadable(backend: Backend, prefix: str) -> None:
    began(backend)
    spoil(backend, prefix + "job")
    if prefix == keys.RESULTS:
        spoil(backend, keys.DIRTY + "job")


def unstartable(backend: Backend) -> None:
    submitted(backend)
    attempt = AttemptRecord(
        "job", 1, 1, "m1", 1.0, obstacles=(Obstacle("m1", "h", "no such module", 1),)
    )
    put(backend, keys.ATTEMPTS + "job", attempt)


def ended(client: Client, spec: JobSpec | None, main: ApplicationRecord | None = None) -> None:
    result = JobResult(
        "job", JobStatus.FAILED, failure=Failure("exception", "boom"), finished_at=2.0,
        spec=spec, main=main,
    )  # fmt: skip
    results = JobResultStore(client.backend)
    results.create_dirty(result, None)
    results.mark_clean("job", None)


def commands(client: Client) -> list[str]:
    """Return the proposed commands for the job, without its id."""
    named = ("--cluster", client.backend.cluster)
    return [
        " ".join(word for word in one.command.split() if word not in ("jrs", "job", *named))
        for one in job_overview(client, "job").steps
    ]


CANCEL, SHOW, WHY = "cancel", "show", "explain"
LOG = "logs --err --tail 100"


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        (submitted, [WHY, CANCEL]),
        (began, ["logs -f", "suspend", CANCEL]),
        (lambda at: began(at, runner=RunnerKind.THREAD), ["suspend", CANCEL]),
        (lambda at: stopped(at, StopMode.SUSPEND, StopState.REQUESTED), ["logs -f", CANCEL]),
        (lambda at: stopped(at, StopMode.DRAIN, StopState.REQUESTED), ["logs -f", CANCEL]),
        (
            lambda at: stopped(at, StopMode.SUSPEND, StopState.DONE),
            ["resume", "rescale --partitions N", CANCEL],
        ),
        (lambda at: stopped(at, StopMode.HOLD, StopState.DONE), [WHY, LOG, "resume", CANCEL]),
        (unstartable, [WHY, LOG, CANCEL]),
        (restoring, ["snapshot restore --finish", CANCEL]),
        (lambda at: put(at, keys.APPLICATIONS + "job", MAIN), [WHY, CANCEL]),
        (lambda at: unreadable(at, keys.RESULTS), ["fsck", SHOW]),
        (lambda at: unreadable(at, keys.JOBS), [WHY, LOG, CANCEL]),
        (lambda at: unreadable(at, keys.STOPS), [WHY, LOG, CANCEL]),
    ],
    ids=[
        *("waiting", "running", "in a thread", "suspending", "draining", "suspended", "held"),
        *("unstartable", "restoring", "application", "no result", "no spec", "no stop"),
    ],
)
def test_no_step_is_refused(
    client: Client, state: Callable[[Backend], None], steps: list[str]
) -> None:
    """What is proposed follows from the decision about the job and from its stop, not from its
    status alone."""
    with lead(client.backend) as leadership:
        leads(client.backend, leadership.epoch)
        state(client.backend)

        assert commands(client) == steps
        for name, request in requests(client).items():
            if name in steps:
                request()


def requests(client: Client) -> dict[str, Callable[[], object]]:
    """Return the requests of the commands that this client can make by itself; the last one ends
    the job."""
    job = client.job("job")
    return {
        "rescale --partitions N": lambda: job.rescale(4),
        "suspend": job.suspend,
        "resume": job.resume,
        CANCEL: job.cancel,
    }


def test_a_job_that_is_canceled_is_left_alone(client: Client) -> None:
    """It is neither suspended nor followed any more."""
    with lead(client.backend) as leadership:
        leads(client.backend, leadership.epoch)
        began(client.backend)
        client.job("job").cancel()

        assert commands(client) == [WHY, CANCEL]


@pytest.mark.parametrize(
    ("spec", "main", "expired", "steps"),
    [
        (JobSpec("job", "m:f"), None, False, ["retry", SHOW]),
        (JobSpec("job", "m:f"), None, True, [SHOW]),
        (JobSpec("job", "m:f", snapshots=KEPT_NOTHING), None, False, [SHOW]),
        (JobSpec("job", "driver:f", runner=RunnerKind.THREAD), None, False, [SHOW]),
        (None, MAIN, False, [SHOW]),
    ],
    ids=["kept", "expired", "not kept", "of a driver", "application"],
)
def test_a_retry_is_proposed_where_something_is_kept(
    client: Client,
    spec: JobSpec | None,
    main: ApplicationRecord | None,
    expired: bool,
    steps: list[str],
) -> None:
    """Else `jrs retry` would refuse the job; and no attempt has left a log."""
    ended(client, spec, main)
    if expired:
        client.expire("job")

    assert commands(client) == steps


def test_explain_names_how_a_restore_is_finished(client: Client) -> None:
    """The command is in the explanation, too."""
    restoring(client.backend)

    said = "if it was interrupted: jrs snapshot restore --finish job; or: jrs cancel job"
    assert said in client.job("job").explain().details


def test_a_job_is_held_whose_result_cannot_be_read(client: Client) -> None:
    """The overview of a job says so, with the decision."""
    unreadable(client.backend, keys.RESULTS)
    found = job_overview(client, "job")

    assert found.line.status == "HELD"
    assert "held: its result cannot be read" in found.reason
