"""What may happen between two steps of a call of the store, from another handle."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    NoSuchJob,
    OutcomeUnknown,
    WrongState,
)
from jrs.contract.operations import Create, Delete
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobResult, JobSpec, JobStatus, ResultState, StopMode
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops


def result(job_id: str) -> JobResult:
    return JobResult(job_id, JobStatus.FINISHED, finished_at=1.0)


def once_before(
    monkeypatch: pytest.MonkeyPatch,
    backend: Backend,
    step: str,
    nth: int,
    what: Callable[[], Any],
) -> None:
    """Have `what` happen right before the nth call of a primitive of `backend`."""
    original, calls = getattr(backend, step), iter(range(1, 1 << 30))
    mine = threading.get_ident()

    def call(*args: Any) -> Any:
        if threading.get_ident() == mine and next(calls) == nth:
            what()
        return original(*args)

    monkeypatch.setattr(backend, step, call)


def lose(monkeypatch: pytest.MonkeyPatch, backend: Backend, prefix: str) -> None:
    """Have the records under a prefix be damaged, for all that read several together."""
    get_many = backend.get_many

    def damaged(wanted: Sequence[str], **more: Any) -> Any:
        found = get_many(wanted, **more)
        return [
            CorruptRecord(f"{key}: damaged") if key.startswith(prefix) else one
            for key, one in zip(wanted, found, strict=True)
        ]

    monkeypatch.setattr(backend, "get_many", damaged)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_dirty_result_is_never_listed_as_clean(
    backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """S3: a result that is written while `list` reads is listed as dirty, or not at all."""
    store, writer = JobResultStore(backend), JobResultStore(other)
    writer.create_dirty(result("a"), None)
    writer.mark_clean("a", None)

    once_before(monkeypatch, backend, "_page", step, lambda: writer.create_dirty(result("b"), None))
    listed = {entry.job_id: entry.state for entry in store.list()}

    assert listed.pop("a") is ResultState.CLEAN
    assert set(listed.values()) <= {ResultState.DIRTY}


@pytest.mark.parametrize("step", [1, 2, 3])
def test_expire_is_not_broken_off_by_a_new_result(
    backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """S3: `expire` deletes all that is old and clean, whatever is written meanwhile."""
    store, writer = JobResultStore(backend), JobResultStore(other)
    for job_id in ("a", "c"):
        writer.create_dirty(result(job_id), None)
        writer.mark_clean(job_id, None)

    once_before(monkeypatch, backend, "_page", step, lambda: writer.create_dirty(result("b"), None))

    assert store.expire(0.0) == ["a", "c"]


def test_the_states_of_more_results_than_a_page(backend: Backend) -> None:
    """S3: the markers of each page of results are read with it: none is missed at its edges."""
    store = JobResultStore(backend)
    numbers = range(2100)
    for number in numbers:
        store.create_dirty_async(result(f"j{number:04}"), None)
    marks = [store.mark_clean_async(f"j{n:04}", None) for n in numbers if n % 7]
    for mark in marks:
        mark.result(60.0)

    listed = {entry.job_id: entry.state for entry in store.list(after="j0003")}

    assert listed == {
        f"j{n:04}": ResultState.CLEAN if n % 7 else ResultState.DIRTY for n in numbers if n > 3
    }


@pytest.mark.parametrize(
    "filters",
    [{"state": 1}, {"status": "finished"}, {"after": 3}, {"limit": "1"}, {"limit": -1}],
    ids=str,
)
def test_a_filter_of_another_type(backend: Backend, filters: dict[str, Any]) -> None:
    """S3: a filter that means nothing is refused at once; it does not list everything."""
    with pytest.raises(InvalidInput, match=next(iter(filters))):
        JobResultStore(backend).list(**filters)


def test_marking_clean_what_is_written_in_this_moment(
    backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: a result that is written between the two looks of `mark_clean` is marked clean."""
    store, writer = JobResultStore(backend), JobResultStore(other)

    once_before(
        monkeypatch, backend, "_get_many", 1, lambda: writer.create_dirty(result("j"), None)
    )
    store.mark_clean("j", None)

    assert writer.has_clean("j")


