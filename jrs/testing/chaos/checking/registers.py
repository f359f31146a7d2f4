"""Each key as a register whose versions grow: what operations tell of it, and what cannot be.

The order of a key's versions is known, so it need not be searched for: a history of a key is
linearizable exactly if no operation shows an older state than one that had ended before it began,
and every state that is shown was written. That takes one sweep over the key's operations, in the
order of time (compare Gibbons and Korach, "Testing Shared Memories", 1997, section 4: with a known
order of the writes).
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.recorded import FOREVER, Call, Kind, Verb


class What(enum.IntEnum):
    """What an operation did with a key."""

    READ = enum.auto()
    """It saw a state."""
    WRITE = enum.auto()
    """It put another state in the place of the one that it required, or may have."""
    CHECK = enum.auto()
    """It required a state, and found it."""
    REFUSED = enum.auto()
    """It required a state, and was refused because of another one."""
    NOT_WRITTEN = enum.auto()
    """It was refused: its value must never be seen."""


ANY = -1
"""For a state: whichever it was, if only there is one."""


class Fact(NamedTuple):
    """What one operation tells of one key.

    A state is a version, None if the key was absent, or `ANY`. The digest is that of the value that
    was seen or written; None for a key that was absent, or was deleted.
    """

    begun: int
    ended: int
    what: What
    state: int | None
    digest: str | None
    name: str
    sure: bool = True
    """Whether a write is known to have happened."""


Facts = dict[str, list[Fact]]
Finding = tuple[str, tuple[str, ...]]
"""What is wrong, in a sentence, and the names of the operations that prove it."""


def facts_of(calls: Iterable[Call]) -> Facts:
    """Return what the operations tell, by key."""
    facts: Facts = defaultdict(list)
    scans: list[Call] = []
    for call in calls:
        for key, fact in _facts(call):
            facts[key].append(fact)
        if call.f is Verb.SCAN and call.type is Kind.OK:
            scans.append(call)
    for key, fact in _absent_in_scans(sorted(facts), scans):
        facts[key].append(fact)
    return dict(facts)


def _facts(call: Call) -> Iterator[tuple[str, Fact]]:
    begun, ended, name = call.begun, call.ended, call.name
    if call.f is Verb.COMMIT:
        yield from _commit_facts(call)
    elif call.type is not Kind.OK:
        return
    elif call.f is Verb.GET:
        yield call.key, Fact(begun, ended, What.READ, call.version, call.value, name)
    elif call.f is Verb.CAMPAIGN:
        yield EPOCH_KEY, Fact(begun, ended, What.CHECK, call.version, None, name)
    else:
        read = call.value if call.f is Verb.GET_MANY else call.value[2]
        for key, version, value in read:
            yield key, Fact(begun, ended, What.READ, version, value, name)


def _commit_facts(call: Call) -> Iterator[tuple[str, Fact]]:
    refused = call.error.partition(" ")[2]
    for part in call.value:
        kind, key = part[0], part[1]
        value = part[2] if kind in ("create", "update") else None
        required = {"create": None, "absent": None, "update": part[-1], "check": part[-1]}.get(
            kind, part[-1] if part[-1] is not None else ANY
        )
        writes = kind in ("create", "update", "delete")
        if call.type is Kind.FAIL:
            if value is not None:
                yield key, _fact(call, What.NOT_WRITTEN, ANY, value)
            if key == refused and required != ANY:
                yield key, _fact(call, What.REFUSED, required, None)
        elif writes:
            yield key, _fact(call, What.WRITE, required, value)._replace(sure=call.type is Kind.OK)
        elif call.type is Kind.OK:
            yield key, _fact(call, What.CHECK, required, None)


def _fact(call: Call, what: What, state: int | None, value: str | None) -> Fact:
    return Fact(call.begun, call.ended, what, state, value, call.name)


def _absent_in_scans(keys: list[str], scans: list[Call]) -> Iterator[tuple[str, Fact]]:
    """Yield that a key was absent where a page that had room for it lacks it."""
    for scan in scans:
        after, until, read = scan.value
        shown = {row[0] for row in read}
        first = bisect_left(keys, max(scan.key, after or ""))
        for key in keys[first:]:
            if not key.startswith(scan.key) or (until is not None and key > until):
                break
            if key not in shown and key != after:
                yield key, Fact(scan.begun, scan.ended, What.READ, None, None, scan.name)


def contradictions(key: str, facts: list[Fact]) -> Iterator[Finding]:
    """Yield what cannot be if the key is a linearizable register."""
    return _Register(key, facts).contradictions()


class _Register:
    """One key. A place is twice the rank of a version; one more stands for what came behind it."""

    def __init__(self, key: str, facts: list[Fact]) -> None:
        self.key = key
        self.facts = facts
        self.writes = [fact for fact in facts if fact.what is What.WRITE]
        shown = {fact.state for fact in facts if fact.state is not None and fact.state != ANY}
        self.rank = {version: rank for rank, version in enumerate(sorted(shown))}
        self.values: dict[int, Fact] = {}
        """A read of each version."""
        self.writers: dict[str, list[Fact]] = defaultdict(list)
        for write in self.writes:
            if write.digest is not None:
                self.writers[write.digest].append(write)

    def contradictions(self) -> Iterator[Finding]:
        yield from self._values_that_change()
        yield from self._values_from_nowhere()
        yield from self._replaced_twice()
        yield from self._created_twice()
        yield from self._out_of_order()

    def _values_that_change(self) -> Iterator[Finding]:
        for fact in self.facts:
            if fact.what is What.READ and fact.state is not None:
                first = self.values.setdefault(fact.state, fact)
                if first.digest != fact.digest:
                    yield (
                        f"version {fact.state} of {self.key} was read with two values",
                        (first.name, fact.name),
                    )

    def _values_from_nowhere(self) -> Iterator[Finding]:
        refused = {fact.digest: fact for fact in self.facts if fact.what is What.NOT_WRITTEN}
        for version, read in self.values.items():
            if self.key == EPOCH_KEY or read.digest is None:
                continue  # Campaigns write it by themselves.
            writers = self.writers.get(read.digest, [])
            if not writers and (aborted := refused.get(read.digest)) is not None:
                yield (
                    f"version {version} of {self.key} has the value of a commit that was refused",
                    (aborted.name, read.name),
                )
            elif not writers:
                yield f"version {version} of {self.key} was written by nobody", (read.name,)
            elif all(write.begun > read.ended for write in writers):
                yield (
                    f"version {version} of {self.key} was read before it was written",
                    (read.name, writers[0].name),
                )

    def _replaced_twice(self) -> Iterator[Finding]:
        """A write that was lost: another one replaced the same version."""
        first: dict[int, Fact] = {}
        for write in self.writes:
            if write.sure and write.state is not None and write.state != ANY:
                other = first.setdefault(write.state, write)
                if other is not write:
                    yield (
                        f"version {write.state} of {self.key} was replaced twice",
                        (other.name, write.name),
                    )

    def _created_twice(self) -> Iterator[Finding]:
        created = [write for write in self.writes if write.state is None and write.sure]
        deleted = sum(write.digest is None for write in self.writes)
        if len(created) > deleted + 1:
            yield (
                f"{self.key} was created {len(created)} times, and deleted {deleted} times",
                tuple(write.name for write in created),
            )

    # -- in the order of time ----------------------------------------------------------------

    def _out_of_order(self) -> Iterator[Finding]:
        """Sweep over the moments: what has ended limits what begins later."""
        self._deletes()
        moments = sorted(
            [(fact.ended, 1, number) for number, fact in enumerate(self.facts)
             if fact.ended != FOREVER]
            + [(fact.begun, 0, number) for number, fact in enumerate(self.facts)]
        )  # fmt: skip
        reached, proof = -1, ""
        for _, is_end, number in moments:
            fact = self.facts[number]
            if is_end:
                place = self._place_after(fact)
                if place > reached:
                    reached, proof = place, fact.name
            elif (why := self._contradicts(fact, reached)) is not None:
                yield f"{self.key} {why}", (proof, fact.name)

    def _place_after(self, fact: Fact) -> int:
        """Return the place that was reached at the end of an operation, as far as it shows it."""
        if fact.what in (What.READ, What.CHECK):
            return -1 if fact.state is None or fact.state == ANY else 2 * self.rank[fact.state]
        if fact.what is not What.WRITE or not fact.sure:
            return -1
        before = -1 if fact.state is None or fact.state == ANY else 2 * self.rank[fact.state] + 1
        return max(before, self._written(fact))

    def _written(self, write: Fact) -> int:
        """Return the place of what a write has written, if a read shows it beyond doubt."""
        if write.digest is None or len(self.writers[write.digest]) != 1:
            return -1
        versions = [version for version, read in self.values.items() if read.digest == write.digest]
        return 2 * self.rank[versions[0]] if len(versions) == 1 else -1

    def _contradicts(self, fact: Fact, reached: int) -> str | None:
        """Return why an operation cannot have begun when `reached` was known, or None."""
        if reached < 0 and fact.what is not What.REFUSED:
            return None
        if fact.what is What.REFUSED:
            return self._refused_without_cause(fact, reached)
        if fact.what is What.NOT_WRITTEN or fact.state == ANY or not fact.sure:
            return None
        if fact.state is None:
            if self._was_deleted(reached, fact.ended):
                return None
            return "was absent, and nobody had deleted it"
        if 2 * self.rank[fact.state] < reached:
            return f"was at version {fact.state}, which had been replaced before"
        return None

    def _refused_without_cause(self, fact: Fact, reached: int) -> str | None:
        earlier = [write for write in self.writes if write.begun < fact.ended]
        if self.key == EPOCH_KEY:
            return None
        if fact.state is None:
            written = any(write.digest is not None for write in earlier)
            return None if written else "was said to be present, and nobody had written it"
        if reached != 2 * self.rank[fact.state]:
            return None
        replaced = any(write.state in (fact.state, ANY) for write in earlier)
        return None if replaced else f"was said not to be at version {fact.state}, and it was"

    def _deletes(self) -> None:
        """Note up to which place the key may have been deleted, by the moments when that began."""
        deletes = sorted(
            (write.begun, 1 << 62 if write.state == ANY else 2 * self.rank[write.state] + 1)
            for write in self.writes
            if write.digest is None and write.state is not None
        )
        self._delete_times = [begun for begun, _ in deletes]
        self._delete_places: list[int] = []
        for _, place in deletes:
            self._delete_places.append(max([place, *self._delete_places[-1:]]))

    def _was_deleted(self, reached: int, ended: int) -> bool:
        """Return whether a delete that had begun by then may have come behind a place."""
        number = bisect_left(self._delete_times, ended)
        return number > 0 and self._delete_places[number - 1] >= reached
