"""Appends to lists: each anomaly is found by its name, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from jrs.testing.chaos.checking.cycles import Edge, Node
from jrs.testing.chaos.checking.generate import Shape
from jrs.testing.chaos.checking.generate_lists import generated_lists
from jrs.testing.chaos.checking.list_append import going_back, knots, list_append, peeled
from jrs.testing.chaos.checking.list_faults import LIST_FAULTS
from jrs.testing.chaos.checking.lists import items_of
from jrs.testing.chaos.checking.store import linearizable, outcomes, serializable
from jrs.testing.chaos.checking.verdict import Run
from jrs.testing.chaos.recorded import Event, Kind, Verb

HISTORIES = 400
EXPECTED = {
    "list_lost_update": ["lost update", "no order fits: G-single"],
    "incompatible_orders": ["incompatible orders"],
    "element_twice": ["1 is twice"],
    "element_of_nobody": ["2 was read"],
    "two_lists_of_a_version": ["a commit did not extend"],
    "list_g1a": ["G1a"],
    "list_g1b": ["G1b"],
    "list_g0": ["no order fits: G0"],
    "list_g1c": ["no order fits: G1c"],
    "list_g_single": ["no order fits: G-single"],
    "list_g_single_unseen": ["no order fits: G-single"],
    "list_half_commit": ["no order fits: G-single"],
    "list_write_skew": ["no order fits: G2"],
    "list_long_fork": ["no order fits: G2"],
}
"""How what is found of each fault begins."""


def shape(seed: int) -> Shape:
    return Shape.small(seed, 100)


def found(events: list[Event]) -> list[str]:
    return [one.message for one in list_append.violations(Run(events))]


def test_histories_of_lists_have_no_violation() -> None:
    assert [
        (seed, wrong)
        for seed in range(HISTORIES)
        for check in (list_append, linearizable, serializable, outcomes)
        if (wrong := check.violations(Run(generated_lists(seed, shape(seed), 4 + seed % 30))))
    ] == []


def test_histories_have_what_the_check_looks_at() -> None:
    """Commits to several lists, conditions, unknown outcomes, and lists that are full."""
    run = Run(generated_lists(3, Shape(operations=3_000, keys=4), 20))
    commits = [call for call in run.calls if call.f is Verb.COMMIT]
    lists = items_of(run.calls)

    assert {part[0] for call in commits for part in call.value} == {
        *("create", "update", "check", "absent"),
    }
    assert {call.type for call in commits} == {Kind.OK, Kind.FAIL, Kind.INFO}
    assert max(len(call.value) for call in commits) == 3
    assert len(lists) > 20
    assert 20 <= max(len(item.text.split()) for some in lists.values() for item in some) < 30


@pytest.mark.parametrize("name", LIST_FAULTS)
def test_each_anomaly_has_its_name(name: str) -> None:
    for seed in range(20):
        history = generated_lists(seed, shape(seed))
        said = found(LIST_FAULTS[name].planted(history, seed))
        beginnings = [text for text in EXPECTED[name] if said and any(map(_begins(text), said))]

        assert beginnings == EXPECTED[name], said


def _begins(text: str) -> Callable[[str], bool]:
    return lambda message: message.startswith(text)


class Clients:
    """A history that is written down by hand, an operation behind the other one."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(
        self, process: str, f: Verb, asked: object, answered: object, kind: Kind = Kind.OK
    ) -> None:
        seq, now = len(self.events), 10 * len(self.events)
        self.events += [
            Event(process, seq, Kind.INVOKE, f, now, "lists/", asked),
            Event(process, seq, kind, f, now + 1, "lists/", answered),
        ]

    def read(self, process: str, **lists: tuple[int | None, str | None]) -> None:
        rows = [[f"lists/{name}", version, text] for name, (version, text) in lists.items()]
        self.add(process, Verb.GET_MANY, None, rows)

    def page(self, process: str, **lists: tuple[int, str]) -> None:
        rows = [[f"lists/{name}", version, text] for name, (version, text) in lists.items()]
        self.add(process, Verb.SCAN, None, [None, None, rows])

    def commit(self, process: str, *parts: list[object], kind: Kind = Kind.OK) -> None:
        self.add(process, Verb.COMMIT, list(parts), None, kind)


def test_a_cycle_is_told_step_by_step() -> None:
    clients = Clients()
    clients.commit("one", ["create", "lists/x", "a"], ["absent", "lists/y"])
    clients.commit("two", ["create", "lists/y", "b"], ["absent", "lists/x"])
    clients.page("three", x=(1, "a"), y=(1, "b"))
    (violation,) = list_append.violations(Run(clients.events))

    assert violation.message == (
        "no order fits: G2: one#0 did not see b, which two#2 appended to lists/y; "
        "two#2 did not see a, which one#0 appended to lists/x"
    )
    assert violation.calls == ("one#0", "two#2")


