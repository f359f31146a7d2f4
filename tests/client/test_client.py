"""Client: submitting jobs and working with them over one connection."""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
from click.testing import CliRunner

import jrs
from jrs import (
    Action,
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    Client,
    ClusterMoved,
    CorruptRecord,
    Create,
    Delete,
    DuplicateJob,
    Failure,
    FsckReport,
    HistoryKind,
    InvalidInput,
    JobResult,
    JobSpec,
    JobStatus,
    MasterInfo,
    MasterRole,
    NoSuchCluster,
    NoSuchJob,
    NoSuchResult,
    NotFound,
    RestartPolicy,
    ResultState,
    RunnerKind,
    SnapshotFormat,
    SnapshotRecord,
    StageRecord,
    StopMode,
    StopRecord,
    StopState,
    Unavailable,
    UnsupportedVersion,
    WrongState,
)
from jrs.cli import cli
from jrs.client import cluster_history
from jrs.contract.backend import Backend
from jrs.contract.storage_place import place_of
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.cluster import MAX_EPOCH, EpochRecord
from jrs.records.codec import encode, encode_plain
from jrs.records.model import FormatRecord, StageSummary, StreamRecord
from jrs.records.stored import Stored
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.store import feed, history
from jrs.store.historian import Historian
from jrs.store.masters import Registry
from jrs.testing.contract import lead
from tests.recovery.conftest import memory, root
from tests.recovery.support import FaultyMemory, Leader, fail_to_list
from tests.support import until

__all__ = ["memory", "root"]


def application(driver: jrs.Driver) -> None:
    """An application that does nothing."""


def doubled(job: jrs.Job, number: int = 1) -> int:
    """A job."""
    return 2 * number


def logged(function: Callable[..., int]) -> Callable[..., int]:
    """A decorator."""

    @functools.wraps(function)
    def called(job: jrs.Job, number: int = 1) -> int:
        return function(job, number)

    return called


decorated = logged(doubled)
"""Has the name of `doubled`, as its decorator gives it."""


@logged
def tripled(job: jrs.Job, number: int = 1) -> int:
    """A job that is decorated where it is defined."""
    return 3 * number


class Pipeline:
    """Methods as jobs."""

    def bound(self, job: jrs.Job) -> None:
        """Needs the object."""

    @classmethod
    def of_class(cls, job: jrs.Job) -> str:
        """Needs the class."""
        return cls.__name__


class Special(Pipeline):
    """Another class with the same method."""


async def later(job: jrs.Job) -> None:
    """A coroutine function."""


def many(job: jrs.Job) -> Iterator[int]:
    """A generator function."""
    yield 1


@pytest.fixture
def client(memory: FaultyMemory, root: Path) -> Client:
    return Client(memory, storage=root)


@pytest.mark.parametrize(
    "waits",
    [
        "client.submit(work, id='b')",
        "client.submit(__file__ + ':work', id='b')",
        "client.job('a').result(timeout=0, allow_missing=True)",
        "jrs.run(main, url, name='b')",
    ],
)
def test_a_program_without_its_guard(tmp_path: Path, waits: str) -> None:
    """An attempt that imports it would submit the job again, and wait for itself."""
    program = _unguarded(tmp_path, waits)
    with jrs.connect((tmp_path / "store").as_uri()) as client:
        client.submit(f"{program}:work", id="a")

        with pytest.raises(InvalidInput, match='under if __name__ == "__main__":'):
            jrs.check_entry(f"{program}:work", {})
        assert [job.id for job in client.jobs()] == ["a"]


@pytest.mark.parametrize(
    "other",
    [
        "assert client.job('config').result().payload == 1",
        "client.submit('etl:work', id='b')\n    try: client.job('b').result(timeout=0)\n"
        "    except TimeoutError: pass",
        "try: client.job('b').result(timeout=0, allow_missing=True)\n    except TimeoutError: pass",
    ],
)
def test_other_jobs_while_a_module_is_imported(tmp_path: Path, other: str) -> None:
    """A module may read the result of a job that has ended, also of its own, and use jobs of other
    modules: no attempt waits for itself."""
    program, url = _unguarded(tmp_path, other), (tmp_path / "store").as_uri()
    with jrs.connect(url) as client:
        client.submit(f"{program}:work", id="config")
        client.results.create_dirty(JobResult("config", JobStatus.FINISHED, payload=1), None)

        jrs.check_entry(f"{program}:work", {})


def _unguarded(folder: Path, body: str) -> Path:
    """Return a program that does something with a client at its top level."""
    program, url = folder / "unguarded.py", (folder / "store").as_uri()
    program.write_text(
        f"import jrs\nurl = {url!r}\ndef work(job): pass\ndef main(driver): pass\n"
        f"with jrs.connect(url) as client:\n    {body}\n"
    )
    return program


