"""Job and its stages: the interface that a job's function gets from jrs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from jrs.records.model import Json, StageRecord
from jrs.records.policies import RestartPolicy

from .context import AttemptContext
from .job_log import log_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

T = TypeVar("T")
"""What a stage's function returns: JSON."""

Build = Callable[["StreamStage"], "DataStreamWriter"]
"""Builds the query of a streaming stage."""


class Stage:
    """A running stage, as its function sees it.

    Attributes:
        job: the job that it is part of.
        name: of the stage.
        output: an empty folder for the stage's files (a `pathlib.Path`). When the function returns,
            one rename publishes its content; write nothing elsewhere.
    """

    def __init__(self, job: Job, name: str, staging: Path) -> None:
        self.job = job
        self.name = name
        self.output = staging

    @property
    def spark(self) -> SparkSession:
        """The attempt's SparkSession; see `Job.spark`."""
        return self.job.spark


class FinishedStage(Generic[T]):
    """A stage that has finished, in this attempt or an earlier one."""

    def __init__(self, record: StageRecord, output: Callable[[], Path], *, skipped: bool) -> None:
        self.name = record.name
        self.skipped = skipped
        """Whether an earlier attempt finished the stage, so that this one did not run it."""
        self._output = output
        self._result: T = record.result

    @property
    def output(self) -> Path:
        """The folder of its published output; it exists if the stage wrote any.

        Where the storage has objects, this is a copy on this host. If an earlier attempt on another
        host has written it, it is fetched now.

        Raises:
            JobHeld: an object is missing, or was changed.
            Fenced: a newer leader exists.
        """
        return self._output()

    def result(self) -> T:
        """Return what the stage's function returned."""
        return self._result


class StreamStage(Stage):
    """A streaming stage, as the function that builds its query sees it."""

    @property
    def generation(self) -> int:
        """The generation of the job's batches: 1, and one more for each restore of the job.

        After a restore, batches get the numbers of earlier ones. So an output of your own, which
        remembers the batches that it has, has to remember them by generation and number; see the
        recipe for databases. Always 1 in a cluster before format 6.

        Raises:
            JobHeld: the job's record of it cannot be read.
            Unavailable: the backend did not answer.

        Example::

            generation = stage.generation
            writer = rows.writeStream.foreachBatch(
                lambda frame, batch: write(frame, generation, batch)
            )
        """
        return self.job._run.generation()

    def files(self, path: str | Path) -> str:
        """Return a folder of links to the files that `path` held when the stage was first started.

        The folder is a closed input: it contains no other files and is the same for every attempt.
        They are the files that Spark would read in `path`, also behind links to folders.

        Raises:
            InvalidInput: `path` is not a folder on this host.
            Unavailable: something in `path` cannot be listed now: a later attempt closes the input.
            Fenced: a newer leader exists.
        """
        return self.job._run.close_input(self.name, Path(path))


class Stream:
    """A streaming stage that this attempt or an earlier one started."""

    def __init__(
        self,
        name: str,
        output: Callable[[], Path],
        wait: Callable[[Stream], Json],
        *,
        skipped: bool = False,
    ) -> None:
        self.name = name
        self._output = output
        self.skipped = skipped
        """Whether an earlier attempt finished the stage, so that this one did not run it."""
        self._wait = wait

    @property
    def output(self) -> Path:
        """The folder of its published output.

        Where the storage has objects, this is a copy on this host, which is fetched now.

        Raises:
            WrongState: the storage has objects, and the stage has not finished.
            JobHeld: an object is missing, or was changed.
            Fenced: a newer leader exists.
        """
        return self._output()

    def result(self) -> Json:
        """Wait until the stage has finished and return its record: the number of its batches, and
        the newest progress that Spark reported.

        Raises:
            StageDied: this stage or another stage of the job died.
            Fenced: a newer leader exists.
        """
        return self._wait(self)


