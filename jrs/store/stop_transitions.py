"""How a job's stop and its restore proceed, as transition tables. Pure: no I/O, no clock.

Theory of operation
===================

Two records next to a job say that it must not simply run: its stop (``stops/<job>``) and its
restore (``restores/<job>``). Several processes write them, and each of them may die at any moment:
operators' commands, the job's attempt, and the leader. So the record holds all that the next
process needs to continue, every write names the version that it replaces, and the tables below
say which write may follow which. An event that a table does not list for a step is impossible:
the process that attempts it writes nothing.

**Stops.** An operator requests a stop, and changes or resumes a job. The attempt answers: its
queries have quiesced, or the job cannot be drained. The leader completes a suspension once no
attempt of the job can write any more. A job that cannot resume from its stored state is held, by
the leader or the attempt, in every step. A drain needs no completion: the job ends with a result.
A suspension that was only requested to change the job has steps of its own, because it is complete
when the record is gone. An attempt or a leader that acts on an earlier request cannot advance a
later one: a request is told apart by its time.

**Restores.** A restore builds the job's folders next to the job, and so far changes nothing. Then
it reserves the job: one commit stores the restore and shuts the job's attempt out. It swaps the
folders and commits the records; that commit removes the restore. A process that dies after the
reservation leaves a reserved job, and the next process repeats the restore from its beginning.
While a job is reserved, no event but those of the restore and the job's cancellation is possible:
each of the others requires, in its own commit, that no restore is stored.
"""

from __future__ import annotations

import enum
from typing import TypeVar

import attrs

from jrs.contract.errors import CorruptRecord
from jrs.records.model import StopMode, StopRecord, StopState


class StopStep(enum.Enum):
    """How far a job's stop is."""

    NONE = "not stopping"
    SUSPENDING = "suspending"
    QUIESCED = "quiesced"
    SUSPENDED = "suspended"
    RESTARTING = "suspending to restart"
    RESTART_QUIESCED = "quiesced to restart"
    DRAINING = "draining"
    REFUSED = "cannot be drained"
    HELD = "held"
    HELD_IN_DRAIN = "held while draining"
    """The drain continues when the job is resumed."""


class StopEvent(enum.Enum):
    """What an operator requests, an attempt reports, or a leader decides."""

    SUSPEND = "suspend"
    DRAIN = "drain"
    RESUME = "resume"
    RECONFIGURE = "reconfigure"
    QUIESCE = "quiesce"
    """By the attempt: its queries have ended at a batch boundary."""
    REFUSE = "refuse"
    """By the attempt: the job cannot be drained."""
    COMPLETE = "complete"
    """By the leader: no attempt of the job can write any more."""
    HOLD = "hold"
    """By the leader or the attempt: the job cannot resume from its stored state."""


class RestoreStep(enum.Enum):
    """How far a job's restore is."""

    NONE = "not restoring"
    RESERVED = "reserved"


class RestoreEvent(enum.Enum):
    """What happens to a job that may be under restore."""

    RESERVE = "reserve"
    COMMIT = "commit"
    CANCEL = "cancel"
    START = "start"
    STOP = "stop"
    """Any event of the job's stop."""
    SIGN = "sign"
    SNAPSHOT = "take a snapshot of"


_S, _E = StopStep, StopEvent

STOP: dict[StopStep, dict[StopEvent, StopStep]] = {
    _S.NONE: {
        _E.RESUME: _S.NONE,
        _E.SUSPEND: _S.SUSPENDING,
        _E.DRAIN: _S.DRAINING,
        _E.RECONFIGURE: _S.RESTARTING,
        _E.HOLD: _S.HELD,
    },
    _S.SUSPENDING: {
        _E.SUSPEND: _S.SUSPENDING,
        _E.QUIESCE: _S.QUIESCED,
        _E.COMPLETE: _S.SUSPENDED,
        _E.HOLD: _S.HELD,
    },
    _S.QUIESCED: {
        _E.SUSPEND: _S.QUIESCED,
        _E.COMPLETE: _S.SUSPENDED,
        _E.HOLD: _S.HELD,
    },
    _S.SUSPENDED: {
        _E.SUSPEND: _S.SUSPENDED,
        _E.RESUME: _S.NONE,
        _E.RECONFIGURE: _S.SUSPENDED,
        _E.HOLD: _S.HELD,
    },
    _S.RESTARTING: {
        _E.SUSPEND: _S.SUSPENDING,
        _E.QUIESCE: _S.RESTART_QUIESCED,
        _E.COMPLETE: _S.NONE,
        _E.HOLD: _S.HELD,
    },
    _S.RESTART_QUIESCED: {
        _E.SUSPEND: _S.QUIESCED,
        _E.COMPLETE: _S.NONE,
        _E.HOLD: _S.HELD,
    },
    _S.DRAINING: {
        _E.DRAIN: _S.DRAINING,
        _E.REFUSE: _S.REFUSED,
        _E.HOLD: _S.HELD_IN_DRAIN,
    },
    _S.REFUSED: {
        _E.SUSPEND: _S.SUSPENDING,
        _E.DRAIN: _S.DRAINING,
        _E.RECONFIGURE: _S.RESTARTING,
        _E.HOLD: _S.HELD,
    },
    _S.HELD: {
        _E.RESUME: _S.NONE,
        _E.RECONFIGURE: _S.HELD,
        _E.HOLD: _S.HELD,
    },
    _S.HELD_IN_DRAIN: {
        _E.RESUME: _S.DRAINING,
        _E.RECONFIGURE: _S.HELD_IN_DRAIN,
        _E.HOLD: _S.HELD_IN_DRAIN,
    },
}
"""The step after each event that is possible in a step. The same step: nothing is to be written,
or only what the event says."""

