"""The transition tables of stops and restores, and that every writer follows them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import pytest

from jrs import JobSpec
from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, WrongState
from jrs.contract.operations import Create, Delete, Fence, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import JobResult, JobStatus, StopMode, StopRecord, StopState
from jrs.records.signing import SpecKey
from jrs.records.snapshots import RestoreRecord
from jrs.store import restores
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stop_transitions import (
    RESTORE,
    STOP,
    RestoreEvent,
    RestoreStep,
    StopEvent,
    StopStep,
    at_step,
    step_of,
)
from jrs.store.stops import JobStops
from jrs.testing.contract import contents, lead

BY_COMMAND = (StopEvent.SUSPEND, StopEvent.DRAIN, StopEvent.RESUME, StopEvent.RECONFIGURE)
PAIRS = list(itertools.product(StopStep, StopEvent))


@pytest.fixture
def backend() -> Backend:
    """A cluster with one job, ``job``."""
    memory = open_backend("memory://")
    JobCatalog(memory).submit(JobSpec("job", "jobs:job"))
    return memory


@pytest.fixture
def fence(backend: Backend) -> Fence:
    return lead(backend).fence


def stop_at(step: StopStep) -> StopRecord | None:
    """Return a stop at that step."""
    stop = StopRecord("job", StopMode.SUSPEND, requested_at=1.0, reason="lunch")
    if step is StopStep.NONE:
        return None
    if step is StopStep.HELD_IN_DRAIN:
        drain = at_step(stop, StopStep.DRAINING)
        return attrs.evolve(at_step(stop, StopStep.HELD), drain=drain)
    return at_step(stop, step)


def put(backend: Backend, step: StopStep) -> StopRecord | None:
    stop = stop_at(step)
    if stop is not None:
        backend.commit(Create(keys.STOPS + "job", encode(stop)))
    return stop


def cause(stops: JobStops, event: StopEvent, stop: StopRecord | None, fence: Fence) -> bool:
    """Do what causes the event; return whether it was possible."""
    if event is StopEvent.HOLD:
        stops.hold("job", "its plan has changed", fence)
        return True
    if event not in BY_COMMAND:
        return stop is not None and stops.advance(stop, event, fence) is not None
    commands: dict[StopEvent, Callable[[], object]] = {
        StopEvent.SUSPEND: lambda: stops.request("job", StopMode.SUSPEND),
        StopEvent.DRAIN: lambda: stops.request("job", StopMode.DRAIN),
        StopEvent.RESUME: lambda: stops.resume("job"),
        StopEvent.RECONFIGURE: lambda: stops.reconfigure("job", partitions=8),
    }
    try:
        commands[event]()
    except WrongState:
        return False
    return True


@pytest.mark.parametrize(("step", "event"), PAIRS, ids=lambda value: value.name)
def test_each_event_leads_where_the_table_says(
    backend: Backend, fence: Fence, step: StopStep, event: StopEvent
) -> None:
    """In each step, whatever the table does not list changes nothing."""
    stops = JobStops(backend)
    stop = put(backend, step)
    before = contents(backend)
    expected = STOP[step].get(event)

    assert cause(stops, event, stop, fence) is (expected is not None)
    assert step_of(stops.get("job")) is (step if expected is None else expected)
    if expected is None:
        assert contents(backend) == before


def test_every_step_can_be_reached_and_left() -> None:
    """No step is a dead end, and none is only in the table."""
    reached = {StopStep.NONE}
    while more := {after for step in reached for after in STOP[step].values()} - reached:
        reached |= more

    assert reached == {*StopStep} == {*STOP}
    assert all(set(STOP[step].values()) - {step} for step in StopStep)


@pytest.mark.parametrize("step", StopStep, ids=lambda value: value.name)
def test_a_step_is_what_its_record_says(step: StopStep) -> None:
    assert step_of(stop_at(step)) is step


@pytest.mark.parametrize(
    ("mode", "state"),
    [
        (StopMode.DRAIN, StopState.DONE),
        (StopMode.DRAIN, StopState.QUIESCED),
        (StopMode.SUSPEND, StopState.REFUSED),
        (StopMode.HOLD, StopState.REQUESTED),
    ],
)
def test_a_stop_that_no_process_writes_is_damage(
    backend: Backend, mode: StopMode, state: StopState
) -> None:
    """What the tables do not know is not guessed."""
    backend.commit(Create(keys.STOPS + "job", encode(StopRecord("job", mode, state))))

    with pytest.raises(CorruptRecord, match=f"'job': '{mode.value}' cannot be '{state.value}'"):
        JobStops(backend).get("job")


# -- restores --------------------------------------------------------------------------------


def reserve(backend: Backend, *, in_place_of_spec: bool) -> None:
    spec = backend.get(keys.JOBS + "job")
    assert spec is not None
    restore = RestoreRecord("job", "1", "job", 1.0)
    if in_place_of_spec:
        restore = attrs.evolve(restore, spec=spec.value.decode())
        backend.commit(Update(spec.key, encode(restore), spec.version))
    else:
        backend.commit(Create(keys.RESTORES + "job", encode(restore)))


@pytest.mark.parametrize("step", [StopStep.NONE, StopStep.SUSPENDED], ids=lambda value: value.name)
@pytest.mark.parametrize("event", BY_COMMAND, ids=lambda value: value.name)
@pytest.mark.parametrize("in_place_of_spec", [False, True])
def test_no_stop_while_a_job_is_reserved(
    backend: Backend, fence: Fence, in_place_of_spec: bool, event: StopEvent, step: StopStep
) -> None:
    """A stop that changed during a restore would keep it from being committed."""
    assert RestoreEvent.STOP not in RESTORE[RestoreStep.RESERVED]
    stop = put(backend, step)
    reserve(backend, in_place_of_spec=in_place_of_spec)
    before = contents(backend)

    assert not cause(JobStops(backend), event, stop, fence)
    assert contents(backend) == before


@pytest.mark.parametrize("event", BY_COMMAND, ids=lambda value: value.name)
def test_no_stop_of_a_job_that_is_reserved_meanwhile(
    backend: Backend, fence: Fence, event: StopEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit itself has the condition: the check before it only gives the better message."""
    stop = put(backend, StopStep.SUSPENDED if event is StopEvent.RESUME else StopStep.NONE)
    reserve(backend, in_place_of_spec=False)
    before = contents(backend)
    monkeypatch.setattr(restores, "check_possible", lambda *args: None)

    assert not cause(JobStops(backend), event, stop, fence)
    assert contents(backend) == before


