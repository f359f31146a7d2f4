"""Reactions: what a leader does about each decision, as one table.

A decision says what is to become of a job (`decide`). This table says which action carries it out,
in which pool, and what follows on the dispatcher's thread. The first row that applies is taken; a
decision without a row needs no action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from jrs.records.model import JobSpec

from ..attempt.host import names_files
from ..attempt.runners import AttemptExit
from ..rules import used_time
from ..rules.decision import Action, Attempt, Spec, Stop
from ..rules.events import EventKind
from . import suspects
from .actions import Actions, PendingCleanup
from .agenda import Agenda
from .attempt_records import AttemptRecords
from .background_tasks import BackgroundTasks
from .case import Case
from .context import LeaderContext
from .hand_over import ASK
from .job_memory import End, JobMemory, SnapshotMemory, Step
from .snapshot_times import SnapshotTimes

_WHILE = 60.0
"""Seconds: attempts that ran for less and were interrupted are tried again ever later."""


class Reactions:
    """Reacts to the decisions of one leadership; used by its dispatcher's thread."""

    def __init__(
        self,
        context: LeaderContext,
        actions: Actions,
        records: AttemptRecords,
        tasks: BackgroundTasks,
        agenda: Agenda,
        probations: suspects.Probations,
        start: Callable[[JobSpec], float | None],
    ) -> None:
        self.actions = actions
        self.records = records
        self.tasks = tasks
        self.probations = probations
        self.start = start
        self._emit = context.emit
        self._clock, self._now = context.runtime.clock, context.runtime.now
        self._agenda = agenda
        self._decisions = context.decisions
        self.snapshots = SnapshotTimes(agenda, self._clock)
        self.fetches = context.storage.objects is not None
        """Whether also a job that has not begun may have files to fetch, those of a fork."""

    def react(self, case: Case) -> None:
        """Carry out the decision in a pool."""
        action = case.decision.action
        for row in TABLE:
            possible = row.during_snapshot or not case.job.pinning
            if row.action is action and possible and row.when(self, case):
                self._decisions.act(case.job_id, action, case.facts)
                self._run(row, case)
                return

    def _run(self, row: Reaction, case: Case) -> None:
        self.tasks.run(
            getattr(self.tasks.pools, row.pool),
            case.job_id,
            case.job,
            row.action,
            lambda: row.work(self, case),
            lambda found: row.then(self, case, found),
            pins=row.pins,
        )

    def evaluate(self, job_id: str, job: JobMemory, end: End) -> None:
        """Evaluate an attempt's end: did it die, or leave a result?"""
        # One that ran for a while has found everything in order before.
        in_a_row = job.restart.interruptions if end.ran < _WHILE else 0
        self.tasks.run(
            self.tasks.pools.deaths,
            job_id,
            job,
            Step.COUNT_END,
            lambda: self.actions.evaluate(end, in_a_row),
            lambda death: job.count_death(death, end.at),
        )

    def hold(self, job_id: str, job: JobMemory, why: str) -> None:
        """Record in the history why an error keeps the leader from deciding about a job, unless an
        action about it is under way: the job is checked when that has returned."""
        if job.busy:
            return
        if why != job.held_for and self.tasks.may_try(job, Action.HOLD):
            self._decisions.forget(job_id)
            self.tasks.run(
                self.tasks.pools.records,
                job_id,
                job,
                Action.HOLD,
                lambda: self.actions.record_hold(job_id, why),
                lambda _: setattr(job, "held_for", why),
            )

    # -- conditions and consequences -------------------------------------------------------

    def may_clean_up(self, case: Case) -> bool:
        job, journal = case.job, case.look.read_journal()
        # A new leader tries once: the other leader's host may have been the obstacle.
        if journal is not None and journal.exhausted and job.cleanup.tries:
            if not job.cleanup.reported_given_up:
                job.cleanup.reported_given_up = True
                left = ", ".join(journal.problems)
                said = f"given up after {journal.tries} tries; left: {left}"
                self._emit(EventKind.CLEANUP, case.job_id, said)
            return False
        job.cleanup.reported_given_up = False
        asked_for = journal is not None and journal.tries < job.cleanup.tries
        return asked_for or self._clock() >= job.cleanup.at

    def cleaned_up(self, case: Case, left: PendingCleanup | None) -> None:
        if left is not None:
            case.job.cleanup.tries = left.tries
            case.job.cleanup.at = self._clock() + left.delay
            case.job.cleanup.reported_given_up = True  # If so, the pass has reported it.

    def started(self, case: Case, used: float | None) -> None:
        if used is not None:
            case.job.time.used = used
            case.job.held_for = ""
            case.job.restart.has_begun, case.job.restart.killed_at = True, None

    def killed(self, case: Case, _: None) -> None:
        case.job.restart.killed_at = self._now()

    def time_is_due(self, case: Case) -> bool:
        every = used_time.interval(case.spec.timeout)
        if every is None:
            return False
        now, due = self._clock(), case.job.time.count_at
        if now >= due:
            case.job.time.count_at = now + every
            self._agenda.at(case.job.time.count_at, case.job_id, "count")
        return now >= due

    def timed_out(self, case: Case, found: tuple[AttemptExit, float]) -> None:
        how, ran = found
        case.job.ended = End(case.spec, how, self._clock(), ran, counted=True)

    def suspended(self, case: Case, _: None) -> None:
        case.job.restart.deaths = None  # The record of its attempt has more: it is read again.
        case.job.snapshot = SnapshotMemory()  # It may come back with another interval, or none.

    def hand_over_is_due(self, case: Case) -> bool:
        facts, now = case.facts, self._clock()
        if facts.attempt is not Attempt.UNSTARTABLE or facts.stop is not Stop.NONE:
            return False
        if now < case.job.restart.hand_over_at:
            return False
        case.job.restart.hand_over_at = now + ASK
        self._agenda.at(case.job.restart.hand_over_at, case.job_id, "hand over")
        return True

    def hold_is_news(self, case: Case) -> bool:
        """Whether the history does not say yet why the job is held. It says so of a stored hold,
        and of what a host lacks, from the commits that record them."""
        recorded = case.facts.stop is Stop.HELD or case.facts.attempt is Attempt.UNSTARTABLE
        return not recorded and case.job.held_for != case.decision.reason

    def hold_recorded(self, case: Case, _: None) -> None:
        case.job.held_for = case.decision.reason


