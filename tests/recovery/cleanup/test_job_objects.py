"""What becomes of a job's objects: its output stays, and all else goes, once it has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jrs.contract.errors import Fenced, NotFound, Unavailable
from jrs.contract.operations import Create, Delete, Fence, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import JobResult, JobStatus, StageRecord
from jrs.records.snapshots import RestoreRecord, TakenBy
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.job_objects import JobObjects, index_in
from jrs.recovery.cleanup.object_garbage import ObjectGarbage
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.inspect.fsck import fsck
from jrs.recovery.inspect.object_check import missing
from jrs.recovery.inspect.output_files import output_files
from jrs.recovery.rules.resource import GivenUp
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.recovery.storage.objects import Objects
from jrs.store import attempt_fence
from jrs.store.result_store import JobResultStore
from tests.recovery.attempt.objects_attempt import begin, head, manifest
from tests.recovery.lead import Lead
from tests.recovery.storage.support import Store


@pytest.fixture
def objects(lead: Lead) -> Objects:
    assert lead.storage.objects is not None
    return lead.storage.objects


@pytest.fixture
def cleaner(lead: Lead, objects: Objects) -> JobObjects:
    return JobObjects(lead.backend, objects)


def write(stage: Any) -> str:
    (stage.output / "a.txt").write_text(stage.name)
    return str(stage.name)


def run(lead: Lead) -> None:
    """Run a job with two batch stages, one of them temporary, and a stream."""
    stream = begin(lead)
    for _ in range(5):
        stream.batch()
    attempt = AttemptRun(lead.context(1))
    attempt.job.stage("kept", write)
    attempt.job.stage("gone", write, temporary=True)


def clean(lead: Lead, cleaner: JobObjects, *, records: bool = True) -> None:
    cleaner.clean_fenced("job", lead.leadership.fence)
    if records:
        for prefix in (keys.stages("job"), keys.heads("job"), keys.JOBS, keys.streams("job")):
            for record in list(lead.backend.scan(prefix)):
                lead.backend.commit(Delete(record.key))


def end(lead: Lead) -> dict[str, str]:
    """End the job, and clean up after it; return the problems."""
    records = lead.backend.scan(keys.stages("job"))
    stages = tuple(
        decode(StageRecord, one.value, one.key).summary() for one in records if one.value != b"?"
    )
    fence = lead.leadership.fence
    result = JobResult("job", JobStatus.FINISHED, stages=stages)
    JobResultStore(lead.backend).create_dirty(result, fence)
    cleanup = JobCleanup(lead.backend, default_resources(lead.backend, lead.storage))
    return cleanup.run("job", fence).problems


def finish_stream(lead: Lead) -> None:
    record = StageRecord("job", "sums", None, 1, 1, 0.0, 0.0, has_rows=True)
    lead.backend.commit(Create(keys.stage("job", "sums"), encode(record)))


def test_the_output_stays(lead: Lead, cleaner: JobObjects, objects: Objects, store: Store) -> None:
    run(lead)
    rows = {one.object for one in manifest(lead).files}
    checkpoint = {one.object for one in manifest(lead).checkpoint}
    clean(lead, cleaner)
    left = store.names()

    assert "job/outputs" in left
    assert rows < set(left)
    assert not checkpoint & set(left)
    assert not any("/gone/" in name or "/ck/" in name for name in left)
    index = index_in(objects, "job")
    assert index is not None
    assert (list(index.stages), list(index.streams)) == (["kept"], ["sums"])
    assert cleaner.describe("job") == []


def test_a_pass_that_died_is_repeated(lead: Lead, cleaner: JobObjects, store: Store) -> None:
    """Also after the records are gone: the list of the output was written first."""
    run(lead)
    store.fail(1, "delete")
    with pytest.raises(Unavailable):
        clean(lead, cleaner)
    clean(lead, cleaner)
    before = store.names()
    clean(lead, cleaner)

    assert store.names() == before


def test_a_record_that_cannot_be_read_keeps_everything(
    lead: Lead, cleaner: JobObjects, store: Store
) -> None:
    """It is not known what it names: the cleanup continues without the objects, and says so. The
    rest of the output is listed."""
    run(lead)
    before = store.names()
    lead.backend.commit(Create(keys.stage("job", "damaged"), b"?"))
    for _ in range(2):
        with pytest.raises(GivenUp, match="all objects of the job are kept"):
            clean(lead, cleaner)

    assert store.names() == sorted([*before, "job/outputs"])
    assert cleaner.describe("job")


def test_a_list_of_output_gets_what_it_lacks(
    lead: Lead, cleaner: JobObjects, objects: Objects
) -> None:
    """A record that could not be read in an earlier pass, and was repaired."""
    run(lead)
    key = keys.stage("job", "kept")
    stored = lead.backend.get(key)
    assert stored is not None
    lead.backend.commit(Update(key, b"?", stored.version))
    with pytest.raises(GivenUp):
        clean(lead, cleaner)
    lead.backend.commit(Delete(key), Create(keys.head("job", "damaged"), b"?"))
    lead.backend.commit(Create(key, stored.value))
    with pytest.raises(GivenUp):
        clean(lead, cleaner)
    index = index_in(objects, "job")

    assert index is not None
    assert (list(index.stages), list(index.streams)) == (["kept"], ["sums"])


def the_manifest_of_a_snapshot(lead: Lead, store: Store) -> None:
    record = SnapshotCatalog(lead.backend, lead.storage).create("job")
    assert record.objects is not None
    store.remove(record.objects.name)


def a_plan(lead: Lead, store: Store) -> None:
    lead.backend.commit(Create(keys.plan("job", "calls"), b"?"))


def an_input(lead: Lead, store: Store) -> None:
    lead.backend.commit(Create(f"{keys.INPUTS}job/sums", b"?"))


def the_record_of_a_stage(lead: Lead, store: Store) -> None:
    lead.backend.commit(Create(keys.stage("job", "damaged"), b"?"))


def the_manifest_of_a_stage(lead: Lead, store: Store) -> None:
    (name,) = (one for one in store.names() if "/gone/" in one and one.endswith("-manifest"))
    store.remove(name)


@pytest.mark.parametrize(
    "damage",
    [
        the_manifest_of_a_snapshot,
        a_plan,
        an_input,
        the_record_of_a_stage,
        the_manifest_of_a_stage,
    ],
)
def test_damage_elsewhere_costs_no_output(
    lead: Lead, store: Store, damage: Callable[[Lead, Store], None]
) -> None:
    """Whatever else of a job is damaged when it ends: its output can be read afterwards."""
    run(lead)
    damage(lead, store)
    assert end(lead) == {}

    def files(stage: str) -> int:
        return len(output_files(lead.backend, lead.storage, "job", stage, "").objects)

    assert not JobResultStore(lead.backend).has_dirty("job")
    assert list(lead.backend.scan(keys.heads("job"))) == []
    assert (files("sums"), files("kept")) == (5, 1)


def test_a_replaced_leader_deletes_nothing(lead: Lead, cleaner: JobObjects, store: Store) -> None:
    run(lead)
    before = store.names()
    old = Fence(0, lead.leadership.fence.version - 1)
    with pytest.raises(Fenced):
        cleaner.clean_fenced("job", old)

    assert set(store.names()) == {*before, "job/outputs"}


def test_a_job_without_objects(lead: Lead, cleaner: JobObjects, store: Store) -> None:
    clean(lead, cleaner)

    assert store.names() == []
    assert "objects" in {one.name for one in default_resources(lead.backend, lead.storage)}


def test_a7_a_snapshot_of_the_user_stays(lead: Lead, cleaner: JobObjects, store: Store) -> None:
    """A7: what it names is not removed with the job."""
    run(lead)
    catalog = SnapshotCatalog(lead.backend, lead.storage)
    record = catalog.create("job")
    clean(lead, cleaner)

    assert catalog.verify("job", 1) == record


def test_the_snapshots_of_the_job_go_with_their_checkpoints(
    lead: Lead, objects: Objects, store: Store
) -> None:
    """What only snapshots of the system named is no longer stored once the job has FINISHED. One
    that a restore has begun to read stays, and all that it names."""
    stream = begin(lead)
    stream.batch()
    catalog = SnapshotCatalog(lead.backend, lead.storage)
    record = catalog.create("job", taken_by=TakenBy.SYSTEM)
    stream.batch()
    restore = RestoreRecord("copy", str(record.number), "job", 1.0)
    lead.backend.commit(Create(keys.RESTORES + "copy", encode(restore)))
    before = store.names()
    assert set(end(lead)) == {"snapshots"}
    assert store.names() == before
    lead.backend.commit(Delete(keys.RESTORES + "copy"))

    assert end(lead) == {}
    assert catalog.list("job") == []
    left = store.names()
    assert not any("/ck/" in name or name.startswith("job/data/s") for name in left)
    garbage = ObjectGarbage(lead.backend, objects)
    ever = float("inf")
    assert garbage.sweep_unnamed("job", ever, ended=True, dry_run=True) == []


def test_late_objects_of_a_job_that_has_ended(
    lead: Lead, cleaner: JobObjects, objects: Objects, store: Store
) -> None:
    """What an attempt that was shut out uploads behind the cleanup, `gc` finds and removes."""
    run(lead)
    clean(lead, cleaner)
    before = store.names()
    late = "job/data/e1.a1.ffff/sums/rows/9-part.parquet"
    objects.put(late, b"a zombie's")
    garbage = ObjectGarbage(lead.backend, objects)
    ever = float("inf")
    assert garbage.sweep_unnamed("job", 0.0, ended=True, dry_run=False) == []
    found = garbage.sweep_unnamed("job", ever, ended=True, dry_run=True)
    assert [one.name for one in found] == [late]
    assert late in store.names()
    garbage.sweep_unnamed("job", ever, ended=True, dry_run=False)

    assert store.names() == before
    assert lead.backend.get(keys.REFERENCES + "job") is None


def test_a2_a_sweep_leaves_what_a_living_attempt_is_about_to_name(
    lead: Lead, objects: Objects, store: Store
) -> None:
    """A2: its uploads are named by no record yet. Those of attempts that were shut out never will
    be."""
    stream = begin(lead)
    for _ in range(3):
        stream.batch()
    uploads = stream.context.uploads
    uploads.writer.put_record("sums/ck", manifest(lead))
    uploads.writer.put_record("report/out", manifest(lead))
    about = {name for name in store.names() if name.endswith("-manifest")}
    garbage = ObjectGarbage(lead.backend, objects)
    ever = float("inf")
    assert garbage.sweep_unnamed("job", ever, ended=False, dry_run=False) == []
    assert about <= set(store.names())
    attempt_fence.shut_out(lead.backend, "job", lead.leadership.fence)
    swept = {one.name for one in garbage.sweep_unnamed("job", ever, ended=False, dry_run=False)}

    assert {name for name in about if "/batch/" not in name} <= swept
    assert {one.object for one in manifest(lead).checkpoint} <= set(store.names())


# -- reading it ----------------------------------------------------------------------------------


def test_files_while_it_runs_and_after_its_end(lead: Lead, cleaner: JobObjects) -> None:
    """The same objects, by the records and by the list that is left; hidden files are left out."""
    run(lead)

    def files(stage: str, since: str = "") -> Any:
        return output_files(lead.backend, lead.storage, "job", stage, since)

    found = files("sums")
    assert [one.name.partition("/")[0] for one in found.objects] == [
        f"batch={batch}" for batch in range(5)
    ]
    assert found.cursor == "g1.b4"
    assert files("sums", "g1.b2").objects == found.objects[3:]
    assert files("sums", found.cursor).objects == ()
    assert [one.name for one in files("kept").objects] == ["a.txt"]
    assert all(one.url.startswith("s3://bucket/prefix/") for one in found.objects)
    with pytest.raises(Exception, match=r"are objects, such as s3://.*use \.objects"):
        _ = found.paths


def test_a_batch_without_rows_may_change(lead: Lead) -> None:
    """It may be planned again with some: the cursor does not pass it."""
    stream = begin(lead)
    stream.batch()
    stream.plan()
    stream.committer.commit(1, [])
    found = output_files(lead.backend, lead.storage, "job", "sums", "")

    assert head(lead).batch == 1
    assert found.cursor == "g1.b0"


def test_a_stage_that_has_not_finished(lead: Lead) -> None:
    begin(lead)
    found = output_files(lead.backend, lead.storage, "job", "kept", "")
    assert (found.objects, found.paths) == ((), ())
    record = StageRecord("job", "empty", None, 1, 1, 0.0, 0.0)
    lead.backend.commit(Create(keys.stage("job", "empty"), encode(record)))

    assert output_files(lead.backend, lead.storage, "job", "empty", "").objects == ()


def test_output_that_was_removed_is_told_from_none(
    lead: Lead, store: Store, objects: Objects
) -> None:
    """Without its list, nothing names the output of a job that has ended: a reader and fsck say so.
    Once retention has removed all of it, fsck does not."""
    run(lead)
    finish_stream(lead)
    assert end(lead) == {}
    assert list(missing(lead.backend, lead.storage)) == []
    store.remove("job/outputs")

    for stage in ("sums", "kept"):
        with pytest.raises(
            NotFound, match=f"the output of stage '{stage}' of job 'job', which has"
        ):
            output_files(lead.backend, lead.storage, "job", stage, "")
    assert output_files(lead.backend, lead.storage, "job", "gone", "").objects == ()
    (line,) = fsck(lead.backend, lead.storage).damaged
    assert line.startswith(f"{objects.url}/job/outputs is missing; without it, nothing names")
    objects.delete([one.name for one in objects.under("job")])
    assert fsck(lead.backend, lead.storage).damaged == ()


def test_files_while_the_records_are_removed(lead: Lead, cleaner: JobObjects) -> None:
    """The head of a stream is removed before the record of its end: the list has its output."""
    run(lead)
    finish_stream(lead)
    result = JobResult("job", JobStatus.FINISHED)
    JobResultStore(lead.backend).create_dirty(result, lead.leadership.fence)
    clean(lead, cleaner, records=False)
    lead.backend.commit(Delete(keys.head("job", "sums")))

    assert len(output_files(lead.backend, lead.storage, "job", "sums", "").objects) == 5


# -- checking it ---------------------------------------------------------------------------------


def test_fsck_names_what_is_missing(
    lead: Lead, cleaner: JobObjects, store: Store, objects: Objects
) -> None:
    """While the job runs, and once it has ended."""
    run(lead)
    SnapshotCatalog(lead.backend, lead.storage).create("job")
    assert list(missing(lead.backend, lead.storage)) == []
    manifests = [name for name in store.names() if name.endswith("-manifest") and "/out/" in name]
    store.remove(manifests[0])
    assert [line.split(" ")[0] for line in missing(lead.backend, lead.storage)] == [
        f"{objects.url}/{manifests[0]}"
    ] * 2  # The job names it, and its snapshot.
    damaged = fsck(lead.backend, lead.storage).damaged
    assert any("is missing; job 'job' needs it" in line for line in damaged)
