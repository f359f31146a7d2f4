"""Cycles: whether all commits and reads fit one order, over all keys together.

Operations depend on each other as in Adya's and Elle's graphs: one read what another wrote (wr),
replaced it (ww), or read what another then replaced (rw); and one ended before another began (rt).
Each commit names the versions that it requires, so these edges are known and need no guess. A cycle
proves that no order exists: of ww alone it is G0, with wr G1c, with one rw G-single, with more G2.

Edges of time lead to operations that began later. So a cycle goes back in time by its other edges,
over all of its span: it lies within a stretch that such edges cover, and each stretch is searched
by itself. Most operations lie in none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from jrs.testing.chaos.checking.facts import ANY, Anomaly, Fact, Facts, What
from jrs.testing.chaos.checking.stale_reads import made_by
from jrs.testing.chaos.recorded import FOREVER

Graph = dict[int, dict[int, str]]
"""For each node, the nodes that must come behind it, and why."""


class Node(NamedTuple):
    """An operation."""

    begun: int
    ended: int
    name: str


class Edge(NamedTuple):
    """That one operation must come before another one."""

    source: Node
    target: Node
    why: str
    given: str = ""
    """The operation of unknown outcome that must have happened, if the edge depends on it: an edge
    of lists, whose elements show that later."""


UNORDERED = (What.REFUSED, What.NOT_WRITTEN, What.ASKED)
"""The facts that give their operation no place in an order."""
Stretch = tuple[int, int]
"""The first and the last moment of a stretch of time."""


def cycles(facts: Facts) -> Iterator[Anomaly]:
    """Yield one cycle of each tangle of operations that fit no order."""
    edges = [edge for some in facts.values() for edge in edges_of(some)]
    stretches = merged(filter(None, map(back, edges)))
    begins = [first for first, _ in stretches]
    within: dict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        if (number := stretch_of(edge, stretches, begins)) is not None:
            within[number].append(edge)
    for number in sorted(within):
        yield from tangled(within[number])


def edges_of(facts: list[Fact]) -> Iterator[Edge]:
    """Yield what the facts of one key tell of the order of operations."""
    writer: dict[int | None, Fact] = {version: write for write, version in made_by(facts)}
    replacing: dict[int | None, list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.what is What.WRITE and fact.sure:
            replacing[fact.state].append(fact)
    versions = sorted({fact.state for fact in facts} - {None, ANY})  # type: ignore[type-var]
    following: dict[int | None, int | None] = dict(pairwise(versions))
    for fact in facts:
        what, state = fact.what, fact.state
        if state is None or state == ANY or what in UNORDERED or not fact.sure:
            continue
        writes = what is What.WRITE
        if (before := writer.get(state)) is not None:
            yield from _edge(before, fact, "ww" if writes else "wr")
        if writes:
            continue
        for behind in replacing.get(state, ()):
            yield from _edge(fact, behind, "rw")
        if (later := writer.get(following.get(state))) is not None:
            yield from _edge(fact, later, "rw")
    for one, other in pairwise(versions):
        if one in writer and other in writer:
            yield from _edge(writer[one], writer[other], "ww")
    yield from _absences(facts)


def _absences(facts: list[Fact]) -> Iterator[Edge]:
    """Yield that a key which is never deleted was absent only before it was created."""
    writes = [fact for fact in facts if fact.what is What.WRITE]
    created = [fact for fact in writes if fact.state is None]
    if len(created) != 1 or not created[0].sure or any(fact.digest is None for fact in writes):
        return
    for fact in facts:
        if fact.state is None and (fact.what is What.READ or fact.what is What.CHECK):
            yield from _edge(fact, created[0], "rw")


def _edge(source: Fact, target: Fact, why: str) -> Iterator[Edge]:
    if source.name != target.name:
        yield Edge(node_of(source), node_of(target), why)


def node_of(fact: Fact) -> Node:
    return Node(fact.begun, fact.ended, fact.name)


def back(edge: Edge) -> Stretch | None:
    """Return the stretch over which an edge leads back in time, or None."""
    first, last = edge.target.begun, edge.source.begun
    return (first, last) if first <= last else None


def merged(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Return the stretches with those that touch each other as one, in order."""
    found: list[Stretch] = []
    for first, last in sorted(stretches):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def stretch_of(edge: Edge, stretches: list[Stretch], begins: list[int]) -> int | None:
    """Return the number of the stretch in which an edge lies, or None. `begins` has the first
    moment of each."""
    number = bisect_right(begins, edge.source.begun) - 1
    if number < 0 or edge.source.begun > stretches[number][1]:
        return None
    first, last = stretches[number]
    return number if first <= edge.target.begun <= last else None