def test_two_who_mark_clean_what_is_written_in_this_moment(
    backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: it is no conflict either if another client has marked it clean first."""
    store, writer = JobResultStore(backend), JobResultStore(other)

    once_before(
        monkeypatch, backend, "_get_many", 1, lambda: writer.create_dirty(result("j"), None)
    )
    once_before(monkeypatch, backend, "_commit", 2, lambda: writer.mark_clean("j", None))
    store.mark_clean("j", None)

    assert writer.has_clean("j")


def test_the_conflict_of_another_operation(backend: Backend) -> None:
    """S4: the condition of an operation of the same commit is still the caller's affair."""
    store = JobResultStore(backend)
    store.create_dirty(result("j"), None)

    with pytest.raises(Conflict) as caught:
        store.mark_clean("j", None, also=(Delete("cleanup/j"),))

    assert caught.value.op.key == "cleanup/j"
    assert store.has_dirty("j")


def test_an_entry_that_cannot_be_read_and_has_no_marker(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S4: what cannot be read and is not marked as dirty is said to be damaged, not in conflict."""
    store = JobResultStore(backend)

    lose(monkeypatch, backend, keys.RESULTS)
    with pytest.raises(CorruptRecord, match="results/j"):
        store.mark_clean("j", None)


@pytest.mark.parametrize("ended", [True, False])
def test_a_marker_that_cannot_be_read(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """D2: whether a result is dirty is not guessed; a job without a result has none."""
    store = JobResultStore(backend)
    if ended:
        store.create_dirty(result("j"), None)
        store.mark_clean("j", None)

    lose(monkeypatch, backend, keys.DIRTY)
    if not ended:
        assert store.get("j") is None
        return
    with pytest.raises(CorruptRecord, match="dirty/j"):
        store.get("j")


@pytest.mark.parametrize("ended", [True, False])
def test_a_tombstone_that_cannot_be_read(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """D2: damage may have hit a tombstone that never was there. The job is not called expired."""
    store = JobResultStore(backend)
    if ended:
        store.create_dirty(result("j"), None)

    lose(monkeypatch, backend, keys.TOMBSTONES)
    entry = store.get("j")

    assert entry is not None
    if ended:
        assert entry.result == result("j")
        return
    assert entry.problem == "tombstones/j: damaged"
    assert entry.uncertain
    assert entry.state is ResultState.DIRTY
    with pytest.raises(CorruptRecord, match="tombstones/j"):
        store.mark_clean("j", None)
    with pytest.raises(CorruptRecord, match="tombstones/j"):
        store.wait("j", 0.0)


@pytest.mark.parametrize("prefix", [keys.RESULTS, keys.TOMBSTONES])
def test_a_job_whose_end_may_be_lost_has_not_ended(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """D2: nobody is told that a job has ended which perhaps never did: each call says what cannot
    be read, and changes nothing."""
    catalog, stops, store = JobCatalog(backend), JobStops(backend), JobResultStore(backend)
    catalog.submit(JobSpec("j", "m:f"))
    stops.request("j", StopMode.SUSPEND)
    before = list(backend.scan(""))

    lose(monkeypatch, backend, prefix)
    for call in (
        lambda: catalog.submit(JobSpec("other", "m:f")),
        lambda: catalog.cancel("j"),
        lambda: catalog.refuse_ended("j", "do"),
        lambda: stops.request("j", StopMode.DRAIN),
        lambda: stops.resume("j"),
        lambda: stops.wait("j", 0.0),
        lambda: store.has_entry("j"),
        lambda: store.has_dirty("j"),
        lambda: store.has_clean("j"),
    ):
        with pytest.raises(CorruptRecord, match=f"may have ended, or not: {prefix}.*: damaged"):
            call()

    assert list(backend.scan("")) == before


def test_a_job_with_a_marker_has_ended_though_its_result_is_lost(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are created together."""
    store = JobResultStore(backend)
    store.create_dirty(result("j"), None)

    lose(monkeypatch, backend, keys.RESULTS)

    assert store.has_dirty("j")
    assert list(store.dirty()) == [store.get("j")]
    with pytest.raises(WrongState, match="has ended, and its result cannot be read"):
        JobCatalog(backend).cancel("j")


def test_a_job_whose_spec_may_be_lost_is_canceled(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decision names that as the way out. Everything else is refused, and names it as well."""
    JobCatalog(backend).submit(JobSpec("j", "m:f"))
    get = backend.get

    def damaged(key: str, **more: Any) -> Any:
        if key.startswith(keys.JOBS):
            raise CorruptRecord(f"{key}: damaged")
        return get(key, **more)

    monkeypatch.setattr(backend, "get", damaged)
    lose(monkeypatch, backend, keys.JOBS)
    with pytest.raises(CorruptRecord, match="jobs/j: damaged; the job is held; end it: jrs cancel"):
        JobStops(backend).request("j", StopMode.SUSPEND)
    assert JobCatalog(backend).cancel("j", "it is lost")

    assert get(keys.CANCEL + "j") is not None


def test_a_read_back_that_cannot_be_read_leaves_the_outcome_unknown(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `CorruptRecord` would say that nothing was changed."""

    def unknown(*_: object, **__: object) -> None:
        raise OutcomeUnknown("the answer was lost")

    def damaged(key: str, **_: object) -> None:
        raise CorruptRecord(f"{key}: damaged")

    monkeypatch.setattr(backend, "commit", unknown)
    monkeypatch.setattr(backend, "get", damaged)
    with pytest.raises(OutcomeUnknown, match="the answer was lost"):
        commit_and_read_back(backend, Create("k", b"1"))


@pytest.mark.parametrize(
    ("primitive", "nth"),
    [("_commit", 1), ("_get", 1), ("_get_many", 1)],
)
def test_a_cancel_that_races_the_whole_end_of_a_job(
    backend: Backend, other: Backend, monkeypatch: pytest.MonkeyPatch, primitive: str, nth: int
) -> None:
    """S5: a cancel leaves no record behind if its job ends, is cleaned and expires meanwhile."""
    catalog, there = JobCatalog(backend), JobResultStore(other)
    catalog.submit(JobSpec("j", "m:f"))

    def end() -> None:
        there.create_dirty(result("j"), None)
        other.commit(Delete(keys.JOBS + "j"))
        there.mark_clean("j", None)
        there.delete("j")

    once_before(monkeypatch, backend, primitive, nth, end)
    try:
        catalog.cancel("j")
    except (WrongState, NoSuchJob):
        pass  # It was over before it was looked at.

    ended = there.has_entry("j")
    assert (backend.get(keys.CANCEL + "j") is None) == ended


def test_a_cancel_is_stored_once(backend: Backend) -> None:
    """S5: a job that continues keeps the request, as it was made first."""
    catalog = JobCatalog(backend)
    backend.commit(Create(keys.JOBS + "j", encode(JobSpec("j", "m:f"))))

    catalog.cancel("j", "first")
    catalog.cancel("j", "second")

    stored = catalog.view("j").cancel
    assert stored is not None
    assert stored.reason == "first"
