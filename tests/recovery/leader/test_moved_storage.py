"""Taking a job over whose storage was moved: Spark's logs and the links of its inputs follow."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pytest

from jrs.contract.errors import JobHeld, Unavailable
from jrs.contract.operations import Create, Delete, Fence, Update
from jrs.records import keys
from jrs.records.cluster import FormatRecord
from jrs.records.codec import encode
from jrs.records.model import EpochRecord
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.recovery.checkpoint_format import file_logs, relocation
from jrs.recovery.files import closed_inputs, written_root
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader.take_over import take_over
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.recovery.snapshots.index import SnapshotIndex
from jrs.recovery.snapshots.references import jobs_in_use
from tests.recovery.attempt.stream_attempt import Attempt
from tests.recovery.lead import Lead
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
    """Also a second time, back to where it was; the snapshots keep what they share with the job.
    The input, which is the output of another job, has the same name."""
    taken = moved.take_over()

    assert moved.named(moved.new.folder("job")) == moved.relocated() != moved.before
    rows = moved.new.folder("other") / "out" / "rows"
    closed = closed_inputs.place_of(moved.new, "job", "hourly", rows)
    assert closed == moved.new.root / moved.input
    assert (closed / "f0.json").read_text() == "{}"
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


class Streaming:
    """A stream whose attempt died in its second batch: behind the call or the commit, before Spark
    has noted the batch. Then its storage was renamed."""

    def __init__(self, backend: FaultyMemory, top: Path, *, uses_sink: bool) -> None:
        self.new = JobStorage(top / "new" / "jobs", CLUSTER)
        self.lead, self.uses_sink = Lead(backend, top / "old" / "jobs"), uses_sink
        put(top / "rows/f0.json", "{}")
        put(top / "rows/f1.json", "{}")
        closed = closed_inputs.close(self.lead.storage, "job", "sums", top / "rows")
        first = self.begin()
        first.query.source = closed.as_uri()
        self.call(first, 0)
        first.query.commit()
        self.call(first, 1)
        os.rename(top / "old", top / "new")
        self.lead.storage, self.lead.folder = self.new, self.new.folder("job")

    def begin(self, attempt: int = 1) -> Attempt:
        return Attempt(self.lead, attempt, uses_sink=self.uses_sink)

    def call(self, attempt: Attempt, batch: int) -> None:
        if batch > attempt.query.batch:
            attempt.plan()
        if self.uses_sink:
            attempt.run(batch)
        else:
            self.keeper(attempt).keep(batch)

    def keeper(self, attempt: Attempt) -> PlanKeeper:
        return PlanKeeper(attempt.context, "sums", attempt.query.ck)

    def files_read(self) -> list[str]:
        """Return what the files hold that the log of the source names, in the newest batch."""
        checkpoint = self.new.checkpoint("job", self.lead.leadership.epoch, "sums")
        named = file_logs.read_source(checkpoint / "sources/0/1").named
        return [Path(file.path).read_text() for file in named]


@pytest.mark.parametrize("dies", [False, True])
def test_a_batch_that_a_function_was_called_for(
    memory: FaultyMemory,  # noqa: F811 - the fixture
    tmp_path: Path,
    dies: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its plan restores leads to the same files, where they are now."""
    moved = Streaming(memory, tmp_path, uses_sink=False)
    if dies:
        _fail_once(monkeypatch)
        with pytest.raises(Unavailable):
            moved.begin(2)
    again = moved.begin(2)
    for lost in (None, again.query.ck / "sources/0/1"):
        if lost is not None:
            lost.unlink()
        moved.keeper(again).begin()
        assert moved.files_read() == ["{}"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_batch_that_the_sink_has(
    memory: FaultyMemory,  # noqa: F811 - the fixture
    tmp_path: Path,
    dies: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark runs it again with the same input, and its sink knows that."""
    moved = Streaming(memory, tmp_path, uses_sink=True)
    if dies:
        _fail_once(monkeypatch)
        with pytest.raises(Unavailable):
            moved.begin(2)
    again = moved.begin(2)
    again.run(1)
    again.query.batch = 0
    again.query.commit()
    put(again.query.ck / "sources/0/1", "v1\n" + '{"path":"file:///other","batchId":1}')
    with pytest.raises(JobHeld, match="planned again with other input"):
        again.run(1)


def _fail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first log that is relocated fail."""
    relocate, left = relocation.relocate, [OSError(5, "Input/output error")]

    def failing(file: Path, old: str, new: str) -> None:
        if left:
            raise left.pop()
        relocate(file, old, new)

    monkeypatch.setattr(relocation, "relocate", failing)


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
    stored = moved.backend.get(keys.JOBS + "job")
    assert stored is not None
    moved.backend.commit(Delete(stored.key))
    assert "other" in jobs_in_use(index)
    unlisted = [Delete(one.key) for one in moved.backend.scan(keys.SNAPSHOTS)]
    moved.backend.commit(Create(stored.key, stored.value), *unlisted)
    assert "other" in jobs_in_use(index)
