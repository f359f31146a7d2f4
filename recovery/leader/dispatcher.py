"""The dispatcher: a level-triggered reconciler, in the manner of a Kubernetes controller.

It checks a job when an event names it, when something about it is due, and when an action has
returned. It gathers the facts, calls `decide`, and acts. The same function decides at failover and
in steady state. One thread owns all state; slow work runs in a pool and returns to that thread as
an event. A job that rests costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, Fenced, OutcomeUnknown, Unavailable
from jrs.contract.runtime import start_thread
from jrs.contract.texts import error_text
from jrs.records import keys
from jrs.records.model import JobSpec

from ..attempt.runners import AttemptExit
from ..health.facts import Tally
from ..rules.decision import Action, Decision, Facts, Result, Spec, decide
from ..rules.events import EventKind
from . import suspects
from .actions import Actions
from .agenda import Agenda
from .attempt_records import AttemptRecords
from .attempts import AttemptHandle, Attempts
from .background_tasks import BackgroundTasks
from .case import Case
from .changed_jobs import PAGE, ChangedJobs, Page
from .context import LeaderContext
from .facts import Gatherer, Look
from .hints import pass_on
from .job_memory import SCANNED, End, JobMemory, Step
from .loop import Loop
from .pause import Pause
from .reactions import Reactions
from .starts import Starts
from .tally import tally

_HELD = 30.0
"""Seconds after which a held job is checked although nothing named it."""
_TURN = 0.25
"""Seconds after which a job that waits for another job's probation is checked."""
_RESYNC = 60.0
"""Seconds after which a leader asks for all changes, whatever its watch has reported."""
_CLOSING = 0.5
"""Seconds that `stop` waits for actions in flight: each of them may be interrupted anywhere."""
_LATE = 1 / 8
"""The share of the ttl by which a turn may begin late. Heartbeats are as late: at an interval of
one fifth they are still in time, but with more load they would not be."""

_NEWS = (*SCANNED, keys.RESULTS)
"""The prefixes whose changes make a job worth a check, whatever it does."""


