"""The history of a soak: its requests, the answers, and the results that it has seen."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs

from jrs.records.model import JobResult, JobSpec, JobStatus


@attrs.frozen
class Expected:
    """The outcome that a job must have.

    Attributes:
        statuses: the allowed ones.
        payload: the payload of its result, if it FINISHED.
    """

    statuses: frozenset[JobStatus]
    payload: Any = None


@attrs.frozen
class Seen:
    """A result, and the time at which it was first seen, in seconds since 1970."""

    at: float
    result: JobResult


@attrs.define
class History:
    """The record of a soak. Safe for use by many threads."""

    expected: dict[str, Expected] = attrs.field(factory=dict)
    """The expected outcome of every job whose submission was acknowledged."""
    seen: dict[str, Seen] = attrs.field(factory=dict)
    strikes: Counter[str] = attrs.field(factory=Counter)
    """The number of strikes of each nemesis."""
    problems: list[str] = attrs.field(factory=list)
    """The problems that were visible at once."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def submitted(self, spec: JobSpec, expected: Expected) -> None:
        with self._lock:
            self.expected[spec.job_id] = expected

    def saw(self, result: JobResult) -> None:
        """Record a result; if it differs from an earlier result of its job, that is a problem."""
        with self._lock:
            first = self.seen.setdefault(result.job_id, Seen(time.time(), result))
            if first.result != result:
                self.problems.append(
                    f"{result.job_id} has two results: {first.result}, then {result}"
                )

    def struck(self, nemesis: str) -> None:
        with self._lock:
            self.strikes[nemesis] += 1

    def problem(self, what: str) -> None:
        with self._lock:
            self.problems.append(what)

    def missing(self) -> Iterator[str]:
        """Yield the jobs without a result."""
        with self._lock:
            yield from sorted(self.expected.keys() - self.seen.keys())
