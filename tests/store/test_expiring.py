"""Expiring many results at once: few commits, and one result stops no other one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, OutcomeUnknown, Refused, WrongState
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Record
from jrs.contract.pending_commit import PendingCommit
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import JobGeneration
from jrs.records.model import (
    CleanupJournal,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    ResultState,
    Tombstone,
)
from jrs.store import cluster_history
from jrs.store.historian import because, submitter
from jrs.store.result_index import keys_of
from jrs.store.result_store import JobResultStore
from tests.support import hold

IDS = [f"job-{number:03}" for number in range(300)]
NOW = 1000.5


def result(job_id: str) -> JobResult:
    return JobResult(job_id, JobStatus.FINISHED, finished_at=1.0, started_at=0.5)


@pytest.fixture
def store(backend: Backend) -> JobResultStore:
    """A store with clean results of `IDS`; it is 1000.5 now."""
    store = JobResultStore(backend, now=lambda: NOW)
    written = [store.create_dirty_async(result(job_id), None) for job_id in IDS]
    written += [store.mark_clean_async(job_id, None) for job_id in IDS]
    for one in written:
        one.result()
    return store


Commits = list[tuple[Op, ...]]


@pytest.fixture
def sent(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Commits:
    """The operations of each commit that nothing waits for, from now on."""
    found: Commits = []
    original = backend._commit_async

    def commit_async(ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        found.append(ops)
        return original(ops, fence)

    monkeypatch.setattr(backend, "_commit_async", commit_async)
    return found


def before_the_first_commit(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, what: Callable[[], Any]
) -> None:
    """Have `what` happen when results are read and no commit is sent yet."""
    original, done = backend._commit_async, list[bool]()

    def commit_async(ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        if not done:
            done.append(True)
            what()
        return original(ops, fence)

    monkeypatch.setattr(backend, "_commit_async", commit_async)


def expired_in(store: JobResultStore) -> list[str]:
    return [entry.job_id for entry in store.list(state=ResultState.EXPIRED)]


def left_over(backend: Backend, job_ids: Sequence[str]) -> set[str]:
    """Return the keys of jobs other than those of their tombstones."""
    return {
        record.key
        for record in backend.scan("")
        if any(job_id in record.key for job_id in job_ids)
        and not record.key.startswith(keys.TOMBSTONES)
    }


def test_many_results_go_in_one_commit(
    backend: Backend, store: JobResultStore, sent: Commits
) -> None:
    """As many as a commit takes: each result needs four operations."""
    assert store.expire(0.0) == IDS

    deleted_at_once = [sum(isinstance(op, Create) for op in ops) for ops in sent]
    assert deleted_at_once == [backend.capabilities.max_ops // 4] * 9 + [12]
    assert expired_in(store) == IDS
    assert not left_over(backend, IDS)


@pytest.mark.parametrize("keep", [0, 1, 10])
def test_a_result_whose_end_is_unknown(backend: Backend, store: JobResultStore, keep: int) -> None:
    """It has no age: it stays whatever the age and the number, and takes no other one's place."""
    bare = JobResult("bare", JobStatus.FINISHED, {"rows": 42})
    store.create_dirty(bare, None)
    store.mark_clean("bare", None)

    assert store.expire(0.0, keep) == IDS[keep:]

    entry = store.get("bare")
    assert entry is not None
    assert entry.result == bare


