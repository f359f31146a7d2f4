"""AttemptRun: the machinery behind a `Job`, for one attempt of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from jrs.contract.errors import InvalidInput, JobHeld
from jrs.contract.operations import Check, Create
from jrs.contract.read_back import commit_again
from jrs.records import keys
from jrs.records.checks import check_json, check_stage_name
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryKind
from jrs.records.model import Json, StageRecord, StageSummary
from jrs.records.policies import RestartPolicy
from jrs.records.time_limits import check_limit
from jrs.store import heads

from . import closed_input
from .context import AttemptContext
from .engine import NO_SPARK, SparkEngine, StreamSupervisor
from .held import held_if_unreadable
from .job import Build, FinishedStage, Job, Stage, Stream, T
from .publications import Publication, publication_at
from .stage_outputs import outputs_of
from .tracing import Tracing
from .triage import call_users

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARKS = 31
"""Finished stages in one commit: with its conditions, fewer than the limit of every backend."""


class AttemptRun:
    """Runs one attempt of a job: its stages, its streams, and the commits of both."""

    def __init__(self, context: AttemptContext, engine: SparkEngine = NO_SPARK) -> None:
        self.context = context
        self.job = Job(self)
        self.thread = threading.current_thread()
        """The thread of the job's function."""
        self._engine = engine
        self._seen: list[str] = []
        self._records: list[StageRecord] = []
        self._handles: dict[str, Stream | FinishedStage[Any]] = {}
        self._streams: StreamSupervisor | None = None
        self._draining = False
        self._serials: dict[tuple[str, ...], int] = {}
        self._numbering = threading.Lock()
        self._outputs = outputs_of(context)
        self.tracing = Tracing(
            context.spec,
            context.backend.cluster,
            {
                "jrs.job": context.job_id,
                "jrs.attempt": context.attempt,
                "jrs.epoch": context.epoch,
            },
        )

    # -- what the job's function does ------------------------------------------------------

    def session(self) -> SparkSession:
        return self._engine.session(self)

    def stage(
        self,
        name: str,
        function: Callable[[Stage], T],
        *,
        temporary: bool = False,
        after: Sequence[str | Stream | FinishedStage[Any]] = (),
        timeout: float | None = None,
    ) -> FinishedStage[T]:
        before = self._begin(name, after, timeout)
        return self._run_once(name, function, before, temporary=temporary, timeout=timeout)

    def publish(
        self, place: str | Path, stages: Sequence[str | Stream | FinishedStage[Any]], name: str
    ) -> FinishedStage[Json]:
        if not stages:
            raise InvalidInput(f"nothing to publish at {place}: name the stages")
        if len({str(getattr(one, "name", one)) for one in stages}) < len(stages):
            raise InvalidInput(f"nothing can be published at {place}: a stage is named twice")
        check_stage_name(name)
        publication = publication_at(self.context, place)
        if not self._is_finished(name):
            publication.check()  # Not after days of a stream.
        before = self._begin(name, stages)

        def collect(stage: Stage) -> Json:
            return publication.collect({one: self._handles[one] for one in before}, stage.output)

        return self._run_once(name, collect, before, publication=publication)

    def stream(
        self,
        name: str,
        build: Build,
        *,
        bounded: bool,
        after: Sequence[str | Stream | FinishedStage[Any]],
        restart: RestartPolicy | None,
        timeout: float | None = None,
    ) -> Stream:
        if timeout is not None and not bounded:
            raise InvalidInput(f"stage {name!r} never ends, so it cannot have a timeout")
        before = self._begin(name, after, timeout)
        record = self._stored(name, before)
        if self._streams is None:
            self._streams = self._engine.supervise(self, draining=self._draining)
        for other in before:
            self._handles[other].result()
        if record is not None:
            self._records.append(record)
            self.context.reporter.skipped(name, record.attempt)
            result = record.result
            skipped = record.attempt < self.context.attempt
            handle = Stream(name, self.stream_output(name), lambda _: result, skipped=skipped)
        else:
            self.context.reporter.begun(name)
            if timeout is not None and self.context.watchdog is not None:
                self.context.watchdog.begin(name, timeout)
            handle = self._streams.start(
                name, build, bounded=bounded, after=before, restart=restart, order=len(self._seen)
            )
        self._handles[name] = handle
        return handle

    def stream_output(self, name: str) -> Callable[[], Path]:
        """Return what returns the folder with the output of a stream, once it has finished."""
        return lambda: self._outputs.of_stream(name, finished=self._is_finished(name))

    def close_input(self, stage: str, path: Path) -> str:
        return str(closed_input.close(self.context, stage, path))

    def generation(self) -> int:
        with held_if_unreadable():
            return heads.generation_of(self.context.backend, self.context.job_id)

    # -- stopping --------------------------------------------------------------------------

    def suspend(self) -> None:
        """Bring every streaming stage to a batch boundary and end its query."""
        if self.context.watchdog is not None:
            self.context.watchdog.end_all()  # The grace period of the stop limits them now.
        if self._streams is not None:
            self._streams.suspend()

    def drain(self) -> str | None:
        """Have every streaming stage finish its remaining input; return why a stage cannot."""
        why = self._streams.drain() if self._streams is not None else None
        self._draining = why is None
        return why

    def steps(self) -> dict[str, str]:
        """Return the position of each streaming stage, for people."""
        return self._streams.steps() if self._streams is not None else {}

    # -- the end ---------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until every streaming stage has finished; called when the function has returned."""
        if self._streams is not None:
            self._streams.wait_for_all()

    def close(self) -> None:
        """Release what runs for the job in this process. Idempotent."""
        if self._streams is not None:
            self._streams.close()

    @property
    def failure(self) -> BaseException | None:
        """The error of a streaming stage that died: the job has to end because of it."""
        return self._streams.failure if self._streams is not None else None

    def stage_summaries(self) -> tuple[StageSummary, ...]:
        """Return the stages that this attempt has completed, for the job's result."""
        return tuple(record.summary() for record in self._records)

    # -- commits ---------------------------------------------------------------------------

    def commit_stages(
        self, records: Sequence[StageRecord], ends: Mapping[str, Check] | None = None
    ) -> None:
        """Commit the marks of finished stages under the fence; the call may be repeated.

        More than `_MARKS` take several commits, and the first one decides: once one stream of a
        drain is marked, the next attempt can only drain the others.

        Args:
            ends: by the name of a stage, the condition that its output ends where its mark says.
        """
        serial = self._serial(records)
        marks = [attrs.evolve(one, serial=serial) for one in records]
        for first in range(0, len(marks), _MARKS):
            some = marks[first : first + _MARKS]
            creates = [Create(keys.stage(one.job_id, one.name), encode(one)) for one in some]
            conditions = [ends[one.name] for one in some if ends and one.name in ends]
            said = "; ".join(f"stage {one.name} finished" for one in some)
            with self.context.historian.recorded(
                self.context.job_id, HistoryKind.STAGE, said, repeatable=True
            ) as event:
                commit_again(
                    self.context.backend, *creates, *conditions, *event, fence=self.context.fence
                )

    def add_finished(self, records: Sequence[StageRecord]) -> None:
        """Add stages to those that this attempt has completed."""
        self._records.extend(records)
        for record in records:
            self.context.reporter.finished(record.name, record.seconds)
            self.tracing.finished(record)
            if self.context.watchdog is not None:
                self.context.watchdog.end(record.name)

    def report_damage(self, stage: str, why: str) -> None:
        """Record next to a stage's checkpoint that it cannot be loaded."""
        context = self.context
        context.storage.report_damage(context.job_id, context.epoch, stage, why)

    # -- inside ----------------------------------------------------------------------------

    def _begin(
        self,
        name: str,
        after: Sequence[str | Stream | FinishedStage[Any]],
        timeout: float | None = None,
    ) -> tuple[str, ...]:
        """Register the name of a new stage; return the names of the stages that it comes after."""
        check_stage_name(name)
        check_limit(f"the timeout of stage {name!r}", timeout)
        if timeout is not None and self.context.watchdog is None:
            raise InvalidInput(
                f"stage {name!r} cannot have a timeout: its job runs in a thread of its master, "
                "which cannot be killed; run the job in a process of its own"
            )
        if name in self._seen:
            raise InvalidInput(f"two stages of job {self.context.job_id!r} are named {name!r}")
        before = tuple(one if isinstance(one, str) else one.name for one in after)
        for other in before:
            if other not in self._handles:
                raise InvalidInput(
                    f"stage {name!r} cannot come after {other!r}, which does not exist yet: a "
                    "stage comes after earlier ones, so that stages never form a cycle"
                )
        self._seen.append(name)
        return before

    def _run_once(
        self,
        name: str,
        function: Callable[[Stage], T],
        before: tuple[str, ...],
        *,
        temporary: bool = False,
        publication: Publication | None = None,
        timeout: float | None = None,
    ) -> FinishedStage[T]:
        try:
            reporter = self.context.reporter
            record = self._stored(name, before)
            ran = record is None
            if record is None:
                for other in before:
                    self._handles[other].result()
                self.context.check()
                self.context.record_begun(name)
                reporter.begun(name)
                limited = self._limited(name, timeout)
                record = self._finish(
                    name, function, before, publication, limited, temporary=temporary
                )
                # Its function may have run for hours: it does not run again for a moment's outage.
                self.context.until_stored(partial(self.commit_stages, [record]))
                reporter.finished(name, record.seconds)
            else:
                reporter.skipped(name, record.attempt)
            output = self._appear(record, publication)
            if ran and record.published is not None:
                reporter.published(name, output())
            self._records.append(record)
            skipped = record.attempt < self.context.attempt
            handle: FinishedStage[T] = FinishedStage(record, output, skipped=skipped)
            self._handles[name] = handle
            return handle
        except BaseException:
            self._seen.remove(name)  # The job's function may retry it.
            raise

    def _finish(
        self,
        name: str,
        function: Callable[[Stage], T],
        before: tuple[str, ...],
        publication: Publication | None,
        limited: AbstractContextManager[None],
        *,
        temporary: bool,
    ) -> StageRecord:
        """Call the stage's function, and make its output durable; return the record to commit."""
        context = self.context
        staging = context.storage.staging(context.job_id, context.epoch, name, context.attempt)
        began = context.runtime.clock()
        with limited, self.tracing.stage(name):
            returned = call_users(function, Stage(self.job, name, staging))
        result = check_json(returned, f"the result of stage {name!r}")
        self._engine.check_output(self, staging)
        wrote = context.storage.make_durable(staging)
        if publication is not None:
            manifest = publication.keep(name)
        else:
            manifest = self._outputs.keep(name, staging) if wrote else None
        in_folder = wrote or (publication is not None and manifest is None)
        return StageRecord(
            job_id=context.job_id,
            name=name,
            result=result,
            attempt=context.attempt,
            epoch=context.epoch,
            seconds=round(context.runtime.clock() - began, 3),
            finished_at=context.runtime.now(),
            published=staging.name if in_folder else None,
            temporary=temporary,
            order=len(self._seen),
            after=before,
            target=None if publication is None else publication.target,
            manifest=manifest,
        )

    def _appear(self, record: StageRecord, publication: Publication | None) -> Callable[[], Path]:
        """Have the output of a finished stage appear in its place; return what returns that.

        Raises:
            JobHeld: it was published elsewhere.
        """
        if record.target is None:
            self._outputs.publish(record)
            return partial(self._outputs.folder, record)
        if publication is None:
            publication = publication_at(self.context, record.target)
        if publication.target != record.target:
            raise JobHeld(
                f"job {record.job_id!r} has published stage {record.name!r} at {record.target}, "
                f"and now names {publication.target}: use another stage name for that"
            )
        publication.complete(record)
        return partial(publication.folder)

    def _limited(self, name: str, timeout: float | None) -> AbstractContextManager[None]:
        pipe = self.context.watchdog
        return nullcontext() if pipe is None or timeout is None else pipe.limited(name, timeout)

    def _stored(self, name: str, before: tuple[str, ...]) -> StageRecord | None:
        """Return the record of a stage that has finished; None if it has not.

        Raises:
            JobHeld: its output may be wrong: a stage now before it has not finished, or did later.
        """
        record = self._finished(name)
        if record is None:
            return None
        for other in before:
            if other in record.after:
                continue
            found = self._finished(other)
            if found is None or not found.finished_before(record):
                when = "has not" if found is None else "finished later"
                raise JobHeld(
                    f"stage {name!r} of job {self.context.job_id!r} has finished, and now comes "
                    f"after {other!r}, which {when}: deploy the code that it ran with, or cancel "
                    "the job and submit it under another id"
                )
        return record

    def _finished(self, name: str) -> StageRecord | None:
        stored = self.context.backend.get(keys.stage(self.context.job_id, name))
        return None if stored is None else decode(StageRecord, stored.value, stored.key)

    def _is_finished(self, name: str) -> bool:
        return self.context.backend.get(keys.stage(self.context.job_id, name)) is not None

    def _serial(self, records: Sequence[StageRecord]) -> int:
        """Return the serial of a commit of finished stages; a repeated commit has the same."""
        with self._numbering:
            if not self._serials:
                stored = self.context.backend.scan(keys.stages(self.context.job_id))
                known = (decode(StageRecord, each.value, each.key).serial for each in stored)
                self._serials[()] = max(known, default=0)
            names = tuple(one.name for one in records)
            return self._serials.setdefault(names, max(self._serials.values()) + 1)
