"""JobStops: every call and every error of its table, in memory and on files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from jrs import JobSpec
from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    InvalidInput,
    NoSuchJob,
    NotFound,
    WrongState,
)
from jrs.contract.operations import Create, Fence, Op, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import JobResult, JobStatus, StopMode, StopRecord, StopState, StreamRecord
from jrs.store import history
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.stop_transitions import StopEvent, StopStep
from jrs.store.stops import JobStops
from jrs.testing.contract import contents, lead

SUSPEND, DRAIN, HOLD = StopMode.SUSPEND, StopMode.DRAIN, StopMode.HOLD


@pytest.fixture
def stops(backend: Backend) -> JobStops:
    """The stops of a cluster with one job, ``job``."""
    JobCatalog(backend).submit(JobSpec("job", "jobs:job"))
    return JobStops(backend, now=iter(range(1000)).__next__)


@pytest.fixture
def fence(backend: Backend) -> Iterator[Fence]:
    with lead(backend) as leadership:
        yield leadership.fence


def end(backend: Backend, fence: Fence) -> None:
    JobResultStore(backend).create_dirty(JobResult("job", JobStatus.FINISHED), fence)


def at(stop: StopRecord, state: StopState) -> StopRecord:
    return attrs.evolve(stop, state=state)


def suspended(stops: JobStops, fence: Fence) -> StopRecord:
    """Suspend the job; return the request."""
    stop = stops.request("job", SUSPEND)
    assert stops.advance(stop, StopEvent.COMPLETE, fence) is StopStep.SUSPENDED
    return stop


def refused(stops: JobStops, fence: Fence) -> None:
    """Have the job refuse to be drained."""
    drain = stops.request("job", DRAIN)
    step = stops.advance(drain, StopEvent.REFUSE, fence, reason="it has timers")
    assert step is StopStep.REFUSED


def reach(stops: JobStops, stop: StopRecord, state: StopState, fence: Fence) -> None:
    if state is StopState.QUIESCED:
        assert stops.advance(stop, StopEvent.QUIESCE, fence)


def test_a_request_is_stored(stops: JobStops) -> None:
    """What was asked for is there for every leader."""
    stop = stops.request("job", SUSPEND, reason="lunch", grace=5.0)

    assert (stop.mode, stop.state) == (SUSPEND, StopState.REQUESTED)
    assert (stop.reason, stop.grace) == ("lunch", 5.0)
    assert stops.get("job") == stop


@pytest.mark.parametrize("state", [StopState.REQUESTED, StopState.QUIESCED])
def test_the_same_request_again_is_no_other(
    stops: JobStops, fence: Fence, state: StopState
) -> None:
    """Asked for twice, a job stops once, and does not begin to stop again."""
    first = stops.request("job", SUSPEND)
    reach(stops, first, state, fence)

    assert stops.request("job", SUSPEND, grace=1.0) == at(first, state)


@pytest.mark.parametrize("state", [StopState.REQUESTED, StopState.QUIESCED])
def test_a_job_that_is_reconfigured_is_suspended_for_good(
    stops: JobStops, fence: Fence, state: StopState
) -> None:
    """Asked to stop while it is to be started again as something else, a job stays suspended,
    whatever is still noted of the change."""
    stops.reconfigure("job", partitions=8)
    change = stops.get("job")
    assert change is not None
    reach(stops, change, state, fence)
    stop = stops.request("job", SUSPEND, reason="lunch", grace=5.0)

    assert (stop.again, stop.state) == (False, state)
    assert (stop.reason, stop.grace) == ("lunch", 5.0)

    for event in (StopEvent.QUIESCE, StopEvent.COMPLETE):
        assert stops.advance(change, event, fence) is None

    assert stops.get("job") == stop
    assert stops.request("job", SUSPEND) == stop


@pytest.mark.parametrize(("first", "second"), [(SUSPEND, DRAIN), (DRAIN, SUSPEND)])
def test_another_stop_is_under_way(
    stops: JobStops, backend: Backend, first: StopMode, second: StopMode
) -> None:
    """Neither stop overrides the other; the message names what does."""
    stops.request("job", first)
    before = contents(backend)
    with pytest.raises(WrongState, match=f"already has a request to {first.value}; `jrs cancel`"):
        stops.request("job", second)

    assert contents(backend) == before


def test_a_job_that_is_suspended_already(stops: JobStops, backend: Backend, fence: Fence) -> None:
    """U12: the same request again is a no-op; a drain is another request."""
    suspended(stops, fence)
    before = contents(backend)

    assert stops.request("job", SUSPEND) == stops.get("job")
    with pytest.raises(WrongState, match="'job' is already suspended"):
        stops.request("job", DRAIN)
    assert contents(backend) == before


def test_a_job_that_is_held(stops: JobStops, fence: Fence) -> None:
    """A request to stop a held job is refused with the reason of the hold."""
    stops.hold("job", "its plan has changed", fence)
    with pytest.raises(WrongState, match="'job' is held: its plan has changed"):
        stops.request("job", SUSPEND)


@pytest.mark.parametrize("mode", [SUSPEND, DRAIN])
def test_after_a_refusal_anything_may_be_asked_for(
    stops: JobStops, fence: Fence, mode: StopMode
) -> None:
    refused(stops, fence)
    stop = stops.request("job", mode)

    assert (stop.mode, stop.state, stop.reason) == (mode, StopState.REQUESTED, "")
    assert stops.get("job") == stop


@pytest.mark.parametrize("job_id", ["", "a/b", "no such job!", ".."])
def test_what_is_no_job_id(stops: JobStops, job_id: str) -> None:
    for call in (lambda: stops.request(job_id, SUSPEND), lambda: stops.resume(job_id)):
        with pytest.raises(InvalidInput):
            call()


def test_a_job_that_there_is_not(stops: JobStops) -> None:
    for call in (lambda: stops.request("other", SUSPEND), lambda: stops.resume("other")):
        with pytest.raises(NoSuchJob, match="there is no job 'other'"):
            call()

    assert stops.get("other") is None


def test_a_job_that_has_ended(stops: JobStops, backend: Backend, fence: Fence) -> None:
    end(backend, fence)
    for what, call in (
        ("stop", lambda: stops.request("job", DRAIN)),
        ("resume", lambda: stops.resume("job")),
    ):
        with pytest.raises(WrongState, match=f"has FINISHED.*; there is nothing to {what}"):
            call()


def test_a_job_that_ends_in_this_moment(
    stops: JobStops, backend: Backend, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that loses against the job's own end is refused and leaves nothing behind."""
    stored = stops._stored

    def late(job_id: str) -> Any:
        found = stored(job_id)
        end(backend, fence)
        return found

    monkeypatch.setattr(stops, "_stored", late)
    with pytest.raises(WrongState, match="has just ended or received another stop request"):
        stops.request("job", SUSPEND)

    assert backend.get(f"{keys.STOPS}job") is None


