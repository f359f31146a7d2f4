"""Starts: which of the jobs that are to be started may start now.

An attempt in a process of its own needs a slot. One in the master's process needs its turn, which
after a leader's death is one job's at a time.
"""

from __future__ import annotations

import attrs

from jrs.records.model import JobSpec, RunnerKind

from ..rules.decision import Facts
from . import suspects
from .admission import Admission
from .attempts import Attempts
from .facts import JobMemory


class Starts:
    """The slots and the turns of one leadership; used by its dispatcher's thread.

    Args:
        max_attempts: how many attempts in processes of their own run at once; None: any number.
    """

    def __init__(self, max_attempts: int | None, turns: suspects.Turns, attempts: Attempts) -> None:
        self._admission = Admission(max_attempts)
        self._turns = turns
        self._attempts = attempts
        self._waiting: dict[str, Facts] = {}

    def has_its_turn(self, job: JobMemory, spec: JobSpec) -> bool:
        """Return whether the job may start as far as other suspects go; ask again if not."""
        if suspects.runner_of(spec, job.suspicion) is not RunnerKind.THREAD:
            return True
        return self._turns.may_start(spec.job_id, job.suspicion)

    def has_slot(self, job: JobMemory, spec: JobSpec, facts: Facts) -> bool:
        """Return whether the job has a slot, or needs none; if not, it waits for one: `admit` tells
        of it."""
        if suspects.runner_of(spec, job.suspicion) is not RunnerKind.PROCESS:
            return True
        if self._admission.has_slot(spec.job_id):
            return True
        self._admission.ask(spec.job_id, spec.submitted_at)
        self._waiting[spec.job_id] = facts
        return False

    def begin(self, job: JobMemory, spec: JobSpec) -> None:
        """Take note that the job is being started."""
        if suspects.runner_of(spec, job.suspicion) is RunnerKind.THREAD:
            self._turns.enter(spec.job_id, job.suspicion)

    def give_way(self, job_id: str) -> None:
        """Let others have the job's slot and its turn, unless an attempt of it runs."""
        if not self._attempts.is_running(job_id):
            self._admission.release(job_id)
            self._turns.leave(job_id)

    def admit(self, *, late: bool) -> list[str]:
        """Give free slots to the jobs that wait longest; return those.

        A leader that is late starts nothing more, or it would miss its heartbeats, too; but it
        always runs one attempt, or one that is always late would do nothing.
        """
        most = (0 if self._admission.taken else 1) if late else None
        granted = self._admission.grant(most)
        for job_id in granted:
            self._waiting.pop(job_id, None)
        return granted

    def waiting(self) -> dict[str, Facts]:
        """Return the facts of those jobs that were told since the last call to wait for a slot,
        each with its place."""
        waiting, self._waiting = self._waiting, {}
        places = {job_id: self._admission.place(job_id) for job_id in waiting}
        return {
            job_id: attrs.evolve(facts, place=places[job_id])
            for job_id, facts in waiting.items()
            if places[job_id]
        }
