"""Launch: what a master passes to the process of an attempt, and that process's exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.operations import Check, Fence
from jrs.contract.storage_place import StoragePlace
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import AttemptRecord, JobSpec

from ..files.job_folders import JobStorage
from . import host
from .context import AttemptContext
from .launch_socket import understood
from .own_attempt import OwnAttempt
from .reporter import PipeReporter

EXIT_DIED = 70
"""The function raised and the restart policy counts that as a death."""
EXIT_JVM_DIED = 71
"""The JVM of its SparkSession died."""
EXIT_CANNOT_START = 72
"""This host lacks what the job needs; the attempt's record says what."""
EXIT_NOT_UNDERSTOOD = 73
"""The launch is of another version of jrs. For people, as the next one."""
EXIT_INTERRUPTED = 79
"""The backend or the storage failed the attempt. For people: the attempt says so to its watchdog,
since users' code may end with any status."""
EXIT_FENCED = 75
"""A newer leader exists, or the attempt was shut out: it records nothing more."""


@attrs.frozen
class Launch:
    """The parameters of a process attempt, passed over a socket: other users can read arguments.

    The process may be of a later version than its master: a field keeps its meaning, and a new one
    has a default if an attempt can do without it.
    """

    backend: str = attrs.field(repr=False)
    cluster: str
    storage: str
    """The folder of the jobs' files on this host."""
    objects: str
    """The URL of the jobs' objects; empty if their files are in that folder."""
    spec: str
    attempt: int
    epoch: int
    fence_version: int
    attempt_fence: int | None
    """The version of the record that lets the attempt write; None if there is no such record."""
    first_started_at: float
    mark: str
    stdout: str
    """The file for what the attempt prints on its standard output."""
    stderr: str
    """The same for its standard error."""
    log_limit: int
    """The most bytes of each of them."""
    record: str | None = None
    """The stored form of the attempt's record."""
    secrets: dict[str, str] = attrs.field(factory=dict, repr=False)
    """Environment variables that the backend is opened with, and that no child inherits."""
    python: str = ""
    """The interpreter; empty for that of the watchdog."""
    env: dict[str, str] = attrs.field(factory=dict)
    """Environment variables of the job's own settings."""
    job_secrets: dict[str, str] = attrs.field(factory=dict, repr=False)
    """The job's secrets: environment variables whose values no text shows."""

    def to_line(self) -> bytes:
        return json.dumps(attrs.asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Launch:
        """Raise `NotUnderstood` if the line is of another version of jrs."""
        with understood():
            return cls(**json.loads(line))

    def context(self, backend: Backend, reports: int) -> AttemptContext:
        """Return the attempt's context.

        Args:
            reports: the descriptor of the pipe for reports to the master.
        """
        spec = decode(JobSpec, self.spec.encode(), "launch")
        record = self.record and decode(AttemptRecord, self.record.encode(), "launch")
        own = self.attempt_fence
        let_in = None if own is None else Check(keys.FENCES + spec.job_id, own)
        return AttemptContext(
            spec=spec,
            attempt=self.attempt,
            fence=Fence(self.epoch, self.fence_version, let_in),
            backend=backend,
            storage=JobStorage(StoragePlace(Path(self.storage), self.objects), self.cluster),
            first_started_at=self.first_started_at,
            mark=self.mark,
            on_report=PipeReporter(reports),
            own=OwnAttempt(record or None),
        )


def launch_of(
    context: AttemptContext,
    url: str,
    secrets: dict[str, str],
    found: host.Found,
    logs: tuple[Path, Path],
    log_limit: int,
) -> Launch:
    """Return what another process needs to run the attempt of `context`.

    Args:
        found: what the host of the process has for the job.
        logs: the files for its standard output and its standard error.
        log_limit: the most bytes of each of them.
    """
    settings, record = context.spec.settings, context.own.record
    place = context.storage.place
    return Launch(
        backend=url,
        cluster=context.backend.cluster,
        storage=str(place.root),
        objects=place.url,
        spec=encode(context.spec).decode(),
        attempt=context.attempt,
        epoch=context.fence.epoch,
        fence_version=context.fence.version,
        attempt_fence=None if context.fence.attempt is None else context.fence.attempt.version,
        first_started_at=context.first_started_at,
        secrets=secrets,
        mark=context.mark,
        python=found.python,
        env=settings.env,
        job_secrets=found.secrets,
        stdout=str(logs[0]),
        stderr=str(logs[1]),
        log_limit=log_limit,
        record=None if record is None else encode(record).decode(),
    )
