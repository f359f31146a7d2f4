"""Making the plan of a batch durable, on a disk that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jrs.recovery.checkpoint_format import plan_files
from jrs.recovery.checkpoint_format.plan_files import PlanFiles
from tests.recovery.snapshots.fabricate import FakeQuery


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["offsets/1", "sources/0/1", "."])
def test_what_a_failed_sync_has_dropped(
    tmp_path: Path, name: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A5: the kernel drops what it could not write, and the next sync of the file succeeds. So the
    file is written again, with what it had and for those who could read it."""
    query = FakeQuery(tmp_path / "ck", "changelog-v2", partitions=1)
    query.source = "file:///in"
    query.start().run(1)
    plans, checkpoint, sync, left = PlanFiles(query.ck), query.ck, plan_files.sync, [name] * times
    plans.make_durable(0)
    query.plan()
    before = {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}
    (checkpoint / "offsets/1").chmod(0o640)

    def fails(path: Path) -> None:
        if path == checkpoint / name and left:
            left.pop()
            if path.is_file():
                path.write_bytes(bytes(path.stat().st_size))
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        sync(path)

    monkeypatch.setattr(plan_files, "sync", fails)
    for _ in range(times):
        with pytest.raises(OSError, match="Input/output error"):
            plans.make_durable(1)
    inode = (checkpoint / "offsets/1").stat().st_ino
    assert "offsets/1" in plans.make_durable(1)

    assert {path: path.read_bytes() for path in before} == before
    assert (checkpoint / "offsets/1").stat().st_ino != inode
    assert (checkpoint / "offsets/1").stat().st_mode & 0o777 == 0o640
    assert not list(checkpoint.rglob("*.tmp"))


def test_nothing_is_written_again_without_a_failure(tmp_path: Path) -> None:
    query = FakeQuery(tmp_path / "ck", "changelog-v2", partitions=1)
    query.start().plan()
    inodes = {path: path.stat().st_ino for path in query.ck.rglob("*")}
    plans = PlanFiles(query.ck)
    plans.make_durable(0)
    plans.make_durable(0)

    assert {path: path.stat().st_ino for path in query.ck.rglob("*")} == inodes
