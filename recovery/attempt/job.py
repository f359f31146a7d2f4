"""Job and its stages: what a job's function is given, on whatever master it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jrs.records.model import Json, StageRecord
from jrs.records.policies import RestartPolicy

from .context import AttemptContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

Build = Callable[["StreamStage"], "DataStreamWriter"]
"""Builds the query of a streaming stage."""


class Stage:
    """A running stage, as its function sees it."""

    def __init__(self, job: Job, name: str, staging: Path) -> None:
        self.job = job
        self.name = name
        self.output = staging
        """An empty folder. What is in it when the function returns is published in one rename."""

    @property
    def spark(self) -> SparkSession:
        """The attempt's SparkSession; see `Job.spark`."""
        return self.job.spark


class FinishedStage:
    """A stage that has finished, in this attempt or an earlier one."""

    def __init__(self, record: StageRecord, output: Path, *, skipped: bool) -> None:
        self.name = record.name
        self.skipped = skipped
        """Whether an earlier attempt had finished it, so that it was not run again."""
        self.output = output
        """The folder of its published output; it exists if the stage wrote any."""
        self._result = record.result

    def result(self) -> Json:
        """Return what the stage's function returned."""
        return self._result


class StreamStage(Stage):
    """A streaming stage, as the function sees it that builds its query."""

    def files(self, path: str | Path) -> str:
        """Return a folder with links to the files that were in `path` when the stage was first
        started, and to no others: a closed input, the same for every attempt.

        Raises:
            InvalidInput: `path` is no folder on this host.
            Fenced: a newer leader exists.
        """
        return self.job._run.close_input(self.name, Path(path))


class Stream:
    """A streaming stage that was started, in this attempt or an earlier one."""

    def __init__(
        self, name: str, output: Path, wait: Callable[[Stream], Json], *, skipped: bool = False
    ) -> None:
        self.name = name
        self.output = output
        """The folder of its published output."""
        self.skipped = skipped
        """Whether an earlier attempt had finished it, so that it was not run again."""
        self._wait = wait

    def result(self) -> Json:
        """Wait until the stage has finished and return what is recorded of it: its number of
        batches, and the newest progress that Spark reported.

        Raises:
            StageDied: it died, or another stage of the job did.
            Fenced: a newer leader exists.
        """
        return self._wait(self)


class Job:
    """One attempt of a job, handed to its function as the first argument.

    Every durable step is fenced: once a newer leader exists, `stage` raises `Fenced`, and nothing
    that this attempt still does is ever seen.
    """

    def __init__(self, run: JobRun) -> None:
        self._run = run

    @property
    def job_id(self) -> str:
        return self._run.context.spec.job_id

    @property
    def entry_point(self) -> str:
        """What the job was submitted to run: ``module:function`` or ``/path/file.py:function``."""
        return self._run.context.spec.entry_point

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._run.context.attempt

    @property
    def epoch(self) -> int:
        """The epoch of the leader that started this attempt."""
        return self._run.context.fence.epoch

    @property
    def spark(self) -> SparkSession:
        """The SparkSession of this attempt, started when first asked for; see `jrs.spark`."""
        return self._run.session()

    def check(self) -> None:
        """Raise `Fenced` if this attempt's leader was replaced. Cheap; for long loops."""
        self._run.context.check()

    def stage(
        self,
        name: str,
        function: Callable[[Stage], Json],
        *,
        temporary: bool = False,
        after: Sequence[str | Stream | FinishedStage] = (),
    ) -> FinishedStage:
        """Run a stage once in the life of the job, and return it finished.

        `function` is called with a `Stage`; it writes files only below `stage.output` and returns
        JSON. That result is recorded durably, then the files are renamed into place. If an earlier
        attempt has finished the stage, the function is not called: its recorded result and its
        output are handed back, whatever the input holds by now.

        `temporary` output serves later stages only and is removed when the job has ended. It waits
        until the stages it comes `after`, given by name or by what `stream` returned, have ended.

        Raises:
            InvalidInput: a name that was used before in this job, a stage `after` one that is not
                there yet (stages cannot form a circle), or a result that is not JSON.
            JobHeld: it has finished, and now comes after a stage that has not, or did so later.
            TooLarge: the result is over 256 KiB of JSON.
            Fenced: a newer leader exists. Nothing of the stage is visible.
            Whatever `function` raises: nothing of the stage is visible then, either.
        """
        return self._run.stage(name, function, temporary=temporary, after=after)

    def publish(
        self, path: str | Path, *stages: str | Stream | FinishedStage, name: str = "publish"
    ) -> FinishedStage:
        """Publish the output of stages at a place of your own once they have finished: all of it in
        one rename, once in the life of the job, and under the fence.

        Waits for them; so of streams that are drained, the last rows of all are seen together.
        With one stage, `path` is its output; with several, it has a folder for each. The output
        keeps its own place, too. Nothing is ever overwritten: partitions of a table are published
        next to each other, as ``/warehouse/orders/day=2026-11-20``. What is there afterwards is
        yours: jrs never removes it, not with the job either.

        It is a stage, called `name`; its result counts the files and their bytes. If `path` is on
        another filesystem than the jobs' storage, the output is copied next to it and then renamed.

        Raises:
            InvalidInput: no stage is given, or one has no output; `path` is not absolute, is there
                already, lies in the jobs' storage, or in a folder that is not there.
            Unavailable: the disk is full, or the like.
            Fenced: a newer leader exists. Nothing is seen at `path`.
            As `stage`.
        """
        return self._run.publish(Path(path), stages, name)

    def stream(
        self,
        name: str,
        build: Build,
        *,
        bounded: bool = False,
        after: Sequence[str | Stream | FinishedStage] = (),
        restart: RestartPolicy | None = None,
    ) -> Stream:
        """Start a streaming stage, and go on at once; `Stream.result` waits for its end.

        `build` is called with a `StreamStage` and returns ``df.writeStream…``, not started, without
        a checkpoint location: that is the job's. A recovered job goes on from the newest batch that
        was committed. A `bounded` stage takes what is there, flushes every window, and finishes; an
        unbounded one runs until the job is drained, suspended or canceled. One that has finished is
        not started again, whatever its input holds by now.

        The job's function may return while stages run: the job ends when all of them have.

        Args:
            after: stages that have to be finished before this one is started.
            restart: how often a query that died is started again; by default its job fails.

        Raises:
            InvalidInput: as `stage`; or a query that could not be recovered, saying why.
            JobHeld: its checkpoint is of another query, or damaged.
            Fenced: a newer leader exists.
        """
        return self._run.stream(name, build, bounded=bounded, after=after, restart=restart)


def context_of(job: Job) -> AttemptContext:
    """Return what the attempt was started with that a function was given as `job`."""
    return job._run.context


class JobRun(Protocol):
    """What runs a job; see `Job` for what each of its methods is to do."""

    context: AttemptContext

    def session(self) -> SparkSession: ...

    def stage(
        self,
        name: str,
        function: Callable[[Stage], Json],
        *,
        temporary: bool,
        after: Sequence[str | Stream | FinishedStage],
    ) -> FinishedStage: ...

    def publish(
        self, place: Path, stages: Sequence[str | Stream | FinishedStage], name: str
    ) -> FinishedStage: ...

    def stream(
        self,
        name: str,
        build: Build,
        *,
        bounded: bool,
        after: Sequence[str | Stream | FinishedStage],
        restart: RestartPolicy | None,
    ) -> Stream: ...

    def close_input(self, stage: str, path: Path) -> str: ...