def test_connect(tmp_path: Path) -> None:
    """A URL and a cluster's id are all it takes; the connection is closed with the block."""
    url = (tmp_path / "store").as_uri()
    with jrs.connect(url, cluster="etl") as client:
        client.submit("etl.jobs:nightly", id="nightly", day="2026-11-20")
        assert client.job("nightly").status() is JobStatus.CREATED
        view = client.job("nightly").view()

    assert view.spec is not None
    assert (view.spec.entry_point, view.spec.arguments) == (
        "etl.jobs:nightly",
        {"day": "2026-11-20"},
    )
    with pytest.raises(Unavailable, match="closed"):
        client.job("nightly").status()
    with jrs.connect(url, cluster="etl", create=False) as again:
        assert [job.id for job in again.jobs()] == ["nightly"]
    with pytest.raises(NoSuchCluster, match="there is no jrs cluster 'other'"):
        jrs.connect(url, cluster="other", create=False)


def test_a_connection_that_fails_leaves_nothing_open(tmp_path: Path) -> None:
    """Its caller has nothing to close."""
    before = set(threading.enumerate())
    with pytest.raises(InvalidInput, match="spec_key must be a SpecKey"):
        jrs.connect((tmp_path / "store").as_uri(), spec_key=cast(Any, "key"))
    assert set(threading.enumerate()) <= before


def test_a_job_from_its_function_to_its_result(client: Client, root: Path) -> None:
    """A function is submitted by its name, and its result is returned."""
    with Leader(client.backend, root, runner=ThreadRunner()):
        job = client.submit(doubled, id="job", runner=RunnerKind.THREAD, number=21)
        result = job.result(timeout=60)

    assert repr(job) == "JobHandle('job')"
    assert (result.status, result.payload) == (JobStatus.FINISHED, 42)
    assert [each.id for each in client.jobs(status=JobStatus.FINISHED)] == ["job"]
    assert list(client.jobs(status=JobStatus.FAILED)) == []


def test_an_id_that_is_taken(client: Client) -> None:
    """It is refused; `exist_ok` gives a handle on the job that has it."""
    client.submit("m:f", id="job")

    with pytest.raises(DuplicateJob):
        client.submit("m:g", id="job")
    view = client.submit("m:f", id="job", exist_ok=True, priority=3).view()
    assert view.spec is not None
    assert view.spec.priority == 0


def test_an_id_that_another_call_has(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """A result of the wrong day is the usual slip. It is warned of, before and after the job's end;
    a result of an older version does not say what ran."""
    client.submit("m:f", id="job", day=1)
    for entry, day in (("m:g", 1), ("m:f", 2)):
        client.submit(entry, id="job", exist_ok=True, day=day)
        assert "job 'job' was submitted before with another entry point or other" in caplog.text
        caplog.clear()
    spec = client.job("job").view().spec
    assert spec is not None
    put(client, keys.RESULTS + "job", JobResult("job", JobStatus.FINISHED, call=spec.call))
    put(client, keys.RESULTS + "old", JobResult("old", JobStatus.FINISHED))

    client.submit("m:f", id="job", exist_ok=True, day=1)
    client.submit("m:f", id="old", exist_ok=True, day=1)
    assert not caplog.records
    client.submit("m:f", id="job", exist_ok=True, day=2)
    assert "job 'job' was submitted before with another entry point or other" in caplog.text


@pytest.mark.parametrize(
    "function", [lambda job: 1, functools.partial(doubled), object()], ids=["lambda", "partial", ""]
)
def test_a_function_without_a_name(client: Client, function: Any) -> None:
    """What another process could not import is refused at once, with the remedy."""
    with pytest.raises(InvalidInput, match="define it at the top level of a module"):
        client.submit(function, id="job")
    assert list(client.jobs()) == []


@pytest.mark.parametrize(
    "function", [decorated, Pipeline().bound, Special.of_class], ids=["renamed", "bound", "class"]
)
def test_a_function_whose_name_leads_to_another(client: Client, function: Any) -> None:
    """Masters would run the other one: it is refused, also for a job that exists."""
    job = client.submit(tripled, id="job")
    for call in (
        lambda: client.submit(function, id="other"),
        lambda: job.upgrade(function),
        lambda: job.retry(entry=function),
    ):
        with pytest.raises(InvalidInput, match="there is something else under"):
            call()
    assert [view.spec and view.spec.entry_point for view in client.views()] == [
        f"{__name__}:tripled"
    ]


def test_a_class_method_is_found_by_its_name(client: Client) -> None:
    """It is another object each time it is looked up."""
    spec = client.submit(Pipeline.of_class, id="job").view().spec
    assert spec is not None
    assert spec.entry_point == f"{__name__}:Pipeline.of_class"


@pytest.mark.parametrize("function", [later, many])
def test_a_function_whose_call_runs_nothing(client: Client, function: Any) -> None:
    """Its object is no result: it is refused before anything is submitted."""
    with pytest.raises(InvalidInput, match="a coroutine or generator function"):
        client.submit(function, id="job")
    assert not list(client.views())


@pytest.mark.parametrize("by_name", [True, False], ids=["-m", "file"])
def test_a_function_of_the_program(tmp_path: Path, by_name: bool) -> None:
    """Masters import it by the name, or else the file, that the program was started by."""
    package = tmp_path / "pack"
    package.mkdir()
    relative = "from . import __name__ as package" if by_name else ""
    (package / "prog.py").write_text(
        f"{relative}\nfrom jrs.client.connection import entry_point_of\n"
        "def work(job): pass\nprint(entry_point_of(work))\n"
    )
    program = ["-m", "pack.prog"] if by_name else [str(package / "prog.py")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))}
    said = subprocess.check_output([sys.executable, *program], env=environment, text=True)
    assert said.strip() == ("pack.prog:work" if by_name else f"{package}/prog.py:work")