@pytest.mark.parametrize("in_place_of_spec", [False, True])
def test_a_reserved_job_is_not_signed_and_can_be_canceled(
    backend: Backend, in_place_of_spec: bool
) -> None:
    """Of all commands only the cancellation is possible."""
    reserve(backend, in_place_of_spec=in_place_of_spec)
    catalog = JobCatalog(backend, spec_key=SpecKey(b"k" * 32))

    with pytest.raises(WrongState, match="being restored"):
        catalog.sign("job")
    catalog.cancel("job")

    assert backend.get(keys.CANCEL + "job") is not None


def test_the_former_form_of_a_stop(backend: Backend, fence: Fence) -> None:
    """Until the cluster's format is raised, a stop is stored in the words of version 1, and
    afterwards in those of version 2; both are read."""
    stops, found = JobStops(backend, now=iter((1.0, 1.5, 1.5, 2.0, 2.5, 2.5)).__next__), []
    for version in (3, 4):
        backend.marked_format = version
        stop = stops.request("job", StopMode.SUSPEND, grace=5.0)
        stops.advance(stop, StopEvent.QUIESCE, fence)
        stored = backend.get(keys.STOPS + "job")
        assert stored is not None
        found.append(stored.value)

        assert decode(StopRecord, stored.value, stored.key) == attrs.evolve(
            stop, state=StopState.QUIESCED
        )
        backend.commit(Delete(stored.key))

    assert b'"jrs":"stop/1"' in found[0]
    assert b'"state":"stands"' in found[0]
    assert b'"patience":5.0' in found[0]
    assert b'"jrs":"stop/2"' in found[1]
    assert b'"state":"quiesced"' in found[1]
    assert b'"grace":5.0' in found[1]


def test_a_result_ends_a_stop(backend: Backend, fence: Fence) -> None:
    """A job that has ended takes no command, in whatever step its stop was."""
    put(backend, StopStep.SUSPENDED)
    JobResultStore(backend).create_dirty(JobResult("job", JobStatus.FINISHED), fence)

    for event in BY_COMMAND:
        assert not cause(JobStops(backend), event, stop_at(StopStep.SUSPENDED), fence)
