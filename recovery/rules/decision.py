"""The decision about a job: one pure function of the facts, at failover and at any other time.

Rules of this file: no I/O, no clock, no state. Every input is a field of `Facts`; every output is a
`Decision` with a reason that a person understands.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from jrs.records.model import StopMode, StopRecord, StopState

RULES = 1
"""The version of the rules in this file. It grows when a decision about the same facts changes: a
recorded decision is evaluated only by the rules that made it."""
_LONGEST_FACT = 150
"""Characters of a text among recorded facts."""


class Spec(enum.Enum):
    """The stored state of the job's spec."""

    NONE = "none"
    READABLE = "readable"
    UNREADABLE = "unreadable"
    APPLICATION = "application"
    """It is no job but an application, which has a record of its own."""
    RESTORING = "restoring"
    """A restore has taken the spec's place. It is in progress or was interrupted."""


class Result(enum.Enum):
    """The stored state of the job's result."""

    NONE = "none"
    DIRTY = "dirty"
    CLEAN = "clean"
    EXPIRED = "expired"
    UNREADABLE = "unreadable"


class Attempt(enum.Enum):
    """The state of the newest attempt on this leader."""

    NONE = "none"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    """It has ended without a result, and the next one is not due: a delay follows each death, and
    each interruption."""
    UNHEARD = "unheard"
    """It ran alone in an earlier leader that hangs, and whose last words may still come."""
    UNSTARTABLE = "unstartable"
    """This host lacks what it needs to start, and it is not yet time to try again."""
    OVERTIME = "overtime"
    """A time limit of the job or of its attempt has passed, and that is still to be counted."""
    TIMED_OUT = "timed out"
    """A time limit has passed, and the job's policy is to fail."""
    SPENT = "spent"
    """It died, and the restart policy allows no further attempt."""


class Stop(enum.Enum):
    """What is requested of a job that has to stop before its end."""

    NONE = "none"
    """Nothing; or a drain, which the attempt carries out like any other work."""
    ASKED = "asked"
    """To be suspended; its attempt has time to reach a batch boundary."""
    QUIESCED = "stands"  # In the recorded facts of older versions, too.
    """Its queries are suspended, or the grace period is over: its attempt has to end."""
    SUSPENDED = "suspended"
    HELD = "held"
    UNREADABLE = "unreadable"

    @classmethod
    def of(cls, stop: StopRecord | None, *, overdue: bool = False) -> Stop:
        """Return the meaning of a stored stop; `overdue` if its grace period is over."""
        if stop is None or stop.mode is StopMode.DRAIN:
            return cls.NONE
        if stop.mode is StopMode.HOLD:
            return cls.HELD
        if stop.state is StopState.DONE:
            return cls.SUSPENDED
        return cls.QUIESCED if overdue or stop.state is StopState.QUIESCED else cls.ASKED


NOT_REACHED = "waiting: the driver's main has not reached it yet"
"""The reason of a job whose function is not there yet."""


class Action(enum.StrEnum):
    """The decisions about a job. A failover is about the first four."""

    RECOVER = "recover"
    CLEAN_UP = "clean up"
    SKIP = "skip"
    HOLD = "hold"
    LEAVE = "leave"
    CANCEL = "cancel"
    RESTORE = "restore"
    SUSPEND = "suspend"
    FAIL = "fail"
    TIME_OUT = "time out"
    WAIT = "wait"
    NOTHING = "nothing"


@attrs.frozen
class Facts:
    """All that a decision depends on."""

    spec: Spec = Spec.NONE
    result: Result = Result.NONE
    attempt: Attempt = Attempt.NONE
    cancel: bool = False
    stop: Stop = Stop.NONE
    startable: bool = True
    """False for a job whose function only the driver's main can provide, and has not yet."""
    turn: bool = True
    """False while jobs start one at a time after a leader's death, and it is another job's turn."""
    lost: bool = False
    """Its application has ended without it."""
    obstacles: str = ""
    """Why masters cannot start it: each master, its host and the reason."""
    paused: bool = False
    """Whether the cluster is paused: no attempt begins."""
    place: int = 0
    """The job's position among the jobs that wait for a slot, from 1; 0 if it does not wait."""
    outcome: str = ""
    """Of a job that has ended and did not finish: its status, and why."""

    def to_plain(self) -> dict[str, str | bool | int]:
        """Return the facts that differ from their defaults, as JSON, for the history."""
        found = {}
        for field in attrs.fields(Facts):
            value = getattr(self, field.name)
            if value != field.default:
                plain = value.value if isinstance(value, enum.Enum) else value
                found[field.name] = plain[:_LONGEST_FACT] if isinstance(plain, str) else plain
        return found

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Facts:
        """Return the facts that `to_plain` has written.

        Raises:
            ValueError: a newer version has written them, or they are damaged.
        """
        known = {field.name: type(field.default) for field in attrs.fields(cls)}
        if not known.keys() >= plain.keys():
            raise ValueError(f"unknown facts: {', '.join(sorted(plain.keys() - known.keys()))}")
        return cls(**{name: known[name](value) for name, value in plain.items()})


