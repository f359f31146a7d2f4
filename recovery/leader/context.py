"""LeaderContext: what the parts of one leadership share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import attrs

from jrs.contract.backend import Backend
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Fence
from jrs.contract.runtime import RUNTIME, Runtime
from jrs.records.model import RunnerKind
from jrs.store.historian import Historian

from ..attempt.reporter import StageReport
from ..attempt.runners import Runner
from ..cleanup.job_cleanup import JobCleanup
from ..cleanup.policy import CleanupPolicy
from ..files.job_folders import JobStorage
from ..health.facts import MasterHealth
from ..rules.events import Event, EventKind, Report, notify
from .age_clock import AgeClock
from .decisions import Decisions
from .trust import Trust


def _ignore(event: Event) -> None:
    pass


@attrs.frozen(kw_only=True)
class LeaderContext:
    """What the parts of one leadership share."""

    backend: Backend
    leadership: Leadership
    storage: JobStorage
    runners: Mapping[RunnerKind, Runner]
    """How attempts of each kind are started."""
    cleanup: JobCleanup
    """Removes a job's resources."""
    cleanup_policy: CleanupPolicy = attrs.field(factory=CleanupPolicy)
    report: Report = _ignore
    """Called with every event, from any thread; must not block."""
    master: str = ""
    max_attempts: int | None = None
    """How many attempts in processes of their own run at once; None: any number."""
    ttl: float | None = None
    """Of the leadership, in seconds; None: no attempt is delayed because the leader is late."""
    trust: Trust = attrs.field(factory=Trust)
    hand_over: Callable[[bool], None] | None = None
    """Ends this leadership so that another master leads, for the first time or again; None: this
    process must not do that."""
    turn: float = 30.0
    """Seconds that this leader tries a job which it cannot start, before another one's turn."""
    runtime: Runtime = RUNTIME
    health: MasterHealth = attrs.field(factory=MasterHealth)
    """Counts what happens, for probes and metrics."""
    main_runs: threading.Event = attrs.field(init=False, factory=threading.Event)
    """Set while a driver's main runs: user code, which this process cannot end."""
    jobs_end: threading.Event = attrs.field(init=False, factory=threading.Event)
    """Set when a job has ended: the leader cleans up after it."""
    each_turn: list[Callable[[], bool]] = attrs.field(init=False, factory=list)
    """What the dispatcher calls in each of its turns, about once a second, until it returns True:
    it must not block."""
    historian: Historian = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: Historian(
                self.backend,
                self.master,
                self.leadership.fence.epoch,
                now=self.runtime.now,
            ),
            takes_self=True,
        ),
    )
    """Records what this leadership does to jobs."""
    decisions: Decisions = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: Decisions(self.historian, self.leadership.fence), takes_self=True
        ),
    )
    """Record its decisions in the history of jobs."""

    ages: AgeClock = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: AgeClock(
                self.backend, self.runtime, lambda said: self.emit(EventKind.ERROR, "", said)
            ),
            takes_self=True,
        ),
    )
    """By which it judges what is old enough to be removed."""

    @property
    def fence(self) -> Fence:
        return self.leadership.fence

    def emit(self, kind: EventKind, job_id: str, message: str) -> None:
        """Report an event."""
        now = self.runtime.now()
        notify(self.report, Event(kind, job_id, message, self.fence.epoch, now))

    def emit_of_stage(self, job_id: str, report: StageReport) -> None:
        """Report what an attempt has reported of a stage."""
        epoch = self.fence.epoch
        if report.dropped:
            said = f"{report.dropped} reports were dropped before the next one"
            notify(self.report, Event(EventKind.DROPPED, job_id, said, epoch, report.at))
        event = Event(report.kind, job_id, report.message, epoch, report.at, report.stage)
        notify(self.report, event)
