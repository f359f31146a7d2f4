"""The table of what a leader does about each decision."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from jrs import JobSpec, SnapshotPolicy
from jrs.contract.runtime import Runtime
from jrs.records.settings import JobSettings
from jrs.records.time_limits import TimeLimits
from jrs.recovery.leader.agenda import Agenda
from jrs.recovery.leader.case import Case
from jrs.recovery.leader.facts import Look
from jrs.recovery.leader.job_memory import JobMemory, SnapshotMemory
from jrs.recovery.leader.reactions import TABLE, Reactions
from jrs.recovery.processes.pools import Pools
from jrs.recovery.rules.decision import Action, Attempt, Decision, Facts, Result, Spec, Stop

NOW = 100.0


@attrs.define
class Recorder:
    """Takes the place of the pools and of the actions: keeps what was called, and where."""

    pools: Any
    calls: list[tuple[str, str]] = attrs.field(factory=list)
    pool: str = ""

    def run(
        self, pool: object, job_id: str, job: JobMemory, action: Action,
        work: Callable[[], Any], then: Callable[[Any], None], *, pins: bool,
    ) -> None:  # fmt: skip
        self.pool = next(name for name in attrs.fields_dict(Pools) if name == pool)
        work()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.calls.append((self.pool, name))


def recorded(survived: bool = False, fetches: bool = False) -> tuple[Recorder, Reactions]:
    record = Recorder(SimpleNamespace(**{name: name for name in attrs.fields_dict(Pools)}))
    runtime = Runtime(clock=lambda: NOW)
    decisions = SimpleNamespace(act=lambda *decided: None)
    context: Any = SimpleNamespace(
        runtime=runtime,
        emit=lambda *event: None,
        decisions=decisions,
        storage=SimpleNamespace(objects=object() if fetches else None),
    )
    probations: Any = SimpleNamespace(has_survived=lambda job_id: survived)
    them: Any = record
    return record, Reactions(
        context, them, them, them, Agenda(runtime.clock), probations, them.start
    )


def reaction(
    action: Action,
    *,
    attempt: Attempt = Attempt.NONE,
    spec: Spec = Spec.READABLE,
    stop: Stop = Stop.NONE,
    pinning: bool = False,
    survived: bool = False,
    begun: bool = False,
    runs: bool | None = None,
    fetches: bool = False,
    every: float | None = None,
    snapshot_at: float | None = None,
    limit: float | None = None,
    settings: JobSettings = JobSettings(),  # noqa: B008 - it cannot be changed
) -> list[tuple[str, str]]:
    """Return the pool and the action that a decision leads to, if any."""
    record, reactions = recorded(survived, fetches)
    job = JobMemory(pinning=pinning, snapshot=SnapshotMemory(snapshot_at))
    job.restart.has_begun = begun
    runs = attempt is Attempt.RUNNING if runs is None else runs
    facts = Facts(spec=spec, result=Result.NONE, attempt=attempt, stop=stop)
    stored = JobSpec(
        "j", "m:f", snapshots=SnapshotPolicy(every=every), timeout=TimeLimits(limit),
        settings=settings,
    )  # fmt: skip
    reactions.react(
        Case("j", job, Look(facts, stored, None, None, runs=runs), Decision(action, "why"))
    )
    return record.calls


RUNNING = Attempt.RUNNING
WITHOUT_A_SNAPSHOT: list[tuple[Action, dict[str, Any], list[tuple[str, str]]]] = [
    (Action.RECOVER, {}, [("starts", "start")]),
    (Action.RECOVER, {"settings": JobSettings(python="py")}, [("starts_with_files", "start")]),
    (Action.RECOVER, {"begun": True}, [("restarts", "start")]),
    (Action.RECOVER, {"fetches": True}, [("restarts", "start")]),
    (Action.CLEAN_UP, {}, [("cleanups", "clean_up")]),
    (Action.CLEAN_UP, {"attempt": RUNNING}, [("completed", "end")]),
    (Action.SKIP, {}, [("records", "sweep_spec")]),
    (Action.SKIP, {"spec": Spec.NONE}, []),
    (Action.RESTORE, {"spec": Spec.RESTORING}, [("restarts", "finish_restore")]),
    (Action.CANCEL, {}, [("ends", "cancel")]),
    (Action.CANCEL, {"attempt": RUNNING}, [("kills", "end")]),
    (Action.CANCEL, {"attempt": Attempt.OVERTIME, "runs": True}, [("kills", "end")]),
    (Action.CANCEL, {"spec": Spec.RESTORING}, [("ends", "cancel_restore")]),
    (Action.RESTORE, {"spec": Spec.RESTORING, "attempt": RUNNING}, [("kills", "end")]),
    (Action.SUSPEND, {}, [("suspends", "suspend")]),
    (Action.SUSPEND, {"attempt": RUNNING, "stop": Stop.QUIESCED}, [("kills", "end")]),
    (Action.SUSPEND, {"attempt": RUNNING, "stop": Stop.HELD}, [("suspends", "suspend")]),
    (Action.FAIL, {}, [("ends", "fail")]),
    (Action.TIME_OUT, {}, [("kills", "time_out")]),
    (Action.LEAVE, {"attempt": RUNNING}, []),
    (Action.LEAVE, {"survived": True}, [("records", "end_probation")]),
    (Action.LEAVE, {"every": 60.0}, [("records", "until_scheduled_snapshot")]),
    (Action.LEAVE, {"every": 60.0, "snapshot_at": NOW + 1}, []),
    (Action.LEAVE, {"every": 60.0, "snapshot_at": NOW}, [("snapshots", "take_scheduled_snapshot")]),
    (Action.LEAVE, {"limit": 60.0}, [("records", "count_time")]),
    (Action.WAIT, {}, []),
    (Action.HOLD, {"spec": Spec.UNREADABLE}, [("records", "record_hold")]),
    (Action.HOLD, {"stop": Stop.HELD}, []),
    (Action.HOLD, {"attempt": Attempt.UNSTARTABLE}, [("records", "consider_hand_over")]),
    (Action.NOTHING, {}, []),
]
DURING_A_SNAPSHOT: list[tuple[Action, dict[str, Any], list[tuple[str, str]]]] = [
    (Action.CANCEL, {"attempt": RUNNING}, [("kills", "end")]),
    (Action.CLEAN_UP, {"attempt": RUNNING}, [("completed", "end")]),
    (Action.SUSPEND, {"attempt": RUNNING}, [("kills", "end")]),
    (Action.TIME_OUT, {"attempt": RUNNING}, [("kills", "time_out")]),
    *((action, {}, []) for action in Action if action not in (Action.CANCEL, Action.TIME_OUT)),
    (Action.LEAVE, {"every": 60.0, "snapshot_at": NOW}, []),
]


@pytest.mark.parametrize(("action", "found", "expected"), WITHOUT_A_SNAPSHOT)
def test_what_follows_from_a_decision(
    action: Action, found: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert reaction(action, **found) == expected


@pytest.mark.parametrize(("action", "found", "expected"), DURING_A_SNAPSHOT)
def test_what_is_possible_while_a_snapshot_is_taken(
    action: Action, found: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """Everything else would move the job's files or records away, or take another snapshot."""
    assert reaction(action, pinning=True, **found) == expected


