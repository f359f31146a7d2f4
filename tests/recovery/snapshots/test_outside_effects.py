"""A restore names what the job has done elsewhere since, and asks (A4)."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import attrs
import pytest

from jrs.contract.errors import Unavailable, WrongState
from jrs.contract.operations import Create, Delete, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import JobGeneration, StreamPlan
from jrs.records.model import StageRecord, StreamRecord, StreamSink
from jrs.recovery.snapshot_catalog import SnapshotCatalog
from jrs.recovery.snapshots import outside_effects
from jrs.store import heads, restores
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import FaultyMemory


def called(job: FakeJob, stage: str, batch: int, generation: int = 1) -> None:
    job.record(keys.plan("job", stage), StreamPlan("job", stage, generation, batch, 1, 1))


def published(job: FakeJob, stage: str, target: str) -> None:
    record = StageRecord("job", stage, None, 1, 1, 0.5, 9.0, target=target)
    job.record(keys.stage("job", stage), record)


DELTA = StreamSink("delta", "s3a://bucket/orders", knows_batches=True)


def writes_to(job: FakeJob, sink: StreamSink | None) -> None:
    stored = job.backend.get(keys.stream("job", "hourly"))
    assert stored is not None
    record = attrs.evolve(decode(StreamRecord, stored.value, stored.key), sink=sink)
    job.backend.commit(Update(stored.key, encode(record), stored.version))


def test_a4_calls_of_functions(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """A4: the rows that a function has put into a database stay there."""
    job.suspend()
    record = catalog.create("job")
    batch = record.stages[0].batch
    assert (record.stages[0].name, batch) == ("hourly", 4)
    called(job, "hourly", 7)
    called(job, "later", 0)
    before = list(memory.scan(""))

    with pytest.raises(WrongState) as refused:
        catalog.restore(record)
    assert str(refused.value) == (
        "a restore of job 'job' from snapshot 1 does not take back what the job has done elsewhere "
        "since: stage 'hourly' has called its function for batches 5 to 7; stage 'later' has "
        "called its function for batch 0. Restore it with --accept-published "
        "(accept_published=True) if that may stay, or as a new job with --as"
    )
    assert list(memory.scan("")) == before
    catalog.restore(record, as_job="new")
    catalog.restore(record, accept_published=True)
    assert heads.generation_of(memory, "job") == 2
    catalog.restore(record)  # Those calls were of the generation before.


def test_a4_calls_before_an_earlier_restore(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """A restore further back repeats the calls up to where the job was put before, and asks; so it
    does if an older version made that restore, and nothing says where that was."""
    job.suspend()
    older = catalog.create("job")
    job.run(5)
    newer = catalog.create("job")
    called(job, "hourly", 14)
    catalog.restore(newer, accept_published=True)

    with pytest.raises(WrongState, match="for batches 5 to 9"):
        catalog.restore(older)
    key = keys.GENERATIONS + "job"
    memory.commit(Delete(key))
    memory.commit(Create(key, encode(JobGeneration("job", 2))))
    with pytest.raises(WrongState, match="for batches 5 to 14"):
        catalog.restore(older)
    assert catalog.restore(older, accept_published=True).number == 1
    assert catalog.restore(older).number == 1


@pytest.mark.parametrize("batch", [0, 4])
def test_a4_calls_before_the_snapshot(catalog: SnapshotCatalog, job: FakeJob, batch: int) -> None:
    """A restore takes nothing of them back."""
    job.suspend()
    record = catalog.create("job")
    called(job, "hourly", batch)
    assert catalog.restore(record).job_id == "job"


def test_a4_what_was_published(catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path) -> None:
    job.suspend()
    published(job, "early", str(tmp_path / "early"))
    record = catalog.create("job")
    for number in range(5):
        published(job, f"t{number}", f"/warehouse/{number}")
    named = "/warehouse/0 was published; /warehouse/1 was published; /warehouse/2 was published; "
    with pytest.raises(WrongState, match=f"{named}and 2 more. Restore it with"):
        catalog.restore(record)
    assert catalog.restore(record, accept_published=True).job_id == "job"


def test_a4_a_plan_that_cannot_be_read(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    job.suspend()
    record = catalog.create("job")
    memory.commit(Create(keys.plan("job", "hourly"), b"{"))
    with pytest.raises(WrongState, match="it is not known for which batches"):
        catalog.restore(record)


def test_a4_a_generation_that_cannot_be_read(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """It may be that of the plan."""
    job.suspend()
    record = catalog.create("job")
    memory.commit(Create(keys.GENERATIONS + "job", b"{"))
    called(job, "hourly", 7, generation=7)
    with pytest.raises(WrongState, match="for batches 5 to 7"):
        catalog.restore(record)


def test_a4_a_restore_that_is_finished(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller that began it has accepted that; another process carries it out."""
    job.suspend()
    record = catalog.create("job")
    called(job, "hourly", 7)
    with monkeypatch.context() as patch:
        patch.setattr("jrs.recovery.snapshots.reserve_and_swap.swap", lambda *_: died())
        with pytest.raises(KeyboardInterrupt):
            catalog.restore(record, accept_published=True)
    assert restores.stored(memory, "job") is not None
    assert catalog.finish_restore("job").number == record.number


