"""Running one attempt to its result: the same rules in a process of its own and in a thread.

The order is the promise: the dirty result first, before any notification and any cleanup.
"""

from __future__ import annotations

import threading
import traceback
from typing import Any

import tenacity

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord, OutcomeUnknown, Unavailable
from jrs.contract.masks import masked
from jrs.contract.operations import Fence, Op
from jrs.contract.texts import error_text, one_line, with_reason
from jrs.records.checks import check_json
from jrs.records.field_types import as_json
from jrs.records.history import HistoryKind
from jrs.records.model import Failure, JobResult, JobStatus, RunnerKind
from jrs.store import attempt_fence, obstacles
from jrs.store.result_store import JobResultStore

from . import entry_point
from .attempt_run import AttemptRun
from .code_version import about_code, code_version
from .context import AttemptContext
from .engine import NO_SPARK, SparkEngine, StateLost
from .held import held_by
from .stop_watcher import StopWatcher
from .triage import Verdict, call_users, triage


class AttemptDied(Exception):
    """The job's function raised, and its restart policy says to try again."""


class JvmDied(AttemptDied):
    """The JVM of its SparkSession died; the function's exception is only a consequence."""


def run_attempt(
    context: AttemptContext, function: Any = None, engine: SparkEngine = NO_SPARK
) -> JobResult:
    """Call the job's function and record its result, dirty, under the fence.

    Raises:
        AttemptDied: the function raised and the restart policy counts that as a death.
        JvmDied: the function raised because the JVM of its SparkSession died: always a death.
        Fenced: a newer leader exists; nothing was recorded.
        CannotStartHere: this host lacks what the job needs. That was recorded, with its attempt.
        JobHeld: the job cannot resume from its stored state. That was recorded, as its stop.
        CorruptRecord, OutcomeUnknown, Unavailable: a call of jrs's own failed: no fault of the job.
            It has no result, unless that was the call that records it.
    """
    run = AttemptRun(context, engine)
    context.check()  # A master that slept since its decision may have been replaced.
    context.own.announce(context.backend, context.fence, context.spec.entry_point)
    payload: Any = None
    failure: Failure | None = None
    code, called = "", False
    try:
        if function is None:
            in_thread = context.spec.runner is RunnerKind.THREAD
            load = entry_point.load_in_thread if in_thread else entry_point.load
            function = load(context.spec.entry_point)
        code = code_version(function)
        with run.tracing.attempt(), StopWatcher(run):
            # The function may change what it gets; the spec still says what was submitted.
            arguments = as_json(context.spec.arguments)
            called = True
            payload = check_json(call_users(function, run.job, **arguments), "the job's result")
            run.wait()
    except BaseException as error:
        failure = _failure(run, engine, error, called=called)
    finally:
        run.close()
    result = _result(run, payload, failure, code)
    said = with_reason(result.status.value, failure.message if failure else "")
    about = about_code(code)
    with context.historian.recorded(
        context.job_id, HistoryKind.ENDED, said, about=about, repeatable=True
    ) as event:
        record_result(context.backend, result, context.fence, context.lost, also=event)
    return result


def _failure(
    run: AttemptRun, engine: SparkEngine, raised: BaseException, *, called: bool
) -> Failure:
    """Return the job's failure; raise as `run_attempt` if what was raised is none.

    Args:
        called: whether the job's function was called.
    """
    context = run.context
    error = run.failure or raised
    said = str(error) if isinstance(error, StateLost) else error_text(error)
    retried = context.spec.restart.on_exception
    verdict, why = triage(error, jvm_died=lambda: engine.jvm_died(error), retried=retried)
    match verdict:
        case Verdict.PASS_ON | Verdict.INTERRUPTED:
            raise why from None
        case Verdict.HOLD:
            run.close()  # Close first: nothing of a held job may run.
            raise _held(context, why) from None
        case Verdict.CANNOT_START:
            run.close()
            obstacles.record(
                context.backend,
                context.spec.job_id,
                str(why),
                context.fence,
                context.historian,
                was_called=called,
            )
            raise why from None
        case Verdict.JVM_DIED:
            died = f"the JVM of its SparkSession died: {_short(error_text(error))}"
            raise JvmDied(died) from error
        case Verdict.DIED:
            raise AttemptDied(_short(said)) from error
        case Verdict.FAILED:
            detail = "".join(traceback.format_exception(error))
            return Failure(kind="exception", message=_short(said), detail=masked(detail))


def _held(context: AttemptContext, error: BaseException) -> BaseException:
    """Record that the job is held; return why.

    Raises:
        Unavailable: that cannot be recorded now.
    """
    held = held_by(error) if isinstance(error, CorruptRecord) else error
    try:
        context.stops.hold(context.job_id, str(held), context.fence)
    except (Conflict, CorruptRecord) as other:
        raise Unavailable(f"{held}; and that it is held cannot be recorded: {other}") from error
    return held


def _result(run: AttemptRun, payload: Any, failure: Failure | None, code: str) -> JobResult:
    """Return the job's result, as of now."""
    context = run.context
    ended = "finished" if failure is None else f"failed: {failure.message}"
    attempts, left_out = context.own.ended(context.runtime.now(), ended)
    return JobResult(
        job_id=context.spec.job_id,
        status=JobStatus.FINISHED if failure is None else JobStatus.FAILED,
        payload=payload,
        failure=failure,
        attempt=context.attempt,
        epoch=context.fence.epoch,
        started_at=context.first_started_at,
        finished_at=context.runtime.now(),
        stages=run.stage_summaries(),
        application=context.spec.application,
        call=context.spec.call,
        code=code,
        spec=context.spec,
        attempts=attempts,
        attempts_left_out=left_out,
    )


def record_result(
    backend: Backend,
    result: JobResult,
    fence: Fence,
    stop: threading.Event,
    *,
    also: tuple[Op, ...] = (),
) -> None:
    """Make the result durable, however long the backend is away, until `stop` is set.

    `also` are further operations of the same commit.

    Repeating is safe: recording the same result again is a no-op, and another leader's result
    fences this one.
    """
    store = JobResultStore(backend)
    ops = (*attempt_fence.close_ops(fence), *also)
    until_answered(stop)(store.create_dirty, result, fence, also=ops)


def until_answered(stop: threading.Event) -> tenacity.Retrying:
    """Return what repeats a call, which must be safe to repeat, until the backend answers or `stop`
    is set."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((Unavailable, OutcomeUnknown)),
        wait=tenacity.wait_exponential(multiplier=0.05, max=2.0),
        stop=tenacity.stop_when_event_set(stop),
        sleep=tenacity.sleep_using_event(stop),
        reraise=True,
    )


def _short(text: str) -> str:
    return one_line(masked(text))[:500]
