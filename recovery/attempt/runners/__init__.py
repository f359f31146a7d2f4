"""Runners: where an attempt runs. A runner starts attempts, ends them, and reports each end
once."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.masks import masked
from jrs.records.model import AttemptRecord, JobSpec

from ..context import AttemptContext


@attrs.frozen
class AttemptExit:
    """How an attempt ended, as far as its runner knows; only the store has its result.

    Made while the secrets of its job are hidden: its texts are masked."""

    message: str = attrs.field(default="", converter=masked)
    detail: str = attrs.field(default="", converter=masked)
    """The traceback, or the end of its stderr."""
    exit_status: int | None = None
    """The exit code, or minus the signal's number."""
    fenced: bool = False
    """It ended because a newer leader exists."""
    begun: bool = True
    """False if the job's function was not called, through no fault of the job."""
    cannot_start: bool = False
    """Its host lacks what the job needs, as the attempt's record says."""
    lack: str = attrs.field(default="", converter=masked)
    """What it lacks, if the attempt could not record that itself."""
    lapsed: bool = False
    """Its watchdog ended it because its leadership was over: not a death of the job."""
    interrupted: bool = False
    """A call of jrs's own failed, to the backend, the storage or the host: not a death either."""
    timed_out: bool = False
    """It was ended because a time limit of the job, the attempt or a stage has passed."""
    used_up: bool = False
    """That limit was the job's, of all its attempts together."""

    @property
    def how(self) -> str:
        """How it ended, in one word for metrics; empty if only the store can tell."""
        if self.fenced or self.lapsed:
            return "fenced"
        if self.cannot_start or not self.begun:
            return "not_started"
        if self.interrupted:
            return "interrupted"
        return "" if self.message or self.exit_status else "completed"


OnEnd = Callable[[AttemptExit], None]


class RunningAttempt(abc.ABC):
    """A started attempt."""

    @abc.abstractmethod
    def end(self, deadline: Deadline) -> bool:
        """End the whole attempt and wait; return whether it is known to have ended. Idempotent."""


class NotStarted(RunningAttempt):
    """An attempt whose process could not be started."""

    def end(self, deadline: Deadline) -> bool:
        return True


class Runner(abc.ABC):
    """Starts attempts."""

    def reserve(self, spec: JobSpec, before: AttemptRecord | None) -> str | None:
        """Reserve a process that is prepared for the job's next attempt; return its mark, which
        the attempt's record then has. None if there is none.

        Args:
            before: the job's newest attempt.
        """
        return None

    def release(self, mark: str) -> None:  # noqa: B027 - most runners reserve nothing
        """End the process that was reserved, unless an attempt was started with it. Idempotent."""

    @abc.abstractmethod
    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        """Start the attempt; `on_end` is called once, from any thread, when it has ended.

        `function` is the job's function if the driver's main provided it; otherwise the runner
        loads the spec's entry point.

        Raises:
            CannotStartHere: this host lacks what the attempt's process needs. `on_end` is not
                called.
            Exception: it could not be started now, for any other reason. `on_end` is not called.
                What had started was ended; a process that does not end has the attempt's mark, by
                which it is found before the next attempt.
        """