def test_a_job_that_has_ended_is_not_stopped(
    stops: JobStops, backend: Backend, fence: Fence
) -> None:
    """Its result may land while its attempt is ended for the stop."""
    stop = stops.request("job", SUSPEND)
    end(backend, fence)
    before = contents(backend)
    with pytest.raises(Conflict):
        stops.advance(stop, StopEvent.COMPLETE, fence)
    with pytest.raises(Conflict):
        stops.hold("job", "no good", fence)
    assert contents(backend) == before


def test_a_job_that_is_resumed_while_it_is_changed(
    stops: JobStops, backend: Backend, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been started by then: without a restart it would run on with the old code."""
    suspended(stops, fence)
    stored = stops._stored

    def late(job_id: str) -> Any:
        found = stored(job_id)
        JobStops(backend).resume(job_id)
        return found

    monkeypatch.setattr(stops, "_stored", late)
    with pytest.raises(WrongState, match="has just ended or been changed"):
        stops.reconfigure("job", entry_point="jobs:new")

    spec = backend.get(keys.JOBS + "job")
    assert spec is not None
    assert decode(JobSpec, spec.value, spec.key).entry_point == "jobs:job"


def test_a_job_of_many_streams_is_upgraded(
    stops: JobStops, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its streams are more than one commit takes: all of them accept another plan, also one that
    the old attempt starts again meanwhile. The history names each commit."""
    names = [f"s{number}" for number in range(backend.capabilities.max_ops + 1)]
    for name in names:
        stream = StreamRecord("job", name, False, "plan", "4.0.0", query="query")
        backend.commit(Create(keys.stream("job", name), encode(stream)))

    commit, key = backend.commit, keys.stream("job", "s0")

    def then_again(*ops: Op, **how: Any) -> None:
        commit(*ops, **how)
        monkeypatch.setattr(backend, "commit", commit)
        stored = backend.get(key)
        assert stored is not None
        assert decode(StreamRecord, stored.value, key).plan == ""
        stream = StreamRecord("job", "s0", False, "plan", "4.0.0", query="query")
        commit(Update(key, encode(stream), stored.version))

    monkeypatch.setattr(backend, "commit", then_again)
    assert stops.reconfigure("job", entry_point="jobs:new").entry_point == "jobs:new"
    texts = [one.text for one in history.read(backend, "job")]
    assert any("plans of streams are given up" in text for text in texts)

    kept = [decode(StreamRecord, one.value, one.key) for one in backend.scan(keys.streams("job"))]
    assert sorted(one.name for one in kept) == sorted(names)
    assert {(one.plan, one.query) for one in kept} == {("", "")}
    restart = stops.get("job")
    assert restart is not None
    assert restart.again


@pytest.mark.parametrize("mode", [SUSPEND, HOLD])
def test_resuming(stops: JobStops, fence: Fence, mode: StopMode) -> None:
    """A suspended or held job is resumed; nothing is left of its stop."""
    if mode is SUSPEND:
        suspended(stops, fence)
    else:
        stops.hold("job", "its plan has changed", fence)
    assert stops.resume("job")
    assert stops.get("job") is None

    assert not stops.resume("job")  # U12: a no-op, which says so.


@pytest.mark.parametrize("state", [StopState.REQUESTED, StopState.QUIESCED])
def test_resuming_what_is_not_suspended_yet(
    stops: JobStops, fence: Fence, state: StopState
) -> None:
    reach(stops, stops.request("job", SUSPEND), state, fence)
    with pytest.raises(WrongState, match="is not suspended"):
        stops.resume("job")


def test_resuming_what_runs_since_its_drain_was_refused(stops: JobStops, fence: Fence) -> None:
    """The answer names no request that the job could be canceled for."""
    refused(stops, fence)
    with pytest.raises(WrongState, match="keeps running, because it cannot be drained: it has t"):
        stops.resume("job")


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (HOLD, "a stop request is suspend or drain"),
        (None, "mode must be a StopMode, not None"),
        ("suspend", "mode must be a StopMode, not 'suspend'"),
    ],
)
def test_only_a_suspend_or_a_drain_can_be_requested(
    stops: JobStops, backend: Backend, mode: StopMode, why: str
) -> None:
    """B15: a hold has a reason of the system's own, and nobody could carry a requested one out; it
    is refused, as is what is no mode, and nothing is stored."""
    before = contents(backend)

    with pytest.raises(InvalidInput, match=why):
        stops.request("job", mode)

    assert contents(backend) == before


