"""The checks find no fault in a history without any, and each fault that is planted."""

from __future__ import annotations

import attrs
import pytest

from jrs.contract.operations import EPOCH_KEY
from jrs.records import keys
from jrs.testing.chaos.checking import jobs, store, traces
from jrs.testing.chaos.checking.anomalies import ANOMALIES
from jrs.testing.chaos.checking.broken_rules import BROKEN_RULES
from jrs.testing.chaos.checking.facts import Absences, Page, facts_of
from jrs.testing.chaos.checking.generate import Shape, generated
from jrs.testing.chaos.checking.list_append import list_append
from jrs.testing.chaos.checking.list_faults import LIST_FAULTS
from jrs.testing.chaos.checking.lost_answers import LOST_ANSWERS
from jrs.testing.chaos.checking.planted import Anomaly
from jrs.testing.chaos.checking.protocol import OF_A_JOB, Rule
from jrs.testing.chaos.checking.traces import protocol
from jrs.testing.chaos.checking.verdict import Check, Run
from jrs.testing.chaos.checking.watch_faults import WATCH_FAULTS
from jrs.testing.chaos.checking.watches import watched
from jrs.testing.chaos.recorded import Call, Event, Kind, Verb

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        *(store.linearizable, store.fenced, store.outcomes, store.serializable),
        *(jobs.once_per_job, jobs.once_per_stage, jobs.no_overlap, jobs.nothing_lost),
    )
}
"""The checks of any map; histories that are written by hand break the rules of jrs itself."""
ALL = {**CHECKS, "watched": watched, "protocol": protocol, "list_append": list_append}
HISTORIES = 2_000


def shape(seed: int) -> Shape:
    return Shape.small(seed, 80)


def found(events: list[Event], *names: str) -> list[str]:
    run = Run(events)
    return [str(one) for name in names or CHECKS for one in ALL[name].violations(run)]


def test_a_history_without_a_fault_has_no_violation() -> None:
    assert [
        (seed, wrong)
        for seed in range(HISTORIES)
        if (wrong := found(generated(seed, shape(seed)), *ALL))
    ] == []


def test_equal_seeds_give_equal_histories() -> None:
    assert generated(7, shape(7)) == generated(7, shape(7))
    assert generated(7, shape(7)) != generated(8, shape(7))


def test_histories_have_what_the_checks_look_at() -> None:
    """Refused and unknown commits, those without an answer, deletes, full pages, jobs."""
    events = generated(5, Shape(operations=2_000, keys=20, processes=6))
    run = Run(events)
    commits = [call for call in run.calls if call.f is Verb.COMMIT]
    parts = {part[0] for call in commits for part in call.value}
    pages = [call.value for call in run.calls if call.f is Verb.SCAN]

    assert {call.type for call in commits} == {Kind.OK, Kind.FAIL, Kind.INFO}
    assert len([event for event in events if event.type is Kind.INVOKE]) > sum(
        event.type is not Kind.INVOKE and event.f is not Verb.ALIVE for event in events
    )
    assert parts == {"create", "update", "delete", "check", "absent"}
    assert {page[1] is None for page in pages} == {True, False}
    assert sum(call.f is Verb.CAMPAIGN for call in run.calls) > 1
    assert len(jobs.attempts_of(run)) == 2


FAULTS = [
    *ANOMALIES.values(),
    *BROKEN_RULES.values(),
    *LIST_FAULTS.values(),
    *LOST_ANSWERS.values(),
    *WATCH_FAULTS.values(),
]


@pytest.mark.parametrize("anomaly", FAULTS, ids=lambda anomaly: anomaly.name)
def test_a_planted_fault_is_found(anomaly: Anomaly) -> None:
    for seed in range(30):
        assert found(anomaly.planted(generated(seed, shape(seed)), seed), anomaly.check)