def test_arguments_that_the_function_does_not_take(client: Client) -> None:
    """They are refused before anything is submitted."""
    with pytest.raises(InvalidInput, match=r"there is no argument .*numbr.*did you mean .number."):
        client.submit(doubled, id="j", numbr=1)
    assert not list(client.views())


@pytest.mark.parametrize("id", ["", "a/b", "x" * 129, 7])
def test_what_is_no_id(client: Client, id: Any) -> None:
    """It is refused where the handle is made."""
    with pytest.raises(InvalidInput):
        client.job(id)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: list(client.jobs(prefix=None)),
        lambda client: list(client.views(after=5)),
        lambda client: list(client.views(tag=5)),
        lambda client: client.submit("m:f", id="j", tags=None),
        lambda client: client.submit("m:f", id="j", tags=5),
        lambda client: client.submit("m:f", id="j", tags="nightly"),
        lambda client: client.submit("m:f", id="j", arguments=[1]),
        lambda client: client.restore(5),
        lambda client: client.switchover(5),
        lambda client: client.job("j").explain_past(at="x"),
        lambda client: client.job("j").retry(arguments=5),
        lambda client: client.job("j").retry(changed=5),
        lambda client: client.job("j").snapshots.export(1, None),
        lambda client: client.job("j").snapshots.move(1, ""),
        lambda client: client.job("j").snapshots.move(1, "s3://bucket/jrs"),
        lambda client: client.job("j").snapshots.export(1, "file:///mnt/b"),
        lambda client: client.restore("s3://bucket/jrs"),
        lambda client: client.job("j").snapshots.convert(1, "fuller"),
        lambda client: type(client)(client.backend, spec_key="/etc/jrs/spec.key"),
        lambda client: jrs.check_entry(cast(Any, None), {}),
    ],
)
def test_what_has_the_wrong_type(client: Client, call: Callable[[Any], object]) -> None:
    """It is refused where it is given, and not by what first uses it."""
    with pytest.raises(InvalidInput):
        call(client)
    assert list(client.views()) == []


def test_tags_in_any_iterable(client: Client) -> None:
    job = client.submit("m:f", id="j", tags=(f"team={name}" for name in ("sales", "etl")))

    spec = job.view().spec
    assert spec is not None
    assert spec.tags == ("team=sales", "team=etl")


def test_an_unknown_job(client: Client) -> None:
    """Every question about it says that there is none."""
    job = client.job("nobody")
    for call in (job.status, job.view, job.suspend, job.drain, job.resume, job.cancel):
        with pytest.raises(NoSuchJob):
            call()
    with pytest.raises(NoSuchJob):
        job.result()  # U19: it does not wait forever.
    with pytest.raises(NoSuchJob):
        job.wait_stage("ingest")
    with pytest.raises(TimeoutError):
        job.result(timeout=0, allow_missing=True)


def test_suspend_and_resume(client: Client, root: Path) -> None:
    """A job is suspended, waited for and resumed by its handle."""
    job = client.submit("m:f", id="job")
    with Leader(client.backend, root) as leader:
        until(lambda: job.status() is JobStatus.RUNNING, "it runs")
        job.suspend(reason="a release", grace=0.0)
        stop = job.wait_stopped(timeout=60)
        assert stop is not None
        assert (stop.mode, stop.reason) == (StopMode.SUSPEND, "a release")
        assert job.status() is JobStatus.SUSPENDED
        job.resume()
        until(lambda: job.status() is JobStatus.RUNNING, "it runs again")
        job.cancel(reason="enough")
        result = job.result(timeout=60)
        assert leader.store.has_entry("job")

    assert result.status is JobStatus.CANCELED


