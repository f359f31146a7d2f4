"""The jobs of a soak: one of each kind in turn, and how each of them must end."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import attrs

from jrs.records.model import JobSpec, JobStatus
from jrs.records.policies import RestartPolicy
from jrs.testing.chaos.operator import Then
from jrs.testing.chaos.submissions import LASTING

_ENTRY = "jrs.testing.chaos.jobs:"
_FINISHED = frozenset({JobStatus.FINISHED})
_FAILED = frozenset({JobStatus.FAILED})
_ENDED = frozenset({JobStatus.FINISHED, JobStatus.CANCELED})


@attrs.frozen
class Planned:
    """A job, and how it must end.

    Attributes:
        statuses: the allowed ones.
        payload: of its result, if it FINISHED.
        then: what an operator asks for, behind the submission.
    """

    spec: JobSpec
    statuses: frozenset[JobStatus]
    payload: Any = None
    then: Then = Then.NOTHING


def planned(rng: random.Random, count: int, longest: float) -> Iterator[Planned]:
    """Yield jobs of all kinds in turn; slow ones take up to `longest` seconds."""
    for number in range(count):
        seconds = round(rng.uniform(longest / 5, longest), 2)
        name = f"job-{number:04}"
        slow = JobSpec(name, f"{_ENTRY}slow", {"number": number, "seconds": seconds},
                       restart=LASTING)  # fmt: skip
        match number % 8:
            case 0 | 1:
                spec = JobSpec(name, f"{_ENTRY}quick", {"number": number}, restart=LASTING)
                yield Planned(spec, _FINISHED, number * number)
            case 2:
                yield Planned(slow, _FINISHED, number + 1)
            case 3:
                spec = attrs.evolve(slow, entry_point=f"{_ENTRY}staged")
                yield Planned(spec, _FINISHED, {"written": number, "sum": 3 * number})
            case 4:
                yield Planned(JobSpec(name, f"{_ENTRY}failing", {"number": number}), _FAILED)
            case 5:
                twice = RestartPolicy(attempts=2, delay=0.1)
                spec = JobSpec(name, f"{_ENTRY}exiting", {"number": number}, restart=twice)
                yield Planned(spec, _FAILED)
            case 6:
                yield Planned(slow, _ENDED, number + 1, Then.CANCEL)
            case _:
                yield Planned(slow, _FINISHED, number + 1, Then.SUSPEND)