@pytest.mark.parametrize("rule", OF_A_JOB, ids=lambda rule: rule.__name__)
def test_each_rule_is_needed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, a fault of the protocol that was planted is not found."""
    monkeypatch.setattr(traces, "OF_A_JOB", [one for one in OF_A_JOB if one is not rule])
    histories = {one.name: one.planted(generated(1), 1) for one in BROKEN_RULES.values()}

    assert [name for name, history in histories.items() if not found(history, "protocol")]


@pytest.mark.parametrize("names", [None, ["doctor/"]])
def test_a_watch_may_report_more_than_has_changed(names: list[str] | None) -> None:
    history = Anomaly("watch", "watched", lambda amid: amid.watch(names)).planted(generated(1), 1)

    assert found(history, *ALL) == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_watch_that_is_asked_seldom_reports_when_it_is_asked(number: int) -> None:
    """Its first two calls behind the due moment may report the change."""

    def at(second: int) -> int:
        return second * 10**9

    notice = Event("m.1", 1, Kind.INFO, Verb.NOTICE, 0, value=[])
    events = [
        Event("m.1", 1, Kind.INVOKE, Verb.WATCH, 0, "jobs/"),
        Event("c.1", 1, Kind.INVOKE, Verb.COMMIT, at(1), value=[["create", "jobs/a", "0"]]),
        Event("c.1", 1, Kind.OK, Verb.COMMIT, at(2)),
        *(attrs.evolve(notice, t=at(100 + turn), value=["jobs/a"] if turn == number else [])
          for turn in range(4)),
    ]  # fmt: skip
    said = [one.message for one in watched.violations(Run(events))]
    late = "a watch of jobs/ reported the change of jobs/a only 100 s after it"

    assert said == ([late] if number == 2 else [])


def test_a_watch_without_time_is_not_checked() -> None:
    """A change is evaluated once a watch was asked for long enough behind it, and behind the harm
    that met it; before that the check says that it has evaluated nothing."""

    def history(seconds: int, *harm: tuple[int, int]) -> Run:
        def at(second: float) -> int:
            return int(second * 10**9)

        events = [
            Event("m.1", 1, Kind.INVOKE, Verb.WATCH, 0, "jobs/"),
            Event("c.1", 1, Kind.INVOKE, Verb.COMMIT, at(20), value=[["create", "jobs/a", "0"]]),
            Event("c.1", 1, Kind.OK, Verb.COMMIT, at(20.1)),
            *(Event("m.1", 1, Kind.INFO, Verb.NOTICE, at(second), value=[])
              for second in range(1, seconds)),
        ]  # fmt: skip
        for number, (struck, healed) in enumerate(harm):
            events.append(Event("w.1", number, Kind.INFO, Verb.STRIKE, at(struck), "pause"))
            events.append(Event("w.1", number, Kind.INFO, Verb.HEAL, at(healed), "pause"))
        return Run(sorted(events, key=lambda event: event.t))

    for run, is_checked in (
        (history(30), False),
        (history(40), True),
        (history(40, (1, 19)), True),
        (history(40, (25, 30)), False),
        (history(50, (25, 30)), True),
        (history(50, (25, 30), (40, 45)), False),
    ):
        assert watched.can_judge(run) is is_checked
        assert bool(watched.violations(run)) is is_checked


# -- no false alarms -------------------------------------------------------------------------


class Script:
    """A history that is written down by hand, an operation behind the other one."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(
        self,
        f: Verb,
        asked: object = None,
        answered: object = None,
        kind: Kind = Kind.OK,
        key: str = "",
        version: int | None = None,
        epoch: int | None = None,
    ) -> None:
        seq, now = len(self.events), 10 * len(self.events)
        self.events += [
            Event("p", seq, Kind.INVOKE, f, now, key, asked),
            Event("p", seq, kind, f, now + 1, key, answered, version, epoch),
        ]

    def commit(self, *parts: list[object], kind: Kind = Kind.OK) -> None:
        self.add(Verb.COMMIT, list(parts), kind=kind)

    def read(self, key: str, value: str | None, version: int | None) -> None:
        self.add(Verb.GET, None, value, key=key, version=version)