class Dispatcher:
    """Dispatches the jobs of a cluster for one leadership."""

    def __init__(self, context: LeaderContext) -> None:
        self._context = context
        self.main_runs = context.main_runs
        self._leadership = context.leadership
        self._emit = context.emit
        self._clock = clock = context.runtime.clock
        self._attempts = Attempts(clock)
        self._records = AttemptRecords(context)
        self._actions = Actions(context, self._attempts, self._records)
        self._probations = suspects.Probations(suspects.PROBATION, clock)
        self._pause = Pause(context.backend)
        self._facts = Gatherer(
            context,
            self._attempts,
            count_leader_death=self._records.count_leader_death,
            probations=self._probations,
            wake=lambda job_id: self._agenda.add(job_id),
            pause=self._pause,
        )
        self._jobs: dict[str, JobMemory] = {}
        self._functions: dict[str, Callable[..., Any]] = {}
        self._agenda = Agenda(clock)
        self._listing = ChangedJobs(self._facts, self._jobs)
        self._resync_at = clock() + _RESYNC
        self._starts = Starts(context, self._probations, self._attempts)
        self._stopping = threading.Event()
        self._loop = Loop(
            turn=self._turn,
            until_next=self._agenda.until_next,
            over=self._over,
            fenced=self._step_down,
            emit=self._emit,
            clock=clock,
            late_after=float("inf") if context.ttl is None else context.ttl * _LATE,
            turned=context.health.turned,
            each_turn=context.each_turn,
        )
        self._tasks = BackgroundTasks(
            context, self._loop, self._agenda, fenced=self._step_down, failed=self._failed
        )
        self._reactions = Reactions(
            context,
            self._actions,
            self._records,
            self._tasks,
            self._agenda,
            self._probations,
            self._start,
        )
        hints = partial(pass_on, context, self._over, self._hear, self._stopping.wait)
        self._threads = [
            context.runtime.thread(target, f"jrs-{name}")
            for name, target in (("dispatcher", self._dispatch), ("hints", hints))
        ]

    # -- what a master calls ---------------------------------------------------------------

    def recover(self) -> None:
        """Decide about the jobs that ran under an earlier leader, or have ended and are dirty; call
        it before `start`, before announcing. All other jobs follow once the loop has started.

        Raises:
            Fenced: a newer leader exists.
            Unavailable: the backend could not be asked.
        """
        for job_id in self._facts.urgent():
            self._agenda.add(job_id)
        self._look_at_due()
        self._admit()  # A job that ran goes before those that wait.
        with suppress(Unavailable, OutcomeUnknown):  # They are due again: the loop reports it.
            self._look_at_due()  # Those that have got a slot.

    def start(self) -> None:
        """Continue deciding until `stop`, in threads of its own; raises as `start_thread`."""
        for thread in self._threads:
            start_thread(thread)

    def provide(self, job_id: str, function: Callable[..., Any]) -> None:
        """Provide the function of a job that only the driver's main can provide."""
        self._functions[job_id] = function
        self._loop.post(lambda: self._agenda.add(job_id))

    def resync(self) -> None:
        """Ask the backend for all changes, as if anything might have changed."""
        self._hear(None)

    def end_attempts(self, deadline: Deadline) -> list[str]:
        """End every attempt at once, and let none begin; return the jobs whose attempt may run on.

        Safe to call from any thread, whatever the other threads do, also if the storage hangs.
        """
        alive = self._attempts.end_all(deadline)
        self._actions.farewell(Deadline.after(max(deadline.bounded(), _CLOSING)))
        return alive

    def stop(self, deadline: Deadline) -> list[str]:
        """End every attempt and all threads; return as `end_attempts`.

        Whatever hangs is abandoned, in threads that do not keep the process alive.
        """
        self._stopping.set()
        self._loop.wake()
        # The attempts first: one of these threads may wait for a backend that does not answer.
        alive = self.end_attempts(deadline)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(deadline.bounded())
        if not self._tasks.close(Deadline.after(min(_CLOSING, deadline.bounded()))):
            self._emit(EventKind.LEFT, "", "an action does not end and is left behind")
        self._actions.release(Deadline.after(_CLOSING))
        return alive

    def tally(self) -> Tally:
        """Return how many jobs are in which state, as this leader sees them. From any thread."""
        return tally({**self._jobs}, self._attempts, self._starts, self._context.runtime)

    # -- the loop --------------------------------------------------------------------------

    def _dispatch(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:
            # First: a leader without a loop would keep other masters from leading.
            self._leadership.lost.set()
            self._emit(EventKind.ERROR, "", f"the dispatcher has ended: {error_text(error)}")

    def _turn(self) -> None:
        if self._clock() >= self._resync_at:
            self._heard(None)
        if self._pause.has_changed():
            self._agenda.add_all(self._jobs)
        self._look_at_due(until=lambda: self._loop.has_events)
        # After the named jobs: a listing that fails must not block them.
        if self._listing.is_due:
            self._listing.step(self._look)
        # Until all are looked at, another job may have the highest priority.
        if self._listing.is_complete and not self._agenda.has_all:
            self._admit()
        if self._listing.is_due or (self._starts.has_news and not self._pause.on):
            self._loop.wake()

    def _over(self) -> bool:
        return self._stopping.is_set() or self._leadership.lost.is_set()

    def _hear(self, names: frozenset[str] | None) -> None:
        self._loop.post(lambda: self._heard(names))

    def _heard(self, names: frozenset[str] | None) -> None:
        """Have the named jobs checked; None: those that have changed."""
        if names is None:
            self._resync_at = self._clock() + _RESYNC
            self._listing.ask()
            self._pause.note_change()
            return
        for name in names:
            first, _, rest = name.partition("/")
            prefix, job_id = f"{first}/", rest.partition("/")[0]
            if prefix == keys.CLUSTER:
                self._pause.note_change()
            elif not job_id:
                self._listing.ask({prefix} & {*SCANNED})
            elif prefix in _NEWS or (
                # A running attempt's own writes are no news; an operator's repair may be.
                prefix in keys.PER_JOB and job_id in self._jobs and not self._runs(job_id)
            ):
                self._agenda.add(job_id)

    def _runs(self, job_id: str) -> bool:
        return self._jobs[job_id].busy or self._attempts.is_running(job_id)

    # -- checking jobs ---------------------------------------------------------------------

    def _look_at_due(self, until: Callable[[], bool] = lambda: False) -> None:
        """Check the jobs on the agenda: at least a page, and page by page until something holds."""
        while due := self._agenda.take(PAGE):
            self._listing.checked(due)
            try:
                self._look({job_id: {} for job_id in due})
            except BaseException:
                # Whatever named them: among them may be some for which a slot has to wait.
                self._agenda.add_all(due)
                raise
            if until():
                return

    def _look(self, page: Page) -> None:
        """Check a page of jobs; an error of one job does not block the others."""
        self._context.health.turned()  # A turn may have many pages.
        jobs = {}
        for job_id in page:
            job = self._jobs.setdefault(job_id, JobMemory())
            if job.busy:
                continue  # It is checked when its action has returned.
            if job.ended is None:
                jobs[job_id] = job
            elif self._tasks.may_try(job, Step.COUNT_END):
                self._reactions.evaluate(job_id, job, job.ended)
        looks = self._facts.gather(jobs, page, self._functions)
        for job_id, look in looks.items():
            if self._over():
                return
            try:
                if isinstance(look, Exception):
                    raise look
                self._reconcile(job_id, jobs[job_id], look)
                self._tasks.has_worked(jobs[job_id], Step.LOOK)
            except (Fenced, Unavailable, OutcomeUnknown):
                raise
            except CorruptRecord as error:
                self._hold(job_id, error)
            except Exception as error:
                self._tasks.put_off(job_id, jobs[job_id], Step.LOOK, error)

    def _reconcile(self, job_id: str, job: JobMemory, look: Look) -> None:
        facts = look.facts
        decision = decide(facts)
        recovers = decision.action is Action.RECOVER and not job.pinning
        recovers = recovers and self._tasks.may_try(job, Action.RECOVER)
        spec = look.spec if recovers else None
        # Not gathered with a page: starts of earlier jobs on the page count, too.
        if spec is None:
            if not (look.restarts and decision.action is Action.SUSPEND):
                self._starts.give_way(job_id)
        elif not self._starts.has_its_turn(job, spec):
            facts = attrs.evolve(facts, turn=False)
            decision = decide(facts)
        elif not self._starts.has_slot(job, spec, facts):
            return  # `_admit` reports its decision.
        may_try = self._tasks.may_try(job, decision.action)
        self._schedule_checks(job_id, job, decision, look, turn=facts.turn)
        if may_try:
            self._decided(job_id, decision)
            if decision.action is Action.RECOVER and spec is not None:
                self._starts.begin(job, spec)
            self._reactions.react(Case(job_id, job, look, decision))
        self._forget_if_over(job_id, job, facts)

    def _forget_if_over(self, job_id: str, job: JobMemory, facts: Facts) -> None:
        there = facts.spec is not Spec.NONE or facts.result in (Result.DIRTY, Result.UNREADABLE)
        under_way = job.busy or job.pinning or job.ended or self._attempts.is_running(job_id)
        if not there and not under_way:
            del self._jobs[job_id]
            self._functions.pop(job_id, None)
            self._agenda.forget(job_id)
            self._facts.forget(job_id)
            self._context.decisions.forget(job_id)

    def _schedule_checks(
        self, job_id: str, job: JobMemory, decision: Decision, look: Look, *, turn: bool
    ) -> None:
        """Have the job checked at the moments when its decision may change by time alone: those
        that were to come when this check began, although they may have passed by now. What is tried
        again is on the agenda already: see `BackgroundTasks`."""
        checked = job.checked_at
        moments = {
            "restart": job.restart.at,
            "cleanup": job.cleanup.at,
            "stop": look.stop_due or 0.0,
            "time": look.time_up or 0.0,
            "probation": self._probations.due(job_id),
            "held": checked + _HELD if decision.action is Action.HOLD else 0.0,
            "turn": 0.0 if turn else checked + _TURN,
        }
        for cause, moment in moments.items():
            if moment > checked:
                self._agenda.at(moment, job_id, cause)

    # -- acting ----------------------------------------------------------------------------

    def _start(self, spec: JobSpec) -> float | None:
        self._actions.check_stages(spec.job_id)
        function = self._functions.get(spec.job_id) if spec.only_in_driver else None
        return self._actions.start(spec, function, self._on_end(spec))

    def _admit(self) -> None:
        """Have jobs checked that may start now, and report that the others wait."""
        if self._pause.on:
            return
        for job_id in self._starts.admit(late=self._loop.late):
            self._agenda.add(job_id)
        for job_id, facts in self._starts.waiting(PAGE).items():
            self._decided(job_id, decide(facts))

    # -- events, on the dispatcher's thread ------------------------------------------------

    def _on_end(self, spec: JobSpec) -> Callable[[AttemptHandle, AttemptExit], None]:
        def note(begun: AttemptHandle, ended: AttemptExit) -> None:
            if how := self._attempts.ended_as(begun):
                self._context.health.attempt_ended(how)
            self._loop.post(lambda: self._ended(spec, begun, ended, counted=bool(how)))

        return note

    def _ended(
        self, spec: JobSpec, begun: AttemptHandle, ended: AttemptExit, *, counted: bool
    ) -> None:
        if self._attempts.over:
            return  # It ended with its leader.
        # One that is no longer known was ended on purpose, perhaps after it had ended by itself.
        if self._attempts.forget(spec.job_id, begun):
            now = self._clock()
            self._jobs[spec.job_id].ended = End(spec, ended, now, now - begun.began_at)
        elif not counted:
            self._context.health.attempt_ended(self._attempts.ended_as(begun) or "stopped")
        self._agenda.add(spec.job_id)

    def _failed(self, job_id: str, error: BaseException, said: str) -> None:
        self._starts.give_way(job_id)
        if isinstance(error, CorruptRecord):
            self._hold(job_id, error)
        elif said and not isinstance(error, Fenced):
            self._jobs[job_id].last_reported = None
            self._emit(EventKind.ERROR, job_id, said)

    def _hold(self, job_id: str, error: CorruptRecord) -> None:
        self._starts.give_way(job_id)
        why = f"held: {error}"
        self._decided(job_id, Decision(Action.HOLD, why))
        self._reactions.hold(job_id, self._jobs[job_id], why)
        self._agenda.at(self._clock() + _HELD, job_id, "held")

    def _step_down(self, error: Fenced) -> None:
        if not self._leadership.lost.is_set():
            self._leadership.lost.set()
            self._emit(EventKind.LOST, "", str(error))

    # -- reporting -------------------------------------------------------------------------

    def _decided(self, job_id: str, decision: Decision) -> None:
        job = self._jobs[job_id]
        if decision != job.last_reported:
            job.last_reported = decision
            if decision.action is not Action.LEAVE:
                self._emit(EventKind.DECISION, job_id, str(decision))