def test_overdue_snapshots_are_spread() -> None:
    """Over a part of the interval; one that is not overdue keeps its moment."""
    _, reactions = recorded()
    decision = Decision(Action.LEAVE, "why")
    planned: dict[float, set[float]] = {0.0: set(), 40.0: set()}
    for number in range(20):
        stored = JobSpec(f"job-{number}", "m:f", snapshots=SnapshotPolicy(every=60.0))
        for wait, moments in planned.items():
            facts = Facts(spec=Spec.READABLE, result=Result.NONE, attempt=RUNNING, stop=Stop.NONE)
            case = Case(stored.job_id, JobMemory(), Look(facts, stored, None, None), decision)
            reactions.snapshots.plan(case, wait)
            assert case.job.snapshot.at is not None
            moments.add(case.job.snapshot.at)

    assert planned[40.0] == {NOW + 40.0}
    assert len(planned[0.0]) == 20
    assert all(NOW <= at < NOW + 6.0 for at in planned[0.0])


def test_a_snapshot_that_fails_is_tried_again_soon() -> None:
    """A minute later, then after twice as long each time, and after its interval at most. It stays
    due meanwhile."""
    _, reactions = recorded()
    stored = JobSpec("j", "m:f", snapshots=SnapshotPolicy(every=200.0))
    facts = Facts(spec=Spec.READABLE, result=Result.NONE, attempt=RUNNING, stop=Stop.NONE)
    job = JobMemory(snapshot=SnapshotMemory(NOW, due_at=NOW))
    case = Case("j", job, Look(facts, stored, None, None), Decision(Action.LEAVE, "why"))
    tried = []
    for _ in range(4):
        reactions.snapshots.tried(case, None)
        assert job.snapshot.at is not None
        tried.append(job.snapshot.at - NOW)
    assert tried == [60.0, 120.0, 200.0, 200.0]
    assert job.snapshot.due_at == NOW
    assert job.snapshot.failures == 4

    reactions.snapshots.tried(case, 200.0)
    assert job.snapshot == SnapshotMemory(NOW + 200.0, NOW + 200.0)


def test_every_row_is_reached() -> None:
    """No row is hidden by an earlier one, and each names a pool and an action of its own."""
    tried = [(case[0], *call) for case in (*WITHOUT_A_SNAPSHOT, *DURING_A_SNAPSHOT)
             for call in case[2]]  # fmt: skip

    assert len({*tried}) == len(TABLE)
    assert {row.action for row in TABLE} == {action for action, *_ in tried}
