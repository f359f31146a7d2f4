"""What finished stages have written appears, also if the job ends before its attempt did that."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from jrs.records import keys
from jrs.records.model import JobStatus, StageRecord
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.context import AttemptContext
from jrs.store.jobs import JobCatalog
from tests.recovery.support import FaultyMemory, Leader, put, spec

ONCE = RestartPolicy(attempts=1)


def finished(context: AttemptContext, name: str, target: Path | None = None) -> StageRecord:
    """Write the output of a stage and commit its record, and get no further."""
    staging = context.storage.staging("job", context.epoch, name, context.attempt)
    (staging / "x").write_text(name)
    context.storage.make_durable(staging)
    record = StageRecord(
        "job", name, 1, context.attempt, context.epoch, 1.0, 1.0, published=staging.name,
        target=None if target is None else str(target),
    )  # fmt: skip
    put(context.backend, keys.stage("job", name), record)
    return record


@pytest.mark.parametrize("how", ["canceled", "failed"])
def test_the_output_of_a_finished_stage(
    memory: FaultyMemory, root: Path, tmp_path: Path, how: str
) -> None:
    """Its record was the commit. A stage that has not finished leaves nothing, and what is to be
    published elsewhere keeps no job from ending."""
    target = tmp_path / "warehouse"
    JobCatalog(memory).submit(spec("job", restart=ONCE))
    with Leader(memory, root) as leader:
        attempt = leader.runner.of("job")
        context = attempt.context
        finished(context, "a")
        finished(context, "b", target)
        begun = context.storage.staging("job", context.epoch, "c", context.attempt)
        (begun / "x").write_text("c")
        if how == "canceled":
            JobCatalog(memory).cancel("job")
        else:
            attempt.die()
        leader.until_clean("job")

        ended = leader.store.wait("job", 0.0).status
        assert ended is (JobStatus.CANCELED if how == "canceled" else JobStatus.FAILED)
        output = leader.storage.published("job", "a", temporary=False)
        assert (output / "x").read_text() == "a"
        assert not target.exists()
        assert not leader.storage.published("job", "c", temporary=False).exists()


def test_a_disk_that_is_full_meanwhile(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends once there is room."""
    rename, full = os.rename, [OSError(errno.ENOSPC, "No space left on device")]

    def once_full(source: Any, place: Any) -> None:
        if Path(place).name == "a" and full:
            raise full.pop()
        rename(source, place)

    JobCatalog(memory).submit(spec("job", restart=ONCE))
    with Leader(memory, root) as leader:
        finished(leader.runner.of("job").context, "a")
        monkeypatch.setattr(os, "rename", once_full)
        JobCatalog(memory).cancel("job")
        leader.until_clean("job")

        assert full == []
        output = leader.storage.published("job", "a", temporary=False)
        assert (output / "x").read_text() == "a"
