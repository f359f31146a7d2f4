"""What a leader does to a job is in the job's history, with the decision and its facts."""

from __future__ import annotations

import socket
from pathlib import Path

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import NotFound, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryEvent
from jrs.records.model import StopMode
from jrs.records.policies import RestartPolicy
from jrs.recovery.inspect.fsck import fsck
from jrs.recovery.inspect.history import decision_of_then, history, wrong_decisions
from jrs.recovery.rules.decision import (
    RULES,
    Attempt,
    Facts,
    Result,
    Spec,
    Stop,
    decide,
)
from jrs.store import history as recorded
from jrs.store import history_checks
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops
from tests.recovery.support import (
    DirectedRunner,
    Fault,
    FaultyMemory,
    Leader,
    Thing,
    spec,
    spoil,
)
from tests.support import FakeClock, until


def told(backend: Backend, job_id: str = "job") -> list[tuple[str, str, int, str]]:
    """Return the history of a job: each kind, text, epoch and action."""
    return [(one.kind, one.text, one.epoch, one.action) for one in recorded.read(backend, job_id)]


def check(backend: Backend, job_id: str = "job") -> None:
    """Check that the history is whole, and that each decision follows from its facts."""
    assert list(history_checks.problems(backend, job_id)) == []
    assert list(wrong_decisions(job_id, recorded.read(backend, job_id))) == []


def test_a_job_over_two_leaders(backend: Backend, other: Backend, tmp_path: Path) -> None:
    """One line over all leaders: what each decided, and what came of it."""
    JobCatalog(backend).submit(spec("job", restart=RestartPolicy(attempts=3, delay=0.0)))
    with Leader(backend, tmp_path, candidate="m1") as leader:
        leader.runner.of("job").die("out of memory")
        leader.runner.of("job", 2)
    with Leader(other, tmp_path, candidate="m2") as leader:
        leader.runner.of("job").finish()
        leader.until_clean("job")

    first, second = 1, 2
    assert told(other) == [
        ("submitted", "submitted", 0, ""),
        ("attempt", "attempt 1 was started", first, "recover"),
        ("died", "attempt 1 died: out of memory", first, ""),
        ("attempt", "attempt 2 was started", first, "recover"),
        (
            "attempt",
            "attempt 3 was started; attempt 2 was left by the leader of epoch 1",
            *(second, "recover"),
        ),
        ("clean", "clean", second, "clean up"),
    ]
    read = recorded.read(other, "job")
    assert [one.by for one in read][1:] == [*["m1"] * 3, *["m2"] * 2]
    host = socket.gethostname()
    assert [one.about for one in read] == [
        None,
        {"host": host, "runner": "process"},
        {"host": host, "exit_status": None},
        *[{"host": host, "runner": "process"}] * 2,
        {"tries": 1, "removed": read[-1].about and read[-1].about["removed"]},
    ]
    check(other)


def test_a_job_that_fails_and_one_that_is_canceled(backend: Backend, tmp_path: Path) -> None:
    catalog = JobCatalog(backend)
    catalog.submit(spec("job", restart=RestartPolicy(attempts=1, delay=0.0)))
    catalog.submit(spec("other"))
    with Leader(backend, tmp_path) as leader:
        leader.runner.of("job").die("boom")
        leader.runner.of("other")
        catalog.cancel("other", "enough")
        leader.until_clean("job", "other")

    assert [(kind, action) for kind, _, _, action in told(backend)] == [
        ("submitted", ""),
        ("attempt", "recover"),
        ("died", ""),
        ("ended", "fail"),
        ("snapshot", ""),
        ("clean", "clean up"),
    ]
    assert [(kind, text) for kind, text, _, _ in told(backend, "other")] == [
        ("submitted", "submitted"),
        ("attempt", "attempt 1 was started"),
        ("cancel", "a cancel was requested: enough"),
        ("ended", "CANCELED: canceled on request: enough"),
        ("snapshot", "snapshot 1 was taken"),
        ("clean", "clean"),
    ]
    check(backend)
    check(backend, "other")


def test_a_job_that_is_suspended_and_resumed(backend: Backend, tmp_path: Path) -> None:
    JobCatalog(backend).submit(spec("job"))
    stops = JobStops(backend)
    with Leader(backend, tmp_path) as leader:
        leader.runner.of("job")
        stops.request("job", StopMode.SUSPEND, grace=0.0)
        until(lambda: told(backend)[-1][0] == "suspended", "the job is suspended")
        stops.resume("job")
        leader.runner.of("job", 2).finish()
        leader.until_clean("job")

    kinds = [kind for kind, _, _, _ in told(backend)]
    assert kinds == ["submitted", "attempt", "stop", "suspended", "resumed", "attempt", "clean"]
    check(backend)


