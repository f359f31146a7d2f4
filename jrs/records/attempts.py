"""The attempts of a job, as its records keep them after their end."""

from __future__ import annotations

import attrs

from jrs.records.checks import bounded_text
from jrs.records.stored import Stored

MAX_ATTEMPTS = 20
"""Most attempts that a record keeps: the newest ones."""
_ENDED_LIMIT = 1024
"""Bytes of the text that says how an attempt ended: a record keeps many of them."""


def _bounded(text: str) -> str:
    return bounded_text(text, _ENDED_LIMIT)


@attrs.frozen
class SparkApplication(Stored):
    """The application of an attempt on Spark."""

    id: str
    master: str = ""
    """Spark's master, such as ``spark://host:7077`` or ``local[4]``."""
    ui: str = ""
    """The address of its user interface, while it runs; empty if that is off."""
    waiting: bool = False
    """Whether it has had no executor yet."""

    def __str__(self) -> str:
        return f"as {self.id} on {self.master}"


@attrs.frozen
class AttemptSummary(Stored):
    """One attempt of a job: where and when it ran, and how it ended."""

    attempt: int
    epoch: int = 0
    master: str = ""
    """The master that started it."""
    host: str = ""
    """The host that it ran on; empty if an older version recorded it."""
    pid: int = 0
    """The process that ran the job's function; 0 if it is unknown."""
    started_at: float = 0.0
    """Seconds since 1970, by the clock of its host."""
    ended_at: float = 0.0
    """The same; 0 while it runs, and if no process saw its end."""
    ended: str = attrs.field(default="", converter=_bounded)
    """How it ended, for people; empty while it runs."""
    spark: SparkApplication | None = None
    """What it ran on Spark; None if it used none. In Spark's local mode it is known once the job
    has ended, of the attempt that ended it."""


def newest(attempts: tuple[AttemptSummary, ...]) -> tuple[tuple[AttemptSummary, ...], int]:
    """Return the attempts that a record keeps, and the number of older ones that it leaves out."""
    more = max(0, len(attempts) - MAX_ATTEMPTS)
    return attempts[more:], more
