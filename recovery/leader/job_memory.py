"""JobMemory: what a leader remembers of a job between two checks of it."""

from __future__ import annotations

from enum import Enum

import attrs

from jrs.records import keys
from jrs.records.model import JobSpec
from jrs.records.obstacles import Obstacle

from ..attempt.runners import AttemptExit
from ..rules.decision import Action, Decision
from .restart_plan import EndCount, RestartPlan

SCANNED = (
    *(keys.JOBS, keys.APPLICATIONS, keys.DIRTY, keys.CANCEL, keys.STOPS, keys.CLEANUP),
    keys.RESTORES,
)
"""The records that show that a job has changed: every other change comes with one of these."""


@attrs.define(eq=False)
class Failing:
    """That an action raised, and is to be tried again. Its times are on the monotonic clock."""

    at: float
    """When it raised last."""
    until: float
    """It is not tried before this moment."""
    tries: int = 0
    """How often it has raised in a row."""
    doublings: int = 0
    """How often its delay has grown."""
    said: str = ""


@attrs.frozen(eq=False)
class End:
    """An attempt's end."""

    spec: JobSpec
    how: AttemptExit
    at: float
    """On the monotonic clock; from then on the next attempt waits for its delay."""
    ran: float
    """The seconds that the attempt had run."""
    counted: bool = False
    """Whether the metrics have already counted it."""
    count: EndCount = attrs.field(factory=EndCount)


@attrs.define(eq=False)
class RestartMemory:
    """When and whether the next attempt of a job may start."""

    at: float = 0.0
    """When it may start; like all times here on the monotonic clock."""
    deaths: int | None = None
    """None until the stored attempt was read."""
    suspicion: int = 0
    obstacles: tuple[Obstacle, ...] = ()
    """Why masters could not start it; empty if its newest attempt was started."""
    interruptions: int = 0
    """How many attempts in a row ended without dying: the delay grows with them."""
    has_begun: bool = False
    """It has an attempt, whose files the next one takes over."""
    killed_at: float | None = None
    """When this leader has ended its attempt, in seconds since 1970, if it has."""
    hand_over_at: float = 0.0
    """When to ask again whether another master should lead, because this one cannot start it."""


@attrs.define(eq=False)
class TimeMemory:
    """What a job has used of its time limits."""

    used: float = 0.0
    """The seconds that it had run before its present attempt; see `used_time`."""
    is_up: bool = False
    """A time limit has passed, and its policy is to fail."""
    count_at: float = 0.0
    """When its stored time is due to be brought up to date."""


@attrs.define(eq=False)
class CleanupMemory:
    """What remains to be cleaned up of a job, and when that is tried."""

    dirty_since: float = 0.0
    """When the job ended, in seconds since 1970, while its result is dirty; else 0."""
    at: float = 0.0
    tries: int = 0
    reported_given_up: bool = False


class Step(Enum):
    """What a leader does with a job besides the actions that it decides."""

    LOOK = "look"
    COUNT_END = "count an attempt's end"


@attrs.define
class SnapshotMemory:
    """The next snapshot that a job's spec requests; its times are on the monotonic clock."""

    at: float | None = None
    """When it is tried; None: not known yet."""
    due_at: float | None = None
    """When it is due: a try may have failed, or wait for its turn."""
    failures: int = 0
    """How many tries in a row have failed."""


@attrs.define(eq=False)
class JobMemory:
    """What this leader remembers of a job between two checks of it."""

    seen: tuple[int | None, ...] = (None,) * len(SCANNED)
    """The versions of the records in `SCANNED` at the last check."""
    checked_at: float = attrs.field(default=0.0, init=False)
    """When the last check began, on the monotonic clock: what was not due in it is due later."""
    busy: bool = False
    """An action about it is in a pool: it is not checked until that action has returned."""
    pinning: bool = False
    """A snapshot of it is being taken; it is still checked meanwhile."""
    ended: End | None = None
    """An attempt's end that is still to be evaluated."""
    failing: dict[Action | Step, Failing] = attrs.field(factory=dict)
    """What raised at its last try. Each has a delay of its own."""
    restart: RestartMemory = attrs.field(factory=RestartMemory)
    time: TimeMemory = attrs.field(factory=TimeMemory)
    cleanup: CleanupMemory = attrs.field(factory=CleanupMemory)
    last_reported: Decision | None = None
    held_for: str = ""  # Why it is held, as the history has it.
    snapshot: SnapshotMemory = attrs.field(factory=SnapshotMemory)
    stop_since: tuple[float, float] | None = None
    """The stop that this leader has seen, by the time of its request, and since when."""

    def count_death(self, death: RestartPlan | None, at: float) -> None:
        """Take in what was recorded of an attempt's end at that moment; None: it was no death."""
        self.ended = None
        if death is not None:
            self.restart.deaths = death.deaths
            self.restart.at = at + death.delay
            self.restart.obstacles = death.obstacles
            self.restart.interruptions = death.interruptions
            self.time.used = death.used
            self.time.is_up = death.timed_out
