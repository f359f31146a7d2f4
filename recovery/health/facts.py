"""MasterHealth: what a master knows about itself, in memory. Nothing here asks the backend.

The parts of a master report to it as they work; probes and metrics read it at any moment, from
another thread. Every method is quick and takes no lock but its own.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

import attrs

from jrs.contract.clock import Clock
from jrs.contract.errors import Fenced, OutcomeUnknown
from jrs.contract.leadership import Leadership

LIVE_WITHIN = 60.0
"""Seconds within which the loop of a leader has to turn. One call of the backend takes at most ten
seconds, and a turn ends at the first one that fails."""
READY_WITHIN = 15.0
"""Seconds within which the backend has to have acknowledged a heartbeat of the master."""
LATELY = 3600.0
"""Seconds within which leaders that have not resigned are counted."""
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The bounds of the histogram of failovers, in seconds."""
ATTEMPT_ENDS = ("completed", "died", "fenced", "interrupted", "not_started", "stopped")
"""How attempts end: with the job's result; by dying; because a newer leader exists; because the
backend, the storage or the host failed them; before the job's function was called; or because their
leader ended them, for example to suspend the job."""


UPKEEP_OF_LEADER = ("ends", "feed", "retention", "sweep")
UPKEEP = ("compaction", *UPKEEP_OF_LEADER)
"""What keeps a cluster small and safe: the file backend's compaction, the count of ends in the
storage, the sweep of the feed, retention, and the sweep of what earlier leaders and interrupted
deletions have left."""


@attrs.frozen
class Tally:
    """How many jobs a leader has in which state."""

    running: int = 0
    queued: int = 0
    held: int = 0
    cleanup: int = 0
    """Jobs that have ended and still have resources."""
    oldest_cleanup: float = 0.0
    """Seconds since the end of the job whose result has been dirty the longest; 0 if none is."""
    snapshot_overdue: float = 0.0
    """Seconds since the scheduled snapshot of a running job was due that waits the longest; 0 if
    none does."""
    oldest_queued: float = 0.0
    """Seconds for which the job has waited for a slot that waits the longest; 0 if none does."""


def _no_jobs() -> Tally:
    return Tally()


@attrs.frozen
class Leaderships:
    """How often a master was elected, how its leaderships ended, and whether it may lead."""

    elections: int
    lost: int
    resigned: int
    lost_lately: int
    """How many leaders of the cluster have not resigned within `LATELY`, as this leader knows."""
    held: str
    """Why it must not lead before an operator has repaired something; empty if it may."""


@attrs.frozen
class AttemptCounts:
    """Attempts that a master has started, and how many have ended in which way."""

    started: int
    ended: dict[str, int]


@attrs.frozen
class CommitFailures:
    """Commits of this process that failed."""

    fenced: int
    unknown: int


@attrs.frozen
class Failovers:
    """How long failovers took, each from the election until the master led."""

    within: tuple[int, ...]
    """How many took at most as long as each of `BUCKETS`."""
    count: int
    seconds: float
    """Of all of them."""


@attrs.frozen
class Export:
    """The export of the history."""

    failing: float
    """Seconds since it has failed; 0 if it works, or this master does not lead."""
    refused: int
    """Events that the receiver has refused for good."""


@attrs.frozen
class MasterFacts:
    """A master at one moment. Ages and durations are in seconds."""

    leads: bool
    """Whether it has recovered the jobs of its epoch, and nothing is known against its lease."""
    epoch: int
    """The epoch in which it leads; 0 if it does not."""
    lease: float
    """Until its lease ends unless it is renewed; 0 if it does not lead, or has no such end."""
    turn_age: float
    """Since the loop of the leader has turned; 0 if this master does not lead."""
    answer_age: float | None
    """Since the backend has acknowledged a heartbeat; None before the first one."""
    jobs: Tally
    leaderships: Leaderships
    attempts: AttemptCounts
    commits: CommitFailures
    failovers: Failovers
    export: Export
    upkeep: dict[str, float]
    """For how many seconds each of `UPKEEP` has failed; 0 if it works, or is not this master's."""

    @property
    def live(self) -> bool:
        """Whether the master works, or waits for its turn to lead."""
        return self.turn_age <= LIVE_WITHIN

    @property
    def ready(self) -> bool:
        """Whether it reaches the backend, and may lead."""
        return self.reachable and not self.leaderships.held

    @property
    def reachable(self) -> bool:
        """Whether it reaches the backend."""
        return self.answer_age is not None and self.answer_age <= READY_WITHIN


