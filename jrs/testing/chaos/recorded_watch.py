"""A watch that is recorded: what it reports, and calls of it that do not return in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import attrs

from jrs.contract.watch import Watch
from jrs.testing.chaos.recorded import Kind, Verb

QUIET = 1_000_000_000
"""Nanoseconds after which a watch that has nothing to report shows that it was asked."""


@attrs.define
class Asked:
    """An open call of a watch.

    Attributes:
        until: when it should return, in nanoseconds.
        noted: when it was noted last that it has not.
    """

    prefix: str
    until: int
    noted: int


class Recording(Protocol):
    """What a watch needs of the recording of its process."""

    asked: dict[int, Asked]

    def begin(self, f: Verb, key: str = "") -> int: ...

    def write(self, number: int, kind: Kind, f: Verb, key: str = "", value: Any = None) -> None: ...

    def give_signs(self) -> None: ...


class RecordedWatch(Watch):
    """A watch whose reports are recorded: what it names, or None if anything may have changed."""

    def __init__(self, inner: Watch, prefix: str, recording: Recording) -> None:
        self._inner = inner
        self._prefix = prefix
        self._recording = recording
        self._number = recording.begin(Verb.WATCH, prefix)
        self._asked = 0
        recording.give_signs()

    def wait(self, timeout: float) -> bool:
        with self._asking(timeout):
            heard = self._inner.wait(timeout)
        self._note(None if heard else frozenset())
        return heard

    def changes(self, timeout: float) -> frozenset[str] | None:
        with self._asking(timeout):
            changed = self._inner.changes(timeout)
        self._note(changed)
        return changed

    def close(self) -> None:
        self._recording.write(self._number, Kind.INFO, Verb.UNWATCH, self._prefix)
        self._inner.close()

    @contextmanager
    def _asking(self, timeout: float) -> Iterator[None]:
        """Let it be noted if a call does not return in time."""
        until = time.monotonic_ns() + int(timeout * 1e9)
        self._recording.asked[self._number] = Asked(self._prefix, until, until)
        try:
            yield
        finally:
            del self._recording.asked[self._number]

    def _note(self, changed: frozenset[str] | None) -> None:
        now = time.monotonic_ns()
        if changed is not None and not changed and now < self._asked + QUIET:
            return
        self._asked = now
        named = None if changed is None else sorted(changed)
        self._recording.write(self._number, Kind.INFO, Verb.NOTICE, self._prefix, named)