def tangled(edges: Iterable[Edge]) -> Iterator[Anomaly]:
    """Yield one cycle of each tangle of the operations of one stretch."""
    edges = sorted(edges)
    nodes = sorted({edge.source for edge in edges} | {edge.target for edge in edges})
    number = {node.name: index for index, node in enumerate(nodes)}
    graph: Graph = defaultdict(dict)
    starts = set()
    for edge in edges:
        source, target = number[edge.source.name], number[edge.target.name]
        graph[source].setdefault(target, edge.why)
        if back(edge) is not None:
            starts.add(source)
    order_in_time(nodes, graph)
    for tangle in tangles(graph, range(len(nodes))):
        cycle = shortest(graph, sorted(starts & tangle), tangle)
        names = tuple(nodes[node].name for node, _ in cycle if node < len(nodes))
        yield _said(cycle, nodes), names


_STARTS = 50
"""From how many operations of a tangle a shortest cycle is looked for."""


def order_in_time(nodes: list[Node], graph: Graph) -> None:
    """Add that what ended comes before what began later, by way of one node for each end."""
    ends = sorted((node.ended, index) for index, node in enumerate(nodes) if node.ended != FOREVER)
    first = len(nodes)
    place = 0
    for index, (begun, _, _) in enumerate(nodes):
        while place < len(ends) and ends[place][0] < begun:
            node = first + place
            graph[ends[place][1]].setdefault(node, "rt")
            if place:
                graph[node - 1].setdefault(node, "rt")
            place += 1
        if place:
            graph[first + place - 1].setdefault(index, "rt")


def tangles(graph: Graph, nodes: Iterable[int]) -> Iterator[set[int]]:
    """Yield the strongly connected components of more than one node (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in nodes:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(graph.get(root, ())))]
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph.get(target, ()))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found = set()
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        found.add(member)
                        if member == node:
                            break
                    if len(found) > 1:
                        yield found


Cycle = list[tuple[int, str]]
"""Nodes, each with the reason of the edge to it from the one before; the first follows the last."""


def shortest(graph: Graph, starts: Sequence[int], among: Container[int] | None = None) -> Cycle:
    """Return a shortest cycle through one of the first few `starts`; empty if there is none."""
    cycles = (path(graph, start, start, among) for start in starts[:_STARTS])
    return min(filter(None, cycles), key=len, default=[])


def path(graph: Graph, start: int, end: int, among: Container[int] | None = None) -> Cycle:
    """Return a shortest path `among` some nodes: those behind its start, with the reasons of the
    edges; empty if there is none."""
    came: dict[int, tuple[int, str]] = {}
    queue = deque([start])
    while queue and end not in came:
        node = queue.popleft()
        for target, why in graph.get(node, {}).items():
            if target not in came and (among is None or target in among):
                came[target] = node, why
                queue.append(target)
    if end not in came:
        return []
    found, node = [], end
    while True:
        before, why = came[node]
        found.append((node, why))
        node = before
        if node == start:
            return found[::-1]


_BECAUSE = {
    "ww": "replaced what it wrote",
    "wr": "saw what it wrote",
    "rw": "replaced what it had read",
    "rt": "began after it had ended",
}


def _said(cycle: Cycle, nodes: list[Node]) -> str:
    kinds = [why for _, why in cycle]
    # The edges to and from the nodes of time are one edge of time.
    steps = [(nodes[node].name, why) for node, why in cycle if node < len(nodes)]
    last = steps[-1][0]
    story = "; ".join(f"{name} {_BECAUSE[why]}" for name, why in steps)
    return f"no order fits: {_anomaly(kinds)}: {last}; {story}"


def _anomaly(kinds: list[str]) -> str:
    rw = kinds.count("rw")
    name = {0: "G1c" if "wr" in kinds else "G0", 1: "G-single"}.get(rw, "G2")
    return f"{name} in real time" if "rt" in kinds else name
