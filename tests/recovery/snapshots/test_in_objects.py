"""Snapshots where the storage has objects: records that name what nobody removes meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from obstore.exceptions import GenericError

from jrs.contract.errors import (
    Conflict,
    DamagedSnapshot,
    InvalidInput,
    JobHeld,
    JobIsRunning,
    NoSuchJob,
    NoSuchSnapshot,
    OutcomeUnknown,
    SnapshotInUse,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Create, Delete, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.runtime import RUNTIME
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import StreamHead, StreamPlan
from jrs.records.model import (
    AttemptRecord,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    StageRecord,
    StopMode,
    StopRecord,
    StopState,
    StreamRecord,
)
from jrs.records.objects import BatchManifest, ClosedInput, StoredFile
from jrs.records.policies import SnapshotPolicy
from jrs.records.snapshots import CopyNote, RestoreRecord, SnapshotFormat, SnapshotRecord, TakenBy
from jrs.recovery.attempt import closed_input
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.recovery.checkpoint_format import metadata
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.cleanup.garbage import collect_garbage
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.object_garbage import ObjectGarbage
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.cleanup.snapshots import Snapshots
from jrs.recovery.files import closed_inputs
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.recovery.leader.trust import Trust
from jrs.recovery.snapshots import (
    SnapshotCatalog,
    adopt,
    copying,
    create_in_objects,
    delete,
    find_orphans,
    in_objects,
    reserve_and_swap,
    sources,
)
from jrs.recovery.snapshots import retry as retry_module
from jrs.recovery.snapshots.index import SnapshotIndex
from jrs.recovery.snapshots.prune import prune
from jrs.recovery.snapshots.retry import RetryRequest, retry
from jrs.recovery.snapshots.scheduled import take_scheduled_snapshot
from jrs.recovery.storage import batches as batches_module
from jrs.recovery.storage.objects import Objects
from jrs.recovery.storage.packed_copies import (
    PrefixWriter,
    contents,
    fetch,
    problems,
    read_record,
)
from jrs.store import attempt_fence, heads, object_order
from jrs.store.result_store import JobResultStore
from tests.recovery.attempt.objects_attempt import (
    Stream,
    begin,
    copies,
    head,
    manifest,
    rows,
)
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import put
from tests.recovery.storage.support import Store
from tests.recovery.support import FaultyMemory, spec


@pytest.fixture
def catalog(lead: Lead) -> SnapshotCatalog:
    return SnapshotCatalog(lead.backend, lead.storage, sleep=lambda seconds: None)


def suspend(lead: Lead) -> None:
    backend = lead.backend
    attempt_fence.shut_out(backend, "job", lead.leadership.fence)
    backend.commit(Create(keys.ATTEMPTS + "job", encode(AttemptRecord("job"))))
    stop = StopRecord("job", StopMode.SUSPEND, StopState.DONE)
    backend.commit(Create(keys.STOPS + "job", encode(stop)))


def sweep(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Remove what streams have replaced, however new it is."""
    assert lead.storage.objects is not None
    monkeypatch.setattr("jrs.recovery.cleanup.object_garbage._MARGIN", -3600.0)
    garbage = ObjectGarbage(lead.backend, lead.storage.objects)
    return [one.name for one in garbage.sweep_replaced("job", lead.leadership.fence)]


def run(stream: Stream, count: int) -> None:
    for _ in range(count):
        stream.batch()


def test_a_snapshot_costs_one_object_and_one_commit(
    lead: Lead, catalog: SnapshotCatalog, store: Store, memory: FaultyMemory
) -> None:
    stream = begin(lead)
    run(stream, 4)
    before = store.calls["put"]
    record = catalog.create("job", name="first")

    assert store.calls["put"] == before + 1
    assert (record.number, record.name, record.stages[0].batch) == (1, "first", 3)
    assert record.files == len(manifest(lead).checkpoint)
    assert catalog.list("job") == [record]
    assert catalog.verify("job", "first") == record
    assert list(find_orphans(lead.backend, lead.storage)) == []
    assert catalog.create("job").number == 2


