"""What is made can be written, and what is written can be read."""

# mypy: disable-error-code="arg-type"
# Half of the calls below have an argument of a wrong type, on purpose.

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput, NoSuchSnapshot, TooLarge
from jrs.contract.operations import Create, Fence
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    ResultState,
    StageRecord,
    StopMode,
)
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.stored import Stored
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots.catalog import SnapshotCatalog
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from jrs.testing.contract import contents
from tests.records.test_codec import EXAMPLES


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Text(str):
    __slots__ = ()


LOOP: list[Any] = []
LOOP.append(LOOP)
ANY: list[Any] = [
    None, True, 0, -1, 2**64, 10**400, 10**5000, -(10**5000), 1.5, 1e308, math.nan, math.inf,
    "", "x", "FINISHED", "\ud800", "\0", Text("t"), b"x", [], [1], ["x"], [[]], (), ("x",), (1,),
    {}, {"a": "b"}, {"a": 1}, {"a": 10**5000}, {"a": {1}}, {1: "a"}, {None: 1}, set(), object(),
    Odd(), Odd, print, LOOP, JobStatus.FINISHED, ResultState.DIRTY, StopMode.HOLD,
    Failure("a", "b"), RestartPolicy(), Fence(1, 1),
]  # fmt: skip
MADE: list[Stored] = [
    *EXAMPLES,
    CancelRequest("j", 1.0, "why"),
    AttemptRecord("j", 1, 2, "m", 1.0, 1, Failure("exit", "m"), 1.0),
    Failure("exit", "m"),
    RestartPolicy(),
    SnapshotPolicy(every=1.0, max_age=2.0),
]


@pytest.mark.parametrize("made", MADE, ids=lambda made: type(made).__name__)
def test_what_is_made_is_what_is_read(made: Stored) -> None:
    """S1: any value for any field is refused when the value is made, or is read back equal."""
    for field in attrs.fields(type(made)):
        for wrong in ANY if field.name != "unknown" else ():
            try:
                changed = attrs.evolve(made, **{field.name: wrong})
            except (InvalidInput, TooLarge):
                continue
            whole = changed if type(changed) in map(type, EXAMPLES) else _within(changed)
            assert decode(type(whole), encode(whole), "here") == whole


def _within(part: Stored) -> Stored:
    """Return a stored value that holds a value which is only stored as a part."""
    if isinstance(part, Failure):
        return JobResult("j", JobStatus.FAILED, failure=part)
    if isinstance(part, RestartPolicy):
        return JobSpec("j", "m:f", restart=part)
    if isinstance(part, SnapshotPolicy):
        return JobSpec("j", "m:f", snapshots=part)
    return part


@settings(max_examples=40)
@given(
    st.recursive(
        st.integers(0, len(ANY) - 1).map(lambda at: ANY[at]),
        lambda inner: st.lists(inner) | st.tuples(inner, inner),
    )
)
def test_any_payload(payload: Any) -> None:
    """S1: a result of any payload is refused when it is made, or is read back equal."""
    try:
        result = JobResult("j", JobStatus.FINISHED, payload)
    except InvalidInput:
        return
    assert decode(JobResult, encode(result), "here") == result


def test_what_was_made_is_not_changed_from_outside() -> None:
    """S1: a value keeps what it was made of, whatever becomes of the argument."""
    arguments: dict[str, Any] = {"a": [1]}
    spec = JobSpec("j", "m:f", arguments)
    arguments["a"].append(print)
    arguments["b"] = {1}

    assert spec.arguments == {"a": [1]}


def _submitted(backend: Backend) -> None:
    backend.commit(Create(keys.JOBS + "j", encode(JobSpec("j", "m:f"))))


def _snapshots(backend: Backend) -> SnapshotCatalog:
    return SnapshotCatalog(backend, JobStorage(Path("/nowhere"), "test"))


def test_a_snapshot_of_a_huge_number(backend: Backend) -> None:
    """D8: a snapshot of a number that nobody can write is one that there is not."""
    with pytest.raises(NoSuchSnapshot):
        _snapshots(backend).get("j", 10**5000)


CALLS: dict[str, Callable[[Backend], Any]] = {
    "create": lambda b: JobResultStore(b).create_dirty(
        JobResult("k", JobStatus.FINISHED, finished_at=None), None
    ),
    "create text": lambda b: JobResultStore(b).create_dirty("k", None),
    "create async": lambda b: JobResultStore(b).create_dirty_async(None, None),
    "create under": lambda b: JobResultStore(b).create_dirty(
        JobResult("k", JobStatus.FINISHED), "f"
    ),
    "clean under": lambda b: JobResultStore(b).mark_clean("j", 7),
    "expire": lambda b: JobResultStore(b).expire("7d"),
    "expire nan": lambda b: JobResultStore(b).expire(math.nan),
    "expire keep": lambda b: JobResultStore(b).expire(1.0, keep="1"),
    "wait": lambda b: JobResultStore(b).wait("j", "1"),
    "submit": lambda b: JobCatalog(b).submit("k"),
    "entry": lambda b: JobCatalog(b).submit(JobSpec("k", None)),
    "function": lambda b: JobCatalog(b).submit(JobSpec("k", print)),
    "restart": lambda b: JobCatalog(b).submit(JobSpec("k", "m:f", restart=3)),
    "runner": lambda b: JobCatalog(b).submit(JobSpec("k", "m:f", runner="threads")),
    "huge": lambda b: JobCatalog(b).submit(JobSpec("k", "m:f", {"a": 10**5000})),
    "huge id": lambda b: JobCatalog(b).submit(JobSpec(10**5000, "m:f")),
    "huge partitions": lambda b: JobCatalog(b).submit(JobSpec("k", "m:f", partitions=10**5000)),
    "huge delay": lambda b: RestartPolicy(delay=10**5000),
    "fate": lambda b: SnapshotPolicy(on_failed="burn"),
    "cancel": lambda b: JobCatalog(b).cancel("j", None),
    "request": lambda b: JobStops(b).request("j", StopMode.DRAIN, reason=None),
    "mode": lambda b: JobStops(b).request("j", "drain"),
    "grace": lambda b: JobStops(b).request("j", StopMode.DRAIN, grace=10**5000),
    "change": lambda b: JobStops(b).reconfigure("j", entry_point=5),
    "partitions": lambda b: JobStops(b).reconfigure("j", partitions="5"),
    "stop wait": lambda b: JobStops(b).wait("j", "1"),
    "stop": lambda b: JobStops(b).get(None),
    "stop wait for": lambda b: JobStops(b).wait(None),
    "format": lambda b: _snapshots(b).create("j", format="full"),
    "restore": lambda b: _snapshots(b).restore(None),
    "url": lambda b: open_backend(None),
    "cluster": lambda b: open_backend("memory://", cluster=None),
    "key": lambda b: b.get(5),
    "ttl": lambda b: b.check_ttl("x"),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_bad_arguments(backend: Backend, call: Callable[[Backend], Any]) -> None:
    """S1, D8: what could not be read back is refused by name, and nothing is written."""
    _submitted(backend)
    before = contents(backend)

    with pytest.raises(InvalidInput) as caught:
        call(backend)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert contents(backend) == before


def test_no_stored_value_without_rules() -> None:
    """S1: every stored type has a rule for each of its fields, or none of it could be made."""
    assert {type(value) for value in EXAMPLES} <= set(Stored.__subclasses__())
    assert StageRecord("j", "s", None, 1, 1, 1, 1.0).seconds == 1.0