@pytest.mark.parametrize(
    ("key", "said", "decided"),
    [
        ("jobs/job", "held: its spec cannot be read; `jrs cancel` ends it", "hold"),
        ("stages/job/one", "held: stages/job/one", ""),
    ],
)
def test_a_job_that_is_held_says_why(
    backend: Backend, tmp_path: Path, key: str, said: str, decided: str
) -> None:
    """Once for each leader, however often that checks it; with the decision and its facts, unless
    the leader cannot even decide."""
    JobCatalog(backend).submit(spec("job"))
    with Leader(backend, tmp_path, runner=DirectedRunner()) as leader:
        leader.runner.of("job")
    spoil(backend, key)
    before = len(told(backend))
    for number, name in enumerate(("m2", "m3"), 1):
        wanted, clock = before + number, FakeClock()
        with Leader(backend, tmp_path, candidate=name, clock=clock) as leader:
            until(lambda: len(told(backend)) == wanted, "the history says so")  # noqa: B023
            clock.now += 60  # It looks again.
            spoil(backend, key, b"16 others bytes.")
            JobCatalog(backend).submit(spec(f"after-{name}"))
            leader.runner.of(f"after-{name}").finish()
            leader.until_clean(f"after-{name}")
            assert leader.said("decision", "job", said)

    held = [one for one in recorded.read(backend, "job") if one.kind == "held"]
    assert [(one.epoch, one.action) for one in held] == [(2, decided), (3, decided)]
    assert all(one.text.startswith(said) for one in held)
    assert [one.facts for one in held] == 2 * [{"spec": "unreadable"} if decided else None]


def test_a_cleanup_that_leaves_something_says_so_once(backend: Backend, tmp_path: Path) -> None:
    """However often it is tried: one event for each change."""
    JobCatalog(backend).submit(spec("job"))
    thing = Thing()
    thing.broken = RuntimeError("it resists")
    with Leader(backend, tmp_path, resources=[thing]) as leader:
        leader.runner.of("job").finish()
        until(lambda: len(thing.calls) >= 2, "it is tried again")
        thing.broken = None
        leader.until_clean("job")

    assert [(kind, text) for kind, text, _, _ in told(backend)][2:] == [
        ("cleanup", "thing is left: RuntimeError: it resists"),
        ("clean", "clean"),
    ]
    check(backend)


def test_the_history_of_a_clean_job_is_one_record_and_costs_no_commit(
    memory: FaultyMemory, tmp_path: Path
) -> None:
    JobCatalog(memory).submit(spec("job"))
    with Leader(memory, tmp_path) as leader:
        leader.runner.of("job").finish()
        leader.until_clean("job")

    assert [one.key for one in memory.scan(keys.FOLDS)] == [keys.history_fold("job")]
    assert list(memory.scan(keys.HISTORY)) == []
    alone = [ops for ops in memory.commits if all(op.key.startswith(keys.TOLD) for op in ops)]
    assert alone == []


@pytest.mark.parametrize("error", [OutcomeUnknown, Unavailable])
@pytest.mark.parametrize("key", [keys.ATTEMPTS, keys.DIRTY])
def test_an_error_of_the_backend_leaves_no_gap(
    memory: FaultyMemory, tmp_path: Path, key: str, error: type[Exception]
) -> None:
    """The first commits to that key fail, some of them behind their effect."""
    JobCatalog(memory).submit(spec("job"))
    after = error is OutcomeUnknown
    memory.faults.append(Fault(key, error, after=after, times=2))
    with Leader(memory, tmp_path) as leader:
        started = leader.runner.of("job")
        until(lambda: _finished(started), "its result is recorded")
        leader.until_clean("job")

    assert told(memory)[-1][:2] == ("clean", "clean")
    check(memory)


def _finished(attempt: object) -> bool:
    try:
        attempt.finish()  # type: ignore[attr-defined]
    except (OutcomeUnknown, Unavailable):
        return False
    return True


def test_a_decision_that_does_not_follow_from_its_facts_is_named(
    backend: Backend, tmp_path: Path
) -> None:
    event = HistoryEvent(
        "job", "0123456789ab.000000", "attempt", 1.0, epoch=1, action="recover", rules=RULES,
        facts=Facts(spec=Spec.READABLE, cancel=True).to_plain(),
    )  # fmt: skip
    backend.commit(Create(keys.history_event("job", event.id), encode(event)))
    JobCatalog(backend).submit(spec("job"))

    (said,) = fsck(backend, None).damaged
    assert "says 'recover', and its facts give 'cancel'" in said


def test_every_decision_recomputes() -> None:
    """Whatever the facts: what is recorded of them gives the same decision."""
    for wanted in (
        Facts(),
        *(Facts(spec=one) for one in Spec),
        *(Facts(spec=Spec.READABLE, result=one) for one in Result),
        *(Facts(spec=Spec.READABLE, attempt=one) for one in Attempt),
        *(Facts(spec=Spec.READABLE, stop=one) for one in Stop),
        Facts(spec=Spec.READABLE, startable=False),
        Facts(spec=Spec.READABLE, turn=False, place=3, paused=True),
        Facts(spec=Spec.READABLE, obstacles="m1: no java", outcome="FAILED"),
    ):
        assert Facts.from_plain(wanted.to_plain()) == wanted
        assert decide(Facts.from_plain(wanted.to_plain())) == decide(wanted)


