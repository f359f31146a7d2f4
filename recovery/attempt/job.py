"""Job and Stage: what a job's function is given, on whatever master it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import Conflict, Fenced, InvalidInput, JobHeld, OutcomeUnknown
from jrs.contract.leadership import Lifeline
from jrs.contract.operations import Create, Fence
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import (
    JobSpec,
    Json,
    RunnerKind,
    StageRecord,
    StageSummary,
    check_json,
    check_stage_name,
)
from jrs.records.policies import RestartPolicy

from ..files import publishing
from ..files.job_folders import JobStorage
from ..processes.last_words import LastWords
from . import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..spark.streams import Build, Stream, Streams


_MARKS = 64
"""Finished stages in one commit: with its conditions, less than any backend takes."""


@attrs.frozen
class AttemptContext:
    """What one attempt was started with."""

    spec: JobSpec
    attempt: int
    fence: Fence
    backend: Backend
    storage: JobStorage
    first_started_at: float
    lost: threading.Event = attrs.field(factory=threading.Event)
    """Set when the attempt has to stop; only seen where it runs in its master's own process."""
    now: Clock = time.time
    lifeline: Lifeline | None = None
    """Ties a process of its own to the leadership it was started under; see `Lifeline`."""
    last_words: LastWords | None = None
    """Where an attempt in its master's own process tells how that process ended."""
    mark: str = ""
    """What its processes are born with, recorded before (see `jrs.recovery.processes.marks`)."""


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


class StateLost(Exception):
    """A stream's checkpoint can not be loaded. The attempt dies of it, and the next goes on from a
    snapshot."""


