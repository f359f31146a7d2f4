"""The screens never miss a key in which an exact check finds something."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.checking import screens, store
from jrs.testing.chaos.checking.anomalies import ANOMALIES
from jrs.testing.chaos.checking.columns import NONE, Columns, Flags, facts_of_table
from jrs.testing.chaos.checking.cycles import back, edges_of, merged, stretch_of
from jrs.testing.chaos.checking.facts import (
    Absences,
    Fact,
    Facts,
    Page,
    facts_of_call,
    page_of,
    thinned,
)
from jrs.testing.chaos.checking.generate import KEYS, Shape, generated
from jrs.testing.chaos.checking.known import settled
from jrs.testing.chaos.checking.known_on_spark import settled_table
from jrs.testing.chaos.checking.lost_answers import LOST_ANSWERS
from jrs.testing.chaos.checking.stale_reads import contradictions, made_by
from jrs.testing.chaos.checking.tables import batch_of
from jrs.testing.chaos.checking.verdict import Run
from jrs.testing.chaos.recorded import COLUMNS, Event, Kind, Verb, digest

HISTORIES = 500
PLANTED = [*ANOMALIES.values(), *LOST_ANSWERS.values()]


def shape(seed: int) -> Shape:
    return Shape.small(seed, 60)


# -- histories that are broken in every way --------------------------------------------------


def changed(event: Event, other: Event, random: Random) -> Event | None:
    """Return an event with one thing as in another one, or wrong in another way; or none."""
    what = random.randrange(9)
    if what == 0:
        return attrs.evolve(event, version=other.version)
    if what == 1 and event.version is not None:
        return attrs.evolve(event, version=max(0, event.version + random.choice((-10, -1, 1, 10))))
    if what == 2 and event.f is other.f and event.f is not Verb.SCAN and event.type is other.type:
        return attrs.evolve(event, value=other.value)
    if what == 3:
        return attrs.evolve(event, t=max(0, event.t + random.randrange(-20_000, 20_000)))
    if what == 4:
        return attrs.evolve(event, epoch=other.epoch)
    if what == 5 and event.f is Verb.COMMIT and event.type is not Kind.INVOKE:
        key = random.choice((f"{KEYS}000000", f"{KEYS}000001", EPOCH_KEY))
        kind = random.choice((Kind.OK, Kind.FAIL, Kind.INFO))
        return attrs.evolve(event, type=kind, error=f"Conflict {key}")
    if what == 6 and event.f is Verb.GET and event.type is Kind.OK:
        return attrs.evolve(event, value=None, version=random.choice((None, event.version)))
    if what == 7 and event.f is Verb.COMMIT and event.value:
        return attrs.evolve(event, value=[part_changed(part, random) for part in event.value])
    return None if what == 8 else event


def part_changed(part: list[Any], random: Random) -> list[Any]:
    kind, key, *more = part
    if random.random() < 0.3:
        return ["delete", key, random.choice((None, 10, 20, 30))]
    if kind == "update" and random.random() < 0.5:
        return [kind, key, more[0], max(0, more[1] + random.choice((-20, -10, 10, 20)))]
    if kind == "update":
        return ["create", key, more[0]]
    return part


def pages_of(events: list[Event], random: Random) -> Iterator[Event]:
    """Yield pages at any time that show some of what was read at any time."""
    known = [[one.key, one.version, one.value] for one in events
             if one.f is Verb.GET and one.version is not None]  # fmt: skip
    for seq in range(random.randrange(6)):
        begun = random.choice(events).t + random.randrange(-50_000, 50_000)
        after = random.choice((None, f"{KEYS}000001", f"{KEYS}000004"))
        until = random.choice((None, None, f"{KEYS}000003", f"{KEYS}000005"))
        read = {row[0]: row for row in known if random.random() < 0.8}
        shown = [read[key] for key in sorted(read)
                 if (after or "") < key and (until is None or key <= until)]  # fmt: skip
        question = Event(f"pages{seq}", 1, Kind.INVOKE, Verb.SCAN, max(begun, 0), KEYS)
        yield question
        page = [after, until, shown]
        yield attrs.evolve(question, type=Kind.OK, t=question.t + 500, value=page)


def damaged(seed: int) -> list[Event]:
    """Return a history with some faults that were planted, and some wrong events."""
    random = Random(seed)
    found = generated(seed, shape(seed))
    found += pages_of(found, random)
    for anomaly in random.sample(PLANTED, seed % 3):
        found = anomaly.planted(found, seed)
    for _ in range(random.randrange(6)):
        place = random.randrange(len(found))
        event = changed(found[place], random.choice(found), random)
        found[place : place + 1] = [event] if event is not None else []
    return sorted(found, key=lambda event: event.t)


# -- one history, exactly and in columns -----------------------------------------------------


@attrs.frozen(slots=False)
class Evaluated:
    """A history, exactly and in columns."""

    events: list[Event]

    @functools.cached_property
    def run(self) -> Run:
        return Run(self.events)

    @functools.cached_property
    def facts(self) -> Facts:
        return self.run.facts

    @functools.cached_property
    def leads(self) -> store.Leads:
        return store.Leads(call for call in self.run.calls if call.f is Verb.CAMPAIGN)

    @functools.cached_property
    def stretches(self) -> list[tuple[int, int]]:
        edges = (edge for some in self.facts.values() for edge in edges_of(some))
        return merged(filter(None, map(back, edges)))

    @functools.cached_property
    def columns(self) -> Columns:
        pages: dict[str, list[Page]] = defaultdict(list)
        for call in self.run.calls:
            if call.f is Verb.SCAN and call.type is Kind.OK:
                pages[call.key].append(page_of(call))
        return Columns.of(table_of(self.run), {"": Absences(pages)})

    @functools.cached_property
    def seen(self) -> screens.Seen:
        return screens.seen(self.columns)

    def missed(self, check: str) -> set[str]:
        """Return the keys in which the exact check finds something, and that are not suspected."""
        exact, screen = CHECKED[check]
        suspected = screen(self)
        keys = {self.columns.keys[number][1] for number in np.flatnonzero(suspected).tolist()}
        return {key for key, some in self.facts.items() if exact(self, key, some)} - keys


def table_of(run: Run) -> pa.Table:
    rows = [tuple(getattr(event, column) for column in COLUMNS) for event in run.events]
    known = {}
    for name, moment in run.known.items():
        process, _, seq = name.rpartition("#")
        known["", process, int(seq)] = moment
    return facts_of_table(settled_table(pa.Table.from_batches([batch_of(rows)]), known))


def in_a_stretch(evaluated: Evaluated, facts: list[Fact]) -> bool:
    begins = [first for first, _ in evaluated.stretches]
    return any(
        stretch_of(edge, evaluated.stretches, begins) is not None for edge in edges_of(facts)
    )


Exact = Callable[[Evaluated, str, list[Fact]], bool]
CHECKED: dict[str, tuple[Exact, Callable[[Evaluated], Flags]]] = {
    "contradicted": (
        lambda _, key, facts: any(True for _ in contradictions(key, facts)),
        lambda evaluated: screens.contradicted(evaluated.columns, evaluated.seen),
    ),
    "late": (
        lambda evaluated, _, facts: any(True for _ in evaluated.leads.late(facts)),
        lambda evaluated: screens.late(evaluated.columns, evaluated.seen, {"": evaluated.leads}),
    ),
    "backwards": (
        lambda _, __, facts: any(back(edge) is not None for edge in edges_of(facts)),
        lambda evaluated: screens.backwards(evaluated.columns, evaluated.seen),
    ),
    "within": (
        lambda evaluated, _, facts: in_a_stretch(evaluated, facts),
        lambda evaluated: screens.within(evaluated.columns, {"": evaluated.stretches}),
    ),
}
"""For each screen, whether the exact check finds something in a key, and what is suspected."""


@functools.cache
def every_history() -> list[Evaluated]:
    return [Evaluated(damaged(seed)) for seed in range(HISTORIES)]


# -- no key is missed ------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKED)
def test_a_screen_misses_no_key(check: str) -> None:
    exact, _ = CHECKED[check]
    found = 0
    for evaluated in every_history():
        assert evaluated.missed(check) == set()
        found += sum(exact(evaluated, key, some) for key, some in evaluated.facts.items())

    assert found > 20


def test_no_denial_is_missed() -> None:
    found = 0
    for evaluated in every_history():
        rows = screens.denied(evaluated.columns)
        suspected = {name for _, name in evaluated.columns.named(rows)}
        denied = {
            name
            for some in evaluated.facts.values()
            for name, shown in store.outcomes_of(some, evaluated.run.known)
            if not shown
        }
        assert denied <= suspected
        found += len(denied)

    assert found > 5


@pytest.mark.parametrize("part", ["_two_values", "_written_twice", "_refused", "_out_of_order"])
def test_each_part_of_the_screen_is_needed(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a screen without one of its parts misses keys."""
    # Some writes that are planted begin in the same moment, for which alone they are suspected.
    for name in ("_named_twice", part):
        monkeypatch.setattr(screens, name, lambda facts, *_: np.zeros(len(facts.keys), bool))

    assert any(evaluated.missed("contradicted") for evaluated in every_history())