def test_rescale_and_upgrade(client: Client) -> None:
    """What a job is to be from now on is recorded."""
    job = client.submit("m:f", id="job", partitions=4)
    job.rescale(16)
    view = job.view()
    assert view.spec is not None
    assert view.spec.partitions == 16
    with pytest.raises(WrongState):
        job.upgrade(doubled)  # It is being suspended for the first change.


@pytest.mark.parametrize("entry", ["etl", "", "m:", ":f", "/x:f", "m\0:f"])
def test_what_is_no_entry_point_changes_nothing(client: Client, entry: str) -> None:
    """A typo uses no job id up, and suspends no job that runs."""
    with pytest.raises(InvalidInput, match="entry point"):
        client.submit(entry, id="new")
    with pytest.raises(InvalidInput, match="entry point"):
        client.submit_spec(JobSpec("new", entry))
    assert not list(client.jobs())
    job = client.submit(doubled, id="job")
    before = job.view()
    with pytest.raises(InvalidInput, match="entry point"):
        job.upgrade(entry)
    for partitions in (None, 0, True, "8"):
        with pytest.raises(InvalidInput, match="partitions"):
            job.rescale(cast("Any", partitions))
    assert (job.view().spec, job.view().stop) == (before.spec, None)


@pytest.mark.parametrize("storage", [1, b"x", ["a"], True])
def test_what_is_no_storage(tmp_path: Path, storage: Any) -> None:
    """No folder is made of it, and it becomes the storage of no cluster."""
    url, said = (tmp_path / "store").as_uri(), "a storage must be a path or a URL"
    with jrs.connect(url, storage=storage) as client, pytest.raises(InvalidInput, match=said):
        client.job("job").snapshots.list()
    with pytest.raises(InvalidInput, match=said):
        jrs.run(application, url, storage=storage, name="app")
    with jrs.connect(url) as client:
        assert client.backend.get(keys.STORAGE) is None


def test_a_storage_that_is_like_a_path(tmp_path: Path) -> None:
    """What it stands for counts, and not its text."""
    (tmp_path / "jobs").mkdir()
    with os.scandir(tmp_path) as found:
        assert place_of(next(found)).root == tmp_path / "jobs"


def test_snapshots_need_a_storage(memory: FaultyMemory) -> None:
    """Where none is known, the message says how to name it."""
    with pytest.raises(InvalidInput, match=r"jrs.connect\(…, storage=DIR\)"):
        Client(memory).job("job").snapshots.list()


@pytest.mark.parametrize(
    ("deaths", "retry_in", "action", "reason"),
    [
        (0, None, Action.LEAVE, "running since"),
        (1, 60.0, Action.WAIT, "the next one is not due"),
        (1, -60.0, Action.RECOVER, "starting"),
        (2, 60.0, Action.FAIL, "as often as its restart policy allows"),
    ],
    ids=["running", "backing off", "due", "spent"],
)
def test_explain_knows_how_the_attempt_ended(
    client: Client, deaths: int, retry_in: float | None, action: Action, reason: str
) -> None:
    """A job whose attempt has died is not said to run."""
    backend = client.backend
    job = client.submit("m:f", id="job", restart=RestartPolicy(attempts=2))
    with lead(backend) as leadership:
        record = AttemptRecord(
            "job",
            epoch=leadership.epoch,
            master="m1",
            deaths=deaths,
            retry_at=0.0 if retry_in is None else time.time() + retry_in,
        )
        backend.commit(Create(keys.ATTEMPTS + "job", encode(record)), fence=leadership.fence)
        Registry(backend).put(MasterInfo("m1", "host", 1, 1.0, 0.0, leading=leadership.epoch))

        found = job.explain()

    assert found.action is action
    assert reason in found.reason
    assert "attempt 1 was started by m1 in epoch 1" in found.details
    assert found.nobody_leads == ""


def test_prefix(client: Client) -> None:
    """Jobs are listed in the order of their ids, all or those with a prefix."""
    for id in ("b-1", "a-2", "a-1"):
        client.submit("m:f", id=id)

    assert [job.id for job in client.jobs()] == ["a-1", "a-2", "b-1"]
    assert [job.id for job in client.jobs(prefix="a-")] == ["a-1", "a-2"]
    assert [job.id for job in client.jobs(prefix="a-", after="a-1")] == ["a-2"]


