"""Names that a record counts on are on the disk before it: a power cut must not take them back."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.memory import Space
from jrs.contract.clock import Deadline
from jrs.contract.operations import Create, Fence, Op
from jrs.records import keys
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.files import closed_inputs
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.master import Master
from jrs.recovery.snapshots import SnapshotCatalog
from tests.recovery.attempt.test_stages import writes
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import CLUSTER, FaultyMemory

NOBODY_COUNTS_ON = (".trash", "logs", ".restore")


class Disk(FaultyMemory):
    """A backend that looks, at each commit, whether a name in a folder was not synced."""

    root = Path("/nowhere")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.unsynced: set[Path] = set()
        self.commits_seen: list[str] = []
        super().__init__(*args, **kwargs)

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        lost = {
            str(path.relative_to(self.root))
            for path in self.unsynced
            if os.path.lexists(path) and not set(path.parts) & set(NOBODY_COUNTS_ON)
        }
        # A restore that has claimed its job begins from its beginning.
        claims = any(b'"restore/' in getattr(op, "value", b"")[:20] for op in ops)
        assert claims or not lost, (
            f"a power cut behind the commit of {[op.key for op in ops]} loses {lost}"
        )
        self.commits_seen += [op.key for op in ops]
        super()._commit(ops, fence, deadline)

    def follow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Note what is made and synced from now on."""

        def made(real: Callable[..., Any], at: int) -> Callable[..., Any]:
            def call(*args: Any, **how: Any) -> Any:
                done = real(*args, **how)
                if how.get("dir_fd") is None and not isinstance(args[0], int):
                    self._made(Path(args[0]), Path(args[at]).absolute())
                return done

            return call

        for name, at in (("mkdir", 0), ("rename", 1), ("replace", 1), ("link", 1), ("symlink", 1)):
            monkeypatch.setattr(os, name, made(getattr(os, name), at))
        fsync = os.fsync

        def synced(fd: int) -> None:
            fsync(fd)
            where = Path(os.readlink(f"/proc/self/fd/{fd}"))
            self.unsynced = {path for path in self.unsynced if path.parent != where}

        monkeypatch.setattr(os, "fsync", synced)

    def _made(self, source: Path, target: Path) -> None:
        if target.is_relative_to(self.root):
            below = {path for path in self.unsynced if path.is_relative_to(source)}
            self.unsynced -= below
            self.unsynced |= {target / path.relative_to(source) for path in below} | {target}


def rests_on(disk: Disk, what: str) -> None:
    """Commit a record that counts on what was done."""
    disk.commit(Create(f"test/{what.replace(' ', '-')}", b""))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with Disk(Space(), url=f"memory://{uuid.uuid4().hex}", cluster=CLUSTER) as backend:
        backend.root = tmp_path
        backend.follow(monkeypatch)
        yield backend


def test_of_a_job(disk: Disk, tmp_path: Path) -> None:
    """S7: the root and what is above it, the epoch's folder, made or taken over, the folders of
    streams and of closed inputs, staging and output."""
    root = tmp_path / "shared" / "jobs"
    Master(disk, url=disk.url, storage=root)
    rests_on(disk, "the root")
    lead = Lead(disk, root)
    job = AttemptRun(lead.context()).job
    rests_on(disk, "the epoch")
    job.stage("batch", writes("x"))
    rests_on(disk, "its output")
    job.stage("temporary", writes("x"), temporary=True)
    rests_on(disk, "that of another one")
    lead.storage.stream("job", lead.leadership.epoch, "stream")
    rests_on(disk, "its checkpoint")
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "file").write_text("row")
    disk.unsynced.clear()
    closed_inputs.close(lead.storage, "job", "batch", tmp_path / "input")
    rests_on(disk, "the closed input")
    lead.storage.take_over("job", lead.leadership.epoch + 1)
    rests_on(disk, "the epoch that was taken over")

    assert keys.stage("job", "batch") in disk.commits_seen


@pytest.mark.parametrize("how", [SnapshotFormat.LINK, SnapshotFormat.FULL, SnapshotFormat.CAS])
def test_of_a_snapshot(disk: Disk, tmp_path: Path, how: SnapshotFormat) -> None:
    """S7: the folder that the job's snapshots are in, the blobs', and those of a restored job."""
    storage = JobStorage(tmp_path / "jobs", CLUSTER)
    disk.root = tmp_path / "not yet"
    FakeJob(disk, storage).run(2)
    disk.root = tmp_path
    catalog = SnapshotCatalog(disk, storage, sleep=lambda seconds: None)

    taken = catalog.create("job", format=how)
    catalog.restore(taken, as_job="new")
    rests_on(disk, "the new job")
    catalog.move("job", 1, tmp_path / "far" / "away")
    rests_on(disk, "the moved snapshot")

    assert keys.JOBS + "new" in disk.commits_seen
