"""Every row of the decision table, on records in real stores: a folder, etcd and ZooKeeper.

`tests/recovery/rules/test_decision.py` proves that the function `decide` follows its table. Here a
real leader gathers the facts: each case stores the records that make the facts of a row, and the
leader's dispatcher has to find exactly these facts, and report and carry out the row's decision.

All rows are reached. These take more than records, because a leader remembers their facts:

- a running attempt: the leader starts the job first, and the records follow;
- a job that could not be started here: the leader tries it, on a runner that lacks something;
- a job whose turn, or whose slot, has not come: the leader starts another job first;
- a job that only the driver's main can provide: whether main has reached it is in no record;
- a job that waits for the last words of a leader: they are in a file that it keeps locked.

Two other ways to these rows are tested elsewhere. A record that the disk has lost counts as one
that holds other bytes, but only the file backend can lose one. A time limit that passes while an
attempt runs takes a clock (`test_time_limits.py`); here the stored time is over the limit.
"""

from __future__ import annotations

import itertools
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import CannotStartHere
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.cluster import PauseRecord
from jrs.records.codec import decode, encode
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    Failure,
    JobStatus,
    RunnerKind,
    StopMode,
    StopRecord,
    StopState,
    Tombstone,
)
from jrs.records.policies import RestartPolicy
from jrs.records.snapshots import RestoreRecord
from jrs.records.stored import Stored
from jrs.records.time_limits import TimeLimits
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader import dispatcher
from jrs.recovery.leader.job_memory import SCANNED
from jrs.recovery.processes.last_words import LastWords, folder_of
from jrs.recovery.rules.decision import Action, Attempt, Decision, Facts, Result, Spec, Stop, decide
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead
from tests.recovery.rules.test_decision import ANY, PRODUCT, TABLE
from tests.recovery.support import Leader, put, result, spec, spoil
from tests.support import FakeClock, until

HOUR = 3600.0
LACK = "there is no python3.99"
OBSTACLE = f"leader on {socket.gethostname()}: {LACK}"
OUTCOME = "FAILED: it broke"
FAR = 4e9
"""Seconds since 1970: later than any run of this test."""
NEWER = 99
"""A version of any record that only a newer jrs can read."""

Records = Callable[[Backend], object]
"""Stores records."""


# -- records ------------------------------------------------------------------------------------


def submitted(job_id: str = "job", entry_point: str = "m:f", **fields: Any) -> Records:
    return lambda backend: JobCatalog(backend).submit(spec(job_id, entry_point, **fields))


def stored(key: str, value: Stored) -> Records:
    return lambda backend: put(backend, key, value)


def newer(key: str, value: Stored) -> Records:
    """Store a record that a newer jrs has written."""
    return lambda backend: spoil(backend, key, encode(value, NEWER))


def spoiled(key: str) -> Records:
    """Store what is no record of jrs."""
    return lambda backend: spoil(backend, key)


def dirty(job_id: str = "job", **fields: Any) -> Records:
    return lambda backend: JobResultStore(backend).create_dirty(result(job_id, **fields), None)


def clean(backend: Backend) -> None:
    dirty()(backend)
    JobResultStore(backend).mark_clean("job", None)


def attempt(job_id: str = "job", **fields: Any) -> Records:
    """Store an attempt that an earlier leader has started."""
    return stored(keys.ATTEMPTS + job_id, AttemptRecord(job_id, started_at=1.0, **fields))


def suspect(job_id: str) -> tuple[Records, ...]:
    """Store a job of the driver that may have killed an earlier leader."""
    return (
        submitted(job_id, "driver:job", runner=RunnerKind.THREAD),
        attempt(job_id, suspicion=1, retry_at=1.0),
    )


def stop(mode: StopMode, state: StopState = StopState.REQUESTED, grace: float = 30.0) -> Records:
    return stored(keys.STOPS + "job", StopRecord("job", mode, state, 1.0, grace=grace))


