"""Streaming stages looked after, without a JVM: none waits for another, or for the backend."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import attrs
import pyarrow
import pytest

from jrs.backends.memory import Space
from jrs.contract.errors import (
    Conflict,
    Fenced,
    JobHeld,
    OutcomeUnknown,
    StageDied,
    Unavailable,
)
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Check, Create, Update
from jrs.records import keys
from jrs.records.model import JobSpec, StopMode, StopRecord, StopState, StreamSink
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.batch_committer import BatchCommitter
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.engine import StateLost
from jrs.recovery.attempt.job import Job
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.recovery.attempt.run import AttemptDied, run_attempt
from jrs.recovery.attempt.triage import Verdict, triage
from jrs.recovery.checkpoint_format import position as positions
from jrs.recovery.files import disk_errors
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.spark import (
    boundary,
    checkpoint_reads,
    cluster,
    error_reasons,
    queries,
    rescaling,
    sink,
    stage_query,
)
from jrs.recovery.spark.stage_query import DeclaredStream, StageQuery, Step
from jrs.recovery.spark.streams import Streams
from tests.recovery.snapshots import fabricate
from tests.recovery.support import CLUSTER, FailingEngine, FaultyMemory, put, spec
from tests.support import refuse_threads, until


class Query:
    """A query that runs until the test names the error that it dies of."""

    lastProgress = None
    isActive = True
    error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False

    def die(self, why: str | Exception = "dead") -> None:
        self.error = why if isinstance(why, Exception) else RuntimeError(why)
        self.isActive = False


class Writer:
    """Starts queries, after a while if the test says so."""

    def __init__(self) -> None:
        self.query = Query()
        self.starts = 0
        self.go = threading.Event()
        self.go.set()

    def start(self) -> Query:
        self.starts += 1
        self.go.wait()
        self.query = Query()
        return self.query

    def trigger(self, **how: Any) -> Writer:
        return self


@attrs.define
class Scene:
    run: AttemptRun
    streams: Streams
    storage: JobStorage

    def add(self, name: str, attempts: int = 1) -> Writer:
        """Start a stage."""
        writer = Writer()
        checkpoint = self.storage.stream("job", self.run.context.epoch, name) / "ck"
        stage = stage_of(self.run, name, writer, checkpoint, attempts)
        stage.start(draining=False)
        with self.streams._lock:
            self.streams._stages[name] = stage
        return writer


def stage_of(
    run: AttemptRun,
    name: str,
    writer: Any,
    checkpoint: Path,
    attempts: int = 1,
    partitions: int | None = None,
) -> StageQuery:
    restart = RestartPolicy(attempts=attempts, delay=0.0)
    return StageQuery(
        run, DeclaredStream(name, False, restart, 1, ()), writer, checkpoint, partitions
    )


@pytest.fixture
def memory() -> Iterator[FaultyMemory]:
    with FaultyMemory(Space(), url="memory://supervising", cluster=CLUSTER) as backend:
        yield backend


@pytest.fixture
def leader(memory: FaultyMemory) -> Leadership:
    found = memory.campaign("m", ttl=30.0, stop=threading.Event())
    assert found is not None
    return found


@pytest.fixture
def storage(tmp_path: Any, leader: Leadership) -> JobStorage:
    found = JobStorage(tmp_path, CLUSTER)
    found.take_over("job", leader.epoch)
    return found


@pytest.fixture
def scene(
    memory: FaultyMemory, leader: Leadership, storage: JobStorage, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    fakes: dict[str, Callable[..., Any]] = {
        "holds_back": lambda writer: None,
        "keeps_one_partition": lambda writer: False,
        "trigger": lambda writer: None,
        "set_trigger": lambda writer, trigger: None,
        "make_active": lambda writer: None,
        "is_over": lambda query: True,
        "remote_files": lambda writer: None,
        "local_files": lambda writer: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(queries, name, fake)
    monkeypatch.setattr(Streams, "_interrupt", lambda self: None)
    run = AttemptRun(AttemptContext(spec("job"), 1, leader.fence, memory, storage, 0.0))
    found = Streams(run, draining=False)
    yield Scene(run, found, storage)
    found.close()


def test_a_death_is_noticed_while_the_backend_hangs(
    scene: Scene, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that dies is noticed even while the leader is unknown."""
    writer, asked, answer = scene.add("one"), threading.Event(), threading.Event()

    def hangs(fence: object) -> bool:
        asked.set()
        answer.wait()
        return True

    monkeypatch.setattr(memory, "is_current", hangs)
    until(asked.is_set, "the fence is looked at")
    writer.query.die()
    until(lambda: scene.streams.failure, "the death is noticed")
    answer.set()

    assert "stage 'one' died" in str(scene.streams.failure)


