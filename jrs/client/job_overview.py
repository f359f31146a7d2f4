"""The overview of one job: what its page and ``jrs top JOB`` show of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import attrs

from jrs.client import plain
from jrs.client.client import Client
from jrs.client.next_steps import Step, next_steps
from jrs.client.overview import JobLine, job_line
from jrs.client.plain import Plain
from jrs.contract.clock import Clock
from jrs.contract.errors import JrsError
from jrs.contract.texts import bounded, one_line, printable
from jrs.records.attempts import AttemptSummary
from jrs.records.codec import to_plain
from jrs.records.model import JobStatus
from jrs.records.snapshots import SnapshotRecord
from jrs.records.stages import TAKEN_OVER, StageSummary
from jrs.recovery.inspect.explain import Explanation
from jrs.recovery.inspect.history import HistoryEntry
from jrs.recovery.rules.decision import Attempt
from jrs.recovery.rules.recorded_facts import recorded_attempt
from jrs.store.job_views import JobView
from jrs.store.streams import StreamStatus

NEWEST = 10
"""Events of the history that a glance at the job shows."""


@attrs.frozen
class StageLine:
    """One stage. Of those that have not finished, the records name streams alone."""

    name: str
    state: str
    """``finished``, ``taken over``, ``running``, or ``not finished`` while no attempt runs."""
    step: str
    """How far it is with a stop of the job; empty without one."""
    started_at: float
    """Seconds since 1970; 0 if unknown."""
    finished_at: float
    summary: StageSummary | None = None
    """Of a finished stage."""

    def plain(self) -> Plain:
        """Return its plain form."""
        done = self.summary
        return {
            "name": self.name,
            "state": self.state,
            "step": self.step or None,
            "started_at": self.started_at or None,
            "finished_at": self.finished_at or None,
            "seconds": done.seconds if done is not None else None,
            "attempt": done.attempt if done is not None else None,
            "epoch": done.epoch if done is not None else None,
        }


@attrs.frozen
class JobOverview:
    """A job at one moment."""

    at: float
    view: JobView
    line: JobLine
    explained: Explanation | None
    """What a leader does with it, and why; None once it has ended."""
    leader: str
    """Which master leads, for people."""
    led: bool
    runs: bool
    """Whether its newest attempt runs, or its main: the master that began it leads."""
    streams: tuple[StreamStatus, ...]
    history: tuple[HistoryEntry, ...]
    """All of it, the newest last."""
    snapshots: tuple[SnapshotRecord, ...]
    snapshots_problem: str
    """Why they cannot be read; empty if they can."""
    steps: tuple[Step, ...]
    """What a person would do next."""

    @property
    def reason(self) -> str:
        """What happens to the job, or why it failed, in one line."""
        return self.line.reason if self.explained is None else one_line(str(self.explained))

    @property
    def attempts(self) -> tuple[AttemptSummary, ...]:
        """The attempts, the newest last, as far as they are known; of an application that runs, the
        newest one of its main."""
        main = self.view.application
        if main is None or self.view.attempts:
            return self.view.attempts
        return (
            AttemptSummary(
                main.attempts, main.epoch, main.master, main.host, main.pid, main.begun_at
            ),
        )

    @property
    def attempt(self) -> AttemptSummary | None:
        """The newest attempt; None if none began."""
        return self.attempts[-1] if self.attempts else None

    @property
    def stages(self) -> tuple[StageLine, ...]:
        """The finished stages, and those that were begun and have not finished."""
        return (*self._finished(), *self._unfinished())

    def plain(self) -> Plain:
        """Return its plain form, with the newest events of the history alone."""
        attempt, explained = self.attempt, self.explained
        return {
            "at": self.at,
            "job": self.line.plain(),
            "leader": self.leader,
            "now": self.reason,
            "explanation": None if explained is None else plain.of_explanation(explained),
            "attempt": None if attempt is None else to_plain(attempt),
            "stages": [one.plain() for one in self.stages],
            "streams": to_plain(list(self.streams)),
            "snapshots": None if self.snapshots_problem else len(self.snapshots),
            "steps": [attrs.asdict(one) for one in self.steps],
            "history": plain.of_history(self.history[-NEWEST:]),
            "problems": list(self.view.problems),
        }

    # -- inside ----------------------------------------------------------------------------

    def _finished(self) -> Iterator[StageLine]:
        result = self.view.entry.result if self.view.entry is not None else None
        done = [one.summary() for one in self.view.stages] if result is None else result.stages
        for one in done:
            began = one.finished_at - one.seconds if one.finished_at else 0.0
            state = "taken over" if one.attempt == TAKEN_OVER else "finished"
            yield StageLine(one.name, state, "", began, one.finished_at, one)

    def _unfinished(self) -> Iterator[StageLine]:
        stop = self.view.stop
        steps = dict(stop.stages) if stop is not None and self.explained is not None else {}
        newest = self.attempt.attempt if self.attempt is not None else 0
        began = {
            one.begun_stage: one.at
            for one in self.history
            if one.begun_stage and one.attempt == newest
        }
        began |= {one.stage: one.started_at for one in self.streams}
        done = {one.name for one in self._finished()}
        state = "running" if self.runs else "not finished"
        for name in sorted({*began, *steps} - done):
            yield StageLine(name, state, steps.get(name, ""), began.get(name, 0.0), 0.0)


def job_overview(client: Client, job_id: str, *, now: Clock = time.time) -> JobOverview:
    """Return the overview of a job.

    Raises:
        NoSuchJob: the cluster knows nothing of it.
        Unavailable: the backend could not be asked.
    """
    job = client.job(job_id)
    at, view = now(), job.view()
    explained = None if view.has_ended else job.explain()
    line = job_line(view, explained)
    leads = client.leader()
    led = leads.leader is not None
    paused = explained is not None and plain.of_pause(client) is not None
    problem, snapshots = "", list[SnapshotRecord]()
    try:
        snapshots = job.snapshots.list()
    except JrsError as error:  # Damage of one record, or a storage that is not known.
        problem = printable(bounded(str(error)))
    steps = next_steps(
        view, explained, client.backend.cluster, paused=paused, needs_master=leads.needs_master
    )
    return JobOverview(
        at=at,
        view=view,
        line=line,
        explained=explained,
        leader=str(leads),
        led=led,
        runs=led and _runs(view, leads.epoch, at),
        streams=job.streams(),
        history=job.history(),
        snapshots=tuple(snapshots),
        snapshots_problem=problem,
        steps=tuple(steps),
    )


def _runs(view: JobView, epoch: int | None, at: float) -> bool:
    """Return whether an attempt of the job, or its main, runs in the leader of that epoch."""
    if view.status is not JobStatus.RUNNING:
        return False
    attempt = recorded_attempt(view.attempt, view.spec, epoch, at)
    main = view.application
    return attempt is Attempt.RUNNING or (main is not None and main.epoch == epoch)