CANCEL = stored(keys.CANCEL + "job", CancelRequest("job"))
RESTORE = RestoreRecord("job", "1", "job", 1.0)
APPLICATION = stored(keys.APPLICATIONS + "job", ApplicationRecord("job", "m:main"))
TOMBSTONE = stored(keys.TOMBSTONES + "job", Tombstone("job"))
SPEC = spec("job")
SUSPEND, HOLD, DRAIN = StopMode.SUSPEND, StopMode.HOLD, StopMode.DRAIN


@contextmanager
def leader_that_hangs(backend: Backend, root: Path) -> Iterator[None]:
    """Have the job run alone in an earlier leader, whose process has not ended."""
    leadership = lead(backend, "old")
    leadership.resign()
    for record in (
        submitted(entry_point="driver:job", runner=RunnerKind.THREAD),
        attempt(epoch=leadership.epoch, suspicion=1, on_probation=True),
    ):
        record(backend)
    words = LastWords(folder_of(JobStorage(root, backend.cluster).root), leadership.epoch)
    try:
        with words.attempt("job", HOUR):
            yield
    finally:
        words.farewell()


# -- effects of decisions ----------------------------------------------------------------------


def nothing(leader: Leader) -> None:
    """The decision has no effect to wait for."""


def starts(leader: Leader) -> None:
    leader.runner.of("job")


def is_cleaned_up(leader: Leader) -> None:
    leader.until_clean("job")


def is_swept(leader: Leader) -> None:
    left = (keys.JOBS, keys.CANCEL, keys.STOPS)
    until(
        lambda: not any(leader.backend.get_many([prefix + "job" for prefix in left])),
        "the left-over records are swept",
    )


def ends(status: JobStatus, kind: str) -> Callable[[Leader], None]:
    def has_ended(leader: Leader) -> None:
        found = leader.store.wait("job", 60)
        assert found.status is status
        assert found.failure is not None
        assert found.failure.kind == kind

    return has_ended


def is_suspended(leader: Leader) -> None:
    leader.until_said("decision", "job", "suspended; resume it with `jrs resume` [wait]")
    record = leader.backend.get(keys.STOPS + "job")
    assert record is not None
    assert decode(StopRecord, record.value, record.key).state is StopState.DONE


def attempt_is_ended(leader: Leader) -> None:
    until(lambda: leader.runner.of("job").was_ended, "the attempt is ended")


def attempt_is_left(leader: Leader) -> None:
    assert not leader.runner.of("job").was_ended


def is_the_second_attempt(leader: Leader) -> None:
    assert leader.runner.of("job").context.attempt == 2


def restore_fails(leader: Leader) -> None:
    """The restore is tried, and has no snapshot to restore from."""
    leader.until_said("error", "job", "NoSuchSnapshot")


def restore_is_held(leader: Leader) -> None:
    leader.until_said("decision", "job", "not a record of jrs")


is_canceled = ends(JobStatus.CANCELED, "cancel")


# -- cases --------------------------------------------------------------------------------------


@attrs.frozen
class Case:
    """Records, the facts that they make, and what the leader has to do."""

    name: str
    records: tuple[Records, ...]
    """What is stored before the leader looks."""
    facts: Facts
    says: str
    """The decision, as it is reported."""
    effect: Callable[[Leader], None] = nothing
    """Waits until the decision is carried out, and checks how."""
    attempts: int = 0
    """How many attempts of the job the leader starts in all."""
    running: tuple[Records, ...] = ()
    """What is stored once the job's attempt runs."""
    driven: tuple[str, ...] = ()
    """The jobs that the driver's main has reached."""
    lacks: bool = False
    """Whether the leader's host lacks what the job needs."""
    around: Callable[[Backend, Path], AbstractContextManager[None]] = lambda backend, root: (
        nullcontext()
    )
    """What else there is meanwhile."""