def test_views(client: Client) -> None:
    """What is known of many jobs is read at once, by status and by the state of the result."""
    end(client, "dirty")
    end(client, "clean")
    client.results.mark_clean("clean", None)
    end(client, "expired")
    client.results.mark_clean("expired", None)
    client.results.delete("expired")
    client.submit("m:f", id="submitted")

    def ids(**filters: Any) -> list[str]:
        found = [view.job_id for view in client.views(**filters)]
        assert [job.id for job in client.jobs(**filters)] == found
        return found

    assert ids() == ["clean", "dirty", "submitted"]
    assert ids(status=JobStatus.CREATED) == ["submitted"]
    assert ids(status=JobStatus.FINISHED, state=ResultState.DIRTY) == ["dirty"]
    assert ids(state=ResultState.CLEAN) == ["clean"]
    assert ids(state=ResultState.EXPIRED) == ["expired"]
    assert ids(state=ResultState.EXPIRED, status=JobStatus.FINISHED) == ["expired"]
    assert ids(after="clean") == ["dirty", "submitted"]


# -- the cluster --------------------------------------------------------------------------------


def test_masters(client: Client) -> None:
    """Each master is named with what it does; one whose heartbeats have stopped is gone."""
    backend = client.backend
    assert (client.masters(), client.epoch()) == ([], None)
    with lead(backend) as leadership:
        now = Registry(backend)
        for name, leading in (("a", leadership.epoch), ("b", leadership.epoch - 1), ("c", None)):
            now.put(MasterInfo(name, "host", 1, 1.0, 0.0, leading=leading))
        before = Registry(backend, now=lambda: time.time() - 60)
        before.put(MasterInfo("d", "host", 1, 1.0, 0.0, leading=leadership.epoch))
        roles = {view.info.name: view.role for view in client.masters()}
        epoch = client.epoch()

    assert epoch is not None
    assert epoch.epoch == leadership.epoch
    assert roles == {
        "a": MasterRole.LEADER,
        "b": MasterRole.FORMER,
        "c": MasterRole.STANDBY,
        "d": MasterRole.GONE,
    }


def test_no_master_leads(client: Client) -> None:
    """Whether one takes over is told, and that one has to be started otherwise. One that led, and
    may have died since its heartbeat, takes over nothing."""
    client.raise_cluster_format()
    with lead(client.backend) as leadership:
        dead = MasterInfo("a", "host", 1, 1.0, 0.0, leading=leadership.epoch - 1)
        Registry(client.backend).put(dead)
        assert not client.leader().standby
        assert "start one with 'jrs master'" in str(client.leader())
        assert client.leader().needs_master
        main = ApplicationRecord("app", "d:main", started_at=1.0, epoch=leadership.epoch)
        client.backend.overwrite(keys.APPLICATIONS + "app", encode(main))
        assert "start the program of the application 'app' again" in str(client.leader())
        assert not client.leader().needs_master
        client.job("app").cancel()
        assert client.leader().needs_master  # Any master ends it.
        Registry(client.backend).put(MasterInfo("b", "host", 1, 1.0, 0.0))
        found = client.leader()
    assert (found.leader, found.standby) == (None, True)
    assert str(found).endswith("; a master that stands by takes over")


def test_fsck(client: Client, root: Path) -> None:
    """Damage and left-overs are told apart; where the storage is known, its files are checked."""
    client.submit("m:f", id="job")
    assert client.fsck() == FsckReport((), (), (), str(client.leader()))
    client.backend.commit(Create(keys.JOBS + "torn", b"no record"))
    client.backend.commit(Create(keys.CANCEL + "ghost", encode(CancelRequest("ghost"))))
    orphan = root / client.backend.cluster / "unknown"
    orphan.mkdir(parents=True)
    found = client.fsck()

    assert ["jobs/torn" in line for line in found.damaged] == [True]
    assert [line.partition(":")[0] for line in found.left_over] == ["cancel/ghost", str(orphan)]
    assert ["job 'torn': held" in line for line in found.held] == [True]
    assert client.accept_damage() == []


def test_a_damaged_epoch(client: Client) -> None:
    """It is restored above every epoch on record, and only if it is damaged."""
    with lead(client.backend):
        assert client.restore_epoch() is None
    put(client, keys.ATTEMPTS + "job", AttemptRecord("job", epoch=7))
    client.backend.overwrite(keys.EPOCH, b"garbage")
    assert client.epoch() is None

    assert client.restore_epoch() == 8
    newest = client.epoch()
    assert newest is not None
    assert newest.epoch == 8


