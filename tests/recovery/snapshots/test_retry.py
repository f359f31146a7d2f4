"""A retry: another job that takes over what the old one has finished (U3)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs import (
    Client,
    DuplicateJob,
    InvalidInput,
    JobSpec,
    NoSuchJob,
    SpecKey,
    WrongState,
)
from jrs.contract.backend import Backend
from jrs.contract.operations import Create, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.lineage import Lineage, LineageKind
from jrs.records.model import JobStatus, RunnerKind, StageRecord, StreamRecord
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files import epoch_folders
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.inspect.explain import explain
from jrs.recovery.rules.decision import Action
from jrs.recovery.snapshots import earlier_life, find_orphans, folders, reserve_and_swap
from jrs.store import restores
from jrs.store.opening import open_backend
from jrs.store.stops import JobStops
from tests.recovery.snapshots.fabricate import FakeJob, put, tree
from tests.recovery.snapshots.test_crashes import DEAD, Begin, in_a_child
from tests.recovery.support import CLUSTER, FaultyMemory, result
from tests.support import in_long_form

KEY = SpecKey(b"k" * 32)


@pytest.fixture
def client(memory: FaultyMemory, storage: JobStorage) -> Client:
    return Client(memory, storage=storage.root.parent)


def end(job: FakeJob, status: JobStatus = JobStatus.FAILED) -> None:
    """End the job, and clean up after it."""
    job.backend.commit(
        Create(keys.RESULTS + job.job_id, encode(result(job.job_id, status=status))),
        Create(keys.DIRTY + job.job_id, b""),
    )
    JobCleanup(job.backend, default_resources(job.backend, job.storage)).run(job.job_id, None)


def spec_of(backend: Backend, job_id: str) -> JobSpec:
    stored = backend.get(keys.JOBS + job_id)
    assert stored is not None
    return decode(JobSpec, stored.value, stored.key)


def update(job: FakeJob, **changes: Any) -> None:
    """Change the spec of a job that has not ended."""
    stored = job.backend.get(keys.JOBS + job.job_id)
    assert stored is not None
    spec = attrs.evolve(decode(JobSpec, stored.value, stored.key), **changes)
    job.backend.commit(Update(stored.key, encode(spec), stored.version))


@pytest.mark.parametrize("how", ["link", "full", "cas"])
def test_what_is_taken_over(client: Client, job: FakeJob, storage: JobStorage, how: str) -> None:
    """U3: the finished stage with its output, the stream at its newest batch with the same query,
    and the spec, in which changes are made; whatever plan the fixed code has (U11: in the format
    that the job has)."""
    update(job, snapshots=attrs.evolve(spec_of(client.backend, "job").snapshots, format=how))
    out = tree(job.out("typed"))
    end(job)
    (kept,) = client.job("job").snapshots.list()
    new = client.job("job").retry(entry="m:fixed", changed={"y": 2})

    assert (new.id, kept.format.value) == ("job.2", how)
    spec = spec_of(client.backend, "job.2")
    assert (spec.entry_point, spec.arguments) == ("m:fixed", {"x": 1, "y": 2})
    assert spec.lineage == Lineage("job", LineageKind.RETRY, 1)
    assert [one.descendant for one in client.job("job").descendants()] == ["job.2"]
    assert tree(storage.published("job.2", "typed", temporary=False)) == out
    (stage,) = new.view().stages
    assert (stage.name, stage.job_id, stage.result) == ("typed", "job.2", {"n": 1})
    ck = next(storage.folder("job.2").glob("e*/streams/hourly/ck"))
    assert job.query.id in (ck / "metadata").read_text()
    assert sorted(os.listdir(ck / "commits"))[-1] == "4"
    stream = client.backend.get(keys.stream("job.2", "hourly"))
    assert stream is not None
    assert decode(StreamRecord, stream.value, stream.key).plan == ""
    assert list(find_orphans(client.backend, storage)) == []
    assert client.job("job").result().status is JobStatus.FAILED


def test_the_same_code_may_have_another_plan(client: Client, job: FakeJob) -> None:
    """U3: the fault was fixed in the module that the entry point names already."""
    end(job, JobStatus.CANCELED)
    client.job("job").retry("again")

    stream = client.backend.get(keys.stream("again", "hourly"))
    assert stream is not None
    assert decode(StreamRecord, stream.value, stream.key).plan == ""


@pytest.mark.parametrize(
    ("stage", "kept"),
    [("b", ["a", "typed"]), ("a", []), ("typed", ["a"]), ("hourly", ["a", "b", "c", "typed"])],
)
def test_from_a_stage_on(
    client: Client, job: FakeJob, storage: JobStorage, stage: str, kept: list[str]
) -> None:
    """U3: what comes after it runs again, too: by order or as declared. A stream among them starts
    from its beginning, without the output that it had."""
    for number, name in enumerate(("a", "b", "c"), 1):
        after = ("typed",) if name == "a" and stage == "typed" else ()
        record = StageRecord("job", name, 1, 1, 3, 0.5, 10.0, order=number + 1, after=after)
        job.record(keys.stage("job", name), record)
    stored = job.backend.get(keys.stage("job", "typed"))
    assert stored is not None
    order = {"typed": 5, "a": 3}.get(stage, 1)
    typed = attrs.evolve(decode(StageRecord, stored.value, stored.key), order=order)
    job.backend.commit(Update(stored.key, encode(typed), stored.version))
    if stage == "typed":
        kept = ["b", "c"]
    end(job)
    new = client.job("job").retry(from_stage=stage)

    assert sorted(one.name for one in new.view().stages) == kept
    assert client.backend.get(keys.stream("job.2", "hourly")) is None
    assert not list(storage.folder("job.2").glob("**/hourly"))
    assert storage.published("job.2", "typed", temporary=False).exists() is ("typed" in kept)
    assert client.job("job").snapshots.verify(1).stages[0].batch == 4


def test_a_finished_job(client: Client, job: FakeJob) -> None:
    """U3: it is only run again from a stage on, if its snapshots were to be kept."""
    update(
        job, snapshots=attrs.evolve(spec_of(client.backend, "job").snapshots, on_finished="keep")
    )
    end(job, JobStatus.FINISHED)
    with pytest.raises(WrongState, match=r"has FINISHED.*--from-stage STAGE"):
        client.job("job").retry()
    with pytest.raises(InvalidInput, match=r"what has: typed, hourly"):
        client.job("job").retry(from_stage="nothing")
    assert client.job("job").retry(from_stage="hourly").view().stages[0].name == "typed"


def test_a_place_of_the_users_own(client: Client, job: FakeJob, tmp_path: Path) -> None:
    """U3: a stage that has published at a path is not run again while something is there."""
    (tmp_path / "table").mkdir()
    target = StageRecord(
        "job", "publish", 1, 1, 3, 0.5, 10.0, order=2, target=str(tmp_path / "table")
    )
    job.record(keys.stage("job", "publish"), target)
    end(job)
    with pytest.raises(InvalidInput, match="move it away first"):
        client.job("job").retry(from_stage="typed")
    assert client.job("job").retry().id == "job.2"
    (tmp_path / "table").rmdir()
    assert client.job("job").retry("new", from_stage="typed").view().stages == ()


def test_ids(client: Client, job: FakeJob) -> None:
    """U3: the next free id; a retry of JOB.2 is JOB.3; an id that is taken is refused, and the old
    job's result stays."""
    end(job)
    client.submit("m:f", id="job.2")
    with pytest.raises(DuplicateJob):
        client.job("job").retry("job.2")
    first = client.job("job").retry()
    assert first.id == "job.3"
    assert client.job("job").retry().id == "job.3"
    with pytest.raises(WrongState, match=r"in another way, as 'job\.3'"):
        client.job("job").retry(changed={"x": 2})
    assert client.job("job").retry("mine", changed={"x": 2}).id == "mine"
    end(FakeAgain(job, "job.3"))
    assert first.retry().id == "job.4"
    end(FakeAgain(job, "mine"))
    assert client.job("job").retry(changed={"x": 3}).id == "job.5"