def test_what_a_sink_has_that_knows_its_batches(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory
) -> None:
    """It would leave out the batches that the job counts again, and their rows would be lost. A
    batch that was planned may be in it."""
    job.suspend()
    writes_to(job, DELTA)
    record = catalog.create("job")
    catalog.restore(record)  # Nothing was written since.
    job.query.ck = next(catalog.storage.folder("job").glob("e*/streams/hourly/ck"))
    job.run(2)
    job.query.plan()
    before = list(memory.scan(""))

    with pytest.raises(WrongState) as refused:
        catalog.restore(record)
    assert (
        "elsewhere since: stage 'hourly' has written batches 5 to 7 to delta at "
        "s3a://bucket/orders, which leaves out others of these numbers unless you remove them "
        "first. Remove these batches first, with what the sink notes of them, and then restore it "
        "with --accept-published (accept_published=True); or fork it, and let the fork write to "
        "another place"
    ) in str(refused.value)
    with pytest.raises(WrongState, match="written batches 5 to 7 to delta"):
        catalog.restore(record, as_job="new")  # Its queries have the same ids.
    assert list(memory.scan("")) == before
    catalog.restore(record, as_job="fork", fork=True)
    catalog.restore(record, as_job="new", accept_published=True)
    catalog.restore(record, accept_published=True)
    catalog.restore(record)


@pytest.mark.parametrize(
    "sink",
    [
        None,
        StreamSink("kafka"),
        StreamSink("parquet", "/data/orders"),
        StreamSink("delta", "{folder}/out/hourly", knows_batches=True),
    ],
)
def test_sinks_that_lose_nothing(
    catalog: SnapshotCatalog, job: FakeJob, sink: StreamSink | None
) -> None:
    """One that an older version recorded, that takes each batch, that jrs looks into itself, or
    that goes back with the job."""
    job.suspend()
    folder = str(catalog.storage.folder("job"))
    writes_to(job, sink and attrs.evolve(sink, path=sink.path.format(folder=folder)))
    record = catalog.create("job")
    job.run(2)
    assert catalog.restore(record).job_id == "job"


def test_a_sink_that_stays_where_it_is(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A snapshot without output takes back nothing of a table in the job's folder."""
    job.suspend()
    writes_to(job, attrs.evolve(DELTA, path=str(job.out("hourly"))))
    record = catalog.create("job", output=False)
    job.run(2)
    assert len(list(outside_effects.written(job.backend, catalog.storage, record))) == 1


def test_a_sink_that_the_stage_was_given_since(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """It has only what was planned from then on."""
    job.suspend()
    record = catalog.create("job")
    job.run(2)
    writes_to(job, attrs.evolve(DELTA, since=7))
    assert list(outside_effects.written(job.backend, catalog.storage, record)) == []
    job.run(1)
    (said,) = outside_effects.written(job.backend, catalog.storage, record)
    assert said.startswith("stage 'hourly' has written batch 7 to delta")


def test_a_sink_that_the_stage_had_before(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """It has batches that it will leave out once the stage writes to it again. The leader, which
    runs the present code, does not ask because of it."""
    job.suspend()
    writes_to(job, DELTA)
    record = catalog.create("job")
    job.run(5)
    writes_to(job, StreamSink("kafka", since=10))
    job.run(1)
    with pytest.raises(WrongState, match="has written batches 5 to 9 to delta"):
        catalog.restore(record)
    assert list(outside_effects.written(job.backend, catalog.storage, record)) == []
    catalog.restore(record, accept_published=True)


@pytest.mark.parametrize(("since", "kept"), [(0, 0), (9, 7)])
def test_a_snapshot_whose_records_name_no_sink(
    catalog: SnapshotCatalog, job: FakeJob, since: int, kept: int
) -> None:
    """An older version took it. The sink that an attempt has recorded since is not forgotten: it
    gets the batches behind the snapshot."""
    job.suspend()
    first = catalog.create("job")
    job.run(2)
    second = catalog.create("job")
    writes_to(job, attrs.evolve(DELTA, since=since))
    job.run(3)
    catalog.restore(second, accept_published=True)
    stored = job.backend.get(keys.stream("job", "hourly"))
    assert stored is not None
    record = decode(StreamRecord, stored.value, stored.key)
    assert record.sink == attrs.evolve(DELTA, since=kept)
    assert bool(list(outside_effects.written(job.backend, catalog.storage, first))) == (kept == 0)


@pytest.mark.parametrize("lost", ["offsets", "e*", "a batch"])
def test_a_checkpoint_that_does_not_say_what_its_sink_has(
    catalog: SnapshotCatalog, job: FakeJob, lost: str
) -> None:
    job.suspend()
    writes_to(job, DELTA)
    record = catalog.create("job")
    job.run(2)
    if lost == "offsets":
        shutil.rmtree(job.query.ck / lost)
    elif lost == "a batch":
        for log in ("offsets", "commits"):
            shutil.rmtree(job.query.ck / log)  # Another restore went further back.
    else:
        shutil.rmtree(job.epoch)
    with pytest.raises(WrongState, match="has written an unknown number of batches to delta"):
        catalog.restore(record)


def test_a_checkpoint_that_is_gone(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """It had batches, of which the snapshot has none."""
    job.suspend()
    record = catalog.create("job")
    stage = StreamRecord("job", "late", False, "p", "4", sink=DELTA)
    job.record(keys.stream("job", "late"), stage)
    assert list(outside_effects.written(job.backend, catalog.storage, record)) == []
    stored = job.backend.get(keys.stream("job", "late"))
    assert stored is not None
    begun = encode(attrs.evolve(stage, has_batches=True))
    job.backend.commit(Update(stored.key, begun, stored.version))
    with pytest.raises(WrongState, match="'late' has written an unknown number of batches to"):
        catalog.restore(record)


def test_a_checkpoint_that_cannot_be_read_now(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.suspend()
    writes_to(job, DELTA)
    record = catalog.create("job")

    def fail(checkpoint: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(checkpoint))

    monkeypatch.setattr(outside_effects, "position", fail)
    with pytest.raises(Unavailable, match="cannot be read now"):
        catalog.restore(record)


def died() -> None:
    raise KeyboardInterrupt