class MasterHealth:
    """What one master knows about itself. Safe for use by many threads."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._leadership: Leadership | None = None
        self._recovered = False
        self._elected_at = 0.0
        self._tally: Callable[[], Tally] = _no_jobs
        self._losses: tuple[float, ...] = ()
        self._turned_at: float | None = None
        self._answered_at: float | None = None
        self._counts: Counter[str] = Counter()
        self._ends: Counter[str] = Counter(dict.fromkeys(ATTEMPT_ENDS, 0))
        self._failovers = [0] * len(BUCKETS)
        self._failover_sum = 0.0
        self._export_failed_at: float | None = None
        self._held = ""
        self._upkeep_failed_at: dict[str, float] = {}

    # -- what the parts of a master report -------------------------------------------------

    def elected(self, leadership: Leadership, tally: Callable[[], Tally]) -> None:
        """Note that the master was elected, and how its jobs are counted from now on."""
        with self._lock:
            self._counts["elections"] += 1
            self._leadership, self._recovered, self._tally = leadership, False, tally
            self._elected_at = self._turned_at = self._clock()

    def leaders_lost(self, ages: Iterable[float]) -> None:
        """Note how many seconds ago leaders of the cluster have ended that had not resigned."""
        now = self._clock()
        self._losses = tuple(now - age for age in ages)

    def leads(self) -> None:
        """Note that the elected master has recovered the jobs."""
        with self._lock:
            took = self._clock() - self._elected_at
            self._recovered = True
            self._counts["failovers"] += 1
            self._failover_sum += took
            for at, bound in enumerate(BUCKETS):
                self._failovers[at] += took <= bound

    def stepped_down(self, *, lost: bool) -> None:
        """Note that the leadership is over."""
        with self._lock:
            self._counts["lost" if lost else "resigned"] += 1
            self._leadership, self._tally, self._turned_at = None, _no_jobs, None
            self._losses = ()
            self._export_failed_at = None
            for what in UPKEEP_OF_LEADER:
                self._upkeep_failed_at.pop(what, None)

    def held(self, why: str) -> None:
        """Note why the master must not lead before an operator has repaired something; empty if it
        may."""
        self._held = why

    def turned(self) -> None:
        """Note that the leader's loop works."""
        with self._lock:
            if self._turned_at is not None:
                self._turned_at = self._clock()

    def answered(self) -> None:
        """Note that the backend has acknowledged a heartbeat."""
        self._answered_at = self._clock()

    def has_answered(self, since: float) -> bool:
        """Return whether the backend has acknowledged a heartbeat since a moment of the clock."""
        answered = self._answered_at
        return answered is not None and answered >= since

    def attempt_started(self) -> None:
        """Note that an attempt was started."""
        with self._lock:
            self._counts["attempts"] += 1

    def attempt_ended(self, how: str) -> None:
        """Note that an attempt has ended, in one of the ways of `ATTEMPT_ENDS`."""
        with self._lock:
            self._ends[how] += 1

    def commit_ended(self, error: BaseException | None) -> None:
        """Note why a commit of this process has failed; None if it has not."""
        if error is None:
            return
        kinds = {"fenced": Fenced, "unknown": OutcomeUnknown}
        with self._lock:
            for name, kind in kinds.items():
                self._counts[name] += isinstance(error, kind)

    def export_works(self) -> None:
        """Note that the export of the history has come as far as it can."""
        self._export_failed_at = None

    def export_failed(self) -> None:
        """Note that the export of the history waits."""
        if self._export_failed_at is None:
            self._export_failed_at = self._clock()

    def export_refused(self) -> None:
        """Note that the receiver of the export has refused an event for good."""
        with self._lock:
            self._counts["refused"] += 1

    def upkeep_ended(self, what: str, failed: bool) -> None:
        """Note how a pass of one of `UPKEEP` has ended."""
        with self._lock:
            if failed:
                self._upkeep_failed_at.setdefault(what, self._clock())
            else:
                self._upkeep_failed_at.pop(what, None)

    # -- what probes and metrics read ------------------------------------------------------

    def facts(self) -> MasterFacts:
        """Return the present facts."""
        with self._lock:
            now, leadership = self._clock(), self._leadership
            valid = leadership is not None and not leadership.lost.is_set()
            lease = leadership.remaining() if leadership is not None and valid else None
            leads = valid and self._recovered and (lease is None or lease > 0.0)
            turned, answered, tally = self._turned_at, self._answered_at, self._tally
            lately = sum(at >= now - LATELY for at in self._losses)
            counts, ends = Counter(self._counts), dict(self._ends)
            export_failed = self._export_failed_at
            upkeep = {
                what: max(0.0, now - self._upkeep_failed_at.get(what, now)) for what in UPKEEP
            }
            failovers = Failovers(tuple(self._failovers), counts["failovers"], self._failover_sum)
        return MasterFacts(
            leads=leads,
            epoch=leadership.epoch if leadership is not None and leads else 0,
            lease=max(0.0, lease or 0.0) if leads else 0.0,
            turn_age=0.0 if turned is None else max(0.0, now - turned),
            answer_age=None if answered is None else max(0.0, now - answered),
            jobs=tally(),
            leaderships=Leaderships(
                counts["elections"], counts["lost"], counts["resigned"], lately, self._held
            ),
            attempts=AttemptCounts(counts["attempts"], ends),
            commits=CommitFailures(counts["fenced"], counts["unknown"]),
            failovers=failovers,
            export=Export(
                0.0 if export_failed is None else max(0.0, now - export_failed), counts["refused"]
            ),
            upkeep=upkeep,
        )