def test_an_id_with_files_of_an_earlier_life(
    client: Client, job: FakeJob, storage: JobStorage
) -> None:
    """The cluster does not know that job any more; its output stays, and the next id is taken."""
    output = put(storage.published("job.2", "report", temporary=False) / "part", "the only copy")
    end(job)
    with pytest.raises(WrongState, match=r"job\.2 has files of an earlier life: out"):
        client.job("job").retry("job.2")

    assert client.job("job").retry().id == "job.3"
    assert output.read_text() == "the only copy"


def FakeAgain(job: FakeJob, job_id: str) -> Any:
    """A job that exists already, with what `end` needs of it."""
    return type("Job", (), {"backend": job.backend, "storage": job.storage, "job_id": job_id})


def test_a_fork_of_a_signed_job_is_refused_at_once(client: Client, job: FakeJob) -> None:
    """Before a snapshot is taken for it, and not once that was taken in vain."""
    spec = job.backend.get(keys.JOBS + "job")
    assert spec is not None
    job.backend.commit(Update(spec.key, KEY.sign(spec.value, "the spec"), spec.version))
    snapshots = [*client.job("job").snapshots.list()]

    with pytest.raises(InvalidInput, match="--spec-key FILE"):
        client.job("job").fork("copy")

    assert [*client.job("job").snapshots.list()] == snapshots
    assert all("snapshot" not in event.text for event in client.job("job").history())


