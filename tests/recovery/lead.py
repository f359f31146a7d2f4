"""A leadership in the test's own thread, which runs attempts there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import ClassVar

from jrs.contract.backend import Backend
from jrs.contract.leadership import Leadership
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job
from jrs.recovery.files.job_folders import JobStorage
from tests.recovery.support import CLUSTER, spec


class Lead:
    """A leadership that runs attempts of ``job`` in this thread; it ends with its test."""

    current: ClassVar[list[Lead]] = []

    def __init__(self, backend: Backend, root: Path) -> None:
        self.backend = backend
        self.storage = JobStorage(root, CLUSTER)
        leadership = backend.campaign("me", ttl=30.0, stop=threading.Event())
        assert leadership is not None
        self.leadership: Leadership = leadership
        self.current.append(self)
        self.folder = self.storage.folder("job")

    def context(self, attempt: int = 1, **arguments: object) -> AttemptContext:
        self.storage.take_over("job", self.leadership.epoch)
        return AttemptContext(
            spec("job", arguments=arguments), attempt, self.leadership.fence, self.backend,
            self.storage, 0.0,
        )  # fmt: skip

    def job(self, attempt: int = 1) -> Job:
        return AttemptRun(self.context(attempt)).job

    def published(self) -> dict[str, str]:
        """Return the published files and what is in them."""
        return {
            str(path.relative_to(self.folder)): path.read_text()
            for place in ("out", "tmp")
            for path in sorted((self.folder / place).rglob("*"))
            if path.is_file()
        }