def test_a_job_whose_spec_cannot_be_read_names_its_way_out(
    stops: JobStops, backend: Backend
) -> None:
    """B14: a stop of it would never be carried out, and a change has nothing to change: each is
    refused with what ends the job, and nothing is stored."""
    spec = backend.get(keys.JOBS + "job")
    assert spec is not None
    backend.commit(Update(spec.key, b"no spec", spec.version))
    before = contents(backend)
    for call in (
        lambda: stops.request("job", SUSPEND),
        lambda: stops.resume("job"),
        lambda: stops.reconfigure("job", entry_point="other:job"),
    ):
        with pytest.raises(CorruptRecord, match="jrs cancel job"):
            call()

    assert contents(backend) == before


def test_a_stop_that_cannot_be_read(stops: JobStops, backend: Backend) -> None:
    """What cannot be read is not guessed: no request, no resume goes over it."""
    backend.commit(Create(f"{keys.STOPS}job", b"not a stop"))
    calls: list[Callable[[], object]] = [
        lambda: stops.get("job"),
        lambda: stops.request("job", SUSPEND),
        lambda: stops.resume("job"),
    ]
    for call in calls:
        with pytest.raises(CorruptRecord):
            call()


# -- waiting ---------------------------------------------------------------------------------


def test_waiting_for_a_job_to_be_suspended(stops: JobStops, fence: Fence) -> None:
    """The caller is told each step once, and gets the stop when the job is suspended."""
    asked = stops.request("job", SUSPEND)
    told: list[StopRecord] = []

    def proceed(stop: StopRecord) -> None:
        told.append(stop)
        if stop.state is not StopState.DONE:
            quiesced = stop.state is StopState.QUIESCED
            event = StopEvent.COMPLETE if quiesced else StopEvent.QUIESCE
            stops.advance(stop, event, fence)

    done = stops.wait("job", 60.0, proceed)

    assert done == at(asked, StopState.DONE)
    assert told == [at(asked, state) for state in (*StopState,)[:3]]


