"""Death at every step of a rescale: what is there is the old checkpoint or the new one, whole; a
repeat ends as if nothing had happened, and nothing is left that nobody removes.

Spark's own part, the rewriting of the state, is a fake here: a JVM has thousands of steps of its
own that none of these tests could die between, and all of them are in a copy that nobody looks at
before it is whole. What the fake has in common with it is all that counts for the steps around it:
it adds a batch, each file by a rename, and replaces one that it was given, which is a link to the
old one's. Real deaths around the real one are in tests/spark/test_dying_in_a_change.py.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jrs.records.policies import SnapshotPolicy
from jrs.recovery.checkpoint_format.checkpoint import select
from jrs.recovery.checkpoint_format.sink_log import SINK_LOG
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.files.rescaled_checkpoint import complete_interrupted_rescale
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.rules.events import Event
from jrs.recovery.snapshots import find_orphans
from jrs.recovery.snapshots.contents import gather
from jrs.recovery.spark import rescaling
from jrs.testing.contract import lead
from tests.recovery.snapshots.fabricate import FakeJob, jrs_sink, put, tree
from tests.recovery.snapshots.test_crashes import DEAD, Begin, in_a_child
from tests.recovery.support import CLUSTER, FaultyMemory, leader_context

BEFORE, WANTED = 2, 3
COMPACT = 3
"""After how many entries the file sink's log is compacted."""


def conf(partitions: int) -> str:
    pinned = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.stateStore.providerClass": "…RocksDBStateStoreProvider",
    }
    return json.dumps({"batchWatermarkMs": 0, "conf": pinned})


def repartition(where: str, wanted: int) -> None:
    """Add a batch whose state is spread over so many partitions, as Spark does."""
    folder = Path(where)
    last = max(int(path.name) for path in (folder / "commits").glob("[0-9]*"))
    source = (folder / "offsets" / str(last)).read_text().splitlines()[2]
    added(folder / "offsets" / str(last + 1), f"v1\n{conf(wanted)}\n{source}".encode())
    added(folder / "state/0/_metadata/metadata", b"v1 of so many partitions")
    for partition in range(wanted):
        path = folder / f"state/0/{partition}/{last + 2}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path.with_name(".half"), "w") as archive:
            # Without the time of day, so that every new checkpoint is the same.
            archive.writestr(zipfile.ZipInfo("metadata"), 'v1\n{"sstFiles": []}')
        os.rename(path.with_name(".half"), path)
    added(folder / "commits" / str(last + 1), b'v1\n{"nextBatchWatermarkMs": 0}')


def added(path: Path, data: bytes) -> None:
    put(path.with_name(f".{path.name}.half"), data)
    os.rename(path.with_name(f".{path.name}.half"), path)


SESSION: Any = SimpleNamespace(_streamingCheckpointManager=SimpleNamespace(repartition=repartition))


class Site:
    """A suspended job, with a stream that has state."""

    def __init__(self, root: Path, backend: FaultyMemory, batches: int) -> None:
        self.backend = backend
        self.storage = JobStorage(root, CLUSTER)
        self.job = FakeJob(backend, self.storage)
        self.ck, self.table = self.job.query.ck, self.job.out("hourly")
        self.job.run(batches)
        for batch in range(batches):
            path = self.ck / "offsets" / str(batch)
            put(path, path.read_text().replace('{"batchWatermarkMs":0}', conf(BEFORE)))
        self.saved = root / "saved"
        shutil.copytree(self.storage.root, self.saved)

    def again(self) -> None:
        """Put everything back to where it was."""
        gone = tempfile.mkdtemp(dir=self.storage.root.parent)
        os.rename(self.storage.root, gone)  # To delete it would take longer than all else.
        shutil.copytree(self.saved, self.storage.root)

    def do(self, wanted: int = WANTED) -> None:
        """Rescale, in the steps in which an attempt does."""
        complete_interrupted_rescale(self.ck)
        rescaling.rescale(SESSION, self.ck, wanted)
        rescaling.fill_sink_log(self.table, self.ck, COMPACT)

    def deaths(self) -> Iterator[int]:
        """Rescale in a child that dies at one step after the other, each time from the same
        beginning, until there is none left; yield each step behind its death."""

        def work(begin: Begin) -> None:
            begin((Path, "write_text"))
            self.do()

        for step in itertools.count(1):
            self.again()
            code = in_a_child(step, work)
            assert code in (0, DEAD), f"step {step}"
            if code == 0:
                return
            yield step

    def files(self) -> tuple[dict[str, bytes], dict[str, bytes]]:
        return tree(self.ck), tree(self.table / SINK_LOG)

    def neighbours(self) -> set[str]:
        return {path.name for path in self.ck.parent.iterdir()}


