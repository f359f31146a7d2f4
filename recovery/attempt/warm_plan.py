"""What a process prepares before it is given an attempt (a warm standby).

Starting Spark takes most of the time of a failover. So a process can start without a job: it
imports pyspark, starts a session, and waits. It has no epoch, no place for files, and no access to
the backend: these come with its launch. It serves one attempt.
"""

from __future__ import annotations

import json
from typing import Self

import attrs

from jrs.records.model import AttemptRecord, JobSpec, RunnerKind

from .launch_socket import understood


@attrs.frozen(unsafe_hash=False)
class WarmPlan:
    """What a process prepares. An attempt fits a process that was prepared by an equal plan."""

    conf: dict[str, str]
    """The configuration of the session, where it differs from the host's and from jrs's own."""
    python: str = ""
    """The interpreter; empty for that of the master."""
    env: dict[str, str] = attrs.field(factory=dict)
    """Environment variables of the job's settings."""
    shared: bool = False
    """Whether the group of the storage may change what the session makes."""
    preload: tuple[str, ...] = ()
    """Modules that it imports. An attempt fits whatever was imported."""

    def __hash__(self) -> int:
        return hash(self.to_line())

    def to_line(self) -> bytes:
        return json.dumps(attrs.asdict(self), sort_keys=True).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Raise `NotUnderstood` if the line is of another version of jrs."""
        with understood():
            fields = json.loads(line)
            return cls(**{**fields, "preload": tuple(fields["preload"])})


def plan_of(spec: JobSpec, before: AttemptRecord | None, *, shared: bool) -> WarmPlan | None:
    """Return what a process has to prepare for the next attempt of a job.

    None if there is nothing to prepare, or it must not be prepared: the job has not started a
    session so far, or its attempts need secrets, which a process has no right to before it has a
    job.

    Args:
        before: the job's newest attempt.
        shared: whether the group of the storage may change what the session makes.
    """
    settings = spec.settings
    if before is None or before.session is None or settings.secrets:
        return None
    if spec.runner is not RunnerKind.PROCESS:
        return None
    return WarmPlan(before.session, settings.python, settings.env, shared)
