"""Cycles: whether all commits and reads fit one order, over all keys together.

Operations depend on each other as in Adya's and Elle's graphs: one read what another wrote (wr),
replaced it (ww), or read what another then replaced (rw); and one ended before another began (rt).
Each commit names the versions that it requires, so these edges are known and need no guess. A cycle
proves that no order exists: of ww alone it is G0, with wr G1c, with one rw G-single, with more G2.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

from jrs.testing.chaos.checking.registers import ANY, Fact, Facts, Finding, What
from jrs.testing.chaos.recorded import FOREVER, Call, Kind

Graph = dict[int, dict[int, str]]
"""For each node, the nodes that must come behind it, and why."""


def cycles(calls: list[Call], facts: Facts) -> Iterator[Finding]:
    """Yield one cycle of each tangle of operations that fit no order."""
    seen = _seen(facts)
    used = [call for call in calls if call.type is Kind.OK or call.name in seen]
    number = {call.name: index for index, call in enumerate(used)}
    graph: Graph = defaultdict(dict)
    for key_facts in facts.values():
        for source, target, why in _edges(key_facts):
            if source in number and target in number and source != target:
                graph[number[source]].setdefault(number[target], why)
    _order_in_time(used, graph)
    for tangle in _tangles(graph, range(len(used))):
        cycle = _shortest(graph, tangle, len(used))
        names = tuple(used[node].name for node, _ in cycle if node < len(used))
        yield _said(cycle, used), names


def _seen(facts: Facts) -> set[str]:
    """Return the operations of which a read shows what they wrote."""
    found = set()
    for key_facts in facts.values():
        shown = {fact.digest for fact in key_facts if fact.what is What.READ and fact.digest}
        found |= {fact.name for fact in key_facts
                  if fact.what is What.WRITE and fact.digest in shown}  # fmt: skip
    return found


def _edges(facts: list[Fact]) -> Iterator[tuple[str, str, str]]:
    writer: dict[int, str] = {}
    """Who wrote a version."""
    by_digest: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        if fact.what is What.WRITE and fact.digest is not None:
            by_digest[fact.digest].append(fact)
    for fact in facts:
        if fact.what is What.READ and fact.state is not None and fact.digest is not None:
            writers = by_digest[fact.digest]
            if len(writers) == 1:
                writer[fact.state] = writers[0].name
    replaced = {
        fact.state: fact.name
        for fact in facts
        if fact.what is What.WRITE and fact.sure and fact.state not in (None, ANY)
    }
    versions = sorted({fact.state for fact in facts if fact.state not in (None, ANY)})
    following = dict(pairwise(versions))
    for fact in facts:
        if not fact.sure or fact.state is None or fact.state == ANY:
            continue
        if fact.what in (What.REFUSED, What.NOT_WRITTEN):
            continue
        writes = fact.what is What.WRITE
        if fact.state in writer:
            yield writer[fact.state], fact.name, "ww" if writes else "wr"
        if not writes and fact.state in replaced:
            yield fact.name, replaced[fact.state], "rw"
        later = following.get(fact.state)
        if not writes and later in writer:
            yield fact.name, writer[later], "rw"
    for one, other in pairwise(versions):
        if one in writer and other in writer:
            yield writer[one], writer[other], "ww"


def _order_in_time(calls: list[Call], graph: Graph) -> None:
    """Add that what ended comes before what began later, by way of one node for each end."""
    ends = sorted((call.ended, index) for index, call in enumerate(calls) if call.ended != FOREVER)
    begins = sorted((call.begun, index) for index, call in enumerate(calls))
    first = len(calls)
    place = 0
    for begun, index in begins:
        while place < len(ends) and ends[place][0] < begun:
            node = first + place
            graph[ends[place][1]].setdefault(node, "rt")
            if place:
                graph[node - 1].setdefault(node, "rt")
            place += 1
        if place:
            graph[first + place - 1].setdefault(index, "rt")


def _tangles(graph: Graph, nodes: Iterable[int]) -> Iterator[set[int]]:
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


def _shortest(graph: Graph, tangle: set[int], calls: int) -> list[tuple[int, str]]:
    """Return a shortest cycle in a tangle: its nodes, each with the reason of the edge to it."""
    best: list[tuple[int, str]] = []
    for start in sorted(node for node in tangle if node < calls)[:200]:
        came: dict[int, tuple[int, str]] = {}
        queue = deque([start])
        while queue and start not in came:
            node = queue.popleft()
            for target, why in graph.get(node, {}).items():
                if target in tangle and target not in came:
                    came[target] = node, why
                    queue.append(target)
        if start not in came:
            continue
        cycle, node = [], start
        while True:
            before, why = came[node]
            cycle.append((node, why))
            node = before
            if node == start:
                break
        cycle.reverse()
        if not best or len(cycle) < len(best):
            best = cycle
    return best


_BECAUSE = {
    "ww": "replaced what it wrote",
    "wr": "saw what it wrote",
    "rw": "replaced what it had read",
    "rt": "began after it had ended",
}


def _said(cycle: list[tuple[int, str]], calls: list[Call]) -> str:
    kinds = [why for _, why in cycle]
    # The edges to and from the nodes of time are one edge of time.
    steps = [(calls[node].name, why) for node, why in cycle if node < len(calls)]
    last = steps[-1][0]
    story = "; ".join(f"{name} {_BECAUSE[why]}" for name, why in steps)
    return f"no order fits: {_anomaly(kinds)}: {last}; {story}"


def _anomaly(kinds: list[str]) -> str:
    rw = kinds.count("rw")
    name = {0: "G1c" if "wr" in kinds else "G0", 1: "G-single"}.get(rw, "G2")
    return f"{name} in real time" if "rt" in kinds else name