def test_that_values_are_looked_at_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    look = screens.seen

    def blind(facts: Columns) -> screens.Seen:
        return attrs.evolve(look(facts), strange=np.zeros(len(facts.keys), bool))

    monkeypatch.setattr(screens, "seen", blind)

    assert any(Evaluated(evaluated.events).missed("contradicted") for evaluated in every_history())


def test_a_key_with_too_many_pages_is_suspected() -> None:
    """What they tell is left to the exact check."""
    history = generated(3, Shape(operations=40, keys=2))
    columns = Evaluated(history).columns
    columns = attrs.evolve(columns, wanting=np.arange(len(columns.keys)) == 0)

    for suspected in (
        screens.contradicted(columns, screens.seen(columns)),
        screens.backwards(columns, screens.seen(columns)),
        screens.within(columns, {}),
    ):
        assert suspected[0]


# -- few keys are suspected for nothing ------------------------------------------------------


def test_few_keys_of_a_history_without_a_fault_are_suspected() -> None:
    evaluated = Evaluated(generated(1, Shape(operations=20_000, processes=10, keys=2_000, jobs=20)))
    keys = len(evaluated.columns.keys)

    assert keys > 2_000
    assert screens.contradicted(evaluated.columns, evaluated.seen).sum() < keys / 100
    assert CHECKED["late"][1](evaluated).sum() < keys / 100
    assert CHECKED["backwards"][1](evaluated).sum() < keys / 4
    assert CHECKED["within"][1](evaluated).sum() < keys / 4