def test_other_rules_are_not_judged(backend: Backend) -> None:
    """What another version decided by rules of its own is no damage."""
    event = HistoryEvent(
        "job", "0123456789ab.000000", "attempt", 1.0, action="recover", rules=RULES + 1,
        facts=Facts(spec=Spec.READABLE, cancel=True).to_plain(),
    )  # fmt: skip
    backend.commit(Create(keys.history_event("job", event.id), encode(event)))

    assert list(wrong_decisions("job", recorded.read(backend, "job"))) == []


def test_a_long_reason_is_recorded_in_short() -> None:
    """So that the facts of a decision are never too large to be kept."""
    facts = Facts(spec=Spec.READABLE, outcome="x" * 5000, obstacles="y" * 5000)
    assert len(str(facts.to_plain())) < 500
    assert decide(Facts.from_plain(facts.to_plain())).action is decide(facts).action


def test_a_decision_without_facts_has_no_reason(backend: Backend) -> None:
    catalog = JobCatalog(backend)
    catalog.submit(spec("job"))
    event = HistoryEvent("job", "0123456789ab.000000", "clean", 1.0, action="clean up")
    backend.commit(Create(keys.history_event("job", event.id), encode(event)))

    assert str(decision_of_then(backend, catalog.view("job"), None, None)) == "[clean up]"


def test_facts_of_a_newer_version_are_not_judged(backend: Backend) -> None:
    for number, facts in enumerate(({"moon": "full"}, {"spec": "haunted"})):
        event = HistoryEvent(
            "job", f"0123456789a{number}.000000", "attempt", 1.0, action="recover", rules=RULES,
            facts=facts,
        )  # fmt: skip
        backend.commit(Create(keys.history_event("job", event.id), encode(event)))

    assert list(wrong_decisions("job", recorded.read(backend, "job"))) == []


def test_explaining_the_past(backend: Backend, other: Backend, tmp_path: Path) -> None:
    """The decision of then, by time or by epoch."""
    catalog = JobCatalog(backend)
    catalog.submit(spec("job"))
    with Leader(backend, tmp_path, candidate="m1") as leader:
        leader.runner.of("job")
    with Leader(other, tmp_path, candidate="m2") as leader:
        leader.runner.of("job").finish()
        leader.until_clean("job")
    view = catalog.view("job")
    submitted, first, *_, last = history(other, view)

    newest = decision_of_then(other, view, None, None)
    assert (newest.entry, str(newest)) == (
        last, "ended; its resources are being cleaned up [clean up]",
    )  # fmt: skip
    then = decision_of_then(other, view, None, 1)
    assert (then.entry, then.entry.by, str(then)) == (first, "m1", "starting [recover]")
    assert decision_of_then(other, view, first.at, None) == then
    for at, epoch in ((submitted.at - 1.0, None), (None, 7)):
        with pytest.raises(NotFound, match="no such decision: see jrs history job"):
            decision_of_then(other, view, at, epoch)


def test_a_history_of_which_nothing_is_known(backend: Backend) -> None:
    """What a crash or an older version left of a job that nobody knows is named."""
    event = HistoryEvent("ghost", "0123456789ab.000000", "submitted", 1.0)
    backend.commit(Create(keys.history_event("ghost", event.id), encode(event)))

    assert fsck(backend, None).left_over == ("history/ghost/: the history of an unknown job",)


def test_an_event_that_cannot_be_read_hides_nothing_else(backend: Backend, tmp_path: Path) -> None:
    JobCatalog(backend).submit(spec("job"))
    with Leader(backend, tmp_path, runner=DirectedRunner()) as leader:
        leader.runner.of("job")
        (first, _) = [one.key for one in backend.scan(keys.history("job"))]
        spoil(backend, first)
        leader.runner.of("job").finish()
        leader.until_clean("job")

    assert len(told(backend)) == 2
    assert any(first in one for one in fsck(backend, None).damaged)


def test_a_long_life_is_folded_by_its_leaders(backend: Backend, tmp_path: Path) -> None:
    """Each start folds what is too much; nothing is lost below the bound."""
    JobCatalog(backend).submit(spec("job", restart=RestartPolicy(attempts=1000, delay=0.0)))
    with Leader(backend, tmp_path) as leader:
        for attempt in range(1, 51):
            leader.runner.of("job", attempt).die("again")
        leader.runner.of("job", 51)
        assert len(list(backend.scan(keys.history("job")))) <= recorded.MANY + 3

    assert [kind for kind, _, _, _ in told(backend)] == [
        "submitted",
        *["attempt", "died"] * 50,
        "attempt",
    ]
    check(backend)


def test_a_copy_of_an_event_under_another_job_is_named(backend: Backend) -> None:
    catalog = JobCatalog(backend)
    catalog.submit(spec("job"))
    catalog.submit(spec("other"))
    (stored,) = backend.scan(keys.history("job"))
    event = decode(HistoryEvent, stored.value, stored.key)
    copy = attrs.evolve(event)
    backend.commit(Create(keys.history_event("other", event.id), encode(copy)))

    assert any("another one" in one for one in fsck(backend, None).damaged)