READABLE = partial(Facts, spec=Spec.READABLE)
RUNNING = partial(READABLE, attempt=Attempt.RUNNING)
NO_RESULT = "held: its result cannot be read; an operator decides [hold]"
NO_SPEC = "held: its spec cannot be read; `jrs cancel` ends it [hold]"
NO_STOP = "held: its stop request cannot be read; an operator decides [hold]"
SWEPT = "ended; a left-over spec is swept [skip]"
NOTHING_LEFT = "ended; nothing left to do [skip]"
CLEANED_UP = "ended; its resources are being cleaned up [clean up]"
RESTORED = "being restored, or the restore was interrupted [restore]"
CANCELED = "being canceled [cancel]"
SUSPENDING = "suspending [suspend]"
PAUSED = "waiting: the cluster is paused; to end that: `jrs unpause` [wait]"
STARTING = "starting [recover]"

CASES = (
    # A result comes before all else.
    Case(
        "result unreadable",
        (submitted(), spoiled(keys.RESULTS + "job")),
        READABLE(result=Result.UNREADABLE),
        NO_RESULT,
    ),
    Case(
        "result of a newer version",
        (submitted(), newer(keys.RESULTS + "job", result("job"))),
        READABLE(result=Result.UNREADABLE),
        NO_RESULT,
    ),
    Case(
        "result of another job",
        (submitted(), stored(keys.RESULTS + "job", result("other"))),
        READABLE(result=Result.UNREADABLE),
        NO_RESULT,
    ),
    Case(
        "marker without a result",
        (submitted(), lambda backend: backend.commit(Create(keys.DIRTY + "job", b""))),
        READABLE(result=Result.UNREADABLE),
        NO_RESULT,
    ),
    Case(
        "result dirty",
        (submitted(), dirty()),
        READABLE(result=Result.DIRTY),
        CLEANED_UP,
        is_cleaned_up,
    ),
    Case(
        "result dirty, without a spec",
        (dirty(),),
        Facts(result=Result.DIRTY),
        CLEANED_UP,
        is_cleaned_up,
    ),
    Case(
        "result dirty, of a failure",
        (submitted(), dirty(status=JobStatus.FAILED, failure=Failure("exit", "it broke"))),
        READABLE(result=Result.DIRTY, outcome=OUTCOME),
        f"{OUTCOME}; its resources are being cleaned up [clean up]",
        is_cleaned_up,
    ),
    Case(
        "result dirty, and the attempt runs",
        (submitted(),),
        RUNNING(result=Result.DIRTY),
        CLEANED_UP,
        is_cleaned_up,
        attempts=1,
        running=(dirty(),),
    ),
    Case("result clean", (submitted(), clean), READABLE(result=Result.CLEAN), SWEPT, is_swept),
    Case(
        "result clean, without a spec",
        (clean, CANCEL),
        Facts(result=Result.CLEAN, cancel=True),
        NOTHING_LEFT,
    ),
    Case(
        "result expired",
        (stored(keys.JOBS + "job", SPEC), TOMBSTONE),
        READABLE(result=Result.EXPIRED),
        SWEPT,
        is_swept,
    ),
    Case(
        "result expired, without a spec",
        (TOMBSTONE, stop(SUSPEND)),
        Facts(result=Result.EXPIRED, stop=Stop.ASKED),
        NOTHING_LEFT,
    ),
    # The spec.
    Case("spec unreadable", (spoiled(keys.JOBS + "job"),), Facts(spec=Spec.UNREADABLE), NO_SPEC),
    Case(
        "spec of a newer version",
        (newer(keys.JOBS + "job", SPEC),),
        Facts(spec=Spec.UNREADABLE),
        NO_SPEC,
    ),
    Case(
        "spec unreadable, canceled",
        (spoiled(keys.JOBS + "job"), CANCEL),
        Facts(spec=Spec.UNREADABLE, cancel=True),
        CANCELED,
        is_canceled,
    ),
    Case(
        "no spec",
        (CANCEL,),
        Facts(cancel=True),
        "never submitted; `jrs fsck` lists what is left [nothing]",
    ),
    Case(
        "restore pending",
        (submitted(), stored(keys.RESTORES + "job", RESTORE)),
        Facts(spec=Spec.RESTORING),
        RESTORED,
        restore_fails,
    ),
    Case(
        "restore pending, in the place of the spec",
        (stored(keys.JOBS + "job", RESTORE),),
        Facts(spec=Spec.RESTORING),
        RESTORED,
        restore_fails,
    ),
    Case(
        "restore unreadable",
        (submitted(), spoiled(keys.RESTORES + "job")),
        Facts(spec=Spec.RESTORING),
        RESTORED,
        restore_is_held,
    ),
    Case(
        "restore pending, canceled",
        (submitted(), stored(keys.RESTORES + "job", RESTORE), CANCEL),
        Facts(spec=Spec.RESTORING, cancel=True),
        CANCELED,
        is_canceled,
    ),
    Case(
        "application",
        (APPLICATION,),
        Facts(spec=Spec.APPLICATION),
        "an application: the replica that leads runs its main [wait]",
    ),
    Case(
        "application canceled",
        (APPLICATION, CANCEL),
        Facts(spec=Spec.APPLICATION, cancel=True),
        CANCELED,
        is_canceled,
    ),
    # Requests: a cancel before a stop, and a stop before all else.
    Case("canceled", (submitted(), CANCEL), READABLE(cancel=True), CANCELED, is_canceled),
    Case(
        "cancel unreadable",
        (submitted(), spoiled(keys.CANCEL + "job")),
        READABLE(cancel=True),
        CANCELED,
        is_canceled,
    ),
    Case(
        "canceled while it runs",
        (submitted(),),
        RUNNING(cancel=True),
        CANCELED,
        is_canceled,
        attempts=1,
        running=(CANCEL,),
    ),
    Case(
        "application has ended without it",
        (submitted(application="app"), stored(keys.TOMBSTONES + "app", Tombstone("app"))),
        READABLE(lost=True),
        "being canceled: its application has ended without it [cancel]",
        ends(JobStatus.CANCELED, "lost-main"),
    ),
    Case(
        "stop unreadable",
        (submitted(), spoiled(keys.STOPS + "job")),
        READABLE(stop=Stop.UNREADABLE),
        NO_STOP,
    ),
    Case(
        "stop of a newer version",
        (submitted(), newer(keys.STOPS + "job", StopRecord("job", SUSPEND))),
        READABLE(stop=Stop.UNREADABLE),
        NO_STOP,
    ),
    Case(
        "suspend requested",
        (submitted(), stop(SUSPEND)),
        READABLE(stop=Stop.ASKED),
        SUSPENDING,
        is_suspended,
    ),
    Case(
        "suspend requested while it runs",
        (submitted(),),
        RUNNING(stop=Stop.ASKED),
        "suspending; its attempt comes to a batch boundary [leave]",
        attempt_is_left,
        attempts=1,
        running=(stop(SUSPEND),),
    ),
    Case(
        "quiesced",
        (submitted(), stop(SUSPEND, StopState.QUIESCED)),
        READABLE(stop=Stop.QUIESCED),
        SUSPENDING,
        is_suspended,
    ),
    Case(
        "quiesced while it runs",
        (submitted(),),
        RUNNING(stop=Stop.QUIESCED),
        SUSPENDING,
        is_suspended,
        attempts=1,
        running=(stop(SUSPEND, StopState.QUIESCED),),
    ),
    Case(
        "grace period over while it runs",
        (submitted(),),
        RUNNING(stop=Stop.QUIESCED),
        SUSPENDING,
        is_suspended,
        attempts=1,
        running=(stop(SUSPEND, grace=0.0),),
    ),
    Case(
        "suspended while it runs",
        (submitted(),),
        RUNNING(stop=Stop.SUSPENDED),
        SUSPENDING,
        attempt_is_ended,
        attempts=1,
        running=(stop(SUSPEND, StopState.DONE),),
    ),
    Case(
        "suspended",
        (submitted(), stop(SUSPEND, StopState.DONE)),
        READABLE(stop=Stop.SUSPENDED),
        "suspended; resume it with `jrs resume` [wait]",
    ),
    Case(
        "held while it runs",
        (submitted(),),
        RUNNING(stop=Stop.HELD),
        "held; its attempt is being ended [suspend]",
        attempt_is_ended,
        attempts=1,
        running=(stop(HOLD, StopState.DONE),),
    ),
    Case(
        "held",
        (submitted(), stop(HOLD, StopState.DONE)),
        READABLE(stop=Stop.HELD),
        "held; resume or cancel it [hold]",
    ),
    # The newest attempt.
    Case("running", (submitted(),), RUNNING(), "running [leave]", attempt_is_left, attempts=1),
    Case(
        "time limit has passed",
        (submitted(timeout=TimeLimits(HOUR)), attempt(used=HOUR)),
        READABLE(attempt=Attempt.OVERTIME),
        "being ended: its time limit has passed [time out]",
        ends(JobStatus.FAILED, "timeout"),
    ),
    Case(
        "timed out",
        (
            submitted(timeout=TimeLimits(HOUR)),
            attempt(used=HOUR, deaths=1, failure=Failure("timeout", "an hour has passed")),
        ),
        READABLE(attempt=Attempt.TIMED_OUT),
        "failing: its time limit has passed [fail]",
        ends(JobStatus.FAILED, "timeout"),
    ),
    Case(
        "died as often as it may",
        (
            submitted(restart=RestartPolicy(attempts=2)),
            attempt(deaths=2, retry_at=1.0, failure=Failure("exit", "it broke")),
        ),
        READABLE(attempt=Attempt.SPENT),
        "failing: it died as often as its restart policy allows [fail]",
        ends(JobStatus.FAILED, "exit"),
    ),
    Case(
        "waits for its restart",
        (
            submitted(restart=RestartPolicy(delay=HOUR, max_delay=HOUR)),
            attempt(deaths=1, retry_at=FAR),
        ),
        READABLE(attempt=Attempt.BACKING_OFF),
        "waiting: its attempt has ended without a result; the next one is not due [wait]",
    ),
    Case(
        "its leader hangs",
        (),
        READABLE(attempt=Attempt.UNHEARD),
        "waiting: it ran alone in a leader that hangs [wait]",
        driven=("job",),
        around=leader_that_hangs,
    ),
    Case(
        "cannot be started here",
        (submitted(),),
        READABLE(attempt=Attempt.UNSTARTABLE, obstacles=OBSTACLE),
        f"held: no master could start it so far: {OBSTACLE} [hold]",
        lacks=True,
    ),
    # What keeps a job from starting.
    Case(
        "cluster paused",
        (submitted(), stored(keys.PAUSE, PauseRecord(1.0))),
        READABLE(paused=True),
        PAUSED,
    ),
    Case("pause unreadable", (submitted(), spoiled(keys.PAUSE)), READABLE(paused=True), PAUSED),
    Case(
        "main has not reached it",
        (submitted(entry_point="driver:job", runner=RunnerKind.THREAD),),
        READABLE(startable=False),
        "waiting: the driver's main has not reached it yet [wait]",
    ),
    Case(
        "not its turn",
        (*suspect("first"), *suspect("job")),
        READABLE(turn=False),
        "waiting: after a leader's death its jobs start in turn [wait]",
        driven=("first", "job"),
    ),
    Case(
        "no slot is free",
        (submitted("first"), submitted()),
        READABLE(place=1),
        "waiting: place 1 in the queue [wait]",
    ),
    # Nothing does.
    Case("new", (submitted(),), READABLE(), STARTING, starts, attempts=1),
    Case(
        "was running in an earlier leader",
        (submitted(), attempt()),
        READABLE(),
        STARTING,
        is_the_second_attempt,
        attempts=1,
    ),
    Case(
        "its delay has passed",
        (submitted(), attempt(deaths=1, retry_at=1.0)),
        READABLE(),
        STARTING,
        is_the_second_attempt,
        attempts=1,
    ),
    Case(
        "attempt unreadable",
        (submitted(), spoiled(keys.ATTEMPTS + "job")),
        READABLE(),
        STARTING,
        starts,
        attempts=1,
    ),
    Case("to be drained", (submitted(), stop(DRAIN)), READABLE(), STARTING, starts, attempts=1),
)