@pytest.fixture(autouse=True)
def no_syncing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here cuts the power, so nobody has to wait for a disk."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.mark.parametrize(
    ("batches", "then"),
    [(4, WANTED), (5, WANTED), (4, BEFORE)],
    ids=["repeated", "repeated, the log is compacted", "taken back"],
)
def test_death_at_every_step(tmp_path: Path, memory: FaultyMemory, batches: int, then: int) -> None:
    """N6, S7: whatever the step, a snapshot of the job has its state or is not taken; settled, the
    checkpoint is the old one or the new one; repeated, all is as if it had not died. What is left
    after the request was withdrawn goes with the job."""
    place = Site(tmp_path, memory, batches)
    old, _ = place.files()
    place.do()
    new, log = place.files()

    assert rescaling.partitions(place.ck) == WANTED
    assert select(place.ck).batch == batches
    assert place.neighbours() == {"ck", "root", "staging"}

    step, seen = 0, set()
    for step in place.deaths():
        check_snapshot(place, batches)
        complete_interrupted_rescale(place.ck)
        there, _ = place.files()
        seen.add(there == new)

        assert there in (old, new), f"step {step}"

        place.do(then)

        assert rescaling.partitions(place.ck) == then
        assert list(find_orphans(place.backend, place.storage)) == []

        if then == WANTED:
            assert place.files() == (new, log), f"step {step}"
            assert place.neighbours() == {"ck", "root", "staging"}, f"step {step}"
            continue
        place.storage.sweep("job")

        assert {path.name for path in place.storage.folder("job").iterdir()} == {"out"}
        assert not list((place.storage.root / ".trash").iterdir())
    assert seen == {False, True}
    assert step > 20


def check_snapshot(place: Site, batches: int) -> None:
    """Check that a snapshot that is taken in this moment has the stream's state."""
    try:
        (stage,) = gather(place.storage, "job", {}).stages
    except FileNotFoundError:
        return  # Between two renames there is none to be taken.

    assert stage.batch in (batches - 1, batches)


def test_recovery_finds_nothing_damaged(tmp_path: Path, memory: FaultyMemory) -> None:
    """Whatever the step, the next leader has nothing to pass over, and takes no snapshot in the
    place of a checkpoint that is there: what it sees is the old one or the new one."""
    place = Site(tmp_path, memory, 4)
    jrs_sink(place.table, 4)
    leader = lead(memory)
    epoch = place.storage.take_over("job", leader.fence.epoch)
    place.ck = place.job.query.ck = epoch / "streams" / "hourly" / "ck"
    said: list[Event] = []
    state = RecoveryPoints(leader_context(leader, memory, place.storage, report=said.append))
    state.take_scheduled_snapshot("job", SnapshotPolicy(keep=1))
    shutil.rmtree(place.saved)
    shutil.copytree(place.storage.root, place.saved)
    said.clear()
    step = 0
    for step in place.deaths():
        state.ensure_recoverable("job")

        assert said == [], f"step {step}"

        # The attempt makes what is missing, and has a JVM to start before it settles anything.
        place.storage.stream("job", leader.fence.epoch, "hourly")
        check_snapshot(place, 4)

        assert select(place.ck).batch in (3, 4), f"step {step}"


@pytest.mark.parametrize(("compacted", "last"), [([9], 18), ([9, 19], 28), ([19, 29], 38)])
def test_the_log_is_compacted_where_spark_looks_for_it(
    tmp_path: Path, compacted: list[int], last: int
) -> None:
    """N6: an entry is made as Spark, which goes by the distance of the newest two that are
    compacted, reads it: else nobody could read the table any more."""
    table, checkpoint = tmp_path / "out", tmp_path / "ck"
    for batch in compacted:
        put(table / SINK_LOG / f"{batch}.compact", "v1\nthe first")
    for batch in range(compacted[-1] + 1, last + 1):
        put(table / SINK_LOG / str(batch), f"v1\nthe {batch}th")
    for log in ("offsets", "commits"):
        put(checkpoint / log / str(last + 1), f"v1\n{conf(3)}")
    rescaling.fill_sink_log(table, checkpoint, 10)

    lines = (table / SINK_LOG / f"{last + 1}.compact").read_text().splitlines()
    assert len(lines) == 2 + last - compacted[-1]


def test_a_file_system_without_hard_links(
    tmp_path: Path, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is copied there."""

    def refuse(*paths: object, **how: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    site = Site(tmp_path, memory, 2)
    monkeypatch.setattr(os, "link", refuse)
    site.do()

    assert rescaling.partitions(site.ck) == WANTED