def test_signed_specs(client: Client, job: FakeJob, storage: JobStorage) -> None:
    """U3: a retry of a signed job has to be signed, and is signed by the key."""
    stored = job.backend.get(keys.JOBS + "job")
    assert stored is not None
    job.backend.commit(Update(stored.key, KEY.sign(stored.value, "spec"), stored.version))
    end(job)
    with pytest.raises(InvalidInput, match="--spec-key FILE"):
        client.job("job").retry()
    Client(job.backend, storage=storage.root.parent, spec_key=KEY).job("job").retry(entry="m:g")

    made = job.backend.get(keys.JOBS + "job.2")
    assert made is not None
    assert KEY.has_signed(made.value, made.key)


def sign(job: FakeJob) -> None:
    stored = job.backend.get(keys.JOBS + "job")
    assert stored is not None
    job.backend.commit(Update(stored.key, KEY.sign(stored.value, "spec"), stored.version))


def end_as(job: FakeJob, spec: JobSpec) -> None:
    """End the job with that copy of its spec in the result, and clean up after it."""
    ended = attrs.evolve(result("job", status=JobStatus.FAILED), spec=spec)
    job.backend.commit(Create(keys.RESULTS + "job", encode(ended)), Create(keys.DIRTY + "job", b""))
    JobCleanup(job.backend, default_resources(job.backend, job.storage)).run("job", None)


@pytest.mark.parametrize("which", ["the end's", "an older"])
def test_a_signed_job_that_was_upgraded_while_it_ran(
    job: FakeJob, storage: JobStorage, which: str
) -> None:
    """The result has the spec that the attempt was started with, the snapshot of the end has the
    newest, also if its files are damaged."""
    sign(job)
    started = spec_of(job.backend, "job")
    client = Client(job.backend, storage=storage.root.parent, spec_key=KEY)
    client.job("job").snapshots.create(format=SnapshotFormat.FULL)
    job.run(1)
    JobStops(job.backend, spec_key=KEY).reconfigure("job", entry_point="m:v2", partitions=16)
    end_as(job, started)
    if which == "an older":
        put(folders.snapshot(storage, "job", 2) / "files/streams/hourly/ck/commits/5", "damaged")
    spec = spec_of(job.backend, client.job("job").retry().id)

    assert (spec.entry_point, spec.partitions) == ("m:v2", 16)
    assert spec.lineage is not None
    assert spec.lineage.snapshot == (1 if which == "an older" else 2)


