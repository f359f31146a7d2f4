"""Starts: which of the jobs that the leader wants to start may start now.

An attempt in a process of its own needs a slot. An attempt in the master's process needs its turn;
after a leader's death only one job at a time has it.
"""

from __future__ import annotations

from itertools import islice

import attrs

from jrs.records.model import JobSpec, RunnerKind

from ..rules.decision import Facts
from ..rules.queue import Turn
from . import suspects
from .admission import Admission
from .attempts import Attempts
from .context import LeaderContext
from .job_memory import JobMemory


class Starts:
    """The slots and the turns of one leadership; used by its dispatcher's thread."""

    def __init__(
        self, context: LeaderContext, probations: suspects.Probations, attempts: Attempts
    ) -> None:
        self._admission = Admission(context.max_attempts, context.runtime.clock)
        self._probations = probations
        self._attempts = attempts
        self._waiting: dict[str, Facts] = {}

    @property
    def queued(self) -> int:
        """How many jobs wait for a slot. From any thread."""
        return self._admission.waiting

    @property
    def oldest(self) -> float:
        """For how many seconds the job has waited for a slot that waits the longest. From any
        thread."""
        return self._admission.oldest

    def has_its_turn(self, job: JobMemory, spec: JobSpec) -> bool:
        """Return whether the other suspects let the job start; if not, ask again."""
        if suspects.runner_of(spec, job.restart.suspicion) is not RunnerKind.THREAD:
            return True
        return self._probations.may_start(spec.job_id, job.restart.suspicion)

    def has_slot(self, job: JobMemory, spec: JobSpec, facts: Facts) -> bool:
        """Return whether the job has a slot, or needs none; if not, it waits for `admit`."""
        if suspects.runner_of(spec, job.restart.suspicion) is not RunnerKind.PROCESS:
            return True
        if self._admission.has_slot(spec.job_id):
            return True
        self._admission.ask(Turn.of(spec))
        self._waiting[spec.job_id] = facts
        return False

    def begin(self, job: JobMemory, spec: JobSpec) -> None:
        """Record that the job is being started."""
        if suspects.runner_of(spec, job.restart.suspicion) is RunnerKind.THREAD:
            self._probations.enter(spec.job_id, job.restart.suspicion)

    def give_way(self, job_id: str) -> None:
        """Release the job's slot and its turn, unless an attempt of it runs."""
        if not self._attempts.is_running(job_id):
            self._admission.release(job_id)
            self._probations.leave(job_id)
        self._waiting.pop(job_id, None)

    def admit(self, *, late: bool) -> list[str]:
        """Give free slots to the jobs that are next in the queue; return those jobs.

        A leader that is late starts nothing more: it would miss its heartbeats, too. But it always
        runs at least one attempt, or a leader that is always late would do nothing.
        """
        most = (0 if self._admission.taken else 1) if late else None
        granted = self._admission.grant(most)
        for job_id in granted:
            self._waiting.pop(job_id, None)
        return granted

    @property
    def has_news(self) -> bool:
        """Whether jobs have begun to wait that `waiting` has not returned yet."""
        return bool(self._waiting)

    def waiting(self, most: int) -> dict[str, Facts]:
        """Return the facts of at most so many jobs that have begun to wait for a slot, each with
        its place in the queue; each job once."""
        found = {}
        for job_id in list(islice(self._waiting, most)):
            facts = self._waiting.pop(job_id)
            if place := self._admission.place(job_id):
                found[job_id] = attrs.evolve(facts, place=place)
        return found