def test_an_epoch_is_restored_from_no_field_of_a_user(client: Client) -> None:
    """Only epochs count that jrs has recorded, at any depth of its records."""
    client.submit("m:f", id="job", epoch=10**40, leading=[{"epoch": 1795132800000}])
    ended = JobResult("gone", JobStatus.FINISHED, {"epoch": 10**40}, None, epoch=4)
    stage = StageSummary("train", 1, 7, 1.0)
    put(client, keys.RESULTS + "gone", attrs.evolve(ended, stages=(stage,)))
    put(client, keys.EPOCH, EpochRecord(9, "a leader"))
    client.backend.overwrite(keys.EPOCH, b"garbage")

    assert client.restore_epoch() == 8


def test_an_epoch_that_a_newer_version_has_recorded(client: Client) -> None:
    """In a field, or in a record of a type that this one does not know: then none is written."""
    attempt = AttemptRecord("job", epoch=3, unknown={"leading": 6, "more": {"epoch": 10**40}})
    put(client, keys.ATTEMPTS + "job", attempt)
    put(client, keys.EPOCH, EpochRecord(9, "a leader"))
    client.backend.overwrite(keys.EPOCH, b"garbage")
    body = b'{"epoch":9}'
    value = b'{"jrs":"newer/1","crc":"%08x","body":%s}' % (zlib.crc32(body), body)
    client.backend.commit(Create("newer/record", value))

    with pytest.raises(UnsupportedVersion, match="'newer' record of a newer jrs"):
        client.restore_epoch()
    client.backend.commit(Delete("newer/record"))
    assert client.restore_epoch() == 7


def test_an_epoch_that_cannot_be(client: Client) -> None:
    """It is read as damage, and none is written: the names of files have no room for it."""
    record = encode(AttemptRecord("job", epoch=10**40))
    client.backend.commit(Create(keys.ATTEMPTS + "job", record))
    client.backend.overwrite(
        keys.EPOCH, encode_plain(EpochRecord, {"epoch": 10**40, "candidate": "a leader"})
    )

    assert client.epoch() is None
    with pytest.raises(CorruptRecord, match=r"attempts/job: holds epoch 10+, and there is none"):
        client.restore_epoch()
    with pytest.raises(InvalidInput, match=r"an epoch is from 0 to 9{18}, not 10{18}$"):
        EpochRecord(MAX_EPOCH + 1, "a leader")


def fail_to_read(patch: pytest.MonkeyPatch, hidden: Path) -> None:
    read = Path.read_bytes

    def reading(path: Path) -> bytes:
        if hidden in (path, path.parent):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path)

    patch.setattr(Path, "read_bytes", reading)


@pytest.mark.parametrize("name", ["", "id"])
def test_a_storage_that_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """That is no damage of it, and no reason to look at another folder. The job is shown."""
    url, root = (tmp_path / "store").as_uri(), tmp_path / "files"
    root.mkdir()
    with jrs.connect(url, storage=root) as named:
        named.adopt_storage()
        named.submit("m:f", id="job")
        (root / "default" / "stray").mkdir()
    hidden = root / "default/.storage" / name
    fail_to_list(monkeypatch, hidden, errno.EACCES)
    fail_to_read(monkeypatch, hidden)
    with jrs.connect(url) as client:
        found = client.fsck()
        assert any(str(hidden) in line for line in found.damaged)
        assert any("stray: the folder of an unknown job" in line for line in found.left_over)
        for look in (client.restore_epoch, client.job("job").log_folder):
            with pytest.raises(Unavailable, match=r"^looking at .*Permission denied") as caught:
                look()
            assert str(hidden) in str(caught.value)
    shown = CliRunner().invoke(cli, ["--backend", url, "show", "job"]).output
    assert "m:f" in shown
    assert "cannot be looked for" in shown


def test_a_marker_that_is_damaged(tmp_path: Path) -> None:
    """It is found in the recorded storage, not in the folder next to the backend's data."""
    url, root = (tmp_path / "store").as_uri(), tmp_path / "files"
    root.mkdir()
    with jrs.connect(url, storage=root) as named:
        named.adopt_storage()
    (root / "default/.storage/id").write_bytes(b"garbage")

    with jrs.connect(url) as client:
        assert [line.partition(":")[0] for line in client.fsck().damaged] == [f"{root}/…/id"]


def test_the_format(client: Client) -> None:
    """It is shown, and raising it returns what it was."""
    before = client.cluster_format()
    client.backend.commit(Create(keys.FORMAT, encode(FormatRecord(before.newest))))

    assert client.raise_cluster_format() == client.cluster_format()
    assert client.cluster_format().version == before.newest
    client.backend.overwrite(keys.FORMAT, encode(FormatRecord(before.newest + 1)))
    assert client.cluster_format().version == before.newest + 1