def test_a_signed_spec_that_was_changed_since(job: FakeJob, storage: JobStorage) -> None:
    """A result is not signed: nobody signs for code that only a result names, nor for anything
    else that it says."""
    sign(job)
    client = Client(job.backend, storage=storage.root.parent, spec_key=KEY)
    client.job("job").snapshots.create(format=SnapshotFormat.FULL)
    put(job.query.ck / "commits/4", "damaged")  # No snapshot can be taken of the end.
    spec = spec_of(job.backend, "job")
    end_as(job, attrs.evolve(spec, entry_point="evil:f", partitions=32768))
    with pytest.raises(InvalidInput, match="only the former is signed: name what is to run"):
        client.job("job").retry()
    new = client.job("job").retry(entry="m:g").id

    assert spec_of(job.backend, new).entry_point == "m:g"
    assert spec_of(job.backend, new).partitions == spec.partitions


def test_a_snapshot_that_a_retry_does_not_use(client: Client, job: FakeJob) -> None:
    """It may be on a disk that is not mounted."""
    end(job)
    kept = client.job("job").snapshots.list()[0]
    away = attrs.evolve(kept, number=2, at_end=False, output=False, storage="/nowhere")
    job.backend.commit(Create(keys.snapshot("job", 2), encode(away)))
    client.results.delete("job")

    assert client.job("job").retry().id == "job.2"


