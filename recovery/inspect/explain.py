"""Explaining what a leader does with a job now, and why, from the stored records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.texts import counted, when
from jrs.records import keys
from jrs.records.model import JobSpec, JobStatus, StopMode
from jrs.records.obstacles import described
from jrs.records.policies import Keep
from jrs.store import applications
from jrs.store.job_views import JobView
from jrs.store.masters import LeaderView, Registry
from jrs.store.result_store import JobResultStore
from jrs.store.stored_result import how_it_ended

from ..rules.decision import Action, Attempt, Decision, Facts, Result, Spec, decide
from ..rules.recorded_facts import Stored, gathered, recorded_attempt
from .queue import places

_READ = (
    *(keys.JOBS, keys.APPLICATIONS, keys.RESULTS, keys.DIRTY, keys.CANCEL, keys.STOPS),
    *(keys.RESTORES, keys.TOMBSTONES),
)
"""What is read of a job. A result goes before its marker and its tombstone."""
_RUNS = (Action.LEAVE, Action.SUSPEND, Action.TIME_OUT)
"""What a leader decides about jobs that run."""
_TOGETHER = 64
"""Jobs that are read by one request."""


@attrs.frozen
class Explanation:
    """What a leader does with a job now, and why."""

    job_id: str
    """The id of the job."""
    action: Action
    """What the leader does with the job."""
    reason: str
    """What happens to the job, in one line."""
    details: tuple[str, ...]
    """What is known besides, one line each."""
    runs: bool = False
    """Whether an attempt of the job, or the main of the application, runs in the leader."""
    nobody_leads: str = ""
    """That no master leads, and since when; empty while one leads. The action is then that of the
    next leader."""

    def __str__(self) -> str:
        """Return what happens to the job, with the action's name in brackets."""
        said = f"{self.reason} [{self.action.value}]"
        if not self.nobody_leads or self.action in (Action.SKIP, Action.NOTHING):
            return said
        return f"waiting: {self.nobody_leads}; the next leader: {said}"


class Explainer:
    """Explains jobs by the leader's own facts and decisions. What concerns the whole cluster is
    read once.

    The leader also knows what no record holds: which slots are free, and attempts that have just
    ended.

    Args:
        queue: whether to find out the places of jobs in the queue, which reads the records of all
            unfinished jobs. Without them, a job that waits for a slot counts as one that starts.

    Raises:
        Unavailable: from each method, if the backend could not be asked.
    """

    def __init__(self, backend: Backend, *, queue: bool = True, now: Clock = time.time) -> None:
        self._backend = backend
        self._now = now
        self._places: dict[str, int] | None = None if queue else {}
        self._runs = applications.running(backend)
        self._paused = backend.get(keys.PAUSE) is not None
        self.leader: LeaderView = Registry(backend, now=now).leading()

    def explain(self, view: JobView) -> Explanation:
        """Return the decision about a job."""
        return next(self.explain_all((view,)))

    def explain_all(self, views: Iterable[JobView]) -> Iterator[Explanation]:
        """Yield the decision about each job. Jobs are read in batches, each by one request."""
        left = iter(views)
        while some := list(islice(left, _TOGETHER)):
            names = [prefix + view.job_id for view in some for prefix in _READ]
            read = iter(self._backend.get_many(names))
            for view in some:
                stored = dict(zip(_READ, islice(read, len(_READ)), strict=True))
                yield self._explained(view, stored)

    def _explained(self, view: JobView, stored: Mapping[str, Stored]) -> Explanation:
        facts = self._facts(view, stored)
        decision = decide(facts)
        if decision.action is Action.RECOVER and view.spec is not None and self.leads is not None:
            if self._places is None:
                self._places = places(self._backend)
            decision = decide(attrs.evolve(facts, place=self._places.get(view.job_id, 0)))
        return Explanation(
            view.job_id,
            decision.action,
            self._waits_for_replica(view, decision) or _reason(view, decision),
            tuple(_details(view, self.leads, facts, decision)),
            decision.action in _RUNS or self._runs_main(view, decision),
            "" if self.leader.leader is not None else str(self.leader),
        )

    @property
    def leads(self) -> int | None:
        """The epoch of the master that leads; None if none does."""
        return self.leader.epoch if self.leader.leader is not None else None

    def _facts(self, view: JobView, stored: Mapping[str, Stored]) -> Facts:
        job_id = view.job_id
        # The view has read the result and its marker in order; a marker without one is damage.
        result: Result | None = None
        if view.entry is not None:
            unreadable = view.entry.problem is not None
            result = Result.UNREADABLE if unreadable else Result(view.entry.state.value)
        elif stored[keys.RESULTS] is None and stored[keys.DIRTY] is not None:
            entry = JobResultStore(self._backend).get(job_id)  # It may have just been written.
            lone = entry is None or entry.problem is not None
            result = Result.UNREADABLE if lone or entry is None else Result(entry.state.value)
        found = gathered(job_id, stored, result)
        ended = found.result is not Result.NONE
        spec = found.spec
        driven = view.attempt is not None and view.attempt.epoch == self.leads
        attempt = recorded_attempt(view.attempt, spec, self.leads, self._now())
        return Facts(
            spec=found.spec_fact,
            result=found.result,
            attempt=Attempt.NONE if ended else attempt,
            cancel=found.cancel,
            stop=found.stop_fact(),
            lost=not ended and spec is not None and self._is_lost(spec),
            startable=spec is None or not spec.only_in_driver or driven,
            obstacles=described(view.attempt.obstacles) if view.attempt else "",
            paused=self._paused,
        )

    def _runs_main(self, view: JobView, decision: Decision) -> bool:
        main = view.application
        if main is None or decision.action is not Action.WAIT:
            return False  # It is no application, or is being canceled.
        return main.epoch == self.leads

    def _waits_for_replica(self, view: JobView, decision: Decision) -> str:
        """Return what keeps an application from running while another master leads; else nothing,
        also if an older version has not said what the leader is."""
        main, leader = view.application, self.leader.leader
        if main is None or leader is None or decision.action is not Action.WAIT:
            return ""
        if leader.application in (None, main.name):
            return ""
        runs = f"the application {leader.application}" if leader.application else "no application"
        ends = "" if leader.application else ": stop it, and a replica can lead"
        return f"waiting: {leader.name} on {leader.host} leads, and runs {runs}{ends}"

    def _is_lost(self, spec: JobSpec) -> bool:
        return bool(spec.application) and not self._runs(spec.application)