def _always(reactions: Reactions, case: Case) -> bool:
    return True


def _runs(reactions: Reactions, case: Case) -> bool:
    return case.look.runs


def _runs_to_be_suspended(reactions: Reactions, case: Case) -> bool:
    """Whether its attempt can be ended first. One of a job that is held is ended with what follows:
    the decision about such a job is another one, once it does not run."""
    stops = case.facts.stop in (Stop.ASKED, Stop.QUIESCED)
    return _runs(reactions, case) and (stops or case.job.pinning)


def _has_begun(reactions: Reactions, case: Case) -> bool:
    return case.job.restart.has_begun or reactions.fetches


def _none(reactions: Reactions, case: Case, found: Any) -> None:
    pass


def _rest(reactions: Reactions, case: Case, found: Any) -> None:
    """Do it again later: another process may be working on it."""
    reactions.tasks.rest(case.job_id, case.job, case.decision.action)


@attrs.frozen
class Reaction:
    """What carries a decision out."""

    action: Action
    pool: str
    """The name of one of `Pools`."""
    work: Callable[[Reactions, Case], Any]
    """Runs in the pool."""
    when: Callable[[Reactions, Case], bool] = _always
    then: Callable[[Reactions, Case, Any], None] = _none
    """Gets what the work returned, on the dispatcher's thread."""
    pins: bool = False
    """The job is still checked while the work is under way."""
    during_snapshot: bool = False
    """Possible while a snapshot of the job is being taken. Everything else would move the job's
    files or records away, or take another snapshot."""


def _end(reactions: Reactions, case: Case) -> None:
    reactions.actions.end(case.job_id, completed=case.decision.action is Action.CLEAN_UP)


def _kill(action: Action, when: Callable[[Reactions, Case], bool] = _runs) -> Reaction:
    """End the attempt first: what follows may take long, and the attempt needs no slot for it."""
    return Reaction(action, "kills", _end, when, Reactions.killed, during_snapshot=True)