def test_one_that_was_deleted_meanwhile(
    backend: Backend, other: Backend, store: JobResultStore, sent: Commits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of its batch the others are expired by one more commit."""
    gone = IDS[5]
    before_the_first_commit(backend, monkeypatch, lambda: JobResultStore(other).delete(gone))

    assert store.expire(0.0) == IDS

    assert len(sent) == 11
    assert expired_in(store) == IDS
    assert not left_over(backend, IDS)


def test_one_whose_marker_is_back(
    backend: Backend, other: Backend, store: JobResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that is dirty stays, and has no tombstone."""
    dirty = Create(keys.DIRTY + IDS[5], b"")
    before_the_first_commit(backend, monkeypatch, lambda: other.commit(dirty))

    assert store.expire(0.0) == [job_id for job_id in IDS if job_id != IDS[5]]

    assert expired_in(store) == [job_id for job_id in IDS if job_id != IDS[5]]
    assert store.has_dirty(IDS[5])


def test_one_whose_entry_goes_meanwhile(
    backend: Backend, other: Backend, store: JobResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry of the index that is missing, which fsck would name, stops no result."""
    (entry,) = keys_of(result(IDS[7]))
    before_the_first_commit(backend, monkeypatch, lambda: other.commit(Delete(entry)))

    assert store.expire(0.0) == expired_in(store) == IDS
    assert not left_over(backend, IDS)


@pytest.mark.parametrize("applied", [True, False])
def test_a_batch_of_unknown_outcome(
    backend: Backend, store: JobResultStore, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    """Each of its results is looked at by itself."""
    original, first = backend._commit_async, list[bool]()

    def commit_async(ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        if first:
            return original(ops, fence)
        first.append(True)
        if applied:
            original(ops, fence).result()
        unknown = PendingCommit()
        unknown.settle(OutcomeUnknown("no answer"))
        return unknown

    monkeypatch.setattr(backend, "_commit_async", commit_async)

    assert store.expire(0.0) == expired_in(store) == IDS
    assert not left_over(backend, IDS)


def test_what_is_left_of_each(backend: Backend) -> None:
    """A tombstone has the bytes that its value is encoded to, and nothing else is left."""
    store = JobResultStore(backend, now=lambda: NOW)
    spec = JobSpec("spec", "m:f", {"a": 1}, submitted_at=3.25, tags=("nightly", "größer"))
    found = [
        result("plain"),
        attrs.evolve(result("failed"), status=JobStatus.FAILED, failure=Failure("exit", "9")),
        attrs.evolve(result("spec"), spec=spec, payload={"rows": [1, 2]}),
        JobResult("bare", JobStatus.CANCELED, finished_at=1.0),
    ]
    for one in found:
        store.create_dirty(one, None)
        store.mark_clean(one.job_id, None)
    backend.commit(Create(keys.LEFT + "spec", encode(CleanupJournal("spec"))))
    backend.commit(Create(keys.GENERATIONS + "plain", encode(JobGeneration("plain", 2))))

    with because("too old"):
        assert store.expire(0.0) == ["bare", "failed", "plain", "spec"]

    assert not left_over(backend, [one.job_id for one in found])
    for one in found:
        record = backend.get(keys.TOMBSTONES + one.job_id)
        tombstone = Tombstone(
            one.job_id, one.status, one.finished_at, NOW,
            submitted_at=0.0 if one.spec is None else 3.25, started_at=one.started_at,
            by=submitter(), reason="too old",
        )  # fmt: skip
        assert record is not None
        assert record.value == encode(tombstone)
        assert decode(Tombstone, record.value, record.key) == tombstone


@pytest.mark.parametrize(
    "wrong",
    [
        {"finished_at": "1"}, {"finished_at": 1e999}, {"started_at": None}, {"status": "RUNNING"},
        {"status": 1}, {"job_id": "another"}, {"application": 1}, {"spec": [1]},
        {"spec": {"tags": [1]}}, {"spec": {"submitted_at": True}},
    ],
    ids=str,
)  # fmt: skip
def test_one_that_cannot_be_read(
    backend: Backend, store: JobResultStore, wrong: dict[str, Any]
) -> None:
    """Whatever expiring reads of a result must be sound; it stays for fsck."""
    stored = backend.get(keys.RESULTS + IDS[3])
    assert stored is not None
    fields = json.loads(stored.value)["body"] | wrong
    body = json.dumps(fields, separators=(",", ":")).encode()
    spoiled = b'{"jrs":"result/1","crc":"%08x","body":%s}' % (zlib.crc32(body), body)
    backend.overwrite(stored.key, spoiled)

    assert store.expire(0.0) == [job_id for job_id in IDS if job_id != IDS[3]]

    kept = backend.get(stored.key)
    assert isinstance(kept, Record)
    assert kept.value == spoiled
    backend.commit(Check(kept.key, kept.version))


@pytest.mark.parametrize("part", ["entry", "tombstone", "marker", "place"])
def test_one_with_a_record_that_damage_holds(
    backend: Backend, store: JobResultStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """It stays, each other one goes and is yielded, and the cluster's history has all that
    went: no commit that a held key is part of says whose it is."""
    job_id = IDS[7]
    told = Create(keys.history(job_id) + "0123456789ab.0", b"")
    backend.commit(told)
    (entry,) = keys_of(result(job_id))
    held = {
        "entry": entry,
        "tombstone": keys.TOMBSTONES + job_id,
        "marker": keys.DIRTY + job_id,
        "place": told.key,
    }[part]
    others = [one for one in IDS if one != job_id]

    with monkeypatch.context() as damaged:
        hold(damaged, backend, held)
        assert store.expire(0.0) == others

    assert expired_in(store) == others
    assert store.has_clean(job_id)
    (event,) = cluster_history.read(backend)
    assert event.text.endswith("and 294 more")


@pytest.mark.parametrize("kind", [WrongState, Conflict])
def test_one_that_must_not_be_deleted_any_more(
    backend: Backend, store: JobResultStore, monkeypatch: pytest.MonkeyPatch, kind: type[Refused]
) -> None:
    """It keeps no other one."""
    absent = keys_of(result(IDS[7]))[0]
    delete = store.delete

    def refused(job_id: str, fence: Fence | None = None) -> None:
        if job_id == IDS[7]:
            raise (
                WrongState("its application runs")
                if kind is WrongState
                else Conflict(Absent(absent), "it exists")
            )
        delete(job_id, fence)

    monkeypatch.setattr(store, "delete", refused)
    with monkeypatch.context() as damaged:
        hold(damaged, backend, absent)
        assert store.expire(0.0) == [one for one in IDS if one != IDS[7]]


def test_an_application_that_cannot_be_read(
    backend: Backend, store: JobResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody can tell whether it has ended, the results of its jobs stay."""
    store.create_dirty(attrs.evolve(result("of-app"), application="app"), None)
    store.mark_clean("of-app", None)

    with monkeypatch.context() as damaged:
        hold(damaged, backend, keys.RESULTS + "app")
        assert store.expire(0.0) == IDS

    assert store.has_clean("of-app")


def test_commits_that_refuse_each_other(
    backend: Backend, store: JobResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where most commits of a page are refused because they are under way together, as ZooKeeper
    does it, each one waits for the one before from then on."""
    original, sent, together = backend._commit_async, list[Future[None]](), list[int]()

    def commit_async(ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        together.append(sum(not one.done() for one in sent))
        if len(sent) < 8:
            refused = PendingCommit()
            refused.settle(Conflict(next(op for op in ops if isinstance(op, Create)), "busy"))
            sent.append(refused)
        else:
            sent.append(original(ops, fence))
        return sent[-1]

    monkeypatch.setattr(backend, "_commit_async", commit_async)

    assert sorted(store.expire(0.0)) == expired_in(store) == IDS
    assert len(sent) == 8 + 2 + 8
    assert together[11:] == [0] * 7
    assert not left_over(backend, IDS)