class Job:
    """One attempt of a job, handed to its function as the first argument.

    Every durable step is fenced. Once a newer leader exists, `stage` raises `Fenced`, and nothing
    that this attempt still does becomes visible.

    In a process of its own, nothing that Python leaves for its end happens after the function has
    returned or raised: no `atexit`, no flush of open files, no wait for threads.
    """

    def __init__(self, run: JobRun) -> None:
        self._run = run

    @property
    def job_id(self) -> str:
        return self._run.context.spec.job_id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._run.context.attempt

    @property
    def epoch(self) -> int:
        """The epoch of the leader that started this attempt."""
        return self._run.context.fence.epoch

    @property
    def spark(self) -> SparkSession:
        """The SparkSession of this attempt, started on first use; see `jrs.spark`."""
        return self._run.session()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger ``jrs.job``, which adds the job to every record.

        Records have the attributes ``job_id``, ``attempt`` and ``epoch``. In a process that has
        configured no logging they are printed to stderr, from INFO up. The stderr of an attempt in
        a process of its own is in ``logs/attempt-<n>.err`` of the job's folder, until the retention
        of the cluster removes it. Where ``logging.basicConfig()`` or the like was called, the
        records go there alone. Set another level with ``logging.getLogger("jrs.job").setLevel(…)``.

        Example::

            job.log.info("%d rows are left out", bad)
        """
        return log_of(self._run.context)

    def check(self) -> None:
        """Raise `Fenced` if this attempt's leader was replaced. Cheap; call it in long loops.

        It reads from the backend. While that is away, it waits, as long as this attempt may run.
        """
        self._run.context.until_stored(lambda: None)

    @overload
    def stage(
        self,
        name: str,
        function: Callable[[Stage], T],
        *,
        temporary: bool = False,
        after: Sequence[str | Stream | FinishedStage[Any]] = (),
        timeout: float | None = None,
    ) -> FinishedStage[T]: ...

    @overload
    def stage(
        self,
        name: str,
        function: None = None,
        *,
        temporary: bool = False,
        after: Sequence[str | Stream | FinishedStage[Any]] = (),
        timeout: float | None = None,
    ) -> Callable[[Callable[[Stage], T]], FinishedStage[T]]: ...

    def stage(
        self,
        name: str,
        function: Callable[[Stage], Any] | None = None,
        *,
        temporary: bool = False,
        after: Sequence[str | Stream | FinishedStage[Any]] = (),
        timeout: float | None = None,
    ) -> Any:
        """Run a stage once in the life of the job, and return it finished.

        `function` is called with a `Stage`. It writes files only below `stage.output` and returns
        JSON. That result is recorded durably, then the files are renamed into place. If an earlier
        attempt has finished the stage, the function is not called: the recorded result and the
        output are returned, even if the input has changed since.

        If `function` raises, `stage` raises the same. It may be called again, in this attempt, too:
        the function then begins again, with an empty `stage.output`.

        `temporary` output serves later stages only and is removed when the job has ended. The stage
        waits until the stages in `after` have ended, given by name or by what `stream` returned.

        A stage that has run for longer than `timeout` seconds in one attempt ends the attempt's
        process, whatever it hangs in; the job's `TimeLimits` say what follows.

        Raises:
            InvalidInput: the name was used before in this job, a stage in `after` does not exist
                yet (stages cannot form a cycle), the result is not JSON, a file below
                `stage.output` is still open for writing, or a stage with a timeout does not run in
                a process of its own.
            JobHeld: the stage has finished, and now comes after a stage that has not, or that
                finished later.
            TooLarge: the result is over 256 KiB of JSON.
            Fenced: a newer leader exists. Nothing of the stage is visible.
            Whatever `function` raises: nothing of the stage is visible then, either.

        Without `function` it is a decorator, which runs the stage at once::

            @job.stage("ingest")
            def ingested(stage: jrs.Stage) -> int:
                return write_rows(stage.output)

            total = ingested.result()
        """

        def run(given: Callable[[Stage], Any]) -> FinishedStage[Any]:
            return self._run.stage(name, given, temporary=temporary, after=after, timeout=timeout)

        return run if function is None else run(function)

    def publish(
        self, path: str | Path, *stages: str | Stream | FinishedStage[Any], name: str = "publish"
    ) -> FinishedStage[Json]:
        """Publish the output of stages at a path of your own once they have finished.

        The whole output appears atomically, at most once in the life of the job, and under the
        fence: by one rename at a path; or, where the storage has objects, by one object at a URL in
        the same bucket, which names the copies of the files (see docs/objects.md).

        It waits for the stages. Of streams that are drained, the last rows of all become visible
        together. With one stage, `path` is its output; with several, it has a folder for each. The
        output also stays in its own place. Nothing is ever overwritten: publish the partitions of a
        table next to each other, as ``/warehouse/orders/day=2026-11-20``. What was published is
        yours: jrs never removes it, not even with the job.

        The publication is a stage called `name`; its result counts the files and their bytes. If
        `path` is on another filesystem than the jobs' storage, the output is copied next to `path`
        and then renamed.

        Raises:
            InvalidInput: no stage is given, or a stage has no output; `path` is not absolute, is
                taken, is inside the jobs' storage, or its parent folder does not exist. A URL: it
                is not in the bucket of the storage, a permission is missing there, or the store
                ignores that an object must not exist yet.
            JobHeld: something else was put at the URL after the publication was committed.
            Unavailable: the disk is full, or a similar error of the filesystem.
            Fenced: a newer leader exists. Nothing is visible at `path`.
            As `stage`.
        """
        return self._run.publish(path, stages, name)

    def stream(
        self,
        name: str,
        build: Callable[[StreamStage], DataStreamWriter],
        *,
        bounded: bool = False,
        after: Sequence[str | Stream | FinishedStage[Any]] = (),
        restart: RestartPolicy | None = None,
        timeout: float | None = None,
    ) -> Stream:
        """Start a streaming stage and return at once; `Stream.result` waits for its end.

        `build` is called with a `StreamStage` and returns ``df.writeStream…``, not started, and
        without a checkpoint location, which jrs sets. A recovered job resumes from the newest
        committed batch. A `bounded` stage processes the input that exists, flushes every window,
        and finishes; an unbounded one runs until the job is drained, suspended or canceled. A stage
        that has finished is not started again, even if its input has changed since.

        The job's function may return while stages run: the job ends when all of them have ended.

        Args:
            after: stages that have to finish before this one is started.
            restart: how often a query that died is started again; by default its job fails.
            timeout: of a bounded stage, in seconds of one attempt; see `stage`.

        Raises:
            InvalidInput: as `stage`; or the query could not be recovered, with the reason.
            JobHeld: its checkpoint is of another query, or damaged.
            Fenced: a newer leader exists.
        """
        return self._run.stream(
            name, build, bounded=bounded, after=after, restart=restart, timeout=timeout
        )


def context_of(job: Job) -> AttemptContext:
    """Return the context of the attempt whose function was given `job`."""
    return job._run.context


class JobRun(Protocol):
    """The machinery that runs a job; see `Job` for what each method does."""

    context: AttemptContext

    def session(self) -> SparkSession: ...

    def stage(
        self,
        name: str,
        function: Callable[[Stage], T],
        *,
        temporary: bool,
        after: Sequence[str | Stream | FinishedStage[Any]],
        timeout: float | None,
    ) -> FinishedStage[T]: ...

    def publish(
        self, place: str | Path, stages: Sequence[str | Stream | FinishedStage[Any]], name: str
    ) -> FinishedStage[Json]: ...

    def stream(
        self,
        name: str,
        build: Build,
        *,
        bounded: bool,
        after: Sequence[str | Stream | FinishedStage[Any]],
        restart: RestartPolicy | None,
        timeout: float | None,
    ) -> Stream: ...

    def close_input(self, stage: str, path: Path) -> str: ...

    def generation(self) -> int: ...
