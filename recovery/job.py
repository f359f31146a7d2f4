"""Job and Stage: what a job's function is given, on whatever master it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from jrs import keys
from jrs.backend import Backend, Create, Fence, Lifeline, commit_and_read_back
from jrs.clock import Clock
from jrs.codec import decode, encode
from jrs.errors import Conflict, Fenced, InvalidInput, OutcomeUnknown
from jrs.model import (
    JobSpec,
    Json,
    RunnerKind,
    StageRecord,
    StageSummary,
    check_json,
    check_stage_name,
)
from jrs.recovery.storage import JobStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


class Job:
    """One attempt of a job, handed to its function as the first argument.

    Every durable step is fenced: once a newer leader exists, `stage` raises `Fenced`, and nothing
    that this attempt still does is ever seen.
    """

    def __init__(self, context: AttemptContext) -> None:
        self._context = context
        self._seen: list[str] = []
        self._records: list[StageRecord] = []

    @property
    def job_id(self) -> str:
        return self._context.spec.job_id

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
        from jrs.recovery.spark import session

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
    ) -> FinishedStage:
        """Run a stage once in the life of the job, and return it finished.

        `function` is called with a `Stage`; it writes files only below `stage.output` and returns
        JSON. That result is recorded durably, then the files are renamed into place. If an earlier
        attempt has finished the stage, the function is not called: its recorded result and its
        output are handed back, whatever the input holds by now.

        `temporary` output serves later stages only and is removed when the job has ended.

        Raises:
            InvalidInput: a name that was used before in this job, or a result that is not JSON.
            TooLarge: the result is over 256 KiB of JSON.
            Fenced: a newer leader exists. Nothing of the stage is visible.
            Whatever `function` raises: nothing of the stage is visible then, either.
        """
        check_stage_name(name)
        if name in self._seen:
            raise InvalidInput(f"two stages of job {self.job_id!r} are named {name!r}")
        self._seen.append(name)
        context = self._context
        stored = context.backend.get(keys.stage(self.job_id, name))
        if stored is not None:
            record = decode(StageRecord, stored.value, stored.key)
            context.storage.publish(record, self.epoch)
            return self._finished(record, skipped=record.attempt < self.attempt)
        self.check()
        staging = context.storage.staging(self.job_id, self.epoch, name, self.attempt)
        began = time.monotonic()
        result = check_json(function(Stage(self, name, staging)), f"the result of stage {name!r}")
        wrote = context.storage.make_durable(staging)
        record = StageRecord(
            job_id=self.job_id,
            name=name,
            result=result,
            attempt=self.attempt,
            epoch=self.epoch,
            seconds=round(time.monotonic() - began, 3),
            finished_at=context.now(),
            published=staging.name if wrote else None,
            temporary=temporary,
            order=len(self._seen),
        )
        self._record(record)
        context.storage.publish(record, self.epoch)
        return self._finished(record, skipped=False)

    def stage_summaries(self) -> tuple[StageSummary, ...]:
        """Return the stages this attempt has gone through, for the job's result."""
        return tuple(record.summary() for record in self._records)

    def _finished(self, record: StageRecord, *, skipped: bool) -> FinishedStage:
        self._records.append(record)
        output = self._context.storage.published(
            self.job_id, record.name, temporary=record.temporary
        )
        return FinishedStage(record, output, skipped=skipped)

    def _record(self, record: StageRecord) -> None:
        """Commit the finished mark under the fence; a try that may have happened is read back."""
        context = self._context
        key, value = keys.stage(self.job_id, record.name), encode(record)
        for last in (False, True):
            try:
                commit_and_read_back(context.backend, Create(key, value), fence=context.fence)
                return
            except OutcomeUnknown:
                if last:
                    raise
            except Conflict:
                stored = context.backend.get(key)
                if stored is not None and stored.value == value:
                    return  # The first try got there after all.
                raise