# -- the columns say what the facts say ------------------------------------------------------


def numbered(fact: Fact) -> Fact:
    """Return a fact with the digest that it has in columns."""
    if fact.digest is None or len(fact.digest) == 16:
        return fact
    return fact._replace(digest=digest(fact.digest.encode()))


def test_columns_have_the_facts_of_operations() -> None:
    for evaluated in every_history():
        plain: dict[str, list[Fact]] = defaultdict(list)
        for call in settled(evaluated.run.calls, evaluated.run.known):
            for key, fact in facts_of_call(call):
                plain[key].append(numbered(fact))
        plain[EPOCH_KEY] = thinned(plain[EPOCH_KEY])
        every = np.ones(len(evaluated.columns.keys), bool)
        found = evaluated.columns.facts(every).get("", {})
        found[EPOCH_KEY] = thinned(found.get(EPOCH_KEY, []))

        assert {key: sorted(map(str, some)) for key, some in found.items()} == {
            key: sorted(map(str, some)) for key, some in plain.items()
        }


def test_columns_have_the_versions_that_writes_have_made() -> None:
    for evaluated in every_history():
        columns, made = evaluated.columns, evaluated.seen.made
        rows = made != NONE
        keys = [columns.keys[number][1] for number in columns.key[rows].tolist()]
        names = [name for _, name in columns.named(rows)]
        found = set(zip(keys, names, made[rows].tolist(), strict=True))

        assert found == {
            (key, write.name, version)
            for key, some in evaluated.facts.items()
            for write, version in made_by(some)
        }
