"""StopRecord: a stop of a job before its end, as it is stored."""

from __future__ import annotations

import enum

import attrs

from jrs.records.checks import a_job_id, bounded_text, bounded_texts
from jrs.records.policies import seconds
from jrs.records.stored import Stored


class StopMode(enum.StrEnum):
    """How a job stops before its end; see `jrs.store.stops`."""

    SUSPEND = "suspend"
    """Stop at a batch boundary, without a result; the job can be resumed."""
    DRAIN = "drain"
    """Process the available input, flush every window, and finish; never resumed."""
    HOLD = "hold"
    """Set by jrs: the job cannot resume from the stored data until an operator has checked it."""


class StopState(enum.StrEnum):
    """The progress of a stop."""

    REQUESTED = "requested"
    QUIESCED = "quiesced"
    """Every query of a job to be suspended has ended; the leader ends the attempt."""
    DONE = "done"
    """The job is suspended or held. It starts again when it is resumed."""
    REFUSED = "refused"
    """The job cannot be drained; it keeps running, and `reason` says why."""


@attrs.frozen
class StopRecord(Stored):
    """A stop, from its request until the job ends or is resumed."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    mode: StopMode
    """How the job stops."""
    state: StopState = StopState.REQUESTED
    """How far the stop is."""
    requested_at: float = 0.0
    """Seconds since 1970, by the clock of the one who asked."""
    reason: str = attrs.field(default="", converter=bounded_text)
    """Why: what the one who asked said; of a hold or a refusal, what jrs found."""
    grace: float = attrs.field(default=30.0, validator=seconds)
    """Grace period of a suspend, in seconds: after it, the leader ends an attempt that has not
    quiesced."""
    again: bool = False
    """Whether the leader restarts the changed job as soon as it is suspended."""
    stages: dict[str, str] = attrs.field(factory=dict, converter=bounded_texts)
    """The step of each streaming stage, for callers that wait."""
    drain: StopRecord | None = None
    """The drain that a hold has interrupted; it continues when the job is resumed."""

    def least_reader(self) -> int:
        return 2  # See `jrs.records.older_versions`.

    def __str__(self) -> str:
        """Return the state of the stop for people."""
        why = f": {self.reason}" if self.reason else ""
        if self.mode is StopMode.HOLD:
            return f"held{why}; 'jrs resume' tries again"
        if self.state is StopState.DONE:
            return f"suspended{why}; resume it with `jrs resume`"
        if self.state is StopState.REFUSED:
            return f"cannot be drained{why}; the job keeps running"
        return f"{self.mode.value} requested{why}"