@attrs.frozen
class Decision:
    """The action, and the reason for it."""

    action: Action
    reason: str
    """What happens to the job, in the words of its user."""

    def __str__(self) -> str:
        """Return the decision for people: what happens, and the action's name in brackets."""
        return f"{self.reason} [{self.action.value}]"


def decide(facts: Facts) -> Decision:
    """Return the decision for any combination of facts."""
    if facts.result is Result.UNREADABLE:
        return Decision(Action.HOLD, "held: its result cannot be read; an operator decides")
    if facts.result is Result.DIRTY:
        how = facts.outcome or "ended"
        return Decision(Action.CLEAN_UP, f"{how}; its resources are being cleaned up")
    if facts.result in (Result.CLEAN, Result.EXPIRED):
        if facts.spec is Spec.NONE:
            return Decision(Action.SKIP, "ended; nothing left to do")
        return Decision(Action.SKIP, "ended; a left-over spec is swept")
    if facts.spec is Spec.UNREADABLE and not facts.cancel:
        return Decision(Action.HOLD, "held: its spec cannot be read; `jrs cancel` ends it")
    if facts.spec is Spec.RESTORING and not facts.cancel:
        return Decision(Action.RESTORE, "being restored, or the restore was interrupted")
    if facts.spec is Spec.NONE:
        return Decision(Action.NOTHING, "never submitted; `jrs fsck` lists what is left")
    return _without_result(facts)


def _without_result(facts: Facts) -> Decision:
    if facts.cancel:
        return Decision(Action.CANCEL, "being canceled")
    if facts.spec is Spec.APPLICATION:
        return Decision(Action.WAIT, "an application: the replica that leads runs its main")
    if facts.lost:
        return Decision(Action.CANCEL, "being canceled: its application has ended without it")
    if facts.stop is not Stop.NONE:
        return _stopping(facts)
    if facts.attempt is Attempt.RUNNING:
        return Decision(Action.LEAVE, "running")
    if facts.attempt is Attempt.OVERTIME:
        return Decision(Action.TIME_OUT, "being ended: its time limit has passed")
    if facts.attempt is Attempt.TIMED_OUT:
        return Decision(Action.FAIL, "failing: its time limit has passed")
    if facts.attempt is Attempt.SPENT:
        return Decision(Action.FAIL, "failing: it died as often as its restart policy allows")
    if facts.attempt is Attempt.BACKING_OFF:
        return Decision(
            Action.WAIT, "waiting: its attempt has ended without a result; the next one is not due"
        )
    if facts.attempt is Attempt.UNHEARD:
        return Decision(Action.WAIT, "waiting: it ran alone in a leader that hangs")
    if facts.attempt is Attempt.UNSTARTABLE:
        return Decision(Action.HOLD, f"held: no master could start it so far: {facts.obstacles}")
    if facts.paused:
        return Decision(Action.WAIT, "waiting: the cluster is paused; to end that: `jrs unpause`")
    if not facts.startable:
        return Decision(Action.WAIT, NOT_REACHED)
    if not facts.turn:
        return Decision(Action.WAIT, "waiting: after a leader's death its jobs start in turn")
    if facts.place:
        return Decision(Action.WAIT, f"waiting: place {facts.place} in the queue")
    return Decision(Action.RECOVER, "starting")


def _stopping(facts: Facts) -> Decision:
    running = facts.attempt is Attempt.RUNNING
    if facts.stop is Stop.UNREADABLE:
        return Decision(Action.HOLD, "held: its stop request cannot be read; an operator decides")
    if facts.stop is Stop.ASKED and running:
        return Decision(Action.LEAVE, "suspending; its attempt comes to a batch boundary")
    if facts.stop is Stop.HELD and running:
        return Decision(Action.SUSPEND, "held; its attempt is being ended")
    if facts.stop in (Stop.ASKED, Stop.QUIESCED) or running:
        return Decision(Action.SUSPEND, "suspending")
    if facts.stop is Stop.HELD:
        return Decision(Action.HOLD, "held; resume or cancel it")
    return Decision(Action.WAIT, "suspended; resume it with `jrs resume`")
