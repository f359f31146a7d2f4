"""Publishing at a place of the user's own: once, whole, never over anything, by the leader."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Fenced, InvalidInput, JobHeld, Unavailable, WrongState
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobSpec, JobStatus, Json, StageRecord
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.job import Job, Stage
from jrs.recovery.attempt.run import run_attempt
from jrs.recovery.cleanup.half_published import HalfPublished
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files import publish_at_path
from jrs.recovery.inspect.fsck import left_over
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import file_sink, put, tree
from tests.recovery.snapshots.test_crashes import DEAD, Begin, in_a_child
from tests.recovery.support import CLUSTER, result, spoil

ONE = {"part": b"first"}
BOTH = {"first/part": b"first", "second/deep/part": b"second"}
COPY = (shutil, "copyfile")


@pytest.fixture
def lead(file_backend: Backend, tmp_path: Path) -> Lead:
    return Lead(file_backend, tmp_path / "jobs")


@pytest.fixture
def file_backend(tmp_path: Path) -> Iterator[Backend]:
    with open_backend((tmp_path / "store").as_uri(), cluster=CLUSTER) as backend:
        yield backend


@contextmanager
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder on another filesystem: in memory, or on the disk if the tests are in memory."""
    here = os.stat(tmp_path).st_dev
    other = next(place for place in ("/dev/shm", "/var/tmp") if os.stat(place).st_dev != here)
    with tempfile.TemporaryDirectory(dir=other) as name:
        yield Path(name)


