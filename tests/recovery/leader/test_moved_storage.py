"""Taking a job over whose storage was moved: Spark's logs and the links of its inputs follow."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pytest

from jrs.contract.errors import Unavailable
from jrs.contract.operations import Create, Fence, Update
from jrs.records import keys
from jrs.records.cluster import FormatRecord
from jrs.records.codec import encode
from jrs.records.model import EpochRecord
from jrs.recovery.files import closed_inputs, written_root
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader.take_over import take_over
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.recovery.snapshots.index import SnapshotIndex
from jrs.recovery.snapshots.references import jobs_in_use
from tests.recovery.snapshots.conftest import memory  # noqa: F401 - a fixture
from tests.recovery.snapshots.fabricate import FakeJob, put
from tests.recovery.support import CLUSTER, FaultyMemory

HOURLY = "streams/hourly"


class Moved:
    """A job with a closed input and a file sink, suspended in epoch 3; its storage was renamed."""

    def __init__(self, backend: FaultyMemory, top: Path) -> None:
        self.backend = backend
        self.old, self.new = JobStorage(top / "old disk", CLUSTER), JobStorage(top / "new", CLUSTER)
        rows = self.old.folder("other") / "out" / "rows"
        put(rows / "f0.json", "{}")
        job = FakeJob(backend, self.old)
        closed = closed_inputs.close(self.old, "job", "hourly", rows)
        self.input = closed.relative_to(self.old.root)
        job.query.source = closed.as_uri()
        self.old.stream("job", 3, "hourly")
        job.run(5).suspend()
        self.snapshot = SnapshotCatalog(backend, self.old).create("job", name="before")
        self.before = self.named(self.old.folder("job"))
        os.rename(self.old.root.parent, self.new.root.parent)

    def take_over(self, epoch: int = 4) -> Path:
        stored = self.backend.get(keys.EPOCH)
        assert stored is not None
        record = EpochRecord(epoch, "the next leader")
        self.backend.commit(Update(keys.EPOCH, encode(record), stored.version))
        stored = self.backend.get(keys.EPOCH)
        assert stored is not None
        return take_over(self.backend, self.new, "job", Fence(epoch, stored.version))

    def named(self, job: Path) -> list[str]:
        """Return the paths in the logs and links of a job."""
        logs = [*job.glob(f"e*/{HOURLY}/ck/sources/0/*"), *job.glob("out/hourly/_spark_metadata/*")]
        lines = (line for log in sorted(logs) for line in log.read_text().splitlines()[1:])
        found = [unquote(json.loads(line)["path"]).removeprefix("file://") for line in lines]
        return [*found, *(os.readlink(link) for link in job.glob("in/hourly/*/*"))]

    def relocated(self) -> list[str]:
        old, new = f"{self.old.root}/", f"{self.new.root}/"
        return [path.replace(old, new) for path in self.before]


@pytest.fixture
def moved(memory: FaultyMemory, tmp_path: Path) -> Moved:  # noqa: F811 - the fixture
    return Moved(memory, tmp_path)


def test_the_logs_and_links_follow(moved: Moved) -> None:
    """Also a second time, back to where it was; the snapshots keep what they share with the job."""
    taken = moved.take_over()

    assert moved.named(moved.new.folder("job")) == moved.relocated() != moved.before
    assert (moved.new.root / moved.input / "f0.json").read_text() == "{}"
    assert written_root.noted(taken / HOURLY) == moved.new.root
    assert SnapshotCatalog(moved.backend, moved.new).verify("job", 1) == moved.snapshot

    os.rename(moved.new.root.parent, moved.old.root.parent)
    moved.new, moved.old = moved.old, moved.new
    moved.take_over(5)
    assert moved.named(moved.new.folder("job")) == moved.before


@pytest.mark.parametrize("step", range(0, 24, 3))
def test_a_death_in_between(moved: Moved, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next take-over completes what is relocated in part."""
    replace, left = os.replace, [step]

    def dying(source: str | Path, target: str | Path) -> None:
        if not left[0]:
            raise OSError(5, "Input/output error")
        left[0] -= 1
        replace(source, target)

    monkeypatch.setattr(os, "replace", dying)
    with suppress(Unavailable):  # The last steps are more than it takes.
        moved.take_over()
    monkeypatch.undo()
    moved.take_over(5)

    assert moved.named(moved.new.folder("job")) == moved.relocated()


@pytest.fixture(params=[3, 7])
def written_by_older(moved: Moved, request: pytest.FixtureRequest) -> Moved:
    """The job of a version that notes no root, in a cluster of its format and of a raised one."""
    (moved.new.folder("job") / "e3" / HOURLY / "root").unlink()
    record = FormatRecord(request.param)
    moved.backend.commit(Create(keys.FORMAT, encode(record)))
    return moved


def test_files_of_an_older_version(written_by_older: Moved) -> None:
    """The logs tell where the storage was: they name the files of the closed input."""
    moved = written_by_older
    taken = moved.take_over()

    assert moved.named(moved.new.folder("job")) == moved.relocated()
    assert written_root.noted(taken / HOURLY) == moved.new.root


def test_a_damaged_log(moved: Moved) -> None:
    """It keeps no job from being taken over: its attempt finds the damage."""
    log = moved.new.folder("job") / "e3" / HOURLY / "ck/sources/0/2"
    log.unlink()
    put(log, b"v1\n{half")
    taken = moved.take_over()

    assert (taken / HOURLY / "ck/sources/0/2").read_text() == "v1\n{half"
    assert written_root.noted(taken / HOURLY) == moved.new.root


def test_a_snapshot_before_the_take_over(moved: Moved) -> None:
    """It has the root that its logs name, so that what is restored from it is relocated."""
    catalog = SnapshotCatalog(moved.backend, moved.new)
    shutil.rmtree(moved.new.folder("job") / "out" / "hourly")  # No log of a file sink.
    record = catalog.create("job")
    catalog.restore(record, as_job="again")

    again = moved.named(moved.new.folder("again"))
    sources = [path for path in again if "/in/hourly/" in path]
    assert len(sources) == 5
    assert all(path.startswith(str(moved.new.folder("again"))) for path in sources)
    assert again[-1] == str(moved.new.folder("other") / "out/rows/f0.json")


def test_what_it_reads_is_in_use(moved: Moved) -> None:
    """The output of another job that its links lead to is needed before the take-over as well, and
    by its snapshots."""
    index = SnapshotIndex(moved.backend, moved.new)
    assert "other" in jobs_in_use(index, ["job"])
    assert "other" in jobs_in_use(index, [])
