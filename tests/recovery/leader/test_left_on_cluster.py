"""Whose application a leader has a Spark cluster end."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.operations import create_or_update
from jrs.records import keys
from jrs.records.attempts import SparkApplication
from jrs.records.codec import encode
from jrs.records.model import AttemptRecord, RunnerKind
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job, context_of
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.recovery.processes import left_on_cluster
from jrs.store import history
from jrs.store.jobs import JobCatalog
from tests.recovery.support import FaultyMemory, Leader, spec

APPLICATION = SparkApplication("app-1", "spark://s:7077")


def uses_spark(job: Job) -> int:
    """Record an application, as a session on a cluster does; the first attempt then fails."""
    context: AttemptContext = context_of(job)
    context.own.runs_on(context.backend, context.fence, APPLICATION)
    if job.attempt == 1:
        raise ValueError("tried again")
    return job.attempt


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collects the applications that the cluster is asked to end."""
    asked: list[str] = []

    def end(application: SparkApplication) -> str:
        asked.append(application.id)
        return "ended"

    monkeypatch.setattr(left_on_cluster, "end", end)
    return asked


def submit(memory: FaultyMemory) -> None:
    again = RestartPolicy(attempts=2, on_exception=True, delay=0.0)
    entry = f"{uses_spark.__module__}:uses_spark"
    JobCatalog(memory).submit(spec("job", entry, runner=RunnerKind.THREAD, restart=again))


def told(memory: FaultyMemory) -> list[tuple[str, object]]:
    """Return the kinds of the job's events, and the application that each names."""
    return [(one.kind, (one.about or {}).get("spark")) for one in history.read(memory, "job")]


def test_c4_what_a_lost_leader_has_left(memory: FaultyMemory, root: Path, ended: list[str]) -> None:
    """C4: the application of an earlier epoch's attempt is ended before the next attempt, also if
    that ran in a process with this one's number: a container has the same one after a restart."""
    submit(memory)
    place: dict[str, Any] = {"host": socket.gethostname(), "pid": os.getpid(), "in_thread": True}
    before = AttemptRecord("job", epoch=0, spark=APPLICATION, **place)
    memory.commit(create_or_update(keys.ATTEMPTS + "job", encode(before), None))
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        result = leader.store.wait("job", 60)
        leader.until_clean("job")
        said = [one.message for one in leader.events if one.kind == "orphans"]

    assert ended == ["app-1"]
    assert said == ["ended"]
    assert [one.spark for one in result.attempts] == [APPLICATION, APPLICATION]
    assert told(memory)[-4:] == [
        ("died", "app-1"),
        ("attempt", None),
        ("ended", "app-1"),
        ("clean", None),
    ]


def test_c4_a_session_that_other_jobs_share(
    memory: FaultyMemory, root: Path, ended: list[str]
) -> None:
    """C4: an attempt that dies in the leader's own process leaves its session to other jobs."""
    submit(memory)
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        result = leader.store.wait("job", 60)

    assert (result.payload, ended) == (2, [])
    assert told(memory)[1:5] == [
        ("attempt", None), ("died", "app-1"), ("attempt", None), ("ended", "app-1"),
    ]  # fmt: skip