def test_diagnose(tmp_path: Path) -> None:
    """A backend is checked by its URL; what is wrong comes with a remedy."""
    url = (tmp_path / "store").as_uri()
    storage = tmp_path / "jobs"
    before = list(jrs.diagnose(url, cluster="etl", storage=storage))
    assert [one.what for one in before] == ["open", "storage"]
    assert list(tmp_path.iterdir()) == []
    found = list(jrs.diagnose(url, cluster="etl", storage=storage, create=True))

    assert found[0].what == "open"
    assert "'etl'" in found[0].detail
    assert {"write", "fence", "commits", "watch", "storage"} <= {one.what for one in found}
    with pytest.raises(InvalidInput, match="unknown backend"):
        next(jrs.diagnose("redis://h/0"))


def test_diagnose_a_storage_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded one is examined, and not the folder next to the backend's data; that its marker
    cannot be read is one finding."""
    url, root = (tmp_path / "store").as_uri(), tmp_path / "files"
    root.mkdir()
    with jrs.connect(url, storage=root) as named:
        named.adopt_storage()

    def storage() -> list[tuple[str, str | None]]:
        found = list(jrs.diagnose(url, ttl=3600.0))
        assert {"fence", "commits", "watch"} <= {one.what for one in found}
        return [(one.detail, one.remedy) for one in found if one.what in ("storage", "error")]

    ((detail, remedy),) = storage()
    assert (f"{root}, on" in detail, remedy) == (True, None)
    root.rename(tmp_path / "not-mounted")
    ((detail, remedy),) = storage()
    assert detail == f"the cluster's storage is {root}, which is not on this host"
    assert remedy is not None
    assert "adopt" not in remedy
    (tmp_path / "not-mounted").rename(root)
    fail_to_read(monkeypatch, root / "default/.storage/id")
    (_, (detail, remedy)) = storage()
    assert (f"looking at {root}" in detail, remedy is None) == (True, False)


# -- what a job leaves behind -------------------------------------------------------------------


def test_left_and_cleanup(client: Client, root: Path) -> None:
    """What is left of an ended job is named, retried, and given up, by its handle."""
    job = client.submit("m:f", id="job")
    for call in (job.left, job.retry_cleanup, job.force_cleanup):
        with pytest.raises(NoSuchResult):
            call()
    end(client, "job")

    assert job.left() == {"jobs records": ["jobs/job"]}
    assert not job.retry_cleanup()
    journal = CleanupJournal("job", tries=3, problems={"table": "it is locked"}, exhausted=True)
    client.backend.commit(Create(keys.CLEANUP + "job", encode(journal)))
    (held,) = client.fsck().held
    assert "given up after 3 tries: table: it is locked; then: jrs cleanup retry job" in held
    assert job.retry_cleanup()
    assert client.fsck().held == ()
    cleanup = job.view().cleanup
    assert cleanup is not None
    assert (cleanup.exhausted, cleanup.tries) == (False, 0)
    assert job.force_cleanup() == {"jobs records": ["jobs/job"], "table": ["it is locked"]}
    assert client.results.has_clean("job")
    with pytest.raises(WrongState, match="not dirty"):
        job.force_cleanup()


def end(client: Client, id: str) -> None:
    """Record how a job ended."""
    client.results.create_dirty(JobResult(id, JobStatus.FINISHED, finished_at=40.0), None)


# -- the past -----------------------------------------------------------------------------------


def test_history(client: Client) -> None:
    """What the records of a job tell is put in the order of time."""
    job = client.job("job")
    with pytest.raises(NoSuchJob):
        job.history()
    put(client, keys.JOBS + "job", JobSpec("job", "m:f", submitted_at=1.0))
    newest = AttemptRecord(
        "job", attempt=3, epoch=2, master="m2", started_at=5.0, first_started_at=2.0
    )
    put(client, keys.ATTEMPTS + "job", newest)
    put(client, keys.stream("job", "sums"), StreamRecord("job", "sums", False, "p", "4", 3.0))
    put(client, keys.stage("job", "a"), StageRecord("job", "a", None, 1, 1, 0.5, 4.0))
    put(client, keys.snapshot("job", 7), SnapshotRecord(
        "job", 7, SnapshotFormat.LINK, 6.0, "0" * 64, 1, 1, 1, name="nightly"
    ))  # fmt: skip
    drain = StopRecord("job", StopMode.DRAIN, requested_at=7.0, reason="a release\nforged")
    put(client, keys.STOPS + "job", StopRecord(
        "job", StopMode.HOLD, StopState.DONE, 8.0, "no disk", drain=drain
    ))  # fmt: skip
    put(client, keys.CANCEL + "job", CancelRequest("job", 9.0))
    failed = JobResult("job", JobStatus.CANCELED, None, Failure("cancel", "enough"), 3,
                       started_at=2.0, finished_at=10.0)  # fmt: skip
    client.results.create_dirty(failed, None)

    assert [(entry.at, entry.kind.value, entry.text) for entry in job.history()] == [
        (1.0, "submitted", "submitted"),
        (2.0, "attempt", "attempt 1 was started"),
        (3.0, "stream", "stage sums was started"),
        (4.0, "stage", "stage a finished in attempt 1"),
        (5.0, "attempt", "attempt 3 was started by m2 in epoch 2"),
        (6.0, "snapshot", "snapshot 7 (nightly) was taken"),
        (7.0, "stop", "a drain was requested: a release forged"),
        (8.0, "stop", "held: no disk"),
        (9.0, "cancel", "a cancel was requested"),
        (10.0, "ended", "CANCELED in attempt 3: enough"),
    ]


def test_the_history_of_a_job_that_was_cleaned_up(client: Client) -> None:
    """Only its result is left of it, and later only the remains of that."""
    result = JobResult("job", JobStatus.FINISHED, started_at=2.0, finished_at=10.0)
    client.results.create_dirty(result, None)
    client.results.mark_clean("job", None)
    job = client.job("job")

    assert [entry.kind for entry in job.history()] == [HistoryKind.ATTEMPT, HistoryKind.ENDED]
    client.results.delete("job")
    assert [entry.kind for entry in job.history()] == [HistoryKind.ENDED, HistoryKind.EXPIRED]


def test_following_a_history(client: Client) -> None:
    """Each entry once, across a fold, until the job is cleaned up; then it ends at once."""
    job = client.submit("m:f", id="job")
    historian = Historian(client.backend, "m1", 1)
    with lead(client.backend) as leadership, ThreadPoolExecutor(1) as pool:
        following = pool.submit(lambda: [entry.text for entry in job.follow_history(timeout=60)])
        for number in range(30):
            with historian.recorded("job", HistoryKind.OTHER, str(number)) as event:
                client.backend.commit(*event)
            if number == 20:
                history.fold(client.backend, "job", leadership.fence, leave=2)
        client.results.create_dirty(JobResult("job", JobStatus.FINISHED), None)
        also = historian.folding("job", leadership.fence, HistoryKind.CLEAN, "clean")
        client.results.mark_clean("job", leadership.fence, also=also)

        expected = ["submitted", *map(str, range(30)), "clean"]
        assert following.result() == expected
    assert [entry.text for entry in job.follow_history(job.history()[-3].id)] == expected[-2:]
    client.results.delete("job")
    assert list(job.follow_history("gone.000000")) == []


def test_the_history_of_a_cluster_that_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who follows it is told, although nothing happens here any more; an outage in which nothing
    happened is none."""
    looks = list[str]()
    page_behind = cluster_history._page_behind

    def looked(backend: Backend, cursor: str, limit: int) -> Any:
        looks.append(cursor)
        if len(looks) == 4:  # The watch has been quiet by then.
            raise Unavailable("away")
        return page_behind(backend, cursor, limit)

    monkeypatch.setattr(cluster_history, "_page_behind", looked)
    monkeypatch.setattr(feed, "LOOK", 0.01)
    here, there = ((tmp_path / name).as_uri() for name in ("here", "there"))
    with jrs.connect(here) as client, ThreadPoolExecutor(1) as pool:
        client.pause(reason="it moves")
        following = client.follow_history(timeout=60.0)
        assert next(following).kind is HistoryKind.PAUSED
        later = pool.submit(next, following)
        until(lambda: len(looks) > 4, "it looks again")
        jrs.migrate(here, there)
        with pytest.raises(ClusterMoved):
            later.result()


def test_a_history_is_followed_for_some_time(client: Client) -> None:
    job = client.submit("m:f", id="job")
    following = job.follow_history(timeout=0.05)
    assert next(following).kind is HistoryKind.SUBMITTED
    with pytest.raises(TimeoutError, match="not cleaned up"):
        next(following)
    with pytest.raises(NotFound, match="has no event"):
        job.history("nothing.000000")


def test_a_history_with_records_that_cannot_be_read(client: Client) -> None:
    """They are left out, and hide nothing else."""
    client.submit("m:f", id="job")
    for key in (keys.stream("job", "s"), keys.snapshot("job", 1), keys.STOPS + "job"):
        client.backend.commit(Create(key, b"garbage"))

    (entry,) = client.job("job").history()
    assert entry.kind is HistoryKind.SUBMITTED
    assert "@" in entry.by


def put(client: Client, key: str, value: Stored) -> None:
    client.backend.commit(Create(key, encode(value)))
