"""Obstacle: why one master could not start a job. It belongs to the host, not to the job."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from jrs.records.checks import bounded_text
from jrs.records.stored import Stored

MOST_OBSTACLES = 20
"""Most masters whose obstacle a record keeps."""
_LONGEST_REASON = 1000
"""Bytes of a reason: the record of an attempt holds several."""


def _bounded(text: str) -> str:
    return bounded_text(text, _LONGEST_REASON)


@attrs.frozen
class Obstacle(Stored):
    """Why one master could not start a job."""

    master: str
    """The name of the master that could not start the job."""
    host: str
    """The host of that master."""
    reason: str = attrs.field(converter=_bounded)
    """Why it could not, for people."""
    attempt: int = 0
    """The attempt that could not be started."""
    at: float = 0.0
    """Seconds since 1970, by the clock of that host."""

    def __str__(self) -> str:
        return f"{self.master} on {self.host}: {self.reason}"


def with_obstacle(obstacles: Iterable[Obstacle], new: Obstacle) -> tuple[Obstacle, ...]:
    """Return the obstacles with a new one, in the place of an older one of the same master."""
    others = tuple(one for one in obstacles if one.master != new.master)
    return (*others, new)[-MOST_OBSTACLES:]


def described(obstacles: Iterable[Obstacle]) -> str:
    """Return the obstacles for people, in one line."""
    return "; ".join(map(str, obstacles))