# -- the leader against the table ---------------------------------------------------------------


@pytest.fixture(params=["file", "etcd", "zookeeper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A new cluster on each real backend."""
    if request.param == "file":
        url = (tmp_path / "store").as_uri()
    else:
        url = request.getfixturevalue(f"{request.param}_server").url()
    with open_backend(url, cluster=f"c{uuid.uuid4().hex}") as backend:
        yield backend


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> dict[Facts, Decision]:
    """Every decision of a dispatcher, by the facts that it has found."""
    found: dict[Facts, Decision] = {}

    def note(facts: Facts) -> Decision:
        found[facts] = decide(facts)
        return found[facts]

    monkeypatch.setattr(dispatcher, "decide", note)
    return found


CHANGES_NOTHING = (Action.HOLD, Action.WAIT, Action.NOTHING, Action.RESTORE)
"""What changes no record of a job here: the restores have nothing to restore from."""


def kept(backend: Backend) -> list[object]:
    """Return the records of the job from which a decision is made, but for its attempt."""
    return list(
        backend.get_many([each + "job" for each in (*SCANNED, keys.RESULTS, keys.TOMBSTONES)])
    )


def function(job: Job) -> None:
    """What a driver's main provides; the test directs its attempts."""


def fail_to_start(context: AttemptContext) -> None:
    raise CannotStartHere(LACK)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_leader_decides_as_the_table_says(
    store: Backend, decided: dict[Facts, Decision], root: Path, case: Case
) -> None:
    """A leader finds in the records the facts of the row, reports its decision and carries it
    out, and starts the job only where the row says so."""
    with ExitStack() as stack:
        stack.enter_context(case.around(store, root))
        for records in case.records:
            records(store)
        before = kept(store)
        leader = Leader(store, root, clock=FakeClock(), max_attempts=1, ttl=10.0)
        for job_id in case.driven:
            leader.dispatcher.provide(job_id, function)
        if case.lacks:
            leader.runner.before_start = fail_to_start
        stack.enter_context(leader)
        if case.running:
            leader.runner.of("job")
            for records in case.running:
                records(store)
        until(lambda: case.facts in decided, f"these facts are found: {case.facts}")

        action = decided[case.facts].action

        assert str(decided[case.facts]) == case.says

        if action is not Action.LEAVE:  # That is not reported.
            leader.until_said("decision", "job", case.says)
        case.effect(leader)
        leader.stop()

        assert [one.job_id for one in leader.runner.started].count("job") == case.attempts
        if action in CHANGES_NOTHING:
            assert kept(store) == before


# -- the cases against the table ----------------------------------------------------------------


def row_of(facts: Facts) -> int:
    """Return the number of the row of the table that decides about facts."""
    given = [getattr(facts, name) for name in COLUMNS]
    return next(
        number
        for number, (row, _) in enumerate(TABLE)
        if all(wanted is ANY or wanted is fact for wanted, fact in zip(row, given, strict=True))
    )


COLUMNS = ("spec", "result", "attempt", "cancel", "stop", "startable", "turn", "lost")
"""The facts in the table's columns."""
MORE: dict[str, tuple[object, ...]] = {
    "obstacles": (OBSTACLE,),
    "paused": (False, True),
    "place": (0, 1),
    "outcome": ("", OUTCOME),
}
"""The values of the other facts that change a decision or its reason."""


def test_every_row_of_the_table_has_a_case() -> None:
    """A row without a case, such as a new one, fails this test."""
    covered = {row_of(case.facts) for case in CASES}

    assert [row for number, row in enumerate(TABLE) if number not in covered] == []


def test_every_decision_has_a_case() -> None:
    """Whatever `decide` can return, for any facts, is what some case expects: the action and the
    reason. A new fact needs its values here."""
    assert {field.name for field in attrs.fields(Facts)} == {*COLUMNS, *MORE}

    others: list[dict[str, Any]] = [
        dict(zip(MORE, values, strict=True)) for values in itertools.product(*MORE.values())
    ]
    possible = {str(decide(Facts(*each, **other))) for each in PRODUCT for other in others}

    assert possible - {case.says for case in CASES} == set()
