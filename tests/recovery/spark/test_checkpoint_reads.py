"""What an attempt makes of a checkpoint that it cannot read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jrs.contract.errors import JobHeld, Unavailable
from jrs.recovery.spark import checkpoint_reads, rescaling
from tests.recovery.snapshots.fabricate import FakeQuery
from tests.recovery.support import fail_to_list


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    query = FakeQuery(tmp_path / "ck", "changelog-v2", partitions=1)
    query.start().run(2)
    return query.ck


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.EMFILE, Unavailable), (errno.ESTALE, Unavailable), (errno.EIO, JobHeld)],
)
def test_a_plan_that_cannot_be_read(
    checkpoint: Path, number: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: damage holds the job; anything else is tried again."""

    def fail(path: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fail)
        for ask in (checkpoint_reads.position, rescaling.partitions, rescaling.check):
            with pytest.raises(error, match=os.strerror(number)):
                ask(checkpoint)

    assert checkpoint_reads.position(checkpoint).committed == 1


@pytest.mark.parametrize("in_a_log", [True, False])
def test_a_job_with_a_damaged_checkpoint_says_the_way_out(
    checkpoint: Path, in_a_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with pytest.raises(JobHeld, match=r"; restore the job from a snapshot$"):
        if in_a_log:
            monkeypatch.setattr(Path, "read_bytes", fail)
            checkpoint_reads.position(checkpoint)
        else:
            with checkpoint_reads.or_held():
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(checkpoint))


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (errno.EIO, JobHeld, "cannot be read: .*; repair it, or move the table away$"),
        (errno.ESTALE, Unavailable, "cannot be read now: .*$"),
    ],
)
def test_a_table_whose_log_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[Exception],
    text: str,
) -> None:
    """It is the user's: a restore of the job would not bring its log back."""
    log = tmp_path / "table" / "_spark_metadata"
    log.mkdir(parents=True)
    assert checkpoint_reads.newest_in_table(tmp_path / "table") == -1
    fail_to_list(monkeypatch, log, number)
    with pytest.raises(error, match=f"^the log of {tmp_path}/table {text}"):
        checkpoint_reads.newest_in_table(tmp_path / "table")


def test_a_last_batch_that_cannot_be_planned_now(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full for a moment neither fails the job nor holds it."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left"):
            checkpoint_reads.plan_flush(checkpoint)
    assert checkpoint_reads.position(checkpoint).planned == 1
    checkpoint_reads.plan_flush(checkpoint)

    assert checkpoint_reads.position(checkpoint).at_the_end
