"""A recorded history, repeated: copies one behind the other, each with processes and keys of its
own, in the versions and epochs of one store.

So a history of minutes becomes one of millions of events that keeps every rule which the recorded
one keeps. Pages of all keys are left out, for they would lack what the copies before have left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.recorded import Event, Verb


@attrs.frozen
class _Copy:
    """One copy: what is added to the numbers of the recorded history, and to its names."""

    name: str
    time: int
    version: int
    epoch: int
    seq: int

    def of(self, event: Event) -> Event:
        return attrs.evolve(
            event,
            process=f"{self.name}{event.process}",
            seq=event.seq + self.seq,
            t=event.t + self.time,
            key=event.key if event.f is Verb.CAMPAIGN else self.key(event.key),
            value=self._value(event),
            version=None if event.version is None else event.version + self.version,
            epoch=None if event.epoch is None else event.epoch + self.epoch,
            error=self._error(event.error),
        )

    def key(self, key: str) -> str:
        room, slash, name = key.partition("/")
        return key if key == EPOCH_KEY or not slash else f"{room}/{self.name}{name}"

    def _error(self, error: str) -> str:
        name, space, key = error.partition(" ")
        return f"{name} {self.key(key)}" if space else error

    def _value(self, event: Event) -> Any:
        value = event.value
        if value is None or event.f is Verb.GET:
            return value
        if event.f is Verb.NOTICE:
            return [self.key(key) for key in value]
        if event.f is Verb.SCAN:
            after, until, read = value
            return [after and self.key(after), until and self.key(until), self._read(read)]
        if event.f is Verb.GET_MANY:
            return self._read(value)
        return [self._part(part) for part in value] if event.f is Verb.COMMIT else value

    def _read(self, read: list[list[Any]]) -> list[list[Any]]:
        more = self.version
        return [[self.key(key), at and at + more, value] for key, at, value in read]

    def _part(self, part: list[Any]) -> list[Any]:
        kind, key, *more = part
        if more and isinstance(more[-1], int):
            more[-1] += self.version
        return [kind, self.key(key), *more]


def repeated(events: Sequence[Event], count: int) -> Iterator[Event]:
    """Yield the events of some copies of a history, in the order of time."""
    events = [event for event in events if event.f is not Verb.SCAN or event.key]
    first, last = events[0].t, events[-1].t
    version, epoch, seq = map(max, zip(*map(_numbers, events), strict=True))
    for number in range(count):
        copy = _Copy(f"c{number:04}-", number * (last - first + 1_000_000),
                     number * (version + 1), number * epoch, number * (seq + 1))  # fmt: skip
        yield from map(copy.of, events)


def _numbers(event: Event) -> tuple[int, int, int]:
    """Return the greatest version, epoch and number that an event has."""
    value = event.value or ()
    rows = value[2] if event.f is Verb.SCAN and value else value
    read = [one for row in rows for one in row if isinstance(one, int)] if event.f in _ROWS else []
    return max([event.version or 0, *read]), event.epoch or 0, event.seq


_ROWS = (Verb.SCAN, Verb.GET_MANY, Verb.COMMIT)
