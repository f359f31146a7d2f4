"""Explaining what a leader does with a job now, and why, from the stored records."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.records import keys
from jrs.records.model import EpochRecord
from jrs.store import restores
from jrs.store.jobs import JobView
from jrs.store.masters import newest_epoch

from ..rules.decision import Action, Attempt, Facts, Result, Spec, Stop, decide
from .queue import place_in_queue


@attrs.frozen
class Explanation:
    """What a leader does with a job now, and why."""

    job_id: str
    action: Action
    reason: str
    details: tuple[str, ...]
    """What is known besides, one line each."""


def explain(backend: Backend, view: JobView, *, now: Clock = time.time) -> Explanation:
    """Return the decision about a job, by the same function as the leader's.

    The leader also knows what no record holds: which slots are free, and attempts that have just
    ended.

    Raises:
        Unavailable: the backend could not be asked.
    """
    epoch = newest_epoch(backend)
    facts = Facts(
        spec=_spec_fact(backend, view),
        result=_result_fact(view),
        attempt=_attempt_fact(view, epoch, now()),
        cancel=view.cancel is not None,
        stop=Stop.of(view.stop),
    )
    decision = decide(facts)
    if decision.action is Action.RECOVER and view.spec is not None and epoch is not None:
        place = place_in_queue(backend, view.spec, epoch.epoch)
        decision = decide(attrs.evolve(facts, place=place))
    restoring = facts.spec is Spec.RESTORING
    details = tuple(_details(view, epoch, restoring=restoring))
    return Explanation(view.job_id, decision.action, decision.reason, details)


def _details(view: JobView, epoch: EpochRecord | None, *, restoring: bool) -> Iterator[str]:
    attempt = view.attempt
    if attempt is not None:
        over = ", which is over" if epoch is not None and attempt.epoch != epoch.epoch else ""
        yield (
            f"attempt {attempt.attempt} was started by {attempt.master} in epoch "
            f"{attempt.epoch}{over}"
        )
        if attempt.failure is not None:
            yield f"died {attempt.deaths} times: {attempt.failure.message}"
    if view.entry is None:
        for stage in view.stages:
            yield f"stage {stage.name} is finished and will be skipped on recovery"
        if view.stop is not None and not restoring:  # Resuming it is refused meanwhile.
            yield str(view.stop)
            yield from (f"stage {name}: {step}" for name, step in view.stop.stages.items())
    if view.cleanup is not None:
        yield from (f"cleaned up: {name}" for name in view.cleanup.done)
        yield from (f"left: {name}: {why}" for name, why in view.cleanup.problems.items())
        if view.cleanup.exhausted:
            yield f"given up after {view.cleanup.tries} tries: jrs cleanup retry"
    yield from (f"cannot be read: {problem}" for problem in view.problems)
    if epoch is None:
        yield "no master has ever led this cluster: start one with 'jrs master'"


def _attempt_fact(view: JobView, epoch: EpochRecord | None, now: float) -> Attempt:
    """Return the state of the newest attempt, as far as it is recorded."""
    record = view.attempt
    if record is None or view.entry is not None:
        return Attempt.NONE
    if view.spec is not None and record.deaths >= view.spec.restart.attempts:
        return Attempt.SPENT
    if record.retry_at:  # Its end is recorded.
        return Attempt.BACKING_OFF if now < record.retry_at else Attempt.NONE
    led = epoch is None or record.epoch == epoch.epoch
    return Attempt.RUNNING if led else Attempt.NONE


def _spec_fact(backend: Backend, view: JobView) -> Spec:
    if restores.stored(backend, view.job_id) is not None:
        return Spec.RESTORING
    if view.spec is not None:
        return Spec.READABLE
    stored = backend.get(keys.JOBS + view.job_id)
    return Spec.NONE if stored is None else Spec.UNREADABLE


def _result_fact(view: JobView) -> Result:
    if view.entry is None:
        return Result.NONE
    return Result.UNREADABLE if view.entry.problem else Result(view.entry.state.value)