def test_a4_a_restore_takes_batches_back(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A4: the head names what it named then; the numbers of batches are used again, in another
    generation; and what the old ones had written is not in the output."""
    stream = begin(lead)
    run(stream, 3)
    record = catalog.create("job")
    run(stream, 5)
    sweep(lead, monkeypatch)
    suspend(lead)
    restored = catalog.restore(record)

    assert restored.job_id == "job"
    assert (head(lead).generation, head(lead).batch) == (2, 2)
    assert lead.backend.get(keys.RESTORES + "job") is None
    again = stream.next(2)
    assert position(again.query.ck).planned == 2
    again.batch()
    for _ in range(3):
        again.batch("other rows")
    assert rows(lead) == {
        **{batch: f"rows {batch}" for batch in range(3)},
        **{batch: f"other rows {batch}" for batch in range(3, 6)},
    }


def test_a_restore_leaves_what_was_finished_then(lead: Lead, catalog: SnapshotCatalog) -> None:
    """Of finished stages, those of the snapshot; and their output is fetched as ever."""
    begin(lead)

    def write(stage: Any) -> str:
        (stage.output / "a").write_text(stage.name)
        return str(stage.name)

    AttemptRun(lead.context(1)).job.stage("early", write)
    record = catalog.create("job")
    AttemptRun(lead.context(1)).job.stage("late", write)
    suspend(lead)
    catalog.restore(record)
    stages = [one.key for one in lead.backend.scan(keys.stages("job"))]
    shutil.rmtree(lead.folder)

    assert stages == [keys.stage("job", "early")]
    done = AttemptRun(lead.context(2)).job.stage("early", write)
    assert (done.output / "a").read_text() == "early"


@pytest.mark.parametrize(("called", "said"), [(4, "batches 1 to 3"), (2, "batch 1")])
def test_a6_a_restore_of_what_a_function_was_called_for(
    lead: Lead, catalog: SnapshotCatalog, called: int, said: str
) -> None:
    """A6, A4: the next call is for the batch of the snapshot, in a new generation. So the restore
    asks, also if nothing was done since."""
    begin(lead)
    lead.backend.commit(Delete(keys.head("job", "sums")))
    stream = Stream(lead, uses_sink=False)
    keeper = PlanKeeper(stream.context, "sums", stream.query.ck)
    stream.query.start()
    for batch in range(called):
        stream.query.plan()
        keeper.keep(batch)
        stream.query.commit()
        if batch == 1:
            record = catalog.create("job")
    suspend(lead)
    with pytest.raises(WrongState, match=f"called its function for {said}. Restore it"):
        catalog.restore(record)
    catalog.restore(record, accept_published=True)
    stored = lead.backend.get(keys.plan("job", "sums"))
    assert stored is not None
    plan = decode(StreamPlan, stored.value, stored.key)
    assert (plan.generation, plan.batch) == (2, 1)
    stream.lose_host()
    lead.storage.take_over("job", lead.leadership.epoch)
    copies(lead).bring("job")

    checkpoint = lead.storage.checkpoint("job", lead.leadership.epoch, "sums")
    assert (position(checkpoint).committed, position(checkpoint).planned) == (0, 1)


def test_a_function_whose_query_has_ended_at_a_batch(lead: Lead, catalog: SnapshotCatalog) -> None:
    """Another host resumes behind the batch, and does not call the function for it again; so does a
    restore, which does not ask then."""
    begin(lead)
    lead.backend.commit(Delete(keys.head("job", "sums")))
    stream = Stream(lead, uses_sink=False)
    keeper = PlanKeeper(stream.context, "sums", stream.query.ck)
    stream.query.start()
    for batch in range(3):
        stream.query.plan()
        keeper.keep(batch)
        keeper.keep_done()  # The batch is under way: there is nothing to keep.
        stream.query.commit()
    stream.query.plan()
    keeper.keep_done()
    record = catalog.create("job")
    suspend(lead)
    for restored in (False, True):
        if restored:
            catalog.restore(record)
        stream.lose_host()
        lead.storage.take_over("job", lead.leadership.epoch)
        copies(lead).bring("job")

        checkpoint = lead.storage.checkpoint("job", lead.leadership.epoch, "sums")
        assert (position(checkpoint).committed, position(checkpoint).planned) == (2, 2)
        assert not list(checkpoint.glob("offsets/3"))
        again = PlanKeeper(stream.context, "sums", checkpoint)
        again.begin()


def test_a_function_that_was_not_called_since(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """U9: its query ends once more at the same batch. There is nothing to upload, and no new
    snapshot, which would rotate another one out."""
    begin(lead)
    lead.backend.commit(Delete(keys.head("job", "sums")))
    stream = Stream(lead, uses_sink=False)
    keeper = PlanKeeper(stream.context, "sums", stream.query.ck)
    stream.query.start().plan()
    keeper.keep(0)
    stream.query.commit()
    keeper.keep_done()
    policy, fence = SnapshotPolicy(), lead.leadership.fence
    assert take_scheduled_snapshot(catalog, "job", policy, fence).said
    puts = store.calls["put"]

    again = PlanKeeper(Stream(lead, 2, uses_sink=False).context, "sums", stream.query.ck)
    again.begin()
    again.keep_done()
    assert store.calls["put"] == puts
    assert not take_scheduled_snapshot(catalog, "job", policy, fence).said


@pytest.mark.parametrize("sink", ["a function now", "that of jrs now"])
def test_a_stage_whose_sink_was_changed(lead: Lead, catalog: SnapshotCatalog, sink: str) -> None:
    """A host that has no file of the job resumes from the newest batch, of whichever sink."""
    stream = begin(lead)
    if sink == "a function now":
        run(stream, 2)
    else:
        lead.backend.commit(Delete(keys.head("job", "sums")))
        stream = Stream(lead, uses_sink=False)
        stream.query.start()
    keeper = PlanKeeper(stream.context, "sums", stream.query.ck)
    first = stream.query.batch + 1
    for batch in range(first, first + 2):
        stream.query.plan()
        keeper.keep(batch)
        stream.query.commit()
    if sink == "that of jrs now":  # Its attempt has died before its first batch.
        head = StreamHead("job", "sums", 1, first + 1)
        lead.backend.commit(Create(keys.head("job", "sums"), encode(head)))
    record = catalog.create("job")
    suspend(lead)
    output = rows(lead) if sink == "a function now" else None
    for restored in (False, True):
        if restored:
            catalog.restore(record, accept_published=True)
        stream.lose_host()
        lead.storage.take_over("job", lead.leadership.epoch)
        copies(lead).bring("job")

        assert [one.batch for one in record.stages] == [first + 1]
        checkpoint = lead.storage.checkpoint("job", lead.leadership.epoch, "sums")
        assert (position(checkpoint).committed, position(checkpoint).planned) == (first, first + 1)
        assert output is None or rows(lead) == output


def test_a7_what_a_snapshot_names_stays(
    lead: Lead, catalog: SnapshotCatalog, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A7: a sweep removes what the stream has replaced, and nothing that a snapshot names; once
    that is deleted, the next sweep does."""
    monkeypatch.setattr(batches_module, "WIDTH", 4)
    stream = begin(lead)
    run(stream, 5)
    record = catalog.create("job")
    run(stream, 30)
    checkpoints = [name for name in store.names() if "/ck/" in name]
    swept = sweep(lead, monkeypatch)

    assert catalog.verify("job", 1) == record
    assert len(swept) > 30
    assert not set(swept) & {one.object for one in manifest(lead).checkpoint}
    assert len(rows(lead)) == 35
    catalog.remove(record)
    more = sweep(lead, monkeypatch)
    assert more
    left = [name for name in store.names() if "/ck/" in name]
    assert set(left) == {one.object for one in manifest(lead).checkpoint}
    assert len(left) < len(checkpoints)
    assert sweep(lead, monkeypatch) == []


def test_a_deleted_snapshot_leaves_nothing_to_list(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """A pass costs the same after any number of snapshots: the manifest goes with its entry, or
    with the next sweep if the store does not answer."""
    stream, fence = begin(lead), lead.leadership.fence
    policy = SnapshotPolicy(every=1.0, keep=2)
    assert lead.storage.objects is not None
    garbage, lists = ObjectGarbage(lead.backend, lead.storage.objects), list[int]()

    def manifests() -> set[str]:
        return {name for name in store.names() if "/data/s" in name}

    def named() -> set[str]:
        return {one.objects.name for one in catalog.list("job") if one.objects is not None}

    for number in range(12):
        run(stream, 1)
        catalog.create("job", taken_by=TakenBy.SYSTEM)
        prune(catalog, "job", policy, fence=fence)
        store.calls.clear()
        garbage.sweep_replaced("job", fence)
        lists.append(store.calls["list"] + store.calls["list_with_delimiter"])
        assert manifests() == named(), number
    assert set(lists) == {4}  # The places, the stages of one, and two kinds.

    store.fail(1, "delete")
    catalog.remove(catalog.get("job", 11))
    assert len(manifests() - named()) == 1
    garbage.sweep_replaced("job", fence)
    assert manifests() == named()
    assert catalog.verify("job", 12).number == 12


def test_a_look_at_many_files(lead: Lead, catalog: SnapshotCatalog, store: Store) -> None:
    """A deletion asks for no file that both snapshots name. A restore asks for many at once."""
    stream, fence = begin(lead), lead.leadership.fence
    run(stream, 2)

    def write(stage: Any) -> None:
        for number in range(150):
            (stage.output / f"f{number}").write_text("rows")

    AttemptRun(lead.context(1)).job.stage("typed", write)
    for _ in range(3):
        run(stream, 1)
        catalog.create("job", taken_by=TakenBy.SYSTEM)
    store.calls.clear()
    gone = prune(catalog, "job", SnapshotPolicy(every=1.0, keep=2), fence=fence)
    assert [one.number for one in gone] == [1]
    assert store.calls["head"] < 10

    both, first = threading.Barrier(2, timeout=60), iter(range(2))

    def meet(method: str, arguments: tuple[Any, ...]) -> None:
        if method == "head" and next(first, None) is not None:
            both.wait()

    store.refuse = meet
    assert catalog.verify("job", 2, thorough=False).number == 2
    assert store.calls["head"] > 150
    (lost, *_) = (name for name in store.names() if "/typed/out/" in name)
    store.remove(lost)
    with pytest.raises(DamagedSnapshot, match=lost):
        catalog.verify("job", 2, thorough=False)


def test_a_snapshot_that_is_deleted_while_objects_are_counted(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """Its manifest has gone with its entry: that is no damage."""
    run(begin(lead), 2)
    record = catalog.create("job")
    assert record.objects is not None
    name = record.objects.name

    def deleted(method: str, arguments: tuple[Any, ...]) -> None:
        if method == "get" and arguments[0] == name:
            store.refuse = lambda method, arguments: None
            catalog.remove(record)

    for look in (lambda: sweep_all(lead, "job"), lambda: catalog.verify("job", 1)):
        if catalog.list("job") == []:
            record = catalog.create("job")
            assert record.objects is not None
            name = record.objects.name
        store.refuse = deleted
        with suppress(NoSuchSnapshot):
            look()
        assert catalog.list("job") == []


@pytest.mark.parametrize("first", ["the sweep", "the snapshot"])
def test_a7_a_sweep_at_the_same_moment(
    lead: Lead,
    catalog: SnapshotCatalog,
    monkeypatch: pytest.MonkeyPatch,
    first: str,
) -> None:
    """A7: the snapshot has read the head, the stream moves on, and a sweep comes before it is
    listed, or between its own reading and its commit: one of the two reads again."""
    stream = begin(lead)
    run(stream, 5)
    taken: list[SnapshotRecord] = []
    once = [True]

    def meanwhile(kind: Callable[..., Any], act: Callable[[], Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if once.pop() if once else False:
                act()
            return kind(*arguments, **options)

        return call

    def another() -> None:
        run(stream, 3)
        sweep(lead, monkeypatch)

    if first == "the sweep":
        module = "jrs.recovery.snapshots.create_in_objects._listed"
        monkeypatch.setattr(module, meanwhile(create_in_objects._listed, another))
        taken.append(catalog.create("job"))
    else:

        def snapshot() -> None:
            taken.append(catalog.create("job"))

        name = "jrs.recovery.cleanup.object_garbage.commit_and_read_back"
        monkeypatch.setattr(name, meanwhile(commit_and_read_back, snapshot))
        run(stream, 3)
        with pytest.raises(Conflict):
            sweep(lead, monkeypatch)

    assert catalog.verify("job", taken[0].number) == taken[0]


def test_a_restore_that_died_is_finished(
    lead: Lead, catalog: SnapshotCatalog, memory: FaultyMemory
) -> None:
    stream = begin(lead)
    run(stream, 2)
    record = catalog.create("job")
    run(stream, 2)
    suspend(lead)
    memory.fault(keys.HEADS, Unavailable, kind=Update, times=1)
    with pytest.raises(Unavailable):
        catalog.restore(record)
    stored = lead.backend.get(keys.RESTORES + "job")
    assert stored is not None
    assert decode(RestoreRecord, stored.value, stored.key).source == "1"
    with pytest.raises(Unavailable, match="being restored"):
        catalog.create("job")
    catalog.finish_restore("job")

    assert head(lead).batch == 1
    assert lead.backend.get(keys.RESTORES + "job") is None


@pytest.mark.parametrize("applied", [True, False])
def test_an_outcome_that_is_unknown(
    lead: Lead, catalog: SnapshotCatalog, memory: FaultyMemory, applied: bool
) -> None:
    run(begin(lead), 2)
    memory.fault(keys.SNAPSHOTS, OutcomeUnknown, kind=Create, after=applied, times=1)
    try:
        catalog.create("job")
    except OutcomeUnknown:
        assert not applied
        catalog.create("job")

    assert [one.number for one in catalog.list("job")] == [1]


@pytest.mark.parametrize("how", ["damage", "remove"])
def test_a_damaged_snapshot_changes_nothing(
    lead: Lead, catalog: SnapshotCatalog, store: Store, how: str
) -> None:
    stream = begin(lead)
    run(stream, 3)
    record = catalog.create("job")
    assert record.objects is not None
    run(stream, 2)
    suspend(lead)
    checkpoint = manifest(lead).checkpoint[0].object
    before = head(lead)
    getattr(store, how)(record.objects.name)
    for call in (lambda: catalog.verify("job", 1), lambda: catalog.restore(record)):
        with pytest.raises(DamagedSnapshot):
            call()
    assert head(lead) == before
    second = catalog.create("job")
    getattr(store, how)(checkpoint)
    with pytest.raises(DamagedSnapshot, match="/ck/"):
        catalog.verify("job", second.number)


def test_what_is_not_possible(lead: Lead, catalog: SnapshotCatalog, tmp_path: Path) -> None:
    run(begin(lead), 2)
    catalog.create("job")
    for call in (
        lambda: catalog.restore(tmp_path),
        lambda: catalog.move("job", 1, tmp_path),
        lambda: catalog.export("job", 1, tmp_path / "out"),
        lambda: catalog.convert("job", 1, SnapshotFormat.FULL),
        lambda: catalog.create("job", batches={"sums": 0}),
    ):
        with pytest.raises(WrongState, match="not possible where the storage has objects"):
            call()
    for how in (SnapshotFormat.FULL, SnapshotFormat.CAS):
        with pytest.raises(InvalidInput, match="use 'link'"):
            catalog.create("job", format=how)
    with pytest.raises(NoSuchJob):
        catalog.create("nosuch")
    with pytest.raises(InvalidInput, match="already"):
        catalog.create("job", name="a")
        catalog.create("job", name="a")


def other(lead: Lead, job_id: str) -> dict[int, str]:
    """Return the rows of the stream of another job, by their batch."""
    found = heads.stored(lead.backend, job_id, "sums")
    assert found is not None
    assert found[0].manifest is not None
    assert lead.storage.objects is not None
    newest = read_record(lead.storage.objects, BatchManifest, found[0].manifest)
    named = batches_module.files_of(lead.storage.objects, newest)
    return {batch: contents(lead.storage.objects, [one])[0].decode() for batch, one in named}


@pytest.mark.parametrize("batches", [1, 4, 70])
def test_a_fork_needs_nothing_of_its_job(
    lead: Lead, catalog: SnapshotCatalog, store: Store, batches: int
) -> None:
    """It has copies, with ids of its own for its queries: also once all of the old job is gone."""
    stream = begin(lead)
    run(stream, batches)
    AttemptRun(lead.context(1)).job.stage(
        "ingest", lambda stage: (stage.output / "a").write_text("rows")
    )
    restored = catalog.fork("job", "copy")
    assert restored.job_id == "copy"
    assert catalog.list("job") == []
    for name in store.names():
        if name.startswith("job/"):
            store.remove(name)

    everything = {batch: f"rows {batch}" for batch in range(batches)}
    assert other(lead, "copy") == everything
    found = heads.stored(lead.backend, "copy", "sums")
    assert found is not None
    assert (found[0].generation, found[0].batch) == (1, batches - 1)
    lead.storage.take_over("copy", lead.leadership.epoch)
    assert copies(lead).bring("copy") == ["sums"]
    checkpoint = lead.storage.checkpoint("copy", lead.leadership.epoch, "sums")
    assert position(checkpoint).planned == batches - 1
    assert metadata.read(checkpoint / "metadata").id != stream.query.id
    (stored,) = lead.backend.scan(keys.stages("copy"))
    stage = decode(StageRecord, stored.value, stored.key)
    assert stage.manifest is not None
    assert stage.manifest.name.startswith("copy/data/r.")


@pytest.mark.parametrize("harm", ["lost", "changed"])
@pytest.mark.parametrize("batch", [0, 9])
def test_rows_of_earlier_batches(
    lead: Lead,
    catalog: SnapshotCatalog,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    harm: str,
    batch: int,
) -> None:
    """A verification finds them, merged or not. The job resumes without them: no older snapshot
    would have them, either."""
    monkeypatch.setattr(batches_module, "WIDTH", 4)
    run(begin(lead), 12)
    record = catalog.create("job")
    assert catalog.verify("job", 1) == record
    assert lead.storage.objects is not None
    named = dict(batches_module.files_of(lead.storage.objects, manifest(lead)))
    (store.remove if harm == "lost" else store.damage)(named[batch].object)

    with pytest.raises(DamagedSnapshot, match=named[batch].object):
        catalog.verify("job", 1)
    assert catalog.newest_usable("job").record == record
    suspend(lead)
    assert catalog.restore(record)


def test_rows_are_verified_by_pages(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all files of a long stream are in memory at once. What is reported grows to the end, also
    while they are counted."""
    monkeypatch.setattr(in_objects, "PAGE", 3)
    monkeypatch.setattr(batches_module, "WIDTH", 4)
    run(begin(lead), 12)
    catalog.create("job")
    pages, told = list[int](), list[tuple[int, int]]()

    def look(objects: Objects, files: list[StoredFile], done: Callable[[int, int], None]) -> Any:
        pages.append(len(files))
        return problems(objects, files, done)

    monkeypatch.setattr(in_objects, "problems", look)
    catalog.verify("job", 1, progress=lambda done, most: told.append((done, most)))

    assert pages[1:] == [3, 3, 3, 2]
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    counted = [most for done, most in told if done == 0]
    assert len(set(counted)) == 4
    assert {most for done, most in told if done} == {counted[-1]}


def test_manifests_that_the_next_batches_merge(
    lead: Lead, catalog: SnapshotCatalog, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of them, the job would end at a later batch. To look costs a request for each,
    and none for what is below."""
    monkeypatch.setattr(batches_module, "WIDTH", 4)
    run(begin(lead), 15)
    record = catalog.create("job")
    suspend(lead)
    listed = [one.manifest.name for one in manifest(lead).earlier]
    store.calls.clear()
    catalog.restore(record)
    assert store.calls["get"] == 4 + len(listed)
    store.remove(listed[-1])

    assert catalog.newest_usable("job").record is None
    with pytest.raises(DamagedSnapshot, match=listed[-1]):
        catalog.restore(record)


def test_a_fork_of_a_long_stream(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists few manifests of each level, as its job does: each batch writes that list, and each
    look reads it."""
    monkeypatch.setattr(batches_module, "WIDTH", 3)
    monkeypatch.setattr(adopt, "_PAGE", 7)
    run(begin(lead), 60)
    catalog.fork("job", "copy")

    assert lead.storage.objects is not None
    named = heads_of(lead, "copy")["sums"].manifest
    assert named is not None
    listed = read_record(lead.storage.objects, BatchManifest, named).earlier
    levels = Counter(one.level for one in listed)
    assert max(levels.values()) < 3
    assert max(levels) == max(one.level for one in manifest(lead).earlier)
    assert [one.first for one in listed] == sorted(one.first for one in listed)
    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(60)}


def test_a_fork_without_room_for_a_checkpoint(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It works in the folder of the new job, on the disk for copies, says which job has no room
    there, and leaves nothing."""
    run(begin(lead), 2)
    used = []

    def full(objects: Any, files: Any, work: Path) -> None:
        used.append(work)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(work / "metadata"))

    with monkeypatch.context() as patch:
        patch.setattr(adopt, "fetch", full)
        with pytest.raises(Unavailable, match="the restore of job 'copy' failed, nothing was"):
            catalog.fork("job", "copy")

    assert used[0].is_relative_to(lead.storage.folder("copy"))
    assert not lead.storage.folder("copy").exists()
    assert catalog.fork("job", "copy").job_id == "copy"


def sweep_all(lead: Lead, job_id: str) -> None:
    """Remove all that a sweep, by the leader or by `gc`, takes for garbage of a job."""
    assert lead.storage.objects is not None
    garbage = ObjectGarbage(lead.backend, lead.storage.objects)
    garbage.sweep_replaced(job_id, lead.leadership.fence)
    garbage.sweep_unnamed(job_id, float("inf"), ended=False, dry_run=False)


def test_a7_sweeps_next_to_a_fork_that_is_repeated(
    lead: Lead,
    catalog: SnapshotCatalog,
    store: Store,
    memory: FaultyMemory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A7: what its last commit names is there from the first try on. Sweeps leave it alone, and the
    repeat copies nothing again."""
    run(begin(lead), 4)
    names = more_streams(lead, range(2))
    record = catalog.create("job")
    memory.fault(keys.RESTORES + "copy", Unavailable, kind=Delete, times=1)
    with pytest.raises(Unavailable, match="until you repeat the restore"):
        catalog.restore(record, as_job="copy", fork=True)
    copied = store.calls["copy"]

    def swept(*arguments: Any) -> None:
        sweep_all(lead, "copy")
        fetch(*arguments)

    monkeypatch.setattr(adopt, "fetch", swept)
    catalog.finish_restore("copy")

    assert store.calls["copy"] == copied == 4 * len(names)
    assert set(heads_of(lead, "copy")) == names
    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(4)}
    before = set(store.names())
    sweep_all(lead, "copy")
    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(4)}
    assert not [name for name in before - set(store.names()) if "/rows/" in name]


def test_a7_a_foreign_sweep_next_to_a_fork(
    lead: Lead, catalog: SnapshotCatalog, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A7: a version that looks for no restore has swept before the last commit, which fails; a
    repeat copies again."""
    run(begin(lead), 3)
    record = catalog.create("job")
    reserve = reserve_and_swap.reserve

    def swept(*arguments: Any) -> Any:
        reserved = reserve(*arguments)
        lead.backend.commit(object_order.next_op(lead.backend, "copy"))
        for name in store.names():
            if name.startswith("copy/"):
                store.remove(name)
        return reserved

    with monkeypatch.context() as patch:
        patch.setattr(reserve_and_swap, "reserve", swept)
        with pytest.raises(JobIsRunning, match="until you repeat the restore"):
            catalog.restore(record, as_job="copy")
    catalog.finish_restore("copy")

    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(3)}


@pytest.mark.parametrize("as_job", [None, "copy"])
def test_a_snapshot_that_is_deleted_during_its_restore(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch, as_job: str | None
) -> None:
    """The job would be held by a restore whose source, and what that named, is gone: an older
    version looks for no copying."""
    stream = begin(lead)
    run(stream, 5)
    record = catalog.create("job")
    run(stream, 12)
    suspend(lead)
    reserve, before = reserve_and_swap.reserve, head(lead)

    def slow(*args: Any) -> Any:
        with monkeypatch.context() as older:
            older.setattr(copying, "check_none", lambda *_, **how: None)
            catalog.remove(record)
        assert sweep(lead, monkeypatch)
        return reserve(*args)

    monkeypatch.setattr(reserve_and_swap, "reserve", slow)
    with pytest.raises(NoSuchSnapshot, match="snapshot 1 of job 'job' was just deleted"):
        catalog.restore(record, as_job=as_job)

    assert catalog.pending_restore(as_job or "job") is None
    assert head(lead) == before


@pytest.mark.parametrize("as_job", [None, "copy"])
def test_a_restore_that_begins_during_a_deletion(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch, as_job: str | None
) -> None:
    """The deletion has found no restore, and is refused by the one that has begun meanwhile."""
    run(begin(lead), 5)
    record = catalog.create("job")
    suspend(lead)
    unlist, commit = delete._unlist, reserve_and_swap.commit

    def away(*_: Any) -> None:
        raise Unavailable("the network is away")

    def slow(*args: Any) -> None:
        monkeypatch.setattr(delete, "_unlist", unlist)
        with pytest.raises(Unavailable, match="until you repeat the restore"):
            catalog.restore(record, as_job=as_job)
        unlist(*args)

    monkeypatch.setattr(delete, "_unlist", slow)
    monkeypatch.setattr(reserve_and_swap, "commit", away)
    with pytest.raises(SnapshotInUse, match="the source of a restore"):
        catalog.remove(record)

    monkeypatch.setattr(reserve_and_swap, "commit", commit)
    assert catalog.finish_restore(as_job or "job").number == record.number


@pytest.mark.parametrize("deletes", ["prune", "cleanup", "remove"])
def test_a_snapshot_stays_while_it_is_copied(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch, deletes: str
) -> None:
    """A deletion finds the note, however long the copying takes; the next one works."""
    stream, fence = begin(lead), lead.leadership.fence
    run(stream, 5)
    record = catalog.create("job", taken_by=TakenBy.SYSTEM)
    run(stream, 12)
    policy = SnapshotPolicy(every=1.0, keep=1)

    def delete() -> None:
        if deletes == "prune":
            assert catalog.create("job", taken_by=TakenBy.SYSTEM).number == 2
            assert prune(catalog, "job", policy, fence=fence) == []
        else:
            with pytest.raises(SnapshotInUse, match="is being copied for job 'copy'"):
                if deletes == "remove":
                    catalog.remove(record)
                else:
                    JobResultStore(lead.backend).create_dirty(
                        JobResult("job", JobStatus.FINISHED), fence
                    )
                    Snapshots(lead.backend, lead.storage).clean_fenced("job", fence)

    def slow(*arguments: Any) -> None:
        monkeypatch.setattr(adopt, "fetch", fetch)
        delete()
        fetch(*arguments)

    monkeypatch.setattr(adopt, "fetch", slow)
    catalog.restore(record, as_job="copy", fork=True)

    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(5)}
    assert catalog.get("job", 1) == record
    catalog.remove(record)


def test_a_copying_that_lasts_is_noted_again(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot stays for as long as the process copies, not for the first minutes."""
    monkeypatch.setattr(copying, "_RENEW", 0.001)
    run(begin(lead), 2)
    record = catalog.create("job")
    written = threading.Event()

    def note(*arguments: Any) -> Any:
        if seen := [*catalog.get("job", 1).copies.values()]:
            written.set()
            assert seen[0].place == arguments[0]
        return CopyNote(*arguments)

    def slow(*arguments: Any) -> None:
        monkeypatch.setattr(copying, "CopyNote", note)
        assert written.wait(60)
        fetch(*arguments)

    monkeypatch.setattr(adopt, "fetch", slow)
    catalog.restore(record, as_job="copy")
    assert catalog.get("job", 1) == record


def test_one_of_two_copyings_fails(lead: Lead, catalog: SnapshotCatalog) -> None:
    """Next to objects nothing keeps two hosts from making the same job. The snapshot stays for the
    one that copies on, although the other one has written the note last."""
    run(begin(lead), 2)
    record = catalog.create("job")
    with copying.noted(catalog, record, "copy", None) as place:
        with pytest.raises(Unavailable), copying.noted(catalog, record, "copy", None) as same:
            assert same == place
            raise Unavailable("the network is away")
        with pytest.raises(SnapshotInUse, match="is being copied for job 'copy'"):
            catalog.remove(record)
    with pytest.raises(Unavailable), copying.noted(catalog, record, "copy", None):
        raise Unavailable("the network is away")
    catalog.remove(record)


def test_a_copying_that_failed_is_repeated(
    lead: Lead, catalog: SnapshotCatalog, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeat finds the copies by the note; without a repeat `gc` removes them, and no other
    job's. The snapshot can be deleted meanwhile."""
    run(begin(lead), 4)
    record = catalog.create("job")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "metadata")

    def fail(*_: Any) -> None:
        raise full

    monkeypatch.setattr(adopt, "fetch", fail)
    for as_job in ("copy", "never"):
        with pytest.raises(Unavailable, match="nothing was"):
            catalog.restore(record, as_job=as_job)
    monkeypatch.setattr(adopt, "fetch", fetch)
    copied = store.calls["copy"]
    assert catalog.restore(record, as_job="copy").job_id == "copy"
    assert store.calls["copy"] == copied == 8

    def gc(seconds: float) -> set[str]:
        before = set(store.names())
        index = SnapshotIndex(lead.backend, lead.storage, now=lambda: time.time() + seconds)
        collect_garbage(index, 0.0, dry_run=False)
        return before - set(store.names())

    def copies_of(job_id: str) -> set[str]:
        return {name for name in store.names() if name.startswith(f"{job_id}/data/r.")}

    left = copies_of("never")
    assert len([name for name in left if "/rows/" in name]) == 4
    assert not gc(3600.0) & left
    assert "never" in catalog.get("job", 1).copies
    assert gc(2 * 86400.0) == left
    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(4)}
    assert catalog.get("job", 1) == record
    assert catalog.restore(record, as_job="never").job_id == "never"
    catalog.remove(record)


def test_a_cleanup_next_to_a_copying(lead: Lead, catalog: SnapshotCatalog) -> None:
    """It uses up no retry, however often it finds the note, and completes once that is gone."""
    fence = lead.leadership.fence
    run(begin(lead), 2)
    record = catalog.create("job", taken_by=TakenBy.SYSTEM)
    JobResultStore(lead.backend).create_dirty(JobResult("job", JobStatus.FINISHED), fence)
    cleanup = JobCleanup(lead.backend, default_resources(lead.backend, lead.storage))
    with copying.noted(catalog, record, "copy", None):
        for _ in range(3):
            journal = cleanup.run("job", fence, is_last=lambda tries: tries >= 2)
            assert "is being copied for job 'copy'" in journal.problems["snapshots"]
            assert not journal.exhausted
    journal = cleanup.run("job", fence, is_last=lambda tries: tries >= 2)

    assert (journal.problems, journal.tries) == ({}, 1)
    assert JobResultStore(lead.backend).has_clean("job")


def test_gc_removes_the_notes_of_copyings_that_failed(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """Also of those that have copied nothing; not the note of one at work."""
    run(begin(lead), 2)
    record = catalog.create("job")
    store.fail(10**9, "copy")
    for as_job in ("one", "two"):
        with pytest.raises(Unavailable):
            catalog.restore(record, as_job=as_job)
    days = 2 * 86400.0
    late = SnapshotCatalog(lead.backend, lead.storage, now=lambda: time.time() + days)
    with copying.noted(late, record, "copy", None):
        collect_garbage(late, 0.0, dry_run=True)
        assert catalog.get("job", 1).copies.keys() == {"one", "two", "copy"}
        collect_garbage(late, 0.0, dry_run=False)
        assert catalog.get("job", 1).copies.keys() == {"copy"}


def test_gc_next_to_a_copying_of_days(
    lead: Lead, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It removes nothing that the copying has written, also no manifest and no checkpoint."""
    late = [0.0]

    def now() -> float:
        return time.time() + late[0]

    catalog = SnapshotCatalog(lead.backend, lead.storage, now=now)
    run(begin(lead), 4)
    record, reserve = catalog.create("job"), reserve_and_swap.reserve

    def days_later(*arguments: Any) -> Any:
        late[0] = 2 * 86400.0
        with copying.noted(catalog, record, "copy", None):  # As the process renews its note.
            before = store.names()
            collect_garbage(SnapshotIndex(lead.backend, lead.storage, now=now), 0.0, dry_run=False)
            assert store.names() == before
        return reserve(*arguments)

    monkeypatch.setattr(reserve_and_swap, "reserve", days_later)
    catalog.restore(record, as_job="copy")
    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(4)}


def test_a_store_that_fails_while_it_is_copied(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """A copying of hours does not begin again for it: what was copied stays."""
    run(begin(lead), 70)
    record = catalog.create("job")
    refused = iter(range(3, 60, 9))
    at, copied = [next(refused)], Counter[str]()

    def refuse(method: str, arguments: tuple[Any, ...]) -> None:
        if method == "copy" and store.calls["copy"] >= at[0]:
            at[0] = next(refused, 10**9)
            raise GenericError("Server returned non-2xx status code: 503 Slow Down: <Error/>")
        if method == "copy":
            copied[arguments[1]] += 1

    store.refuse = refuse
    catalog.restore(record, as_job="copy")
    assert store.calls["copy"] > 70
    assert (len(copied), set(copied.values())) == (70, {1})
    assert other(lead, "copy") == {batch: f"rows {batch}" for batch in range(70)}

    store.fail(10**9, "copy")
    begun = store.calls["copy"]
    with pytest.raises(Unavailable, match="503"):
        catalog.restore(record, as_job="never")
    assert store.calls["copy"] - begun < 70 * 8


def test_a_retry_whose_snapshot_is_deleted(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not begin from an older state that it was not asked for."""
    stream = begin(lead)
    run(stream, 2)
    catalog.create("job")
    run(stream, 3)
    result = JobResult("job", JobStatus.FAILED, failure=Failure("exception", "it failed"))
    JobResultStore(lead.backend).create_dirty(result, lead.leadership.fence)
    record = catalog.create("job", taken_by=TakenBy.SYSTEM, at_end=True)
    kept_spec = retry_module._kept_spec

    def slow(*arguments: Any) -> JobSpec:
        catalog.remove(record)
        return kept_spec(*arguments)

    monkeypatch.setattr(retry_module, "_kept_spec", slow)
    skipped: list[int] = []
    with pytest.raises(NoSuchSnapshot):
        retry(catalog, "job", RetryRequest(skipped=lambda one, why: skipped.append(one.number)))

    assert skipped == []
    assert lead.backend.get(keys.JOBS + "job.2") is None


def test_two_forks_from_one_snapshot(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes a new version of its entry, and neither is refused because of the other."""
    run(begin(lead), 3)
    record, kept = catalog.create("job"), sources.kept

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(sources, "kept", kept)
        found = kept(*args)
        catalog.restore(record, as_job="other")
        return found

    monkeypatch.setattr(sources, "kept", slow)
    assert catalog.restore(record, as_job="copy").job_id == "copy"


def test_a_job_that_has_ended_meanwhile(
    lead: Lead, catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cleanup removes what such a snapshot would name."""
    run(begin(lead), 2)
    listed = create_in_objects._listed

    def ended(*arguments: Any) -> SnapshotRecord:
        result = JobResult("job", JobStatus.FINISHED)
        JobResultStore(lead.backend).create_dirty(result, lead.leadership.fence)
        return listed(*arguments)

    monkeypatch.setattr(create_in_objects, "_listed", ended)
    with pytest.raises(WrongState, match="has ended"):
        catalog.create("job")
    assert catalog.list("job") == []


def more_streams(lead: Lead, numbers: Iterable[int]) -> set[str]:
    """Give the job more streams, each like the one that it has; return the names of all."""
    assert lead.storage.objects is not None
    writer = PrefixWriter(lead.storage.objects, "job", "a1.more")
    newest, whole = head(lead), manifest(lead)
    names = {f"s{number}" for number in numbers}
    for name in names:
        named = writer.put_record(f"{name}/batch", attrs.evolve(whole, stage=name))
        lead.backend.commit(
            Create(keys.stream("job", name), encode(StreamRecord("job", name, False, "p", "4"))),
            Create(
                keys.head("job", name), encode(attrs.evolve(newest, stage=name, manifest=named))
            ),
        )
    return {"sums", *names}


def test_a_fork_whose_records_fill_the_last_commit(
    lead: Lead, catalog: SnapshotCatalog, memory: FaultyMemory
) -> None:
    """With any number of streams around the limit of one commit the restore is completed."""
    run(begin(lead), 1)
    limit = memory.capabilities.max_ops // 2
    more_streams(lead, range(limit - 7))
    for number in range(limit - 7, limit):
        more_streams(lead, [number])
        catalog.fork("job", f"copy.{number}")
        assert len(heads_of(lead, f"copy.{number}")) == number + 2


def heads_of(lead: Lead, job_id: str) -> dict[str, StreamHead]:
    scanned = lead.backend.scan(keys.heads(job_id))
    return {one.stage: one for one in (decode(StreamHead, r.value, r.key) for r in scanned)}


@pytest.mark.parametrize("again", ["finish", "another"])
def test_an_interrupted_fork_of_many_streams(
    lead: Lead, catalog: SnapshotCatalog, memory: FaultyMemory, again: str
) -> None:
    """S8: its records take several commits. A repeat completes it behind each of them, also from
    another snapshot, and leaves only records that name objects of this try."""
    run(begin(lead), 2)
    with_one = catalog.create("job")
    names = more_streams(lead, range(memory.capabilities.max_ops // 2))
    with_many = catalog.create("job")
    memory.fault(keys.RESTORES + "copy", Unavailable, kind=Delete, times=1)
    with pytest.raises(Unavailable):
        catalog.restore(with_many, as_job="copy", fork=True)
    interrupted = heads_of(lead, "copy")
    assert interrupted

    if again == "finish":
        catalog.finish_restore("copy")
    else:
        catalog.restore(with_one, as_job="copy", fork=True)
        names = {"sums"}

    assert catalog.pending_restore("copy") is None
    found = heads_of(lead, "copy")
    assert set(found) == names
    assert not set(found.values()) & set(interrupted.values())


def test_a_fork_reads_its_own_input(lead: Lead, catalog: SnapshotCatalog, tmp_path: Path) -> None:
    """Spark's logs name the links of a closed input by their paths, which are the new job's."""
    source = tmp_path / "in"
    source.mkdir()
    for number in range(3):
        (source / f"f{number}.json").write_text("{}")
    stream = begin(lead)
    closed = AttemptRun(stream.context).close_input("sums", source)
    stream.query.source = Path(closed).as_uri()
    run(stream, 2)
    catalog.fork("job", "copy")
    lead.storage.take_over("copy", lead.leadership.epoch)
    copies(lead).bring("copy")
    log = lead.storage.checkpoint("copy", lead.leadership.epoch, "sums") / "sources/0/1"

    assert f"/copy/in/sums/{Path(closed).name}/f1.json" in log.read_text()
    (stored,) = lead.backend.scan(f"{keys.INPUTS}copy/")
    assert decode(ClosedInput, stored.value, stored.key).listing.name.startswith("copy/")


def test_a_fork_reads_its_own_output(lead: Lead, catalog: SnapshotCatalog) -> None:
    """It closes no other input, and its links lead to its own copies."""
    put(lead.storage.copies("job") / f"typed.{'a' * 16}" / "f0.json", "{}")
    put(lead.storage.copies("copy") / f"typed.{'b' * 16}" / "f0.json", "{}")
    (typed,) = lead.storage.copies("job").iterdir()
    stream = begin(lead)
    closed = closed_input.close(stream.context, "sums", typed)
    stream.query.source = closed.as_uri()
    run(stream, 2)
    catalog.fork("job", "copy")

    (own,) = lead.storage.copies("copy").iterdir()
    context = attrs.evolve(stream.context, spec=spec("copy"))
    for _ in range(2):
        again = closed_input.close(context, "sums", own)
        assert (again.name, again.parents[2].name) == (closed.name, "copy")
        assert closed_inputs.links_in(again) == {"f0.json": str(own / "f0.json")}
    (stored,) = lead.backend.scan(f"{keys.INPUTS}copy/")
    assert decode(ClosedInput, stored.value, stored.key).source == str(own)


def test_an_input_of_an_older_format(lead: Lead, memory: FaultyMemory) -> None:
    """It keeps the name under which it was closed, wherever the job runs next."""
    memory.marked_format = closed_inputs.PORTABLE_SINCE - 1
    put(lead.storage.copies("job") / f"typed.{'a' * 16}" / "f0.json", "{}")
    (typed,) = lead.storage.copies("job").iterdir()
    stream = begin(lead)
    closed = closed_input.close(stream.context, "sums", typed)
    memory.marked_format = closed_inputs.PORTABLE_SINCE
    shutil.rmtree(closed)

    assert closed_input.close(stream.context, "sums", typed) == closed
    assert closed != closed_inputs.place_of(lead.storage, "job", "sums", typed)


def test_u3_a_job_that_failed_is_retried(
    lead: Lead, catalog: SnapshotCatalog, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U3: its cleanup keeps what a retry takes over, by one small object, whatever format its spec
    names; the retry has copies."""
    stream = begin(lead)
    give_a_format(lead)
    run(stream, 3)
    fence = lead.leadership.fence
    result = JobResult("job", JobStatus.FAILED, failure=Failure("exception", "it failed"))
    JobResultStore(lead.backend).create_dirty(result, fence)
    cleanup = JobCleanup(lead.backend, default_resources(lead.backend, lead.storage))
    assert cleanup.run("job", fence).problems == {}
    assert [one.at_end for one in catalog.list("job")] == [True]
    for prefix in (keys.STAGES, keys.STREAMS, keys.JOBS):
        assert list(lead.backend.scan(f"{prefix}job")) == []
    with pytest.raises(WrongState, match="nothing is left to take a snapshot of"):
        catalog.create("job")
    new_id = retry(catalog, "job", RetryRequest())

    assert new_id == "job.2"
    assert other(lead, "job.2") == {batch: f"rows {batch}" for batch in range(3)}
    again = retry(catalog, "job", RetryRequest(from_stage="sums", as_job="afresh"))
    assert heads.stored(lead.backend, again, "sums") is None
    assert not any(name.startswith("afresh/") for name in store.names())


def points_of(lead: Lead) -> RecoveryPoints:
    context: Any = SimpleNamespace(
        backend=lead.backend, storage=lead.storage, fence=lead.leadership.fence, emit=print,
        runtime=RUNTIME, trust=Trust(), historian=None, ages=None,
    )  # fmt: skip
    return RecoveryPoints(context)


def test_a_job_that_waits_can_be_started_after_its_snapshot(
    lead: Lead, catalog: SnapshotCatalog, store: Store
) -> None:
    """A snapshot or a fork of a job in the queue leaves an object, listed or not, and the job can
    still be started; so can the copy. What an attempt of an earlier life has left holds it."""
    points = points_of(lead)
    catalog.create("job")
    points.refuse_foreign_files("job")
    catalog.fork("job", "copy")
    store.fail(1, "delete")
    catalog.remove(catalog.get("job", 1))
    points.refuse_foreign_files("job")
    points.refuse_foreign_files("copy")

    assert store.names()
    assert catalog.list("job") == []
    assert lead.storage.objects is not None
    lead.storage.objects.put("job/data/e7.a1.ffff/sums/rows/0-part", b"of an earlier life")
    with pytest.raises(JobHeld, match="has objects of an earlier life"):
        points.refuse_foreign_files("job")


def test_a_copy_that_died_is_no_earlier_life(lead: Lead) -> None:
    """What a fork copied before its death nothing names; the id can be used all the same."""
    assert lead.storage.objects is not None
    points = points_of(lead)
    lead.storage.objects.put("job/data/r.ffff/sums/rows/0-part", b"half a copy")
    points.refuse_foreign_files("job")
    lead.storage.objects.put("job/data/e7.a1.ffff/sums/rows/0-part", b"of an earlier life")
    with pytest.raises(JobHeld, match="has objects of an earlier life"):
        points.refuse_foreign_files("job")


def test_objects_of_an_earlier_life_stay(lead: Lead, catalog: SnapshotCatalog) -> None:
    """No new job is made where they are: a later `gc` would take them for its garbage."""
    assert lead.storage.objects is not None
    record = catalog.create("job")
    lead.storage.objects.put("copy/data/e7.a1.ffff/sums/rows/0-part", b"of an earlier life")
    for make in (catalog.fork, lambda _, as_job: catalog.restore(record, as_job=as_job)):
        with pytest.raises(WrongState, match="copy/ has objects of an earlier life"):
            make("job", "copy")
    assert lead.backend.get(keys.JOBS + "copy") is None
    assert catalog.restore(record, as_job="other").job_id == "other"


def give_a_format(lead: Lead) -> SnapshotPolicy:
    """Have the job's spec name a format that its snapshots cannot have; return its policy."""
    stored = lead.backend.get(keys.JOBS + "job")
    assert stored is not None
    spec = decode(JobSpec, stored.value, stored.key)
    spec = attrs.evolve(spec, snapshots=attrs.evolve(spec.snapshots, format=SnapshotFormat.FULL))
    lead.backend.commit(Update(stored.key, encode(spec), stored.version))
    return spec.snapshots


def test_scheduled_snapshots(lead: Lead, catalog: SnapshotCatalog) -> None:
    """U9: none if nothing was committed since the newest. Their format is the one that is possible,
    and so is that of a fork."""
    stream = begin(lead)
    run(stream, 2)
    policy = give_a_format(lead)
    fence = lead.leadership.fence

    assert take_scheduled_snapshot(catalog, "job", policy, fence).said == "snapshot 1 is taken"
    assert take_scheduled_snapshot(catalog, "job", policy, fence).said == ""
    run(stream, 1)
    assert take_scheduled_snapshot(catalog, "job", policy, fence).said == "snapshot 2 is taken"
    assert [one.taken_by for one in catalog.list("job")] == [TakenBy.SYSTEM] * 2
    assert catalog.fork("job", "forked").job_id == "forked"


def test_the_references_count(lead: Lead) -> None:
    """Of two operations that were taken, one fails."""
    one, other = (object_order.next_op(lead.backend, "job") for _ in range(2))
    lead.backend.commit(one)
    with pytest.raises(Conflict):
        lead.backend.commit(other)
    lead.backend.commit(object_order.next_op(lead.backend, "job"))


def test_records_of_stages_are_those_of_then(lead: Lead, catalog: SnapshotCatalog) -> None:
    """A stream that has finished since runs again; its mark is taken back with it."""
    stream = begin(lead)
    run(stream, 2)
    record = catalog.create("job")
    run(stream, 1)
    mark = StageRecord("job", "sums", None, 1, 1, 0.0, 0.0)
    lead.backend.commit(Create(keys.stage("job", "sums"), encode(mark)))
    suspend(lead)
    catalog.restore(record)

    assert lead.backend.get(keys.stage("job", "sums")) is None
    found = heads.stored(lead.backend, "job", "sums")
    assert found is not None
    assert isinstance(found[0], StreamHead)
    assert found[0].batch == 1