def test_an_id_that_is_taken_meanwhile(
    client: Client, job: FakeJob, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a job that began while they were looked for are of no earlier life."""
    end(job)
    look = earlier_life.found

    def slow(backend: Backend, place: JobStorage, job_id: str) -> str:
        monkeypatch.setattr(earlier_life, "found", look)
        assert client.job("job").retry(job_id).id == job_id  # By another process.
        return look(backend, place, job_id)

    monkeypatch.setattr(earlier_life, "found", slow)
    assert client.job("job").retry().id == "job.2"

    def begins(backend: Backend, place: JobStorage, job_id: str) -> str:
        client.submit("m:f", id=job_id)
        put(storage.published(job_id, "report", temporary=False) / "part", "new")
        return look(backend, place, job_id)

    monkeypatch.setattr(earlier_life, "found", begins)
    with pytest.raises(DuplicateJob):
        client.job("job").retry("other", changed={"x": 2})


def test_a_running_retry_is_not_looked_at(
    client: Client, job: FakeJob, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the folder of the id that the next retry may get is listed; one that goes away
    meanwhile has nothing in it."""
    end(job)
    client.submit("m:f", id="job.2")
    put(storage.epoch_folder("job.3", 1) / "streams" / "x", "left")
    seen = []
    of_job = epoch_folders.of_job

    def withdrawn(folder: Path) -> dict[int, Path]:
        seen.append(folder.name)
        found = of_job(folder)
        for path in found.values():
            path.rename(path.with_name(f".{path.name}.gone"))
        return found

    monkeypatch.setattr(epoch_folders, "of_job", withdrawn)
    assert client.job("job").retry().id == "job.3"
    assert set(seen) == {"job.3"}


def test_what_cannot_be_retried(client: Client, job: FakeJob) -> None:
    """Each refusal changes nothing."""
    with pytest.raises(NoSuchJob):
        client.job("nobody").retry()
    with pytest.raises(WrongState, match="has not ended"):
        client.job("job").retry()
    update(job, entry_point="driver:main")
    job.backend.commit(
        Create(keys.RESULTS + "job", encode(result("job", status=JobStatus.FAILED))),
        Create(keys.DIRTY + "job", b""),
    )
    with pytest.raises(WrongState, match="has not kept yet"):
        client.job("job").retry(timeout=0)
    JobCleanup(job.backend, default_resources(job.backend, job.storage)).run("job", None)
    with pytest.raises(InvalidInput, match="only its application can run"):
        client.job("job").retry()
    with pytest.raises(InvalidInput, match="not JSON"):
        client.job("job").retry(entry="m:f", changed={"x": float("nan")})
    assert [one.id for one in client.jobs()] == ["job"]


@pytest.mark.parametrize("how", ["retry", "fork", "restore"])
def test_a_new_job_is_a_submission_of_its_own(client: Client, job: FakeJob, how: str) -> None:
    """It is part of no application, so no leader cancels it because that has ended; it waits in the
    queue behind those that were submitted before."""
    old = {"submitted_at": 1.0, "submitted_by": "old", "traceparent": f"00-{1:032x}-{1:016x}-01"}
    update(job, application="nightly", **old)
    snapshot = client.job("job").snapshots.create()
    client.submit("m:f", id="waits")
    ended = {"nightly": result("nightly", status=JobStatus.FAILED)}
    job.backend.commit(*(Create(keys.RESULTS + name, encode(one)) for name, one in ended.items()))
    if how == "fork":
        client.job("job").fork("job.2")
    elif how == "restore":
        client.job("job").snapshots.restore(snapshot.number, as_id="job.2")
    else:
        end(job)
        client.job("job").retry()

    new, waits = spec_of(client.backend, "job.2"), spec_of(client.backend, "waits")
    assert (new.application, new.traceparent, new.submitted_by) == ("", "", waits.submitted_by)
    assert new.submitted_at >= waits.submitted_at
    assert new.arguments == {"x": 1}
    view = client.job("job.2").view()
    assert explain(client.backend, view).action is not Action.CANCEL


def test_what_only_an_application_can_run(client: Client, job: FakeJob) -> None:
    """Nothing else can: a fork is refused before anything is written, and a retry needs an entry
    point, which no master runs inside its own process."""
    own = {"entry_point": "driver:job", "runner": RunnerKind.THREAD, "function": "m:main"}
    update(job, application="nightly", **own)
    before = tree(job.storage.root)
    with pytest.raises(InvalidInput, match="only its application can run job 'job'"):
        client.job("job").fork("forked")
    assert tree(job.storage.root) == before
    snapshot = client.job("job").snapshots.create()
    with pytest.raises(InvalidInput, match="jrs retry job --entry"):
        client.job("job").snapshots.restore(snapshot.number, as_id="restored")
    assert [one.id for one in client.jobs()] == ["job"]
    client.job("job").snapshots.restore(snapshot.number)
    assert spec_of(client.backend, "job").application == "nightly"
    end(job)
    new = spec_of(client.backend, client.job("job").retry(entry="m:f").id)
    assert (new.entry_point, new.runner, new.function, new.application) == (
        "m:f", RunnerKind.PROCESS, "", "",
    )  # fmt: skip


def test_a_damaged_snapshot(client: Client, job: FakeJob) -> None:
    """U3: the newest usable state is taken, and what was passed over is said; also of a job whose
    result was expired."""
    client.job("job").snapshots.create(format=SnapshotFormat.FULL)
    job.run(1)
    end(job)
    put(folders.snapshot(job.storage, "job", 2) / "files/streams/hourly/ck/commits/5", "damaged")
    client.results.delete("job")
    skipped: list[int] = []
    new = client.job("job").retry(skipped=lambda record, why: skipped.append(record.number))

    lineage = spec_of(client.backend, new.id).lineage
    assert lineage is not None
    assert (skipped, lineage.snapshot) == ([2], 1)
    client.job("job").snapshots.delete(1)
    client.job("job").snapshots.delete(2)
    with pytest.raises(WrongState, match="nothing is kept of job 'job'"):
        client.job("job").retry("another")


@pytest.mark.parametrize("how", ["copied", "left out", "expired"])
def test_an_older_snapshot_than_the_last_upgrade(client: Client, job: FakeJob, how: str) -> None:
    """Only the state is of the snapshot: the new job runs the code that the old one ran last."""
    job.suspend()
    client.job("job").snapshots.create(format=SnapshotFormat.FULL)
    upgraded = JobStops(job.backend).reconfigure("job", entry_point="m:v2", partitions=16)
    client.job("job").snapshots.create(format=SnapshotFormat.FULL)
    put(folders.snapshot(job.storage, "job", 2) / "files/streams/hourly/ck/commits/4", "damaged")
    # No snapshot can be taken of the end.
    put(job.query.ck / "commits/4", "damaged")
    ended = result("job", status=JobStatus.FAILED)
    copy = None if how == "left out" else attrs.evolve(upgraded, arguments={})
    ended = attrs.evolve(ended, spec=copy, arguments_left_out=True)
    job.backend.commit(Create(keys.RESULTS + "job", encode(ended)), Create(keys.DIRTY + "job", b""))
    JobCleanup(job.backend, default_resources(job.backend, job.storage)).run("job", None)
    if how == "expired":
        client.results.delete("job")
    new = client.job("job").retry()

    spec = spec_of(client.backend, new.id)
    assert (spec.entry_point, spec.partitions, spec.arguments) == ("m:v2", 16, {"x": 1})
    assert spec.lineage is not None
    assert spec.lineage.snapshot == 1


def test_forks_and_restores_have_a_lineage(client: Client, job: FakeJob) -> None:
    """U3: a fork likewise, in both directions."""
    client.job("job").fork("forked")
    record = client.job("job").snapshots.create()
    client.job("job").snapshots.restore(record.number, as_id="restored")

    made = {one.descendant: one.how.value for one in client.job("job").descendants()}
    assert made == {"forked": "fork", "restored": "restore"}
    assert str(spec_of(client.backend, "restored").lineage) == (
        f"restore of job 'job', from snapshot {record.number}"
    )


@contextmanager
def interrupted_by_the_swap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End what restores a job once it has reserved the job."""

    def dies(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(reserve_and_swap, "swap", dies)
        yield


def test_one_that_was_interrupted(
    client: Client, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U3: a repeat completes it, and forgets nothing of what was asked for."""
    job.record(keys.stage("job", "late"), StageRecord("job", "late", 1, 1, 3, 0.5, 1.0, order=9))
    end(job)

    def retry() -> str:
        return client.job("job").retry(from_stage="late", changed={"y": 1}).id

    with interrupted_by_the_swap(monkeypatch):
        retry()
    assert restores.of_job(client.backend, "job.2") is not None
    assert retry() == "job.2"
    assert restores.of_job(client.backend, "job.2") is None
    assert spec_of(client.backend, "job.2").arguments == {"x": 1, "y": 1}
    assert [stage.name for stage in client.job("job.2").view().stages] == ["typed"]


def test_one_that_was_interrupted_and_whose_snapshot_was_damaged_since(
    client: Client, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The retry that is held is what stands in the way, and no older snapshot is called damaged.
    Once it is canceled, another retry begins from that."""
    client.job("job").snapshots.create(format=SnapshotFormat.FULL)
    job.run(1)
    end(job)
    with interrupted_by_the_swap(monkeypatch):
        client.job("job").retry()
    put(folders.snapshot(job.storage, "job", 2) / "files/streams/hourly/ck/commits/5", "damaged")
    skipped: list[int] = []

    def retry() -> Any:
        return client.job("job").retry(skipped=lambda record, why: skipped.append(record.number))

    with pytest.raises(WrongState, match=r"'job.2' is held .*snapshot 2 .*: jrs cancel job.2, "):
        retry()
    assert skipped == []
    ended = encode(result("job.2", status=JobStatus.CANCELED))
    job.backend.commit(Create(keys.RESULTS + "job.2", ended), Create(keys.DIRTY + "job.2", b""))
    new = retry()

    lineage = spec_of(client.backend, new.id).lineage
    assert lineage is not None
    assert (new.id, skipped, lineage.snapshot) == ("job.3", [2], 1)


# -- death ---------------------------------------------------------------------------------


class Site:
    """A cluster with a job that has failed, which is to be retried and whose end is cleaned up."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = (root / "store").as_uri()
        self.storage = JobStorage(root / "jobs", CLUSTER)

    def make(self) -> None:
        with open_backend(self.url, cluster=CLUSTER) as backend:
            job = FakeJob(backend, self.storage)
            job.query.partitions = 1
            job.run(2)
            late = StageRecord("job", "late", 1, 1, 3, 0.5, 1.0, order=9)
            job.record(keys.stage("job", "late"), late)
            job.backend.commit(
                Create(keys.RESULTS + "job", encode(result("job", status=JobStatus.FAILED))),
                Create(keys.DIRTY + "job", b""),
            )

    def do(self, backend: Backend) -> None:
        client = Client(backend, storage=self.storage.root.parent)
        JobCleanup(backend, default_resources(backend, self.storage)).run("job", None)
        client.job("job").retry(from_stage="late", changed={"y": 1})
        client.gc(older_than=0)

    def work(self, begin: Begin) -> None:
        with open_backend(self.url, cluster=CLUSTER) as backend:
            begin()
            self.do(backend)

    def check(self) -> None:
        """Repeat it, and check that nothing is lost and nothing is there twice."""
        with open_backend(self.url, cluster=CLUSTER) as backend:
            client = Client(backend, storage=self.storage.root.parent)
            self.do(backend)
            assert client.results.has_clean("job")
            assert [one.id for one in client.jobs()] == ["job", "job.2"]
            (kept,) = client.job("job").snapshots.list()
            client.job("job").snapshots.verify(kept.number)
            assert kept.at_end
            assert kept.stages[0].batch == 1
            assert spec_of(backend, "job.2").arguments == {"x": 1, "y": 1}
            assert [stage.name for stage in client.job("job.2").view().stages] == ["typed"]
            assert restores.of_job(backend, "job.2") is None
            new = self.storage.published("job.2", "typed", temporary=False)
            assert new.joinpath("table.parquet").read_bytes() == b"typed rows"
            assert list(find_orphans(backend, self.storage)) == []
            assert backend.get(keys.stage("job", "typed")) is None
            before = tree(self.storage.root)
            self.do(backend)
            assert tree(self.storage.root) == before


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Callable[[], Site]]:
    """Places, each as the first one was when it was made."""
    saved = tmp_path / "saved"
    made = Site(tmp_path / "place")
    made.make()
    made.root.rename(saved)

    def renewed() -> Site:
        shutil.rmtree(made.root, ignore_errors=True)
        shutil.copytree(saved, made.root, symlinks=True)
        return made

    return renewed  # type: ignore[return-value]


def test_death_at_every_step(place: Callable[[], Site]) -> None:
    """U3, U19: whatever the step of a cleanup, a retry and a collection of garbage, a repeat of all
    three completes them: nothing is lost, and nothing is there twice."""
    code, step = DEAD, 0
    while code == DEAD:
        step += 1 if step < 12 or in_long_form(1, 0) else 7
        at = place()
        code = in_a_child(step, at.work)
        at.check()
    assert (code, step > 40) == (0, True)


@pytest.mark.soak
def test_death_at_random_moments(place: Callable[[], Site]) -> None:
    """U3, U19: the same with `kill -9`, 200 times."""
    killed, longest = 0, 0.5
    choose = random.Random(20261122)
    for _ in range(200):
        at = place()
        sys.stdout.flush()
        began = time.monotonic()
        child = os.fork()
        if not child:
            try:
                at.work(lambda *more: None)
            finally:
                os._exit(0)
        time.sleep(choose.random() * longest)  # The moment is what is random.
        os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL:
            killed += 1
        else:
            longest = max(0.05, 0.9 * min(longest, time.monotonic() - began))
        at.check()
    assert killed > 100