class Job:
    """One attempt of a job, handed to its function as the first argument.

    Every durable step is fenced: once a newer leader exists, `stage` raises `Fenced`, and nothing
    that this attempt still does is ever seen.
    """

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._seen: list[str] = []
        self._records: list[StageRecord] = []
        self._handles: dict[str, Stream | FinishedStage] = {}
        self._streams: Streams | None = None
        self._draining = False
        self._serials: dict[tuple[str, ...], int] = {}
        self._numbering = threading.Lock()
        self._thread = threading.current_thread()

    @property
    def job_id(self) -> str:
        return self._context.spec.job_id

    @property
    def entry_point(self) -> str:
        """What the job was submitted to run: ``module:function`` or ``/path/file.py:function``."""
        return self._context.spec.entry_point

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._context.attempt

    @property
    def epoch(self) -> int:
        """The epoch of the leader that started this attempt."""
        return self._context.fence.epoch

    @property
    def spark(self) -> SparkSession:
        """The SparkSession of this attempt, started when first asked for; see `jrs.spark`."""
        from ..spark import session

        return session(self)

    def scratch(self) -> Path | None:
        """Return a folder for temporary files that is removed with the job's staging.

        None for an attempt in its master's own process, whose Spark outlives the job.
        """
        context = self._context
        if context.spec.runner is not RunnerKind.PROCESS:
            return None
        return context.storage.scratch(self.job_id, self.epoch, self.attempt)

    def check(self) -> None:
        """Raise `Fenced` if this attempt's leader was replaced. Cheap; for long loops."""
        context = self._context
        if context.lost.is_set() or not context.backend.holds(context.fence):
            raise Fenced(f"epoch {self.epoch} was replaced: job {self.job_id!r} stops here")

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
                there yet (stages can not form a circle), or a result that is not JSON.
            JobHeld: it has finished, and now comes after a stage that has not, or did so later.
            TooLarge: the result is over 256 KiB of JSON.
            Fenced: a newer leader exists. Nothing of the stage is visible.
            Whatever `function` raises: nothing of the stage is visible then, either.
        """
        return self._run_once(name, function, self._begin(name, after), temporary=temporary)

    def publish(
        self, path: str | Path, *stages: str | Stream | FinishedStage, name: str = "publish"
    ) -> FinishedStage:
        """Publish the output of stages at a place of your own once they have finished: all of it in
        one rename, once in the life of the job, and under the fence.

        Waits for them; so of streams that are drained, the last rows of all are seen together.
        With one stage, `path` is its output; with several, it has a folder for each. The output
        keeps its own place, too. Nothing is ever overwritten: partitions of a table are published
        beside each other, as ``/warehouse/orders/day=2026-11-20``. What is there afterwards is
        yours: jrs never removes it, not with the job either.

        It is a stage, called `name`; its result counts the files and their bytes. If `path` is on
        another filesystem than the jobs' storage, the output is copied beside it and then renamed.

        Raises:
            InvalidInput: no stage is given, or one has no output; `path` is not absolute, is there
                already, lies in the jobs' storage, or in a folder that is not there.
            Unavailable: the disk is full, or the like.
            Fenced: a newer leader exists. Nothing is seen at `path`.
            As `stage`.
        """
        place = Path(path)
        if not stages:
            raise InvalidInput(f"nothing to be published at {place}: name the stages")
        if len({str(getattr(one, "name", one)) for one in stages}) < len(stages):
            raise InvalidInput(f"nothing can be published at {place}: a stage is named twice")
        before = self._begin(name, stages)
        outputs = [(one, self._handles[one].output) for one in before]
        if not self._is_finished(name):
            publishing.check(place, self._context.storage)  # Now, and not after days of a stream.

        def collect(stage: Stage) -> Json:
            publishing.check(place, self._context.storage)
            return publish.collect(outputs, stage.output)

        return self._run_once(name, collect, before, target=place)

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
        before = self._begin(name, after)
        record = self._stored(name, before)
        from ..spark.streams import Stream, Streams

        if self._streams is None:
            self._streams = Streams(self, draining=self._draining)
        for other in before:
            self._handles[other].result()
        if record is not None:
            self._records.append(record)
            output = self._context.storage.published(self.job_id, name, temporary=False)
            handle = Stream.finished(self._streams, record, output, self.attempt)
        else:
            handle = self._streams.start(
                name, build, bounded=bounded, after=before, restart=restart, order=len(self._seen)
            )
        self._handles[name] = handle
        return handle

    # -- stopping --------------------------------------------------------------------------

    def stand(self) -> None:
        """Bring every streaming stage to a batch boundary and end its query."""
        if self._streams is not None:
            self._streams.stand()

    def drain(self) -> str | None:
        """Have every streaming stage end with all it holds; return why one of them can not."""
        why = self._streams.drain() if self._streams is not None else None
        self._draining = why is None
        return why

    def steps(self) -> dict[str, str]:
        """Return where each streaming stage is, for people."""
        return self._streams.steps() if self._streams is not None else {}

    def wait(self) -> None:
        """Wait until every streaming stage has finished; called when the function has returned."""
        if self._streams is not None:
            self._streams.wait_for_all()

    def close(self) -> None:
        """Let go of what runs for the job in this process. Idempotent."""
        if self._streams is not None:
            self._streams.close()

    @property
    def failure(self) -> BaseException | None:
        """What the job has to end of whatever its function does: a streaming stage has died."""
        return self._streams.failure if self._streams is not None else None

    def stage_summaries(self) -> tuple[StageSummary, ...]:
        """Return the stages this attempt has gone through, for the job's result."""
        return tuple(record.summary() for record in self._records)

    # -- inside ----------------------------------------------------------------------------

    def _begin(self, name: str, after: Sequence[str | Stream | FinishedStage]) -> tuple[str, ...]:
        """Take the name of a new stage; return the names of those it comes after."""
        check_stage_name(name)
        if name in self._seen:
            raise InvalidInput(f"two stages of job {self.job_id!r} are named {name!r}")
        before = tuple(one if isinstance(one, str) else one.name for one in after)
        for other in before:
            if other not in self._handles:
                raise InvalidInput(
                    f"stage {name!r} can not come after {other!r}, which is not there yet: a stage "
                    "comes after earlier ones, so that stages never form a circle"
                )
        self._seen.append(name)
        return before

    def _run_once(
        self,
        name: str,
        function: Callable[[Stage], Json],
        before: tuple[str, ...],
        *,
        temporary: bool = False,
        target: Path | None = None,
    ) -> FinishedStage:
        context = self._context
        record = self._stored(name, before)
        if record is None:
            for other in before:
                self._handles[other].result()
            self.check()
            staging = context.storage.staging(self.job_id, self.epoch, name, self.attempt)
            began = time.monotonic()
            result = function(Stage(self, name, staging))
            result = check_json(result, f"the result of stage {name!r}")
            wrote = context.storage.make_durable(staging)
            record = StageRecord(
                job_id=self.job_id,
                name=name,
                result=result,
                attempt=self.attempt,
                epoch=self.epoch,
                seconds=round(time.monotonic() - began, 3),
                finished_at=context.now(),
                published=staging.name if wrote or target is not None else None,
                temporary=temporary,
                order=len(self._seen),
                after=before,
                target=None if target is None else str(target),
            )
            self._commit_stages([record])
        if record.target is None:
            context.storage.publish(record, self.epoch)
            output = context.storage.published(self.job_id, name, temporary=record.temporary)
        else:
            if target is not None and str(target) != record.target:
                raise JobHeld(
                    f"job {self.job_id!r} has published stage {name!r} at {record.target}, and is "
                    f"now to do so at {target}: give that another name"
                )
            publishing.publish(context.storage, record, self.epoch)
            output = Path(record.target)
        self._records.append(record)
        skipped = record.attempt < self.attempt
        handle = self._handles[name] = FinishedStage(record, output, skipped=skipped)
        return handle

    def _stored(self, name: str, before: tuple[str, ...]) -> StageRecord | None:
        """Return the record of a stage that has finished.

        Raises:
            JobHeld: it now comes after a stage that has not finished, or did so later: what it did
                cannot be right any more.
        """
        record = self._finished(name)
        if record is None:
            return None
        for other in before:
            if other in record.after:
                continue
            found = self._finished(other)
            if found is None or not found.finished_before(record):
                when = "has not" if found is None else "did so later"
                raise JobHeld(
                    f"stage {name!r} of job {self.job_id!r} has finished, and now comes after "
                    f"{other!r}, which {when}: deploy the code that it ran with, or cancel the "
                    "job and submit it under another id"
                )
        return record

    def _finished(self, name: str) -> StageRecord | None:
        stored = self._context.backend.get(keys.stage(self.job_id, name))
        return None if stored is None else decode(StageRecord, stored.value, stored.key)

    def _is_finished(self, name: str) -> bool:
        return self._context.backend.get(keys.stage(self.job_id, name)) is not None

    def _serial(self, records: Sequence[StageRecord]) -> int:
        """Return the serial of a commit of finished stages; a repeated commit has the same."""
        with self._numbering:
            if not self._serials:
                stored = self._context.backend.scan(keys.stages(self.job_id))
                known = (decode(StageRecord, each.value, each.key).serial for each in stored)
                self._serials[()] = max(known, default=0)
            names = tuple(one.name for one in records)
            return self._serials.setdefault(names, max(self._serials.values()) + 1)

    def _commit_stages(self, records: Sequence[StageRecord]) -> None:
        """Commit the marks of finished stages under the fence; a try that may have happened is read
        back.

        More than `_MARKS` take several commits, the first of which decides: once one stream of a
        drain is marked, the next attempt has no code but that which drains the others.
        """
        serial = self._serial(records)
        marks = [attrs.evolve(one, serial=serial) for one in records]
        ops = [Create(keys.stage(self.job_id, one.name), encode(one)) for one in marks]
        for first in range(0, len(ops), _MARKS):
            self._commit_marks(ops[first : first + _MARKS])

    def _commit_marks(self, ops: Sequence[Create]) -> None:
        context = self._context
        for last in (False, True):
            try:
                commit_and_read_back(context.backend, *ops, fence=context.fence)
                return
            except OutcomeUnknown:
                if last:
                    raise
            except Conflict:
                stored = context.backend.get(ops[0].key)
                if stored is not None and stored.value == ops[0].value:
                    return  # The first try got there after all.
                raise

    def _report_damage(self, stage: str, why: str) -> None:
        """Leave word beside a stage's checkpoint that it can not be loaded."""
        context = self._context
        context.storage.report_damage(self.job_id, self.epoch, stage, why)
