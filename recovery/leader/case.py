"""Case: a job, and what its leader has just found and decided about it."""

from __future__ import annotations

import attrs

from jrs.records.model import JobSpec

from ..rules.decision import Decision, Facts
from .facts import Look
from .job_memory import JobMemory


@attrs.frozen
class Case:
    """A job, what was found of it, and what was decided."""

    job_id: str
    job: JobMemory
    look: Look
    decision: Decision

    @property
    def facts(self) -> Facts:
        return self.look.facts

    @property
    def spec(self) -> JobSpec:
        assert self.look.spec is not None, "a decision that needs the spec comes with one"
        return self.look.spec
