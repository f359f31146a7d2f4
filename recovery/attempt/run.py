"""Running one attempt to its result: the same rules in a process of its own and in a thread.

The order is the promise: the dirty result first, before anybody is told and before anything is
cleaned up. As a program (``python -m jrs.recovery.attempt.run``) it reads its launch from standard
input, written by its watchdog, and is what a `process` attempt runs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import tenacity

from jrs.contract import credentials
from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Fenced,
    InvalidInput,
    JobHeld,
    JrsError,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)
from jrs.contract.operations import Check, Fence
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import Failure, JobResult, JobSpec, JobStatus, check_json
from jrs.store import attempt_fence
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops

from .. import spark
from ..files.job_folders import JobStorage
from . import entry_point
from .job import AttemptContext, Job, StateLost
from .stop_watch import StopWatch

EXIT_DIED = 70
"""The function raised and the restart policy counts that as a death."""
EXIT_JVM_DIED = 71
"""The JVM of its SparkSession died under it."""
EXIT_FENCED = 75
"""A newer leader exists, or the attempt was shut out: it has nothing more to say."""


@attrs.frozen
class Launch:
    """What a process attempt is told, over a pipe: never in arguments, which others can read."""

    backend: str = attrs.field(repr=False)
    cluster: str
    storage: str
    spec: str
    attempt: int
    epoch: int
    fence_version: int
    attempt_fence: int | None
    """The version of the record that lets it write; None where there is none."""
    first_started_at: float
    mark: str
    secrets: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Environment variables that the backend is opened with, and that nobody inherits."""

    def to_line(self) -> bytes:
        return json.dumps(attrs.asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Launch:
        return cls(**json.loads(line))

    def context(self, backend: Backend) -> AttemptContext:
        spec = decode(JobSpec, self.spec.encode(), "launch")
        own = self.attempt_fence
        let_in = None if own is None else Check(keys.FENCES + spec.job_id, own)
        return AttemptContext(
            spec=spec,
            attempt=self.attempt,
            fence=Fence(self.epoch, self.fence_version, let_in),
            backend=backend,
            storage=JobStorage(Path(self.storage), self.cluster),
            first_started_at=self.first_started_at,
            mark=self.mark,
        )


def launch_of(context: AttemptContext, url: str, storage: Path, secrets: dict[str, str]) -> Launch:
    """Return what another process needs to run the attempt of `context`."""
    return Launch(
        backend=url,
        cluster=context.backend.cluster,
        storage=str(storage),
        spec=encode(context.spec).decode(),
        attempt=context.attempt,
        epoch=context.fence.epoch,
        fence_version=context.fence.version,
        attempt_fence=None if context.fence.attempt is None else context.fence.attempt.version,
        first_started_at=context.first_started_at,
        secrets=secrets,
        mark=context.mark,
    )


class AttemptDied(Exception):
    """The job's function raised, and its restart policy says to try again."""


class JvmDied(AttemptDied):
    """The JVM of its SparkSession died; what its function raised is only the echo."""


def run_attempt(context: AttemptContext, function: Any = None) -> JobResult:
    """Call the job's function and record its result, dirty, under the fence.

    Raises:
        AttemptDied: the function raised and the restart policy counts that as a death.
        JvmDied: the function raised because the JVM of its SparkSession died: a death always.
        Fenced: a newer leader exists; nothing was recorded.
        JobHeld: it can not go on from what is stored. That was recorded, as its stop.
        OutcomeUnknown, Unavailable: the result could not be recorded in any of many tries.
    """
    job = Job(context)
    job.check()  # A master that slept since it decided on this attempt may have been replaced.
    payload: Any = None
    failure: Failure | None = None
    try:
        if function is None:
            function = entry_point.load(context.spec.entry_point)
        with StopWatch(job):
            payload = check_json(_call(function, job, context), "the job's result")
            job.wait()
    except BaseException as raised:  # SystemExit, and asyncio's CancelledError, are the job's own.
        error = job.failure or raised
        if isinstance(error, (Fenced, Unavailable, OutcomeUnknown, KeyboardInterrupt)):
            raise error from None
        if isinstance(error, JobHeld):
            job.close()  # First: a job that is held is one of which nothing runs.
            JobStops(context.backend, now=context.now).hold(
                context.spec.job_id, str(error), context.fence
            )
            raise error from None
        if spark.jvm_died(error):
            raise JvmDied(f"the JVM of its SparkSession died: {_one_line(str(error))}") from error
        if isinstance(error, StateLost):
            raise AttemptDied(_one_line(str(error))) from error
        if context.spec.restart.on_exception and not isinstance(error, (InvalidInput, TooLarge)):
            raise AttemptDied(f"{type(error).__name__}: {error}") from error
        failure = Failure(
            kind="exception",
            message=_one_line(f"{type(error).__name__}: {error}"),
            detail="".join(traceback.format_exception(error)),
        )
    finally:
        job.close()
    result = JobResult(
        job_id=context.spec.job_id,
        status=JobStatus.FINISHED if failure is None else JobStatus.FAILED,
        payload=payload,
        failure=failure,
        attempt=context.attempt,
        epoch=context.fence.epoch,
        started_at=context.first_started_at,
        finished_at=context.now(),
        stages=job.stage_summaries(),
    )
    record_result(context.backend, result, context.fence, context.lost)
    return result


def _call(function: Callable[..., Any], job: Job, context: AttemptContext) -> Any:
    """Call the job's function; what it has forked ends with it, and is no attempt of the job."""
    here = os.getpid()
    try:
        return function(job, **context.spec.arguments)
    finally:
        if os.getpid() != here:
            os._exit(EXIT_DIED)


def record_result(backend: Backend, result: JobResult, fence: Fence, stop: threading.Event) -> None:
    """Make the result durable, however long the backend is away, until `stop` is set.

    Repeating is safe: the same result again is a no-op, and another leader's fences us.
    """
    store = JobResultStore(backend)
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((Unavailable, OutcomeUnknown)),
        wait=tenacity.wait_exponential(multiplier=0.05, max=2.0),
        stop=tenacity.stop_when_event_set(stop),
        sleep=tenacity.sleep_using_event(stop),
        reraise=True,
    )(store.create_dirty, result, fence, also=attempt_fence.close_ops(fence))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def _forget_input() -> None:
    """Have nobody who inherits standard input read the launch from it once more."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, sys.stdin.fileno())
    os.close(null)


def main() -> None:
    """Run the attempt described on standard input; the exit status says how it ended."""
    launch = Launch.from_line(sys.stdin.buffer.readline())
    _forget_input()
    with credentials.lent(launch.secrets):
        opened = open_backend(launch.backend, cluster=launch.cluster, create=False)
    with opened as backend:
        try:
            run_attempt(launch.context(backend))
            status = 0
        except Fenced as error:
            print(f"jrs: {error}", file=sys.stderr)
            status = EXIT_FENCED
        except (AttemptDied, JrsError) as error:
            traceback.print_exc()
            status = EXIT_JVM_DIED if isinstance(error, JvmDied) else EXIT_DIED
    sys.stdout.flush()
    sys.stderr.flush()
    # What the function left running (a JVM, threads) must not keep a finished attempt alive; the
    # watchdog ends the rest of its processes.
    os._exit(status)


if __name__ == "__main__":
    main()