def explain(backend: Backend, view: JobView, *, now: Clock = time.time) -> Explanation:
    """Return the decision about one job; see `Explainer`."""
    return Explainer(backend, now=now).explain(view)


def _reason(view: JobView, decision: Decision) -> str:
    """Return a decision's reason with what is known of this job."""
    attempt = view.attempt
    if decision.action is Action.LEAVE and attempt is not None:
        where = f" on {attempt.host}" if attempt.host else ""
        spark = attempt.spark
        waits = f"; waiting for executors of {spark.master}" if spark and spark.waiting else ""
        return f"{decision.reason}{where} since {when(attempt.started_at)}{waits}"
    if view.entry is not None and decision.reason.startswith("ended; "):
        return f"{how_it_ended(view.entry)}; {decision.reason.removeprefix('ended; ')}"
    stop = view.stop
    if decision.action is Action.HOLD and stop is not None and stop.mode is StopMode.HOLD:
        return f"held: {stop.reason}; then: jrs resume {view.job_id}; or: jrs cancel {view.job_id}"
    return decision.reason


def _details(view: JobView, epoch: int | None, facts: Facts, decision: Decision) -> Iterator[str]:
    # A job that no master can start: the decision's reason names the obstacles.
    held = decision.action is Action.HOLD and facts.obstacles != ""
    attempt, main = view.attempt, view.application
    if main is not None:
        yield f"{main}, in epoch {main.epoch}"
        if main.error:
            times = counted(main.errors, "time", "times")
            yield f"it raised {times}, last on {main.error_host}: {main.error}"
    if view.spec is not None and view.spec.application:
        yield f"part of the application {view.spec.application}"
    if attempt is not None and not held:
        over = attempt.ended or ("" if attempt.epoch == epoch else "over")
        yield (
            f"attempt {attempt.attempt} was started by {attempt.master} in epoch "
            f"{attempt.epoch}{f'; {over}' if over else ''}"
        )
        for one in attempt.obstacles if view.entry is None else ():
            yield f"could not be started by {one}"
        if attempt.failure is not None:
            yield f"died {counted(attempt.deaths, 'time', 'times')}: {attempt.failure.message}"
    if view.entry is not None and view.entry.result is not None and view.entry.result.failure:
        yield f"reason: {view.entry.result.failure.message}"
    if decision.action is Action.RESTORE:
        finish = f"jrs snapshot restore --finish {view.job_id}"
        yield f"if it was interrupted: {finish}; or: jrs cancel {view.job_id}"
    if can_be_retried(view):
        yield f"to run it again and skip the stages that finished: jrs retry {view.job_id}"
    if view.entry is None:
        for stage in view.stages:
            yield f"stage {stage.name} is finished and will be skipped on recovery"
        # While the job is restored, resuming it is refused.
        if view.stop is not None and facts.spec is not Spec.RESTORING:
            if view.stop.mode is not StopMode.HOLD:  # Its reason is that of the decision.
                yield str(view.stop)
            yield from (f"stage {name}: {step}" for name, step in view.stop.stages.items())
    if view.cleanup is not None:
        yield from (f"cleaned up: {name}" for name in view.cleanup.done)
        yield from (f"left: {name}: {why}" for name, why in view.cleanup.problems.items())
        yield from (f"given up: {name}: {why}" for name, why in view.cleanup.given_up.items())
        if view.cleanup.exhausted:
            yield f"given up after {view.cleanup.tries} tries: jrs cleanup retry {view.job_id}"
    yield from (f"cannot be read: {problem}" for problem in view.problems)


def can_be_retried(view: JobView) -> bool:
    """Return whether a job has ended without success and its end is kept for a retry."""
    spec, result = view.submitted, view.entry.result if view.entry is not None else None
    if spec is None or spec.only_in_driver or result is None:
        return False
    return result.status is not JobStatus.FINISHED and (
        spec.keeps_after(result.status) is Keep.KEEP
    )
