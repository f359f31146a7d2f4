"""What follows the end of an attempt, and how that end is counted once."""

from __future__ import annotations

import attrs

from jrs.records.model import AttemptRecord
from jrs.records.obstacles import Obstacle


@attrs.frozen
class RestartPlan:
    """The outcome of counting an attempt's death."""

    deaths: int
    delay: float
    """Seconds until the next attempt, if there is one."""
    obstacles: tuple[Obstacle, ...] = ()
    """Why the attempt could not be started here, and the job not elsewhere."""
    used: float = 0.0
    """The seconds that the job has run."""
    timed_out: bool = False
    """A time limit has passed, and the job's policy is to fail."""
    interruptions: int = 0
    """How many attempts in a row, up to this one, ended without dying."""


@attrs.define(eq=False)
class EndCount:
    """The counting of one attempt's end, which is counted once, however often that is tried.

    A try of unknown outcome may have landed, or still land. All tries say that the attempt ended at
    the same moment, so the next try recognizes that record.
    """

    tries: int = 0
    _ended_at: float = 0.0
    _deaths: int = 0

    @property
    def is_repeated(self) -> bool:
        """Whether an earlier try may have landed, or may still land."""
        return self.tries > 1

    def tried(self, record: AttemptRecord, how: str, at: float, delay: float) -> AttemptRecord:
        """Return the record to try: the attempt has ended at that moment, and the next one may
        start after the delay."""
        if not self.tries:
            self._ended_at = at
        self.tries += 1
        self._deaths = record.deaths
        return attrs.evolve(
            record,
            retry_at=at + delay,
            on_probation=False,
            ended_at=self._ended_at,
            ended=how,
            counted_at=0.0,
        )

    def has_landed(self, record: AttemptRecord) -> bool:
        """Return whether the stored record is that of an earlier try."""
        ended = record.ended_at, record.deaths
        return bool(self.tries) and ended == (self._ended_at, self._deaths)
