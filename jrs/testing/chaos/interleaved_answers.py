"""Linearizability: checks whether some sequential order of all calls explains all answers.

Each call takes effect at one moment between its begin and its end. The checker searches for such
moments, call by call, on a model of the map in which every value is written once; so "the key is
at that version" is "the key has the value that was read with that version".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

Values = Mapping[str, bytes]
State = frozenset[tuple[str, bytes]]


@attrs.frozen
class Condition:
    """An operation of a commit: the condition on `key`, and the new value.

    Attributes:
        expected: the required value; None if the key must be absent, ... for any value.
        becomes: the new value; None if the key is removed, ... if it stays unchanged.
    """

    key: str
    expected: Any = ...
    becomes: Any = ...


@attrs.frozen
class Call:
    """A call and its answer.

    Attributes:
        begun, ended: the moments of begin and end, as growing numbers.
        who: the handle that made the call.
        reads: the keys that it read, with their values or None; for a scan, the whole map.
        scan: whether `reads` is the whole map.
        conditions: the operations of a commit; the fence's condition comes first.
        refused: for a refused commit, the number of the condition that failed.
        unknown: whether the outcome is unknown.
    """

    begun: int
    ended: int
    who: str
    reads: Mapping[str, bytes | None] = attrs.field(factory=dict)
    scan: bool = False
    conditions: Sequence[Condition] = ()
    refused: int | None = None
    unknown: bool = False

    def apply(self, state: State) -> list[State]:
        """Return the possible maps after the call; none if its answer contradicts the map."""
        values = dict(state)
        if self.scan:
            return [state] if values == dict(self.reads) else []
        if any(values.get(key) != value for key, value in self.reads.items()):
            return []
        if not self.conditions:
            return [state]
        loser = self._loser(values)
        if self.refused is not None:
            return [state] if loser == self.refused else []
        if loser is not None:
            return [state] if self.unknown else []
        for condition in self.conditions:
            if condition.becomes is None:
                values.pop(condition.key, None)
            elif condition.becomes is not ...:
                values[condition.key] = condition.becomes
        done = frozenset(values.items())
        return [done, state] if self.unknown else [done]

    def _loser(self, values: Values) -> int | None:
        for number, condition in enumerate(self.conditions):
            found = values.get(condition.key)
            if condition.expected is ...:
                if condition.becomes is None and found is None:
                    return number  # A key must exist to be removed.
            elif found != condition.expected:
                return number
        return None


def is_linearizable(calls: Sequence[Call], before: Values) -> bool:
    """Return whether a sequential order of the calls on the map `before` explains all answers."""
    start = frozenset(before.items())
    seen: set[tuple[frozenset[int], State]] = set()
    stack: list[tuple[frozenset[int], State]] = [(frozenset(), start)]
    everything = frozenset(range(len(calls)))
    while stack:
        done, state = stack.pop()
        if done == everything:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        left = everything - done
        soonest = min(calls[number].ended for number in left)
        for number in left:
            if calls[number].begun <= soonest:
                stack += [(done | {number}, after) for after in calls[number].apply(state)]
    return False
