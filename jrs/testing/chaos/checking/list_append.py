"""Lists to which clients append, and the cycles of the transactions that do.

A transaction is a commit that appends to one list or several, or requires that they are unchanged,
together with the reads on which its conditions rest; or a page of several lists. It depends on
others as in Elle: one appended behind another (ww), saw what the other had appended (wr), or did
not see what the other then appended (rw). The order of a list is inferred from the lists that were
read, so that the check does not trust the versions of the store. Time is not looked at, either: it
is `linearizable` and `serializable` that find what is merely late.

A commit of unknown outcome has happened if one of its elements was read.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from jrs.testing.chaos.checking.cycles import (
    Cycle,
    Edge,
    Graph,
    back,
    merged,
    path,
    shortest,
    stretch_of,
    tangles,
)
from jrs.testing.chaos.checking.facts import Anomaly
from jrs.testing.chaos.checking.lists import items_of, told_of
from jrs.testing.chaos.checking.verdict import Run, check
from jrs.testing.chaos.recorded import LISTS


def _has_lists(run: Run) -> bool:
    return any(key.startswith(LISTS) for key in run.facts)


@functools.partial(check, able=_has_lists)
def list_append(run: Run) -> Iterator[Anomaly]:
    """Appends to lists are atomic and serializable, evaluated by what the lists show."""
    seen: set[str] = set()
    edges: list[Edge] = []
    for key, items in items_of(run.calls).items():
        told = told_of(key, items)
        yield from told.wrong
        edges += told.edges
        seen |= told.seen
    edges = [edge for edge in edges if not edge.given or edge.given in seen]
    yield from knots(peeled(going_back(edges)))


def going_back(edges: list[Edge]) -> list[Edge]:
    """Return the edges that may lie on a cycle, for all of a cycle is within a stretch of time over
    which some of its edges lead back."""
    stretches = merged(filter(None, map(back, edges)))
    begins = [first for first, _ in stretches]
    return [edge for edge in edges if stretch_of(edge, stretches, begins) is not None]


def peeled(edges: list[Edge]) -> list[Edge]:
    """Return the edges that are left if those of operations without any edge to them, or from them,
    are taken away until there are none."""
    for reverse in (False, True):
        targets: dict[str, list[str]] = defaultdict(list)
        waits: dict[str, int] = defaultdict(int)
        for edge in edges:
            source, target = edge.source.name, edge.target.name
            if reverse:
                source, target = target, source
            targets[source].append(target)
            waits[target] += 1
        ready = [name for name in targets if name not in waits]
        gone = set(ready)
        while ready:
            for target in targets.get(ready.pop(), ()):
                waits[target] -= 1
                if not waits[target]:
                    gone.add(target)
                    ready.append(target)
        edges = [
            edge for edge in edges
            if edge.source.name not in gone and edge.target.name not in gone
        ]  # fmt: skip
    return edges


# -- what is left ----------------------------------------------------------------------------


class _Why(NamedTuple):
    """Why one transaction comes before another one."""

    kind: str
    element: str
    key: str


_Whys = dict[tuple[int, int], dict[str, _Why]]
"""For each pair of transactions, a reason of each kind."""


def knots(edges: Iterable[Edge]) -> Iterator[Anomaly]:
    """Yield a shortest cycle of each tangle, of the worst kind that it has."""
    edges = sorted(edges)
    nodes = sorted({edge.source for edge in edges} | {edge.target for edge in edges})
    number = {node.name: index for index, node in enumerate(nodes)}
    whys: _Whys = defaultdict(dict)
    graph: Graph = defaultdict(dict)
    for edge in edges:
        why = _Why(*edge.why.split(" ", 2))
        source, target = number[edge.source.name], number[edge.target.name]
        whys[source, target].setdefault(why.kind, why)
        graph[source][target] = ""
    for tangle in tangles(graph, range(len(nodes))):
        some = {
            (source, target): whys[source, target]
            for source in tangle for target in graph[source] if target in tangle
        }  # fmt: skip
        name, cycle = _worst(some)
        names = [nodes[node].name for node, _ in cycle]
        yield f"no order fits: {name}: {_told(cycle, names, some)}", (names[-1], *names[:-1])


def _worst(whys: _Whys) -> tuple[str, Cycle]:
    for name, kinds in (("G0", ("ww",)), ("G1c", ("ww", "wr"))):
        if cycle := shortest(_graph(whys, kinds), _members(whys, kinds)):
            return name, _turned(cycle)
    graph = _graph(whys, ("ww", "wr"))
    best: Cycle = []
    for source, target in sorted(pair for pair in whys if "rw" in whys[pair]):
        way = path(graph, target, source)
        if way and (not best or len(way) + 1 < len(best)):
            best = [(target, "rw"), *way]
        if len(best) == 2:
            break
    if best:
        return "G-single", _turned(best)
    everything = ("ww", "wr", "rw")
    return "G2", _turned(shortest(_graph(whys, everything), _members(whys, everything)))


def _graph(whys: _Whys, kinds: Collection[str]) -> Graph:
    """Return the edges of some kinds, each with the first of these."""
    graph: Graph = defaultdict(dict)
    for (source, target), known in sorted(whys.items()):
        if (kind := next((kind for kind in kinds if kind in known), None)) is not None:
            graph[source][target] = kind
    return graph


def _members(whys: _Whys, kinds: Collection[str]) -> list[int]:
    """Return the transactions that lie on a cycle of edges of some kinds."""
    graph = _graph(whys, kinds)
    return sorted(node for tangle in tangles(graph, sorted(graph)) for node in tangle)


def _turned(cycle: Cycle) -> Cycle:
    """Return a cycle that ends with its first transaction."""
    place = cycle.index(min(cycle)) + 1
    return [*cycle[place:], *cycle[:place]]


_BECAUSE: dict[str, Callable[[str, str, _Why], str]] = {
    "ww": lambda one, other, why: f"{other} appended {why.element} to {why.key} behind {one}",
    "wr": lambda one, other, why: f"{other} saw {why.element} of {one} in {why.key}",
    "rw": lambda one, other, why: (
        f"{one} did not see {why.element}, which {other} appended to {why.key}"
    ),
}


def _told(cycle: Cycle, names: list[str], whys: _Whys) -> str:
    """Return a cycle in words, an edge behind the other one."""
    steps = []
    for place, (node, kind) in enumerate(cycle):
        before = cycle[place - 1][0]
        why = whys[before, node][kind]
        steps.append(_BECAUSE[kind](names[place - 1], names[place], why))
    return "; ".join(steps)