@pytest.fixture(params=["here", "on another filesystem"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder to publish in."""
    if request.param == "here":
        (tmp_path / "warehouse").mkdir()
        yield tmp_path / "warehouse"
        return
    with elsewhere(tmp_path) as folder:
        yield folder


def first(stage: Stage) -> Json:
    (stage.output / "part").write_text("first")
    return 1


def second(stage: Stage) -> Json:
    (stage.output / "deep").mkdir()
    (stage.output / "deep" / "part").write_text("second")
    return 2


def both(job: Job, place: str) -> Json:
    return job.publish(place, job.stage("first", first), job.stage("second", second)).result()


def one(job: Job, place: str) -> Json:
    return job.publish(place, job.stage("first", first)).result()


def refused(lead: Lead, path: object) -> str:
    with pytest.raises(InvalidInput) as raised:
        one(lead.job(), str(path))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_one_stage_is_published_as_it_is(lead: Lead, place: Path) -> None:
    """F7: the output of one stage is what is at the path, and stays in its own place, too."""
    job = lead.job()
    done = job.publish(place / "table", job.stage("first", first))

    assert done.result() == {"files": 1, "bytes": 5}
    assert done.output == place / "table"
    assert tree(place) == {"table/part": b"first"}
    assert lead.published() == {"out/first/part": "first"}
    assert stat_mode(place / "table") == stat_mode(place.parent / "plain")


def stat_mode(path: Path) -> int:
    """Return the permissions of a folder; made if it is not there."""
    path.mkdir(exist_ok=True)
    mode = path.stat().st_mode
    if path.name == "plain":
        path.rmdir()
    return mode


def test_several_stages_appear_together(lead: Lead, place: Path) -> None:
    """F6, F7: the output of several stages is in one folder, which appears as a whole; the next
    attempt finds it published, wherever it has been moved by then.
    """
    both(lead.job(), str(place / "table"))
    assert tree(place / "table") == BOTH

    (place / "table").rename(place / "consumed")
    assert both(lead.job(2), str(place / "table")) == {"files": 2, "bytes": 11}
    assert sorted(path.name for path in place.iterdir()) == ["consumed"]


def test_what_cannot_be_published(lead: Lead, tmp_path: Path) -> None:
    """What is there is never overwritten, and each refusal says why."""
    put(tmp_path / "there" / "file", "the user's own")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("nowhere")

    assert "the path exists already" in refused(lead, tmp_path / "there")
    assert "the path exists already" in refused(lead, tmp_path / "there" / "file")
    assert "the path exists already" in refused(lead, tmp_path / "empty")
    assert "the path exists already" in refused(lead, tmp_path / "link")
    assert "there is no folder" in refused(lead, tmp_path / "no" / "folder")
    assert "there is no folder" in refused(lead, tmp_path / "there" / "file" / "table")
    assert "there is no folder" in refused(lead, tmp_path / ("a" * 300) / "table")
    assert "its name is too long" in refused(lead, tmp_path / ("a" * 300))
    assert "not an absolute path" in refused(lead, "table")
    assert "not an absolute path" in refused(lead, tmp_path / "empty" / ".." / "table")
    assert "jobs keep their own files there" in refused(lead, lead.folder / "table")
    job = lead.job()
    with pytest.raises(InvalidInput, match="name the stages"):
        job.publish(tmp_path / "table")
    with pytest.raises(InvalidInput, match="'nobody', which does not exist yet"):
        job.publish(tmp_path / "table", "nobody")
    silent = job.stage("silent", lambda stage: None)
    with pytest.raises(InvalidInput, match="'silent' has no output"):
        job.publish(tmp_path / "table", silent, name="quiet")
    with pytest.raises(InvalidInput, match="two stages of job 'job' are named 'silent'"):
        job.publish(tmp_path / "table", silent, name="silent")
    assert tree(tmp_path / "there") == {"file": b"the user's own"}
    assert not (tmp_path / "table").exists()


def test_taken_in_this_moment(lead: Lead, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put there behind the last look stays, and the job says that it could not publish."""
    move = publish_at_path._move

    def late(whole: Path, target: Path, job_id: str, epoch: int) -> None:
        put(target / "file", "the user's own")
        move(whole, target, job_id, epoch)

    monkeypatch.setattr(publish_at_path, "_move", late)
    with pytest.raises(InvalidInput, match="something else was put there meanwhile"):
        one(lead.job(), str(place / "table"))
    assert tree(place) == {"table/file": b"the user's own"}


@pytest.mark.parametrize("there", ["first", "other"])
def test_only_the_same_is_taken_for_published(lead: Lead, place: Path, there: str) -> None:
    """What has the names and the sizes of what is to be published, but not its bytes, is the
    user's own: nothing is taken for published, and nothing is thrown away for it.
    """
    record = StageRecord("job", "publish", None, 1, 1, 0.1, 1.0, "staged", target=f"{place}/table")
    staged = lead.storage.epoch_folder("job", lead.leadership.epoch) / "staged"
    put(staged / "deep" / "part", "first")
    put(place / "table" / "deep" / "part", there)
    if there == "first":
        publish_at_path.publish(lead.storage, record, lead.leadership.epoch)
        assert not staged.exists()
    else:
        with pytest.raises(InvalidInput, match="something else was put there meanwhile"):
            publish_at_path.publish(lead.storage, record, lead.leadership.epoch)
        assert tree(staged) == {"deep/part": b"first"}
    assert tree(place) == {"table/deep/part": there.encode()}


def test_what_is_half_published_where_nothing_is_mounted(lead: Lead, tmp_path: Path) -> None:
    """A copy near a place that is away is not taken for removed; it is when the place is back."""
    place, away = tmp_path / "warehouse", tmp_path / "away"
    place.mkdir()
    one(lead.job(), str(place / "table"))
    copy = place / f"{publish_at_path._mark(place / 'table', 'job')}1"
    put(copy / "part", "half")
    place.rename(away)
    left = HalfPublished(lead.backend)
    with pytest.raises(Unavailable, match=f"unfinished copies in {place} cannot be found"):
        left.clean("job")
    away.rename(place)
    left.clean("job")
    assert tree(place) == {"table/part": b"first"}


def test_what_is_half_published_is_named(lead: Lead, place: Path) -> None:
    """The copies of a job that an operator has marked clean, whatever it left, are found by fsck;
    those of another job, under whatever name, are not touched by its cleanup.
    """
    one(lead.job(), str(place / "table"))
    copies = [
        place / f"{publish_at_path._mark(place / 'table', job)}1" for job in ("job", "job.e1")
    ]
    for copy in copies:
        put(copy / "part", "half")
    named = [line for line in left_over(lead.backend, lead.storage) if "half published" in line]
    assert named == [f"{copies[0]}: half published by job 'job', which has ended"]

    HalfPublished(lead.backend).clean("job")
    assert [copy.exists() for copy in copies] == [False, True]


@pytest.mark.parametrize("inside", ["", "by/day"])
def test_only_what_a_file_sink_counts(lead: Lead, place: Path, inside: str) -> None:
    """F7: of a table with a log, what the log names is published, and not the log, whose paths hold
    for the place where it is. The table may be a folder of the output.
    """

    def sink(stage: Stage) -> Json:
        output = lead.storage.published("job", "sink", temporary=False)
        table = output / inside
        file_sink(table, 5)  # As a streaming stage writes it: where it stays.
        put(table / "part-stray.parquet", "a dead task's")
        return None

    job = lead.job()
    job.publish(place / "table", job.stage("sink", sink))

    assert sorted(tree(place / "table" / inside)) == [
        f"part-{batch:05}.parquet" for batch in range(5)
    ]


def test_a_replaced_leader_publishes_nothing(lead: Lead, place: Path) -> None:
    """A leader that is replaced in the middle of it is fenced, and its successor publishes."""
    job = lead.job()
    done = job.stage("first", first)
    check, newer = publish_at_path.check, lead.leadership.epoch + 1

    def replaced(path: Path, storage: object) -> None:
        lead.storage.take_over("job", newer)

    publish_at_path.check = replaced
    try:
        with pytest.raises(Fenced):
            job.publish(place / "table", done)
    finally:
        publish_at_path.check = check
    assert list(place.iterdir()) == []


def test_the_job_can_be_pinned_afterwards(lead: Lead, place: Path) -> None:
    """N2: what is at a place of the user's own is in no snapshot, and keeps none from being taken;
    a job that goes back to one from before it has published does not do so again.
    """
    put_spec(lead)
    catalog = SnapshotCatalog(lead.backend, lead.storage)
    lead.job().stage("first", first)
    before = catalog.create("job")
    one(lead.job(2), str(place / "table"))
    catalog.create("job")
    assert catalog.fork("job", "other").job_id == "other"

    with pytest.raises(WrongState, match="table was published"):
        catalog.restore(before, fence=lead.leadership.fence, is_stopped=lambda job_id: True)
    catalog.restore(
        before,
        accept_published=True,
        fence=lead.leadership.fence,
        is_stopped=lambda job_id: True,
    )
    (place / "table").rename(place / "consumed")
    assert one(lead.job(3), str(place / "table")) == {"files": 1, "bytes": 5}
    assert sorted(path.name for path in place.iterdir()) == ["consumed"]


def put_spec(lead: Lead) -> None:
    lead.backend.commit(Create(keys.JOBS + "job", encode(JobSpec("job", "m:f"))))


def test_by_way_of_links(lead: Lead, place: Path) -> None:
    """A folder may be reached through a link; but no way leads into the jobs' own storage, and what
    links in an output lead to is not published.
    """
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    one(lead.job(), str(place / "link" / "table"))
    assert tree(place / "real") == {"table/part": b"first"}

    (place / "inside").symlink_to(lead.folder)
    job = lead.job(2)
    done = job.stage("first", first)
    with pytest.raises(InvalidInput, match="jobs keep their own files there"):
        job.publish(place / "inside" / "table", done, name="again")

    def links(stage: Stage) -> Json:
        (stage.output / "link").symlink_to("/etc")
        return None

    linked = job.stage("links", links)
    with pytest.raises(InvalidInput, match="is a link"):
        job.publish(place / "links", linked, name="links-published")
    with pytest.raises(InvalidInput, match="named twice"):
        job.publish(place / "twice", done, "first", name="twice")


def test_one_name_has_one_place(lead: Lead, place: Path) -> None:
    """A job whose code says another place holds: what was published stays where it is."""
    one(lead.job(), str(place / "table"))
    with pytest.raises(JobHeld, match="use another stage name"):
        one(lead.job(2), str(place / "other"))
    assert sorted(path.name for path in place.iterdir()) == ["table"]


def test_a_leader_that_wakes_up_over_its_copy(
    lead: Lead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across filesystems, what a replaced leader has copied is out of its reach before it is
    deleted: nobody sees a part of it.
    """
    with elsewhere(tmp_path) as other:
        target = other / "table"
        rename = os.rename
        late: list[tuple[Path, Path]] = []

        def freeze(source: Path, to: Path) -> None:
            if Path(to) == target and not late and Path(source).parent == target.parent:
                late.append((source, to))
                raise KeyboardInterrupt
            rename(source, to)

        monkeypatch.setattr(os, "rename", freeze)
        monkeypatch.setattr(shutil, "rmtree", lambda *args, **how: None)
        with pytest.raises(KeyboardInterrupt):
            one(lead.job(), str(target))
        monkeypatch.undo()
        assert [path.name for path in other.iterdir()] == [late[0][0].name]

        delete = shutil.rmtree

        def delete_late(path: Path, **how: object) -> None:
            with pytest.raises(FileNotFoundError):
                os.rename(*late[0])
            delete(path)

        monkeypatch.setattr(shutil, "rmtree", delete_late)
        one(lead.job(2), str(target))
        monkeypatch.undo()
        assert tree(other) == {"table/part": b"first"}


@pytest.mark.parametrize("name", ["one", "both"])
def test_death_at_every_step(tmp_path: Path, place: Path, name: str) -> None:
    """F7: killed at any step of publishing, the next attempt ends with the same, once; and a job
    that is canceled instead leaves nothing next to the place.
    """
    function, expected = (one, ONE) if name == "one" else (both, BOTH)
    last, died = 0, True
    while died:
        last += 1
        root = tmp_path / str(last)
        url, target = (root / "store").as_uri(), place / f"table-{last}"
        died = dies(function, url, root / "jobs", target, last)
        assert not target.exists() or tree(target) == expected
        with open_backend(url, cluster=CLUSTER) as backend:
            next_one = Lead(backend, root / "jobs")
            if last % 2:
                ended = run_attempt(next_one.context(2, place=str(target)), function)
                assert ended.status is JobStatus.FINISHED, ended.failure
                assert tree(target) == expected
            else:
                store = JobResultStore(backend)
                canceled = result("job", status=JobStatus.CANCELED)
                store.create_dirty(canceled, next_one.leadership.fence)
                if backend.get(keys.stage("job", "first")) is not None:
                    spoil(backend, keys.stage("job", "first"))  # It keeps nobody from cleaning up.
                shutil.rmtree(target, ignore_errors=True)
            JobCleanup(backend, default_resources(backend, next_one.storage)).run("job", None)
            shutil.rmtree(target, ignore_errors=True)
            assert list(place.iterdir()) == []
            assert not (root / "jobs" / CLUSTER / "job" / "e2").exists()
    assert last > 10


def dies(function: object, url: str, root: Path, target: Path, last: int) -> bool:
    """Run the job in a child that dies at a step of publishing; return whether it did."""

    def work(begin: Begin) -> None:
        with open_backend(url, cluster=CLUSTER) as backend:
            job = Lead(backend, root).job()
            for name, stage in (("first", first), ("second", second)):
                if name == "first" or function is both:
                    job.stage(name, stage)
            begin(COPY)
            do(job, target)

    status = in_a_child(last, work)
    assert status in (0, DEAD)
    return status == DEAD


def do(job: Job, target: Path) -> None:
    """Publish; `Deadly` looks for this name."""
    assert isinstance(job._run, AttemptRun)
    job.publish(target, *job._run._handles)