_R, _V = RestoreStep, RestoreEvent

RESTORE: dict[RestoreStep, dict[RestoreEvent, RestoreStep]] = {
    _R.NONE: {
        _V.RESERVE: _R.RESERVED,
        _V.CANCEL: _R.NONE,
        _V.START: _R.NONE,
        _V.STOP: _R.NONE,
        _V.SIGN: _R.NONE,
        _V.SNAPSHOT: _R.NONE,
    },
    _R.RESERVED: {
        _V.RESERVE: _R.RESERVED,
        _V.COMMIT: _R.NONE,
        _V.CANCEL: _R.RESERVED,
    },
}
"""The same of a restore. A canceled job keeps the restore until its cleanup removes it."""

_RECORDED: dict[StopStep, tuple[StopMode, StopState, bool, bool]] = {
    _S.SUSPENDING: (StopMode.SUSPEND, StopState.REQUESTED, False, False),
    _S.QUIESCED: (StopMode.SUSPEND, StopState.QUIESCED, False, False),
    _S.SUSPENDED: (StopMode.SUSPEND, StopState.DONE, False, False),
    _S.RESTARTING: (StopMode.SUSPEND, StopState.REQUESTED, True, False),
    _S.RESTART_QUIESCED: (StopMode.SUSPEND, StopState.QUIESCED, True, False),
    _S.DRAINING: (StopMode.DRAIN, StopState.REQUESTED, False, False),
    _S.REFUSED: (StopMode.DRAIN, StopState.REFUSED, False, False),
    _S.HELD: (StopMode.HOLD, StopState.DONE, False, False),
    _S.HELD_IN_DRAIN: (StopMode.HOLD, StopState.DONE, False, True),
}
"""How a step is stored: mode, state, whether it restarts the job, whether it keeps a drain."""

_STEPS = {recorded: step for step, recorded in _RECORDED.items()}

Step = TypeVar("Step", StopStep, RestoreStep)
Event = TypeVar("Event")


def step_after(table: dict[Step, dict[Event, Step]], step: Step, event: Event) -> Step | None:
    """Return the step after an event; None if the event is not possible in that step."""
    return table[step].get(event)


def step_of(stop: StopRecord | None) -> StopStep:
    """Return the step of a stored stop; None: the job has none.

    Raises:
        CorruptRecord: no process can have written such a stop.
    """
    if stop is None:
        return StopStep.NONE
    try:
        return _STEPS[stop.mode, stop.state, stop.again, stop.drain is not None]
    except KeyError:
        raise CorruptRecord(
            f"the stop of job {stop.job_id!r}: {stop.mode.value!r} cannot be {stop.state.value!r}"
        ) from None


def obstacle(stop: StopRecord | None) -> str:
    """Return why an event is not possible in the step of a job's stop, as a predicate."""
    assert stop is not None, "without a stop, every request is possible"
    if stop.mode is StopMode.HOLD:
        return f"is held: {stop.reason}"
    if stop.state is StopState.DONE:
        return "is already suspended"
    if stop.state is StopState.REFUSED:
        return f"keeps running, because it cannot be drained: {stop.reason}"
    return f"already has a request to {stop.mode.value}; `jrs cancel` overrides it"


def at_step(stop: StopRecord, step: StopStep) -> StopRecord:
    """Return a stop as it is stored at another step; not for the steps that keep a drain."""
    mode, state, again, _ = _RECORDED[step]
    return attrs.evolve(stop, mode=mode, state=state, again=again)
