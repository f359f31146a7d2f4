"""The interface between an attempt and Spark; the composition root supplies the implementation.

An attempt knows Spark by these protocols alone, so that an attempt without Spark loads none of it.
The implementation is `jrs.recovery.spark.engine`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jrs.contract.errors import InvalidInput
from jrs.contract.operations import Check
from jrs.records.model import StageRecord
from jrs.records.policies import RestartPolicy

from .context import AttemptContext
from .job import Build, Job, Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StateLost(Exception):
    """A stream's checkpoint cannot be loaded: the attempt dies, the next resumes from a
    snapshot."""


class StreamHost(Protocol):
    """The attempt, as the room of Spark sees it."""

    context: AttemptContext
    job: Job
    thread: threading.Thread
    """The thread of the job's function."""

    def commit_stages(
        self, records: Sequence[StageRecord], ends: Mapping[str, Check] | None = None
    ) -> None:
        """Commit the marks of finished stages, on the condition that the output of each ends where
        its mark says; when repeated, the remaining ones."""

    def add_finished(self, records: Sequence[StageRecord]) -> None:
        """Add stages to those that this attempt has completed."""

    def stream_output(self, name: str) -> Callable[[], Path]:
        """Return what returns the folder with the output of a stream."""

    def report_damage(self, stage: str, why: str) -> None:
        """Record next to a stage's checkpoint that it cannot be loaded."""


class StreamSupervisor(Protocol):
    """All streaming stages of one attempt. Created with the first stage, closed with the job."""

    def start(
        self,
        name: str,
        build: Build,
        *,
        bounded: bool,
        after: tuple[str, ...],
        restart: RestartPolicy | None,
        order: int,
    ) -> Stream:
        """Start a stage that has not finished; see `Job.stream`."""

    def wait_for_all(self) -> None:
        """Wait until every stage has finished."""

    def steps(self) -> dict[str, str]:
        """Return the position of each stage, for people."""

    def suspend(self) -> None:
        """Bring every query to a batch boundary and end it."""

    def drain(self) -> str | None:
        """Have every stage process its remaining input and end; return why a stage cannot."""

    def close(self) -> None:
        """End the supervision, and every query that still runs. Idempotent."""

    @property
    def failure(self) -> BaseException | None:
        """The error of which a stage died, so that the attempt must end; None if there is none."""


class SparkEngine(Protocol):
    """The part of Spark that attempts use."""

    def session(self, run: StreamHost) -> SparkSession:
        """Return the attempt's SparkSession, started on first use."""

    def supervise(self, run: StreamHost, *, draining: bool) -> StreamSupervisor:
        """Return the supervisor of the attempt's streaming stages."""

    def check_output(self, run: StreamHost, output: Path) -> None:
        """Raise `JobHeld` if a stage's output may lack what executors have written."""

    def jvm_died(self, error: BaseException) -> bool:
        """Return whether `error` was raised because the JVM of this process has died."""

    def cancel_work(self, job_id: str) -> None:
        """Cancel the Spark jobs of a job that runs in this process; harmless if there are none."""


class NoSpark:
    """The engine of an attempt that runs without Spark."""

    def session(self, run: StreamHost) -> SparkSession:
        raise InvalidInput(f"job {run.context.job_id!r} runs without Spark")

    def supervise(self, run: StreamHost, *, draining: bool) -> StreamSupervisor:
        raise InvalidInput(f"job {run.context.job_id!r} runs without Spark")

    def check_output(self, run: StreamHost, output: Path) -> None:
        pass

    def jvm_died(self, error: BaseException) -> bool:
        return False

    def cancel_work(self, job_id: str) -> None:
        pass


NO_SPARK: SparkEngine = NoSpark()