TABLE = (
    Reaction(Action.CLEAN_UP, "completed", _end, when=_runs, during_snapshot=True),
    Reaction(
        Action.CLEAN_UP,
        "cleanups",
        lambda reactions, case: reactions.actions.clean_up(case.job_id),
        when=Reactions.may_clean_up,
        then=Reactions.cleaned_up,
    ),
    Reaction(
        Action.SKIP,
        "records",
        lambda reactions, case: reactions.actions.sweep_spec(case.job_id),
        when=lambda reactions, case: case.facts.spec is not Spec.NONE,
    ),
    _kill(Action.RESTORE),
    Reaction(
        Action.RESTORE,
        "restarts",
        lambda reactions, case: reactions.actions.finish_restore(case.job_id),
        then=_rest,
    ),
    _kill(Action.CANCEL),
    Reaction(
        Action.CANCEL,
        "ends",
        lambda reactions, case: reactions.actions.cancel_restore(
            case.job_id, case.job.restart.killed_at
        ),
        when=lambda reactions, case: case.facts.spec is Spec.RESTORING,
        then=_rest,
        during_snapshot=True,
    ),
    Reaction(
        Action.CANCEL,
        "ends",
        lambda reactions, case: reactions.actions.cancel(case.job_id, case.job.restart.killed_at),
        during_snapshot=True,
    ),
    Reaction(
        Action.RECOVER,
        "starts_with_files",
        lambda reactions, case: reactions.start(case.spec),
        when=lambda reactions, case: names_files(case.spec),
        then=Reactions.started,
    ),
    Reaction(
        Action.RECOVER,
        "restarts",
        lambda reactions, case: reactions.start(case.spec),
        when=_has_begun,
        then=Reactions.started,
    ),
    Reaction(
        Action.RECOVER,
        "starts",
        lambda reactions, case: reactions.start(case.spec),
        then=Reactions.started,
    ),
    Reaction(
        Action.TIME_OUT,
        "kills",
        lambda reactions, case: reactions.actions.time_out(case.job_id, case.look.overtime),
        then=Reactions.timed_out,
        during_snapshot=True,
    ),
    _kill(Action.SUSPEND, _runs_to_be_suspended),
    Reaction(
        Action.SUSPEND,
        "suspends",
        lambda reactions, case: reactions.actions.suspend(case.spec, case.job.restart.killed_at),
        then=Reactions.suspended,
    ),
    Reaction(
        Action.HOLD,
        "records",
        lambda reactions, case: reactions.actions.consider_hand_over(
            case.job_id, case.job.restart.obstacles
        ),
        when=Reactions.hand_over_is_due,
    ),
    Reaction(
        Action.HOLD,
        "records",
        lambda reactions, case: reactions.actions.record_hold(case.job_id, case.decision.reason),
        when=Reactions.hold_is_news,
        then=Reactions.hold_recorded,
    ),
    Reaction(
        Action.FAIL,
        "ends",
        lambda reactions, case: reactions.actions.fail(case.spec),
    ),
    Reaction(
        Action.LEAVE,
        "records",
        lambda reactions, case: reactions.records.end_probation(case.job_id),
        when=lambda reactions, case: reactions.probations.has_survived(case.job_id),
        then=lambda reactions, case, found: reactions.probations.acquit(case.job_id),
    ),
    Reaction(
        Action.LEAVE,
        "records",
        lambda reactions, case: reactions.records.count_time(case.spec),
        when=Reactions.time_is_due,
    ),
    Reaction(
        Action.LEAVE,
        "records",
        lambda reactions, case: reactions.actions.until_scheduled_snapshot(case.spec),
        when=lambda reactions, case: reactions.snapshots.are_unplanned(case),
        then=lambda reactions, case, wait: reactions.snapshots.plan(case, wait),
    ),
    Reaction(
        Action.LEAVE,
        "snapshots",
        lambda reactions, case: reactions.actions.take_scheduled_snapshot(
            case.spec, case.job.snapshot.failures
        ),
        when=lambda reactions, case: reactions.snapshots.may_be_due(case),
        then=lambda reactions, case, wait: reactions.snapshots.tried(case, wait),
        pins=True,
    ),
)