def test_versions_are_not_trusted() -> None:
    """All of them are one number, and the lists are as they should be; or the versions are fine,
    and the lists are not."""
    clients = Clients()
    clients.commit("p", ["create", "lists/x", "a"])
    clients.read("p", x=(7, "a"))
    clients.commit("p", ["update", "lists/x", "a b", 7])
    clients.read("p", x=(7, "a b"))
    clients.commit("p", ["update", "lists/x", "a b c", 7])
    clients.page("q", x=(7, "a b c"))

    assert found(clients.events) == []

    clients.page("q", x=(8, "a c"))

    assert found(clients.events) == [
        "incompatible orders: where one read of lists/x has c, another has b"
    ]


@pytest.mark.parametrize("kind", [Kind.INFO, Kind.FAIL])
def test_a_commit_that_was_not_seen_counts_for_nothing(kind: Kind) -> None:
    """It would be a lost update, and a cycle, if it had happened."""
    clients = Clients()
    clients.commit("p", ["create", "lists/x", "a"], ["create", "lists/y", "m"])
    clients.read("p", x=(1, "a"), y=(1, "m"))
    clients.read("q", x=(1, "a"), y=(1, "m"))
    clients.commit("p", ["update", "lists/x", "a b", 1], ["check", "lists/y", 1])
    clients.commit("q", ["update", "lists/x", "a c", 1], ["check", "lists/y", 1], kind=kind)
    clients.page("r", x=(2, "a b"), y=(1, "m"))

    assert found(clients.events) == []


def test_an_unknown_commit_that_was_seen_counts() -> None:
    clients = Clients()
    clients.commit("p", ["create", "lists/x", "a"], ["create", "lists/y", "m"])
    clients.read("p", x=(1, "a"), y=(1, "m"))
    clients.commit("p", ["update", "lists/x", "a b", 1], ["update", "lists/y", "m n", 1],
                   kind=Kind.INFO)  # fmt: skip
    clients.page("r", x=(2, "a b"), y=(2, "m n"))

    assert found(clients.events) == []

    clients.page("r", x=(2, "a b"), y=(1, "m"))

    assert [one.partition(":")[2][:9] for one in found(clients.events)] == [" G-single"]


def test_a_list_that_was_deleted_is_left_out() -> None:
    clients = Clients()
    clients.commit("p", ["create", "lists/x", "a"])
    clients.commit("p", ["delete", "lists/x", None])
    clients.commit("p", ["create", "lists/x", "b"])
    clients.page("q", x=(3, "b"))

    assert found(clients.events) == []


def test_a_commit_whose_read_is_not_known() -> None:
    """The version came from elsewhere: it has appended its last element, and no more is known."""
    clients = Clients()
    clients.commit("p", ["create", "lists/x", "a"])
    clients.commit("q", ["update", "lists/x", "a b", 1])
    clients.page("r", x=(2, "a b"))

    assert found(clients.events) == []


def test_other_keys_are_no_lists() -> None:
    clients = Clients()
    clients.commit("p", ["create", "jobs/x", "a"])
    clients.commit("p", ["update", "jobs/x", "b", 1])

    assert items_of(Run(clients.events).calls) == {}


def _edges(pairs: list[tuple[int, int]]) -> list[Edge]:
    nodes = [Node(number, number + 1, f"n{number:03}") for number in range(100)]
    return [Edge(nodes[one], nodes[other], "ww e lists/x") for one, other in pairs]


def test_peeling_leaves_cycles_and_what_lies_between() -> None:
    chain = [(0, 1), (1, 2), (2, 3), (8, 9), (9, 10)]
    kept = [(3, 4), (4, 3), (4, 5), (5, 6), (6, 7), (7, 6)]
    more = [(7, 8)]

    assert peeled(_edges([*chain, *kept, *more])) == _edges(kept)
    assert peeled(_edges(chain)) == []


def test_what_is_peeled_lies_on_no_cycle() -> None:
    for seed in range(200):
        random = Random(seed)
        size = random.randint(5, 60)
        pairs = [(random.randrange(size), random.randrange(size)) for _ in range(size)]
        edges = _edges([pair for pair in pairs if pair[0] != pair[1]])

        assert sorted(knots(peeled(going_back(edges)))) == sorted(knots(edges))
