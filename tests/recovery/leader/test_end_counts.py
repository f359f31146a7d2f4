"""An attempt's end is counted once, also if the answer to its count is lost."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.memory import Space
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, OutcomeUnknown, Unavailable
from jrs.contract.operations import Fence, Op, Update, create_or_update
from jrs.contract.runtime import Runtime
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import BatchReport, StreamHead
from jrs.records.history import HistoryKind
from jrs.records.model import AttemptRecord, JobStatus, RunnerKind, StageRecord, StreamRecord
from jrs.records.policies import RestartPolicy
from jrs.records.stored import Stored
from jrs.recovery.attempt.runners import AttemptExit
from jrs.recovery.leader.attempt_records import AttemptRecords
from jrs.recovery.leader.restart_plan import EndCount
from jrs.store.history import read
from jrs.store.jobs import JobCatalog
from tests.recovery.snapshots.fabricate import FakeQuery
from tests.recovery.support import CLUSTER, FaultyMemory, Leader, leader_context, spec
from tests.support import BOUND

RECORD = keys.ATTEMPTS + "job"


class LosingMemory(FaultyMemory):
    """Nobody answers the read that would settle a commit of unknown outcome."""

    hold = False
    """Whether commits to the record of the attempt are late: `land` has them happen."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._late: list[tuple[tuple[Op, ...], Fence | None]] = []
        super().__init__(*args, **kwargs)

    def land(self, number: int) -> None:
        ops, fence = self._late[number]
        self.commit(*ops, fence=fence)

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        try:
            if self.hold and any(op.key == RECORD for op in ops):
                self._late.append((ops, fence))
                raise OutcomeUnknown("injected: late")
            super()._commit(ops, fence, deadline)
        except OutcomeUnknown:
            self.before_read(RECORD, 0, _is_away)
            raise


def _is_away() -> None:
    raise Unavailable("injected: the read-back")


def memory_that_loses() -> LosingMemory:
    return LosingMemory(Space(), url=f"memory://{uuid.uuid4().hex}", cluster=CLUSTER)


def recorded(backend: FaultyMemory) -> AttemptRecord:
    stored = backend.get(RECORD)
    assert stored is not None
    return decode(AttemptRecord, stored.value, stored.key)


def kinds(backend: FaultyMemory) -> list[str]:
    return [event.kind for event in read(backend, "job")]


@pytest.mark.parametrize(
    ("how", "kind", "deaths"),
    [({}, HistoryKind.DIED, 1), ({"interrupted": True}, HistoryKind.INTERRUPTED, 0)],
)
def test_a_count_whose_answer_is_lost(
    root: Path, how: dict[str, Any], kind: HistoryKind, deaths: int
) -> None:
    """The job keeps its second attempt, and the history has the end once."""
    with memory_that_loses() as memory, Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2, delay=0.0)))
        attempt = leader.runner.of("job")
        memory.fault(RECORD, OutcomeUnknown, kind=Update, after=True, times=1)
        attempt.die("it died", **how)
        second = leader.runner.of("job", 2)

        assert recorded(memory).deaths == deaths
        assert kinds(memory).count(kind.value) == 1
        assert leader.said("error", "job", "OutcomeUnknown")

        second.finish()

        assert leader.store.wait("job", BOUND).status is JobStatus.FINISHED


@pytest.mark.parametrize("landing", [0, 1])
def test_a_count_that_lands_after_it_was_repeated(root: Path, landing: int) -> None:
    """One of the tries lands, whichever, and the next try knows it as its own."""
    of_job = spec("job", restart=RestartPolicy(attempts=3, delay=0.0))
    with memory_that_loses() as memory, Leader(memory, root) as leader:
        JobCatalog(memory).submit(of_job)
        leader.runner.of("job")
        records, end, count = leader.dispatcher._records, AttemptExit("it died"), EndCount()
        memory.hold = True
        for _ in range(2):
            with pytest.raises(OutcomeUnknown):
                records.count_death(of_job, end, count, ran=1.0)
        memory.hold = False
        memory.land(landing)
        with pytest.raises(Conflict):
            memory.land(1 - landing)
        plan = records.count_death(of_job, end, count, ran=1.0)

        assert plan is not None
        assert plan.deaths == recorded(memory).deaths == 1
        assert kinds(memory).count(HistoryKind.DIED.value) == 1

        again = records.count_death(of_job, end, EndCount(), ran=1.0)

        assert again is not None
        assert again.deaths == 2  # A further end of the same attempt counts.


@pytest.mark.parametrize("got_on", ["stage", "head", "checkpoint", ""])
def test_an_attempt_that_ran_for_long_has_recovered(
    memory: FaultyMemory, root: Path, got_on: str
) -> None:
    """A stream of months does not end FAILED at the third death of its life. What dies again and
    again without getting on does, however long each attempt takes."""
    leader, days = Leader(memory, root), [0.0]
    runtime = Runtime(now=lambda: time.time() + days[0] * 86400)
    runners = dict.fromkeys(RunnerKind, leader.runner)
    context = leader_context(
        leader.leadership, memory, leader.storage, runtime=runtime, runners=runners
    )
    records = AttemptRecords(context)
    of_job = JobCatalog(memory).submit(spec("job", restart=RestartPolicy(attempts=2)))
    checkpoint = leader.storage.take_over("job", leader.fence.epoch) / "streams" / "sums" / "ck"
    deaths = []
    for number in (1, 2):
        assert records.begin(of_job) is not None
        days[0] += 60
        ran = 60 * 86400.0
        put: dict[str, Stored] = {}
        if got_on == "stage":
            name = f"s{number}"
            mark = StageRecord("job", name, None, number, leader.fence.epoch, 1.0, 1.0)
            put[keys.stage("job", name)] = mark
        elif got_on == "head":
            report = BatchReport(number, runtime.now())
            put[keys.head("job", "sums")] = StreamHead("job", "sums", 1, number, report=report)
        elif got_on == "checkpoint":
            put[keys.stream("job", "sums")] = StreamRecord("job", "sums", False, "p", "4")
            FakeQuery(checkpoint).start().run(number)
            os.utime(checkpoint / "commits" / str(number - 1), (runtime.now(),) * 2)
        for key, value in put.items():
            stored = memory.get(key)
            memory.commit(create_or_update(key, encode(value), stored and stored.version))
        plan = records.count_death(of_job, AttemptExit("it died"), EndCount(), ran=ran)
        assert plan is not None
        deaths.append(plan.deaths)
    leader.stop()
    leader.leadership.resign()

    assert deaths == ([1, 1] if got_on else [1, 2])
