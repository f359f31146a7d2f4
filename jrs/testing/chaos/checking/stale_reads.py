"""Each key as a register whose versions grow: what operations tell of it, and what cannot be.

The order of a key's versions is known, so it need not be searched for: a history of a key is
linearizable exactly if no operation shows an older state than one that had ended before it began,
and every state that is shown was written. So each version has a moment at which it is known to have
been replaced, and no operation that began later may show it (compare Gibbons and Korach, "Testing
Shared Memories", 1997, section 4: with a known order of the writes).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.checking.facts import ANY, Anomaly, Fact, What
from jrs.testing.chaos.checking.presence import created_again, deleted_again
from jrs.testing.chaos.recorded import FOREVER


def contradictions(key: str, facts: list[Fact]) -> Iterator[Anomaly]:
    """Yield what cannot be if the key is a linearizable register."""
    return _Register(key, facts).contradictions()


def made_by(facts: list[Fact]) -> list[tuple[Fact, int]]:
    """Return the writes that a read shows beyond doubt, each with the version that it made."""
    versions: dict[str, int] = {}
    writers: dict[str, Fact | None] = {}
    for fact in facts:
        _, _, what, state, digest, _, _, _ = fact
        if digest is None:
            continue
        if what is _WRITE:
            writers[digest] = None if digest in writers else fact
        elif what is _READ and state is not None and versions.setdefault(digest, state) != state:
            versions[digest] = ANY
    return [
        (write, version)
        for digest, write in writers.items()
        if write is not None and (version := versions.get(digest, ANY)) != ANY
    ]


_READ, _WRITE, _CHECK, _REFUSED = What.READ, What.WRITE, What.CHECK, What.REFUSED
_NOT_WRITTEN = What.NOT_WRITTEN
"""Constants, for a member of an enumeration is slow to look up."""


class _Register:
    """One key. A place is twice the rank of a version; one more stands for what came behind it.

    The facts are in the order in which the operations ended.
    """

    def __init__(self, key: str, facts: list[Fact]) -> None:
        self.key = key
        self.facts = facts
        self.writes: list[Fact] = []
        self.refused: list[Fact] = []
        self.aborted: dict[str | None, Fact] = {}
        """What was not written, by values."""
        self.absent: list[Fact] = []
        self.first: dict[int, Fact] = {}
        """The first operation that showed a version."""
        self.last: dict[int, int] = {}
        """The last moment at which an operation began that showed a version."""
        self.reads: dict[int, Fact] = {}
        """The first read of each version."""
        self.two_values: list[tuple[Fact, Fact]] = []
        self._sort_out()
        self.versions = sorted(self.last)
        self.rank = {version: rank for rank, version in enumerate(self.versions)}
        shown: dict[str, int] = {}
        for version, read in self.reads.items():
            if read.digest is not None:
                shown[read.digest] = ANY if read.digest in shown else version
        self.writers: dict[str | None, list[Fact]] = defaultdict(list)
        for write in self.writes:
            self.writers[write.digest].append(write)
        self.made: dict[str, int] = {}
        """The version that a write has made, where a read shows it beyond doubt."""
        for digest, version in shown.items():
            if version != ANY and len(writes := self.writers.get(digest, [])) == 1:
                self.made[writes[0].name] = version

    def _sort_out(self) -> None:
        first, last, reads = self.first, self.last, self.reads
        for fact in self.facts:
            begun, what, state, sure = fact.begun, fact.what, fact.state, fact.sure
            if what is _READ or what is _CHECK:
                if state is None:
                    self.absent.append(fact)
                    continue
                if what is _READ:
                    before = reads.setdefault(state, fact)
                    if before.digest != fact.digest:
                        self.two_values.append((before, fact))
                first.setdefault(state, fact)
            elif what is _WRITE:
                self.writes.append(fact)
                if state is None or state == ANY:
                    if state is None and sure:
                        self.absent.append(fact)
                    continue
            elif what is _REFUSED:
                self.refused.append(fact)
                if state is None:
                    continue
                begun = -1
            else:
                if what is _NOT_WRITTEN:
                    self.aborted[fact.digest] = fact
                continue
            if not sure:
                begun = -1
            if begun > last.get(state, -2):
                last[state] = begun

    def contradictions(self) -> Iterator[Anomaly]:
        yield from self._values()
        yield from self._replaced_twice()
        yield from self._out_of_turn()
        yield from self._out_of_order()

    # -- in any order ------------------------------------------------------------------------

    def _values(self) -> Iterator[Anomaly]:
        for one, other in self.two_values:
            yield (
                f"version {one.state} of {self.key} was read with two values",
                (one.name, other.name),
            )
        if self.key != EPOCH_KEY:  # Campaigns write it by themselves.
            yield from self._values_from_nowhere()

    def _values_from_nowhere(self) -> Iterator[Anomaly]:
        writers, refused = self.writers, self.aborted
        shown: dict[str, list[Fact]] = defaultdict(list)
        for read in self.reads.values():
            if read.digest is None:
                continue
            shown[read.digest].append(read)
            version = f"version {read.state} of {self.key}"
            if read.digest not in writers:
                if (aborted := refused.get(read.digest)) is not None:
                    yield (
                        f"{version} has the value of a commit that was refused",
                        (aborted.name, read.name),
                    )
                else:
                    yield f"{version} was written by nobody", (read.name,)
            elif all(write.begun > read.ended for write in writers[read.digest]):
                yield (
                    f"{version} was read before it was written",
                    (read.name, writers[read.digest][0].name),
                )
        for digest, versions in shown.items():
            if len(versions) > len(writers.get(digest, versions)):
                yield (
                    f"{len(versions)} versions of {self.key} have the value of "
                    f"{len(writers[digest])} write(s)",
                    tuple(fact.name for fact in (*writers[digest], *versions)),
                )

    def _replaced_twice(self) -> Iterator[Anomaly]:
        """A write that was lost: another one replaced the same version."""
        first: dict[int, Fact] = {}
        for write in self.writes:
            if write.state is None or write.state == ANY:
                continue
            if write.sure:
                other = first.setdefault(write.state, write)
                if other is not write:
                    yield (
                        f"version {write.state} of {self.key} was replaced twice",
                        (other.name, write.name),
                    )

    def _out_of_turn(self) -> Iterator[Anomaly]:
        if (pair := created_again(self.writes)) is not None:
            yield (
                f"{self.key} was created twice, and not deleted in between",
                tuple(write.name for write in pair),
            )
        if (delete := deleted_again(self.writes)) is not None:
            yield f"{self.key} was deleted more often than created", (delete.name,)

    # -- in the order of time ----------------------------------------------------------------

    def _out_of_order(self) -> Iterator[Anomaly]:
        """What has ended limits what begins later."""
        ends = self._first_ends()
        self._note_reached(ends)
        removals = [write for write in self.writes if write.state == ANY and write.sure]
        if removals:  # Each has removed what was there when it began.
            for write in removals:
                _keep_first(ends, self._reached(write.begun)[0] | 1, write)
            self._note_reached(ends)
        self._note_writes()
        for fact in self.refused:
            if (why := self._refused_without_cause(fact)) is not None:
                yield f"{self.key} {why}", (self._reached(fact.begun)[1], fact.name)
        for fact in self.absent:
            if (proof := self._absent_without_cause(fact)) is not None:
                yield f"{self.key} was absent, and nobody had deleted it", (proof, fact.name)
        replaced = self._replaced(ends)
        if any(begun > replaced[version][0] for version, begun in self.last.items()):
            yield from self._stale(replaced)

    def _stale(self, replaced: dict[int | None, tuple[int, str]]) -> Iterator[Anomaly]:
        for fact in self.facts:
            if fact.what in (_REFUSED, _NOT_WRITTEN) or not fact.sure:
                continue
            if fact.state in replaced and fact.begun > replaced[fact.state][0]:
                yield (
                    f"{self.key} was at version {fact.state}, which had been replaced before",
                    (replaced[fact.state][1], fact.name),
                )

    def _first_ends(self) -> dict[int, Fact]:
        """Return, of the operations that show that a place was reached, the one that ended first;
        by places."""
        ends = {2 * self.rank[state]: fact for state, fact in self.first.items()}
        for write in self.writes:
            if write.sure:
                if write.state is not None and write.state != ANY:
                    _keep_first(ends, 2 * self.rank[write.state] + 1, write)
                if write.name in self.made:
                    _keep_first(ends, 2 * self.rank[self.made[write.name]], write)
        return ends

    def _note_reached(self, ends: dict[int, Fact]) -> None:
        known = sorted((fact.ended, place, fact.name) for place, fact in ends.items())
        self._moments = [moment for moment, _, _ in known]
        self._places = list(accumulate(((place, name) for _, place, name in known), max))

    def _reached(self, begun: int) -> tuple[int, str]:
        """Return the place that is known to have been reached at a moment, and what proves it."""
        number = bisect_left(self._moments, begun)
        return self._places[number - 1] if number else (-1, "")

    def _replaced(self, ends: dict[int, Fact]) -> dict[int | None, tuple[int, str]]:
        """Return the moment at which each version is known to have been replaced, and the proof."""
        found: dict[int | None, tuple[int, str]] = {}
        first = (FOREVER, "")
        for rank in reversed(range(len(self.versions))):
            if (behind := ends.get(2 * rank + 1)) is not None:
                first = min(first, (behind.ended, behind.name))
            found[self.versions[rank]] = first
            if (at := ends.get(2 * rank)) is not None:
                first = min(first, (at.ended, at.name))
        return found

    def _note_writes(self) -> None:
        """Note when a version may have been replaced, and the key written or deleted, at all."""
        self._replacing: dict[int | None, int] = {}
        values, deletes = [], []
        for write in self.writes:
            earlier = self._replacing.get(write.state, FOREVER)
            self._replacing[write.state] = min(write.begun, earlier)
            if write.digest is not None:
                values.append(write)
            elif write.state is not None:
                place = 1 << 62 if write.state == ANY else 2 * self.rank[write.state] + 1
                deletes.append((write.begun, place, write.ended))
        values.sort(key=lambda write: write.begun)
        self._value_times = [write.begun for write in values]
        self._value_until = list(accumulate((write.ended for write in values), max))
        gone = sorted((write.ended, write.begun) for write in self.writes
                      if write.digest is None and write.sure)  # fmt: skip
        self._gone_times = [ended for ended, _ in gone]
        self._gone_since = list(accumulate((begun for _, begun in gone), max))
        deletes.sort()
        self._delete_times = [begun for begun, _, _ in deletes]
        self._deleted_up_to = list(accumulate((place for _, place, _ in deletes), max))
        self._deleted_until = list(accumulate((ended for _, _, ended in deletes), max))
        present = sorted((write.ended, write.begun, write.name) for write in values if write.sure)
        self._write_ends = [ended for ended, _, _ in present]
        self._present = list(accumulate(((begun, name) for _, begun, name in present), max))

    def _absent_without_cause(self, fact: Fact) -> str | None:
        """Return what proves that the key was present then, or None."""
        deletes = bisect_left(self._delete_times, fact.ended)
        reached, proof = self._reached(fact.begun)
        if reached >= 0 and (not deletes or self._deleted_up_to[deletes - 1] < reached):
            return proof
        # A write that nobody has read has no place; but it has ended, and no delete came later.
        number = bisect_left(self._write_ends, fact.begun)
        if number:
            begun, name = self._present[number - 1]
            if not deletes or self._deleted_until[deletes - 1] < begun:
                return name
        return None

    def _refused_without_cause(self, fact: Fact) -> str | None:
        if self.key == EPOCH_KEY:
            return None
        if fact.state is None:
            # A delete that has ended has removed what had been written before it began.
            gone = bisect_left(self._gone_times, fact.begun)
            values = bisect_left(self._value_times, fact.ended)
            if values and (not gone or self._value_until[values - 1] >= self._gone_since[gone - 1]):
                return None
            return "was said to be present, and nobody had written it"
        if self._reached(fact.begun)[0] != 2 * self.rank[fact.state]:
            return None
        replacing = self._replacing
        if min(replacing.get(fact.state, FOREVER), replacing.get(ANY, FOREVER)) < fact.ended:
            return None
        return f"was said not to be at version {fact.state}, and it was"


def _keep_first(ends: dict[int, Fact], place: int, fact: Fact) -> None:
    other = ends.get(place)
    if other is None or fact.ended < other.ended:
        ends[place] = fact