def test_a_death_is_noticed_while_another_stage_starts(scene: Scene) -> None:
    """A stage whose start takes its time keeps nobody from looking after the others."""
    slow, other = scene.add("slow", attempts=5), scene.add("other")
    slow.go.clear()
    slow.query.die()
    until(lambda: slow.starts == 2, "the one is being started again")
    other.query.die()
    until(lambda: scene.streams.failure, "the death of the other is noticed")
    slow.go.set()

    assert "stage 'other' died" in str(scene.streams.failure)


def test_no_thread_for_a_check(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages are checked as soon as there is one, and the job lives."""
    refused = refuse_threads(monkeypatch, "jrs-look-", 3)
    until(lambda: scene.streams.failure or scene.streams._fence_at, "the fence is looked at")
    # Each of these needs a thread of its own, as none of them returns meanwhile.
    writers = [scene.add(name, attempts=2) for name in ("one", "two", "three")]
    for writer in writers:
        writer.go.clear()
        writer.query.die()
    until(lambda: all(writer.starts == 2 for writer in writers), "all are started again")
    for writer in writers:
        writer.go.set()

    assert len(refused) == 3
    assert scene.streams.failure is None


class Stubborn(Query):
    """A query that Spark fails to stop the first few times."""

    status: ClassVar = {"isTriggerActive": True}
    in_vain = 3

    def stop(self) -> None:
        self.in_vain -= 1
        if self.in_vain < 0:
            super().stop()


def planned(scene: Scene, batches: int) -> Path:
    """Return the checkpoint of stage "one", with these batches committed."""
    checkpoint = scene.storage.stream("job", scene.run.context.epoch, "one") / "ck"
    fabricate.FakeQuery(checkpoint, "changelog-v2", partitions=1).start().run(batches)
    return checkpoint


@pytest.mark.parametrize("fault", ["no thread", "no descriptor", "not stopped"])
def test_a_drain_asks_a_query_to_stop_until_it_has(
    scene: Scene, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2: a drain does not hang because its first try to stop a query came to nothing."""
    planned(scene, 2)
    monkeypatch.setattr(queries, "is_caught_up", lambda query, has_run: False)
    writer, tries = scene.add("one"), list[object]()
    query = writer.query = scene.streams._stages["one"]._query = Stubborn()  # type: ignore[assignment]
    real = threading.Thread.start if fault == "no thread" else checkpoint_reads.position

    def fails_at_first(*args: Any) -> Any:
        tries.append(args)
        if fault == "no thread":
            if args[0].name == "jrs-stop-one" and len(tries) < 3:
                raise RuntimeError("can't start new thread")
        elif len(tries) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(*args)

    if fault == "no thread":
        monkeypatch.setattr(threading.Thread, "start", fails_at_first)
    elif fault == "no descriptor":
        monkeypatch.setattr(boundary, "position", fails_at_first)
    monkeypatch.setattr(boundary, "_BOUNDARY", 0.0)
    assert scene.streams.drain() is None
    until(lambda: not query.isActive, "it is stopped")
    until(lambda: writer.starts == 2, "it catches up")

    assert scene.streams.failure is None


@pytest.mark.parametrize("why", ["interrupted", "LOST", "NOT_COMPUTED"])
def test_an_error_of_a_query_that_is_being_stopped(
    scene: Scene, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain stops a query in the middle of its work: an error that it dies of then is no death of
    the stage, unless it is about its state, or its sink."""
    planned(scene, 2)
    monkeypatch.setattr(boundary, "_BOUNDARY", 0.0)
    monkeypatch.setattr(queries, "is_caught_up", lambda query, has_run: False)
    writer = scene.add("one")
    stage = scene.streams._stages["one"]
    plan(scene, 2)
    query, error = writer.query, {"LOST": LOST, "NOT_COMPUTED": NOT_COMPUTED}.get(why, why)
    monkeypatch.setattr(query, "stop", lambda: query.die(error))
    assert scene.streams.drain() is None
    until(
        lambda: scene.streams.failure or stage._tried_at is not None or writer.starts == 2,
        "its end is noticed",
    )

    assert stage._deaths == 0
    assert (stage._tried_at is not None) == (why == "LOST")
    assert isinstance(scene.streams.failure, JobHeld) == (why == "NOT_COMPUTED")
    assert scene.streams.failure is None or why == "NOT_COMPUTED"


def fails(times: int, real: Callable[..., Any], number: int = errno.EMFILE) -> Callable[..., Any]:
    """Return a function that fails so many times, and then works."""
    left = [OSError(number, os.strerror(number))] * times

    def function(*args: Any) -> Any:
        if left:
            raise left.pop()
        return real(*args)

    return function


def test_a_disk_that_is_full_when_the_last_batch_is_planned(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails no job: the batch is planned once the disk has room."""
    planned(scene, 2)
    monkeypatch.setattr(stage_query, "_AGAIN", 0.0)
    monkeypatch.setattr(queries, "is_caught_up", lambda query, has_run: True)
    writer = scene.add("one")
    monkeypatch.setattr(os, "fsync", fails(3, os.fsync, errno.ENOSPC))
    assert scene.streams.drain() is None
    until(lambda: writer.starts == 2, "it catches up")
    writer.query.stop()
    until(lambda: writer.starts == 3, "it is flushed")

    assert scene.streams._stages["one"].step is Step.FLUSHING
    assert scene.streams.failure is None


def test_a_checkpoint_that_cannot_be_read_when_a_query_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its end means is found out once the checkpoint can be read, and people hear of it."""
    planned(scene, 2)
    monkeypatch.setattr(stage_query, "_AGAIN", 0.0)
    said = list[str]()
    object.__setattr__(scene.run.context, "on_report", lambda report: said.append(report.message))
    writer = scene.add("one", attempts=2)
    # Twice in each check of it: for the batches to report, and for its end.
    monkeypatch.setattr(positions, "position", fails(6, positions.position))
    writer.query.die(NOT_COMPUTED)
    until(lambda: writer.starts == 2, "it is started again")

    assert scene.streams.failure is None
    assert [text for text in said if "stage 'one': a checkpoint cannot be read now" in text]


def test_a_checkpoint_that_cannot_be_read_for_a_mark(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that has finished does not fail for its mark."""
    planned(scene, 2)
    scene.add("one")
    stage = scene.streams._stages["one"]
    monkeypatch.setattr(positions, "position", fails(3, positions.position))
    stage.step = Step.DRAINED
    until(lambda: stage.step is Step.FINISHED, "it is marked as finished")

    assert scene.streams.failure is None


NOT_COMPUTED = "assertion failed: CheckpointInfo length: 0, numPartitions: 2"
LOST = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] a changed byte"


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """What a batch is repeated with."""
    found = Writer()
    monkeypatch.setattr(queries, "for_state_only", lambda writer: found)
    return found


def plan(scene: Scene, batch: int, *, computed: tuple[int, ...] = ()) -> None:
    """Have the query of stage "one" plan a batch, and compute these of its two partitions."""
    checkpoint = scene.storage.stream("job", scene.run.context.epoch, "one") / "ck"
    fabricate.put(checkpoint / "offsets" / str(batch), 'v1\n{"batchWatermarkMs":0}\n{}')
    for partition in range(2):
        fabricate.put(checkpoint / f"state/0/{partition}/_metadata/schema", "schema")
    name = f"{batch + 1}_{uuid.uuid4()}.changelog"
    for partition in computed:
        fabricate.put(checkpoint / f"state/0/{partition}/{name}", "changes")


def test_a_batch_that_cannot_be_repeated_is_a_death(scene: Scene, repeated: Writer) -> None:
    """A batch that its sink has is computed once more, for its state; what dies of the same all the
    same is not started forever."""
    plan(scene, 0, computed=(0, 1))
    writer = scene.add("one")
    writer.query.die(NOT_COMPUTED)
    until(lambda: scene.streams.steps()["one"].startswith("repeating a batch"), "it is repeated")
    repeated.query.die(NOT_COMPUTED)
    until(lambda: scene.streams.failure, "the death is noticed")

    assert (writer.starts, repeated.starts) == (1, 1)
    assert "stage 'one' died" in str(scene.streams.failure)


@pytest.mark.parametrize("computed", [(), (1,)])
def test_a_new_batch_is_never_repeated(
    scene: Scene, repeated: Writer, computed: tuple[int, ...]
) -> None:
    """A sink that says that it has a batch which no run has computed, all of it, has one of another
    history: the job is held, now and when it is started again, and the batch is not lost."""
    writer = scene.add("one")
    plan(scene, 0, computed=computed)
    writer.query.die(NOT_COMPUTED)
    until(lambda: scene.streams.failure, "it is noticed")

    assert isinstance(scene.streams.failure, JobHeld)
    assert "its sink took batch 0, which is new" in str(scene.streams.failure)
    assert "remove the batch from it if it has the batch" in str(scene.streams.failure)

    again = Writer()
    stage = stage_of(scene.run, "one", again, scene.streams._stages["one"].checkpoint)
    stage.start(draining=False)
    again.query.die(NOT_COMPUTED)
    with pytest.raises(JobHeld, match="which is new"):
        stage.look(draining=False)
    assert repeated.starts == 0


@attrs.define
class Keeper:
    """What an attempt knows of the calls of a stage's function."""

    called: int
    """The batch that an earlier attempt called it for."""
    unread: list[int] = attrs.field(factory=list)
    kept: int = 0

    def may_have(self, batch: int) -> bool:
        return batch == self.called

    def note_unread(self, batch: int) -> None:
        self.unread.append(batch)

    def keep_done(self) -> None:
        self.kept += 1


def test_a_suspend_keeps_what_a_function_was_called_for(scene: Scene) -> None:
    """Once its query has ended; otherwise another host would call it again for the last batch."""
    keeper = Keeper(0)
    writer = scene.add("one")
    scene.streams._stages["one"].keeper = cast("PlanKeeper", keeper)
    scene.streams.suspend()
    assert (keeper.kept, writer.query.isActive) == (1, False)


def test_a_batch_whose_state_was_lost_with_its_host(scene: Scene, repeated: Writer) -> None:
    """An earlier attempt called the function for it, which has it now: it is computed again, for
    its state alone. Any other batch without state is held, and that is noted."""
    keeper = Keeper(0)
    writer = scene.add("one")
    scene.streams._stages["one"].keeper = cast("PlanKeeper", keeper)
    plan(scene, 0)
    writer.query.die(NOT_COMPUTED)
    until(lambda: repeated.starts, "it is repeated")
    assert scene.streams.failure is None

    keeper.called = -1
    again = Writer()
    stage = stage_of(scene.run, "one", again, scene.streams._stages["one"].checkpoint)
    stage.keeper = cast("PlanKeeper", keeper)
    stage.start(draining=False)
    again.query.die(NOT_COMPUTED)
    with pytest.raises(JobHeld, match="which is new"):
        stage.look(draining=False)
    assert (keeper.unread, repeated.starts) == ([0], 1)


def test_state_is_lost_if_it_cannot_be_loaded_twice(scene: Scene) -> None:
    """R6: what cannot be loaded is tried once more before it is taken for damaged, and that is
    reported; and a lock that is held, or a host without memory, is no damage."""
    writer = scene.add("one")
    writer.query.die(LOST)
    until(lambda: writer.starts == 2, "it is tried once more")
    writer.query.die(LOST)
    until(lambda: scene.streams.failure, "it is noticed")

    assert isinstance(scene.streams.failure, StateLost)
    assert "a changed byte" in scene.storage.damage("job", scene.run.context.epoch, "one")
    for passing in ("UNRELEASED_THREAD_ERROR", "ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY"):
        assert not error_reasons.lost_state(
            Exception(f"[CANNOT_LOAD_STATE_STORE.{passing}] it is held")
        )


@pytest.mark.parametrize("got_on", [True, False])
def test_a_stage_that_ran_for_long_has_recovered(scene: Scene, got_on: bool) -> None:
    """The count of its deaths begins again, if it has committed a batch since it was started."""
    planned(scene, 2)
    writer = scene.add("one", attempts=2)
    stage, clock = scene.streams._stages["one"], time.monotonic
    writer.query.die()
    until(lambda: writer.starts == 2, "it is started again")
    if got_on:
        planned(scene, 4)
    stage._clock = lambda: clock() + 700.0
    writer.query.die()
    until(lambda: scene.streams.failure or writer.starts == 3, "its death is noticed")

    assert isinstance(scene.streams.failure, StageDied) is not got_on
    assert stage._deaths == (1 if got_on else 2)


AWAY = """[STREAM_FAILED] Query [a] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 3.0 failed 1 times: org.apache.spark.SparkException: \
[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.
\tat org.apache.spark.sql.execution.streaming.state.RocksDB.load(RocksDB.scala:1)
Caused by: java.io.IOException: %s
Driver stacktrace:"""


@pytest.mark.parametrize(
    "cause",
    [
        *("No space left on device", "Disk quota exceeded", "/jobs/1.zip (Too many open files)"),
        *("Cannot allocate memory", "Stale file handle", "Connection timed out"),
    ],
)
def test_state_that_cannot_be_loaded_here_now(scene: Scene, cause: str) -> None:
    """It is not lost, so no snapshot takes its place: the attempt is interrupted."""
    writer = scene.add("one")
    writer.query.die(AWAY % cause)
    until(lambda: writer.starts == 2 or scene.streams.failure, "it is tried once more")
    writer.query.die(AWAY % cause)
    until(lambda: scene.streams.failure, "it is noticed")

    failure = scene.streams.failure
    assert isinstance(failure, Unavailable)
    assert str(failure) == f"stage 'one' cannot continue here now: IOException: {cause}"
    assert triage(failure, jvm_died=lambda: False, retried=False)[0] is Verdict.INTERRUPTED
    assert not scene.storage.damage("job", scene.run.context.epoch, "one")


class SparkError(Exception):
    """An error as PySpark makes it of one of the JVM: it has that one's causes."""

    def __init__(self, said: str, *causes: str) -> None:
        super().__init__(said)
        self._desc = said
        self._cause = SparkError(*causes) if causes else None


def of_jvm(*causes: str) -> SparkError:
    """Return what a query died of, whose text has the message of the first cause, not its kind."""
    return SparkError(causes[0].partition(": ")[2] + "\n=== Streaming Query ===", *causes)


NO_SPACE = "java.io.IOException: No space left on device"
FULL = of_jvm(f"org.apache.hadoop.fs.FSError: {NO_SPACE}", NO_SPACE)


@pytest.mark.parametrize(
    "causes",
    [
        ("org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed", NO_SPACE),
        ("java.io.FileNotFoundException: /jobs/1.zip (Too many open files)",),
        ("java.nio.file.FileSystemException: /jobs/a: b: Disk quota exceeded",),
        ('java.io.IOException: Cannot run program "python3"',
         "java.io.IOException: error=12, Cannot allocate memory"),
        ("org.rocksdb.RocksDBException: While appending to file: /tmp/1.sst: Stale file handle",),
    ],
)  # fmt: skip
def test_what_the_system_says_of_a_host_passes(causes: tuple[str, ...]) -> None:
    """The innermost cause says so, whatever the error itself says."""
    assert error_reasons.is_interrupted(of_jvm(*causes))


def test_a_sink_that_cannot_write_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of jrs runs in Python as well, where Spark tells of errors by their tracebacks."""

    class Full:
        def __init__(self, *args: object, **options: object) -> None:
            raise OSError(errno.ENOSPC, "Error writing. Detail: [errno 28] No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", Full)
    rows = pyarrow.record_batch({"a": [1]})
    with pytest.raises(OSError, match="No space left") as raised:
        sink._Writer(tmp_path, "one", "run", "").write(iter([rows]))
    said = "".join(traceback.format_exception(raised.value))

    assert error_reasons.is_interrupted(of_jvm(PYTHON + said + " SQLSTATE: 38000"))


PYTHON = (
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from "
    "the Python worker: "
)
RAISED = """Traceback (most recent call last):
  File "/app/job.py", line 52, in f
    self.run()
%s
"""


@pytest.mark.parametrize(
    "cause",
    [
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: "
        + RAISED % "OSError: [Errno 28] No space left on device: '/data'",
        PYTHON + RAISED % "ValueError: row 7: 'Too many open files' is no number",
        PYTHON + RAISED % f"ValueError: a row of a log\n{NO_SPACE}",
        "org.postgresql.util.PSQLException: ERROR: could not extend file: No space left on device",
        "java.io.IOException: the server says: No space left on device",
        "org.apache.hadoop.ipc.RemoteException(java.io.IOException): No space left on device",
        f"org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] {NO_SPACE}",
        f"java.lang.NumberFormatException: The value 'a\n{NO_SPACE}\n' is no number",
    ],
)
def test_what_the_code_of_the_job_says_is_a_death(scene: Scene, cause: str) -> None:
    """It may quote any text, and a server of its own may have a full disk: it ends the stage."""
    writer = scene.add("one")
    writer.query.die(of_jvm(cause))
    until(lambda: scene.streams.failure or writer.starts == 2, "it is noticed")

    assert isinstance(scene.streams.failure, StageDied)


def test_a_disk_that_is_full_for_a_moment(scene: Scene) -> None:
    """It is no death of a stage, even under the default policy, however often it comes back."""
    planned(scene, 2)
    writer = scene.add("one")
    for starts in (2, 3):
        writer.query.die(FULL)
        until(lambda expected=starts: writer.starts == expected, "it is started again")  # type: ignore[misc]
        planned(scene, 2 * starts)
    assert scene.streams._stages["one"]._deaths == 0

    writer.query.die(FULL)
    until(lambda: writer.starts == 4, "it is started again")
    writer.query.die(FULL)
    until(lambda: scene.streams.failure, "it does not become free")
    failure = scene.streams.failure
    assert failure is not None
    assert triage(failure, jvm_died=lambda: False, retried=False)[0] is Verdict.INTERRUPTED


def test_a_server_that_times_out_is_a_death(scene: Scene) -> None:
    """Nothing says that it is the storage, and not a server of the job's own."""
    writer = scene.add("one")
    writer.query.die("the function has failed: Connection timed out")
    until(lambda: scene.streams.failure, "it is noticed")

    assert isinstance(scene.streams.failure, StageDied)


def failing_starts(writer: Writer, *errors: Exception) -> None:
    """Have the next starts of a query fail of these errors."""
    start, left = writer.start, list(errors)

    def fails_at_first() -> Query:
        if left:
            raise left.pop(0)
        return start()

    writer.start = fails_at_first


def test_a_storage_that_fails_a_start(scene: Scene) -> None:
    """The first start in an attempt interrupts it, and a later one is tried once more."""
    writer = scene.add("one", attempts=2)
    failing_starts(writer, FULL, RuntimeError("Connection timed out"), FULL)
    checkpoint = scene.storage.stream("job", scene.run.context.epoch, "one") / "ck"
    again = stage_of(scene.run, "one", writer, checkpoint)
    with pytest.raises(Unavailable, match=r"stage 'one' cannot be started now: .*No space"):
        again.start(draining=False)
    # It may be a server of the job's own from which the query reads.
    with pytest.raises(RuntimeError, match="timed out"):
        again.start(draining=False)
    writer.query.die()
    until(lambda: writer.starts == 2, "it is started again")

    assert scene.streams._stages["one"]._deaths == 1
    assert scene.streams.failure is None


@pytest.mark.parametrize("of_spark", [True, False])
def test_a_host_that_fails_each_start(
    scene: Scene, of_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt is interrupted: another host may have room."""
    monkeypatch.setattr(stage_query, "_AGAIN", 0.0)
    writer = scene.add("one", attempts=2)
    if of_spark:
        failing_starts(writer, *[FULL] * 9)
    else:
        full = fails(9, lambda attempt: None, errno.ENOSPC)
        with_words = disk_errors.writing("looking")(full)
        monkeypatch.setattr(cluster, "require_shared", with_words)
    writer.query.die()
    until(lambda: scene.streams.failure, "it does not get room")

    failure = scene.streams.failure
    assert failure is not None
    assert "stage 'one' cannot continue here now" in str(failure)
    assert triage(failure, jvm_died=lambda: False, retried=False)[0] is Verdict.INTERRUPTED


def test_a_backend_that_is_away_at_a_start(
    scene: Scene, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, however often it is asked: the host is all right."""
    monkeypatch.setattr(stage_query, "_AGAIN", 0.0)
    writer, asked = scene.add("one", attempts=2), list[AttemptContext]()

    def require(attempt: AttemptContext) -> None:
        asked.append(attempt)
        memory.down = len(asked) < 5
        attempt.backend.get(keys.EPOCH)

    monkeypatch.setattr(cluster, "require_shared", require)
    writer.query.die()
    until(lambda: scene.streams.failure or writer.starts == 2, "it is started again")

    assert (scene.streams.failure, len(asked)) == (None, 5)


def test_state_that_is_away_and_then_lost(scene: Scene) -> None:
    """What looks lost is tried once more, whatever happened before."""
    writer = scene.add("one")
    for starts, error in enumerate([AWAY % "Stale file handle", LOST, LOST], 1):
        until(lambda expected=starts: writer.starts == expected, "it is started again")  # type: ignore[misc]
        assert scene.streams.failure is None
        writer.query.die(error)
    until(lambda: scene.streams.failure, "it is noticed")

    assert isinstance(scene.streams.failure, StateLost)


@pytest.mark.parametrize(
    ("error", "after"), [(Unavailable, False), (OutcomeUnknown, False), (OutcomeUnknown, True)]
)
def test_a_mark_that_could_not_be_made_is_tried_again(
    scene: Scene, memory: FaultyMemory, error: type[Exception], after: bool
) -> None:
    """A backend that is away when a stage is marked as finished is asked again, and the mark is
    the same whether the first try had happened or not.
    """
    scene.add("one")
    memory.fault(keys.STAGES, error, after=after, times=3)
    stage = scene.streams._stages["one"]
    stage.step = Step.DRAINED
    until(lambda: stage.step is Step.FINISHED, "it is marked as finished")

    assert scene.streams.failure is None
    assert len(scene.run.stage_summaries()) == 1


@pytest.mark.parametrize("moves", [False, True])
def test_a_mark_names_what_the_output_has(
    scene: Scene, memory: FaultyMemory, leader: Leadership, moves: bool
) -> None:
    """A stage is not marked as finished if its output gets one more batch meanwhile."""
    key = keys.head("job", "one")
    memory.commit(Create(key, b"at batch 0"), fence=leader.fence)
    found = memory.get(key)
    assert found is not None

    def ends_at(batch: int) -> Check:
        if moves:
            memory.commit(Update(key, b"at batch 1", found.version), fence=leader.fence)
        return Check(key, found.version)

    scene.add("one")
    stage = scene.streams._stages["one"]
    stage.committer = cast(BatchCommitter, SimpleNamespace(ends_at=ends_at))
    stage.step = Step.DRAINED
    until(lambda: stage.step is Step.FINISHED or scene.streams.failure is not None, "the verdict")

    assert (memory.get(keys.stage("job", "one")) is None) == moves
    assert isinstance(scene.streams.failure, Conflict) == moves


@pytest.mark.parametrize("wrote", [False, True])
@pytest.mark.parametrize("in_objects", [False, True])
def test_a_mark_tells_whether_there_is_output(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, in_objects: bool, wrote: bool
) -> None:
    """In a folder by what is in it, in objects by the batches that the sink of jrs committed."""
    stage = stage_of(scene.run, "one", Writer(), scene.storage.root)
    at = SimpleNamespace(committed=0 if wrote else -1)
    monkeypatch.setattr(stage_query, "position", lambda checkpoint: at)
    if in_objects:
        monkeypatch.setattr(scene.storage, "objects", object())
        stage.committer = cast(BatchCommitter, object())
    else:
        place = scene.storage.published("job", "one", temporary=False)
        (place / ("batch=0" if wrote else "")).mkdir(parents=True)

    assert stage.record().summary().has_output is wrote


def test_state_that_is_lost_in_a_rescale(
    scene: Scene, memory: FaultyMemory, leader: Leadership, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6, N1: a changed byte that a rescale finds is a death, and the damage is reported: the next
    attempt resumes from a snapshot.
    """

    def rescale(*args: object) -> None:
        raise RuntimeError(LOST)

    conf = SimpleNamespace(get=lambda *name: None)
    monkeypatch.setattr(Job, "spark", property(lambda self: SimpleNamespace(conf=conf)))
    monkeypatch.setattr(rescaling, "partitions", lambda checkpoint: 2)
    monkeypatch.setattr(rescaling, "rescale", rescale)
    checkpoint = scene.storage.stream("job", leader.epoch, "one") / "ck"

    def function(job: Job) -> None:
        run = job._run
        assert isinstance(run, AttemptRun)
        stage_of(run, "one", Writer(), checkpoint, partitions=4).start(draining=False)

    context = AttemptContext(JobSpec("job", "m:f"), 1, leader.fence, memory, scene.storage, 0.0)
    with pytest.raises(AttemptDied, match="its state cannot be loaded"):
        run_attempt(context, function)
    assert "a changed byte" in scene.storage.damage("job", leader.epoch, "one")


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(errno.EMFILE, "Too many open files"), shutil.Error([])),
        RuntimeError("Job aborted: java.io.IOException: No space left on device"),
    ],
)
def test_a_rescale_that_is_not_possible_now(
    scene: Scene, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no job: a rescale can be tried again."""
    planned(scene, 2)

    def rescale(*args: object) -> None:
        raise error

    conf = SimpleNamespace(get=lambda *name: None)
    monkeypatch.setattr(Job, "spark", property(lambda self: SimpleNamespace(conf=conf)))
    monkeypatch.setattr(rescaling, "partitions", lambda checkpoint: 2)
    monkeypatch.setattr(rescaling, "rescale", rescale)
    checkpoint = scene.storage.stream("job", scene.run.context.epoch, "one") / "ck"
    with pytest.raises(Unavailable, match="stage 'one' cannot be rescaled now"):
        stage_of(scene.run, "one", Writer(), checkpoint, partitions=4).start(draining=False)


def test_a_rescale_of_what_writes_to_another_filesystem(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of its sink would lack the batch that rescaled the state: nothing is changed."""
    planned(scene, 2)
    conf = SimpleNamespace(get=lambda *name: None)
    monkeypatch.setattr(Job, "spark", property(lambda self: SimpleNamespace(conf=conf)))
    monkeypatch.setattr(rescaling, "partitions", lambda checkpoint: 2)
    monkeypatch.setattr(rescaling, "rescale", lambda *args: pytest.fail("it is rescaled"))
    monkeypatch.setattr(queries, "remote_files", lambda writer: "hdfs://nn:8020/orders")
    checkpoint = scene.storage.stream("job", scene.run.context.epoch, "one") / "ck"
    with pytest.raises(JobHeld, match=r"jrs rescale job --partitions 2; .*hdfs://nn:8020/orders"):
        stage_of(scene.run, "one", Writer(), checkpoint, partitions=4).start(draining=False)


@pytest.mark.parametrize("entry", ["3", "3.compact"])
def test_a_table_that_is_ahead_of_the_checkpoint(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """The job went back to a snapshot, and its table elsewhere did not: Spark's file sink would
    leave out the batches that it knows by number, whatever is in them."""
    table = tmp_path / "warehouse" / "orders"
    monkeypatch.setattr(queries, "local_files", lambda writer: table)
    checkpoint = planned(scene, 2)
    plan(scene, 2)
    for batch in range(3):
        fabricate.put(table / f"_spark_metadata/{batch}", "v1")
    stage_of(scene.run, "one", writer := Writer(), checkpoint).start(draining=False)

    assert writer.starts == 1  # The sink has the planned batch, and no later one.

    fabricate.put(table / "_spark_metadata" / entry, "v1")
    stage = stage_of(scene.run, "one", writer, checkpoint)
    with pytest.raises(JobHeld, match=f"'one': {table} has batches up to 3, and the checkpoint up"):
        stage.start(draining=False)
    assert writer.starts == 1


@pytest.mark.parametrize("state", [StopState.REQUESTED, StopState.QUIESCED])
def test_nothing_begins_while_the_job_is_to_stand(
    scene: Scene, memory: FaultyMemory, state: StopState
) -> None:
    """A stage that the function comes to while its job stops is left to the next attempt. So is one
    of a job that is quiesced already because nothing was started yet."""
    put(memory, f"{keys.STOPS}job", StopRecord("job", StopMode.SUSPEND, state))
    scene.streams.close()
    with pytest.raises(Fenced, match="is suspended and starts nothing more here"):
        scene.streams._hold_back()


@pytest.mark.parametrize("state", [StopState.REQUESTED, StopState.REFUSED])
def test_a_drain_keeps_nothing_from_beginning(
    scene: Scene, memory: FaultyMemory, state: StopState
) -> None:
    """What is drained has to be started for it."""
    put(memory, f"{keys.STOPS}job", StopRecord("job", StopMode.DRAIN, state))
    scene.streams._hold_back()


def test_a_job_is_held_when_nothing_of_it_runs_any_more(
    scene: Scene, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a job is shown as held, an operator may put other files into its place."""
    held_before: list[bool] = []
    monkeypatch.setattr(
        AttemptRun,
        "close",
        lambda run: held_before.append(memory.get(f"{keys.STOPS}job") is not None),
    )

    engine = FailingEngine(JobHeld("its plan has changed"))
    with pytest.raises(JobHeld):
        run_attempt(scene.run.context, lambda job: job.spark, engine)

    assert held_before[0] is False
    assert memory.get(f"{keys.STOPS}job") is not None


@pytest.mark.parametrize(
    ("told", "folder"),
    [
        ("/data/a#b?c", "/data/a#b?c"),
        ("/data/100%41", "/data/100%41"),
        ("file:/data/a%20b#c", "/data/a%20b#c"),
        ("file:///data/a", "/data/a"),
        ("file://host/data/a", "/data/a"),
    ],
)
def test_where_a_sink_writes_to(monkeypatch: pytest.MonkeyPatch, told: str, folder: str) -> None:
    """A sink's path is read as Spark reads it, which escapes nothing."""
    monkeypatch.setattr(queries, "_peek", lambda of, name: None)
    monkeypatch.setattr(queries, "_option", lambda options, name: told)
    writer: Any = SimpleNamespace(_jwrite=None)

    assert queries.path_of(writer) == Path(folder)


@pytest.mark.parametrize(
    ("sink", "path", "is_remote"),
    [
        ("parquet", "hdfs://nn:8020/orders", True),
        ("json", "s3a://bucket/orders", True),
        ("csv", "/data/a:b", False),
        ("parquet", "file:///data/orders", False),
        ("parquet", None, False),
        ("delta", "s3a://bucket/orders", False),
        ("Parquet", "hdfs://nn:8020/orders", True),
    ],
)
@pytest.mark.parametrize("default", ["file:///", "hdfs://nn:8020"])
def test_a_file_sink_on_another_filesystem(
    monkeypatch: pytest.MonkeyPatch, sink: str, path: str | None, is_remote: bool, default: str
) -> None:
    """jrs reaches the log of a file sink on this host alone; other sinks have none. A path without
    a scheme is on the filesystem that is Hadoop's default."""
    monkeypatch.setattr(queries, "_default_filesystem", lambda writer: default)
    is_remote = is_remote or (path == "/data/a:b" and default != "file:///")
    monkeypatch.setattr(queries, "_peek", lambda of, name: sink)
    monkeypatch.setattr(queries, "_option", lambda options, name: path)
    writer: Any = SimpleNamespace(_jwrite=None)

    assert queries.remote_files(writer) == (path if is_remote else None)
    is_local = path is not None and not is_remote and sink != "delta"
    assert queries.local_files(writer) == (queries.path_of(writer) if is_local else None)


@pytest.mark.parametrize(
    ("sink", "path", "recorded"),
    [
        ("delta", "s3a://key:secret@bucket/orders?sig=1", ("delta", "s3a://bucket/orders", True)),
        ("delta", "abfss://raw@acct:443/t", ("delta", "abfss://raw@acct:443/t", True)),
        ("Iceberg", "prod.db.orders", ("iceberg", "prod.db.orders", True)),
        ("parquet", "hdfs://nn:8020/orders", ("parquet", "hdfs://nn:8020/orders", True)),
        ("Parquet", "file:///data/orders", ("parquet", "/data/orders", False)),
        ("foreachBatch", None, ("foreachBatch", "", False)),
        ("foreach", None, ("foreach", "", True)),
        ("kafka", None, ("kafka", "", False)),
        ("jrs", None, ("jrs", "", False)),
    ],
)
def test_what_is_recorded_of_a_sink(
    monkeypatch: pytest.MonkeyPatch, sink: str, path: str | None, recorded: tuple[str, str, bool]
) -> None:
    """Without secrets; and whether it may leave out a batch by its number, unseen by jrs."""
    monkeypatch.setattr(queries, "_peek", lambda of, name: sink)
    monkeypatch.setattr(queries, "_option", lambda options, name: path)
    writer: Any = SimpleNamespace(_jwrite=None)

    assert queries.sink_of(writer) == StreamSink(*recorded)
