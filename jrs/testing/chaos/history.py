"""What a soak has asked for, was told and has seen: the record that the checks judge."""

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
    """What a job must end with.

    Attributes:
        statuses: any of these.
        payload: of its result, if it FINISHED.
    """

    statuses: frozenset[JobStatus]
    payload: Any = None


@attrs.frozen
class Seen:
    """A result, when it was seen first, in seconds since 1970."""

    at: float
    result: JobResult


@attrs.define
class History:
    """The record of a soak. Safe for use by many threads."""

    expected: dict[str, Expected] = attrs.field(factory=dict)
    """Of every job whose submission was acknowledged."""
    seen: dict[str, Seen] = attrs.field(factory=dict)
    strikes: Counter[str] = attrs.field(factory=Counter)
    """How often each nemesis has struck."""
    problems: list[str] = attrs.field(factory=list)
    """What was wrong the moment it was seen."""
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def submitted(self, spec: JobSpec, expected: Expected) -> None:
        with self._lock:
            self.expected[spec.job_id] = expected

    def saw(self, result: JobResult) -> None:
        """Take down a result; one that differs from an earlier one of its job is a problem."""
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
        """Yield the jobs that have no result yet."""
        with self._lock:
            yield from sorted(self.expected.keys() - self.seen.keys())