def test_two_deletes_without_a_version_deny_no_commit() -> None:
    """Each has removed whatever was there: that says nothing of a commit that did the same."""
    script = Script()
    script.commit(["create", "b", "1"])
    script.commit(["delete", "b", None])
    script.commit(["create", "b", "2"])
    script.commit(["create", "a", "x"], ["delete", "b", None], kind=Kind.INFO)
    script.read("a", "x", 4)

    assert found(script.events) == []


def test_an_epoch_that_is_led_twice_is_found() -> None:
    script = Script()
    script.add(Verb.CAMPAIGN, version=1, epoch=1)
    script.add(Verb.CAMPAIGN, version=1, epoch=1)

    assert found(script.events, "fenced") == ["fenced: epoch 1 was led twice"]


@pytest.mark.parametrize("error", ["Fenced", "Unavailable"])
def test_an_attempt_that_was_shut_out_has_not_begun(error: str) -> None:
    """Its process was alive when another one ended the job; but its first commit was refused."""
    alive = Event("a", 1, Kind.INFO, Verb.ALIVE, 1)
    parts = [["check", keys.FENCES + "j", 1]]
    events = [
        alive,
        Event("m", 1, Kind.INVOKE, Verb.COMMIT, 2, "", [["create", keys.RESULTS + "j", "x"]]),
        Event("m", 1, Kind.OK, Verb.COMMIT, 3),
        Event("a", 2, Kind.INVOKE, Verb.COMMIT, 4, "", parts),
        Event("a", 2, Kind.FAIL, Verb.COMMIT, 5, error=error),
    ]

    assert bool(found(events, "once_per_job")) is (error != "Fenced")


def test_a_key_that_was_deleted_may_be_absent() -> None:
    script = Script()
    script.commit(["create", "k", "1"])
    script.read("k", "1", 1)
    script.commit(["delete", "k", 1], kind=Kind.INFO)
    script.read("k", "1", 1)
    script.read("k", None, None)

    assert found(script.events) == []


# -- pages -----------------------------------------------------------------------------------


def test_one_page_that_lacks_a_key_is_enough_between_two_deletes() -> None:
    def page(t: int, read: list[list[object]], after: str | None, until: str | None) -> Call:
        return Call("p", t, Verb.SCAN, t, t + 1, Kind.OK, "k/", [after, until, read])

    def delete(t: int) -> Call:
        return Call("p", t, Verb.COMMIT, t, t + 1, Kind.OK, value=[["delete", "k/b", 7]])

    calls = [
        *(page(t, [], None, None) for t in range(10, 20)),
        page(30, [["k/b", 7, "x"]], None, None),
        page(40, [], "k/b", None),
        page(50, [["k/a", 1, "y"]], None, "k/a"),
        delete(60),
        *(page(t, [["k/c", 1, "z"]], "k/a", "k/c") for t in range(70, 80)),
        delete(90),
    ]
    absent = [fact for fact in facts_of(calls)["k/b"] if fact.state is None]

    assert {fact.name for fact in absent} >= {"p#19", "p#79"}
    assert not {fact.name for fact in absent} & {"p#30", "p#40", "p#50"}


def test_pages_of_another_prefix_tell_nothing() -> None:
    pages = Absences({"other/": [Page(1, 2, "p#1", "", None)]})

    assert pages.of("k/a", []) == []
    assert [fact.name for fact in pages.of("other/a", [])] == ["p#1"]


def test_checks_of_the_epoch_are_thinned_out() -> None:
    calls = [
        Call("p", t, Verb.COMMIT, t, t + 5, Kind.OK, value=[["check", EPOCH_KEY, t // 10]])
        for t in range(100)
    ]

    assert len(facts_of(calls)[EPOCH_KEY]) == 20
