"""Which code a job has run that its leader ends."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from jrs.records.model import JobStatus, RunnerKind
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.job import Job
from jrs.recovery.attempt.runners.process import ProcessRunner
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.store import history
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from tests.recovery.support import FaultyMemory, Leader, spec


def raises(job: Job) -> None:
    raise ValueError("every attempt fails")


def ends(job: Job) -> None:
    os._exit(3)


PROGRAM = "jrs.recovery.attempt_main"
CODE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]


def check(leader: Leader) -> None:
    result = leader.store.wait("job", 60)
    (ended,) = [one for one in history.read(leader.backend, "job") if one.kind == "ended"]
    assert (result.status, result.code) == (JobStatus.FAILED, CODE)
    assert ended.about is not None
    assert (ended.action, ended.about["code"]) == ("fail", CODE)


def test_a_job_whose_attempts_all_raised(memory: FaultyMemory, root: Path) -> None:
    again = RestartPolicy(attempts=2, on_exception=True, delay=0.0)
    entry = f"{__name__}:raises"
    JobCatalog(memory).submit(spec("job", entry, runner=RunnerKind.THREAD, restart=again))
    with Leader(memory, root, runner=ThreadRunner()) as leader:
        check(leader)


def test_a_job_whose_process_dies(tmp_path: Path, root: Path) -> None:
    """The process had nothing to commit but that it is there."""
    url = (tmp_path / "store").as_uri()
    with open_backend(url) as backend:
        once = RestartPolicy(attempts=1, delay=0.0)
        JobCatalog(backend).submit(spec("job", f"{__name__}:ends", restart=once))
        with Leader(backend, root, runner=ProcessRunner(url, PROGRAM)) as leader:
            check(leader)
