"""One order of the operations of some keys, which fits all that is known of them.

An operation has a place among the versions of each of its keys: a read at the version that it saw,
a write behind the one that it required and before the one that it made. A place must not come
behind a later one, and no operation before one that had ended when it began.

Where the operations begin in the order of their places, that is such an order. Elsewhere there are
stretches of time over which places lead back, and the operations that begin in one of them are
sorted.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

import attrs

from jrs.testing.chaos.checking.cycles import (
    Graph,
    Node,
    Stretch,
    merged,
    node_of,
    order_in_time,
)
from jrs.testing.chaos.checking.facts import ANY, Fact, Facts, What
from jrs.testing.chaos.checking.stale_reads import made_by

_READ, _WRITE, _CHECK = What.READ, What.WRITE, What.CHECK
# Constants, for a member of an enumeration is slow to look up.

_KEPT = -4
"""Where a key is absent that is never deleted; one more, where it is created."""


def serial_order(facts: Facts, read: Container[str] = ()) -> list[str]:
    """Return the commits that happened, and all that has read some keys, in an order that fits all
    that is known of them; none if there is no such order."""
    placing = {key: _Placing.of(some) for key, some in facts.items()}
    wanted: dict[str, Node] = {}
    for key, some in facts.items():
        for fact in some:
            what = fact.what
            if (what is _READ and key in read) or what is _CHECK or (what is _WRITE and fact.sure):
                wanted[fact.name] = node_of(fact)
    found = sorted(wanted.values())
    stretches = merged(stretch for one in placing.values() for stretch in one.back())
    for within in _within(facts, placing, stretches) if stretches else ():
        nodes = {fact.name: node_of(fact) for some in within.places for _, fact in some}
        low, high = bisect_left(found, (within.first,)), bisect_left(found, (within.last + 1,))
        nodes.update((node.name, node) for node in found[low:high])
        if not (order := _sorted(sorted(nodes.values()), within.places)):
            return []
        found[low:high] = [node for node in order if node.name in wanted]
    return [node.name for node in found]


@attrs.frozen
class _Placing:
    """Which places the operations of a key have."""

    made: Mapping[str, int]
    """The version that a write has made, where it is known."""
    kept: bool
    """Whether the key is never deleted."""
    first: dict[int, int] = attrs.field(factory=dict)
    """When the first operation at a place began."""
    last: dict[int, int] = attrs.field(factory=dict)

    @classmethod
    def of(cls, facts: list[Fact]) -> _Placing:
        kept = not any(fact.what is _WRITE and fact.digest is None for fact in facts)
        found = cls({write.name: version for write, version in made_by(facts)}, kept)
        first, last, place_of = found.first, found.last, found.place
        for fact in facts:
            if (place := place_of(fact)) is None:
                continue
            begun = fact.begun
            if begun < first.setdefault(place, begun):
                first[place] = begun
            if begun > last.setdefault(place, begun):
                last[place] = begun
        return found

    def place(self, fact: Fact) -> int | None:
        """Return the place of an operation, if it is known."""
        _, _, what, state, _, name, sure, _ = fact
        if what is _READ or what is _CHECK:
            writes = 0
        elif what is _WRITE and sure:
            if (version := self.made.get(name)) is not None:
                return 2 * version - 1
            writes = 1
        else:
            return None
        if state is None:
            return _KEPT + writes if self.kept else None
        return None if state == ANY else 2 * state + writes

    def back(self) -> Iterator[Stretch]:
        """Yield the stretches over which places lead back in time."""
        latest = -1
        for place in sorted(self.first):
            if (begun := self.first[place]) <= latest:
                yield begun, latest
            latest = max(latest, self.last[place])


@attrs.frozen
class _Within:
    """What begins in a stretch: for each key, the places and the operations there."""

    first: int
    last: int
    places: list[list[tuple[int, Fact]]] = attrs.field(factory=list)


def _within(
    facts: Facts, placing: Mapping[str, _Placing], stretches: list[Stretch]
) -> list[_Within]:
    found = [_Within(*stretch) for stretch in stretches]
    begins = [first for first, _ in stretches]
    for key, some in facts.items():
        of_key: dict[int, list[tuple[int, Fact]]] = defaultdict(list)
        for fact in some:
            number = bisect_right(begins, fact.begun) - 1
            if number < 0 or fact.begun > stretches[number][1]:
                continue
            if (place := placing[key].place(fact)) is not None:
                of_key[number].append((place, fact))
        for number, placed in of_key.items():
            found[number].places.append(sorted(placed, key=itemgetter(0)))
    return found


def _sorted(nodes: list[Node], places: Iterable[list[tuple[int, Fact]]]) -> list[Node]:
    """Return operations in an order that fits their places and their times; none if none does."""
    number = {node.name: index for index, node in enumerate(nodes)}
    graph: Graph = defaultdict(dict)
    order_in_time(nodes, graph)
    free = 2 * len(nodes)  # Behind the nodes of operations, and those of their ends.
    for placed in places:
        before: list[int] = []
        for _, group in groupby(placed, key=itemgetter(0)):
            here = [number[fact.name] for _, fact in group]
            # A node between two places, instead of an edge for each pair.
            for index in before:
                graph[index][free] = ""
            for index in here:
                graph[free][index] = ""
            before, free = here, free + 1
    return [nodes[index] for index in _topological(len(nodes), graph)]


def _topological(count: int, graph: Graph) -> list[int]:
    """Return the first nodes of a graph in an order that fits it, the first ones first; none if
    there is a cycle."""
    waits: dict[int, int] = defaultdict(int)
    for targets in graph.values():
        for target in targets:
            waits[target] += 1
    ready = [index for index in {*range(count), *graph} if not waits[index]]
    heapq.heapify(ready)
    found, left = [], len(waits.keys() | graph.keys() | set(range(count)))
    while ready:
        index = heapq.heappop(ready)
        left -= 1
        if index < count:
            found.append(index)
        for target in graph.get(index, ()):
            waits[target] -= 1
            if not waits[target]:
                heapq.heappush(ready, target)
    return [] if left else found