def test_waiting_for_a_job_that_ends(stops: JobStops, backend: Backend, fence: Fence) -> None:
    stops.request("job", DRAIN)

    assert stops.wait("job", 60.0, lambda stop: end(backend, fence)) is None


def test_waiting_for_what_is_refused(stops: JobStops, fence: Fence) -> None:
    refused(stops, fence)
    with pytest.raises(WrongState, match="'job' cannot be drained: it has timers"):
        stops.wait("job", 60.0)


def test_waiting_for_nothing(stops: JobStops) -> None:
    with pytest.raises(NotFound, match="job 'job' has no stop request any more"):
        stops.wait("job", 60.0)


def test_waiting_in_vain(stops: JobStops) -> None:
    """The request stays when its waiter gives up."""
    stop = stops.request("job", SUSPEND)
    with pytest.raises(TimeoutError, match="has not stopped yet; the request stays"):
        stops.wait("job", 0.0)

    assert stops.get("job") == stop


# -- what leaders and attempts note -------------------------------------------------------------


def test_only_the_stop_that_is_meant_is_noted(stops: JobStops, fence: Fence) -> None:
    """What is said of an earlier stop is not said of a later one."""
    first = suspended(stops, fence)
    stops.resume("job")

    assert stops.advance(first, StopEvent.COMPLETE, fence) is None
    assert stops.get("job") is None

    second = stops.request("job", SUSPEND)

    assert stops.advance(first, StopEvent.COMPLETE, fence) is None
    assert stops.get("job") == second


def test_a_job_is_held_whatever_was_asked_for(stops: JobStops, fence: Fence) -> None:
    stops.request("job", SUSPEND)
    stops.hold("job", "its plan has changed", fence)
    held = stops.get("job")

    assert held is not None
    assert (held.mode, held.state, held.reason) == (HOLD, StopState.DONE, "its plan has changed")

    assert stops.resume("job")
    assert stops.get("job") is None


def test_a_drain_outlives_a_hold(stops: JobStops, fence: Fence) -> None:
    """A job that is held, however often, before it was drained is drained once it is resumed."""
    drain = stops.request("job", DRAIN, reason="the last day")
    stops.hold("job", "its plan has changed", fence)
    stops.hold("job", "its checkpoint is damaged", fence)
    held = stops.get("job")

    assert held is not None
    assert (held.mode, held.reason) == (HOLD, "its checkpoint is damaged")

    stops.resume("job")

    assert stops.get("job") == drain


def test_a_drain_that_was_refused_ends_with_a_hold(stops: JobStops, fence: Fence) -> None:
    """What was refused is over: no later caller hears again that it cannot be done."""
    refused(stops, fence)
    stops.hold("job", "its plan has changed", fence)
    assert stops.resume("job")
    assert stops.get("job") is None


def test_a_leader_that_was_replaced_notes_nothing(stops: JobStops, backend: Backend) -> None:
    old = lead(backend)
    fence = old.fence
    stop = stops.request("job", SUSPEND)
    old.resign()
    lead(backend)
    with pytest.raises(Fenced):
        stops.advance(stop, StopEvent.COMPLETE, fence)
    with pytest.raises(Fenced):
        stops.hold("job", "its plan has changed", fence)

    assert stops.get("job") == stop


def test_the_steps_of_the_stages(stops: JobStops, fence: Fence) -> None:
    """Where the stages are is kept with a request, and with nothing else."""
    stops.report_progress("job", {"one": "running"}, fence)

    assert stops.get("job") is None

    stop = stops.request("job", SUSPEND)
    stops.report_progress("job", {"one": "running"}, fence)

    assert stops.get("job") == attrs.evolve(stop, stages={"one": "running"})

    stops.advance(stop, StopEvent.COMPLETE, fence, stages={})
    stops.report_progress("job", {"one": "quiesced"}, fence)

    assert stops.get("job") == at(stop, StopState.DONE)
