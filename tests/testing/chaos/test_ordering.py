"""One order of the operations of a history, as trace validation uses it."""

from __future__ import annotations

import pytest

from jrs.testing.chaos.checking.anomalies import ANOMALIES
from jrs.testing.chaos.checking.cycles import edges_of
from jrs.testing.chaos.checking.facts import What
from jrs.testing.chaos.checking.generate import Shape, generated
from jrs.testing.chaos.checking.ordering import serial_order
from jrs.testing.chaos.checking.verdict import Run

SEEDS = range(60)


def run_of(seed: int) -> Run:
    """Return a history in which many operations are open at a time."""
    return Run(generated(seed, Shape.small(seed, 120)))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_order_fits_all_that_is_known(seed: int) -> None:
    run = run_of(seed)
    place = {name: number for number, name in enumerate(serial_order(run.facts, run.facts))}
    nodes = {fact.name: fact for some in run.facts.values() for fact in some}

    for some in run.facts.values():
        for edge in edges_of(some):
            if edge.source.name in place and edge.target.name in place:
                assert place[edge.source.name] < place[edge.target.name], edge
    ends = [nodes[name].ended for name in place]
    for number, name in enumerate(place):
        assert min(ends[number:]) >= nodes[name].begun, name


@pytest.mark.parametrize("seed", SEEDS)
def test_an_order_has_every_commit_that_happened(seed: int) -> None:
    facts = run_of(seed).facts
    writes = {fact.name for some in facts.values() for fact in some
              if fact.what is What.WRITE and fact.sure}  # fmt: skip

    assert writes <= set(serial_order(facts))


def test_what_has_no_order_is_given_none() -> None:
    for name in ("stale_read", "g0", "g1c", "g_single", "write_skew", "long_fork"):
        broken = ANOMALIES[name].planted(generated(1), 1)

        assert not serial_order(Run(broken).facts), name
