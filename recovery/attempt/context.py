"""The parameters of one attempt, and what every part of it does with them: fenced commits, waiting
for the storage, reporting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import attrs
import tenacity

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, Fenced, OutcomeUnknown, Unavailable
from jrs.contract.leadership import Lifeline
from jrs.contract.operations import Create, Fence, Op, Update
from jrs.contract.read_back import commit_again
from jrs.contract.runtime import RUNTIME, Runtime
from jrs.records.history import HistoryKind
from jrs.records.model import JobSpec, RunnerKind
from jrs.store.historian import Historian
from jrs.store.stops import JobStops

from ..files.disk_errors import GONE
from ..files.job_folders import JobStorage
from ..processes.last_words import LastWords
from . import scratch
from .own_attempt import OwnAttempt
from .reporter import OnReport, Reporter, ignore
from .uploads import Uploads
from .watchdog_pipe import WatchdogPipe

T = TypeVar("T")


@attrs.frozen
class AttemptContext:
    """The parameters of one attempt, and what every part of it does with them: fenced commits,
    waiting for the storage, reporting."""

    spec: JobSpec
    attempt: int
    fence: Fence
    backend: Backend
    storage: JobStorage
    first_started_at: float
    lost: threading.Event = attrs.field(factory=threading.Event)
    """Set when the attempt has to stop; only visible in its master's own process."""
    runtime: Runtime = RUNTIME
    lifeline: Lifeline | None = None
    """Ties a process of its own to the leadership that started it; see `Lifeline`."""
    last_words: LastWords | None = None
    """Where an attempt in its master's own process records how that process ended."""
    mark: str = ""
    """The mark of its processes, recorded before they start (see
    `jrs.recovery.processes.marks`)."""
    on_report: OnReport = ignore
    """Takes what the attempt reports of its stages."""
    own: OwnAttempt = attrs.field(factory=OwnAttempt)
    """The attempt's record; the result keeps what it says of the job's attempts."""
    watchdog: WatchdogPipe | None = None
    """Limits the time of stages; None in the master's own process, which cannot be killed."""

    @property
    def job_id(self) -> str:
        return self.spec.job_id

    @property
    def epoch(self) -> int:
        """The epoch of the leader that started this attempt."""
        return self.fence.epoch

    @cached_property
    def uploads(self) -> Uploads:
        """What this attempt writes into objects; only where the storage has objects."""
        objects = self.storage.objects
        assert objects is not None
        token = self.runtime.token()
        return Uploads(objects, self.job_id, self.epoch, self.attempt, token)

    @cached_property
    def historian(self) -> Historian:
        """Records what this attempt does to its job."""
        by = self.own.record.master if self.own.record is not None else ""
        return Historian(
            self.backend, by, self.epoch, self.attempt, self.runtime.now, self.own.about
        )

    @property
    def stops(self) -> JobStops:
        """The stops of jobs, as this attempt may change them."""
        return JobStops(self.backend, now=self.runtime.now, historian=self.historian)

    @property
    def reporter(self) -> Reporter:
        """Reports the steps of the attempt's stages to its master."""
        return Reporter(self.on_report, now=self.runtime.now)

    def until_stored(self, call: Callable[[], T]) -> T:
        """Make a call to the storage, or a commit, until it is answered; say that it waits. Check
        before that this attempt's leader was not replaced.

        Args:
            call: may be repeated, also if its outcome is unknown.

        Raises:
            Fenced: this attempt's leader was replaced meanwhile.
            Whatever else `call` raises.
        """

        def attempt() -> T:
            self.check()
            return call()

        def say(state: tenacity.RetryCallState) -> None:
            if state.outcome is not None:
                self.reporter.waiting(str(state.outcome.exception()))

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((Unavailable, OutcomeUnknown)),
            wait=tenacity.wait_exponential(multiplier=0.5, max=15.0),
            stop=tenacity.stop_when_event_set(self.lost),
            sleep=tenacity.sleep_using_event(self.lost),
            before_sleep=say,
            reraise=True,
        )(attempt)

    def check(self) -> None:
        """Raise `Fenced` if this attempt's leader was replaced."""
        if self.lost.is_set() or not self.backend.is_current(self.fence):
            raise Fenced(f"epoch {self.epoch} was replaced: job {self.job_id!r} stops here")

    def commit(self, own: Create | Update, *others: Op) -> None:
        """Commit, under this attempt's fence, a record that no other attempt writes, and what goes
        with it. Durable; the same call may be repeated.

        Raises:
            Fenced: this attempt was shut out, or another one has written the record.
            Unavailable: nothing was changed.
            OutcomeUnknown: it may be committed.
        """
        try:
            commit_again(self.backend, own, *others, fence=self.fence)
        except Conflict:
            self.check()  # Only an attempt that is let in writes it.
            raise Fenced(f"another attempt of job {self.job_id!r} has written {own.key}") from None

    def record_begun(self, stage: str) -> None:
        """Have the history say that a batch stage begins. Nothing waits for it, and nothing fails
        with it: the mark of the stage counts."""
        kind, said = HistoryKind.STAGE_BEGUN, f"stage {stage} was begun"
        with self.historian.recorded(
            self.job_id, kind, said, about={"stage": stage}, repeatable=True
        ) as event:
            self.backend.commit_async(*event, fence=self.fence)

    @contextmanager
    def fenced_if_gone(self) -> Iterator[None]:
        """Raise `Fenced` where the block misses a file because a newer leader has taken it."""
        try:
            yield
        except GONE:
            self.check()
            raise

    def scratch(self) -> tuple[Path, ...]:
        """Return folders for temporary files, which are removed however the attempt ends.

        There are none for an attempt in its master's own process, whose Spark outlives the job.
        """
        if self.spec.runner is not RunnerKind.PROCESS:
            return ()
        if self.mark and (local := scratch.make(self.mark)):
            return local
        return (self.storage.scratch(self.job_id, self.epoch, self.attempt),)
