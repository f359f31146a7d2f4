"""JobResultStore: every call and every error of its table, on the memory and the file backend."""

import asyncio
import errno
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    InvalidInput,
    NoSuchResult,
    OutcomeUnknown,
    ResultExists,
    ResultExpired,
    ResultIsDirty,
    TooLarge,
)
from jrs.contract.operations import Absent, Create, Delete
from jrs.records import keys
from jrs.records.checks import MAX_PAYLOAD
from jrs.records.codec import encode
from jrs.records.model import Failure, JobResult, JobStatus, ResultState, Tombstone
from jrs.store import cluster_history
from jrs.store.historian import because, submitter
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import contents, lead

BOUND = 60.0


def result(job_id: str = "job", payload: Any = None, **more: Any) -> JobResult:
    status = more.pop("status", JobStatus.FINISHED)
    if status is JobStatus.FAILED:
        more.setdefault("failure", Failure("exit", "it died"))
    return JobResult(job_id, status, payload, **more)


@pytest.fixture
def store(backend: Backend) -> JobResultStore:
    return JobResultStore(backend, now=lambda: 1000.0)


@pytest.fixture
def reader(other: Backend) -> JobResultStore:
    """A store on a handle of its own, that leads nothing."""
    return JobResultStore(other)


def expired(store: JobResultStore, job_id: str = "job") -> None:
    """Leave only the tombstone of a job."""
    store.create_dirty(result(job_id), None)
    store.mark_clean(job_id, None)
    store.delete(job_id)


class TestCreateDirty:
    def test_it_is_read_by_everyone(self, store: JobResultStore, reader: JobResultStore) -> None:
        """A dirty result is there, whole, for a reader that is no leader (H7)."""
        written = result(payload={"rows": [1, None, "é"]}, failure=Failure("exit", "m"), epoch=3)
        store.create_dirty(written, None)

        for each in (store, reader):
            entry = each.get("job")
            assert entry is not None
            assert (entry.job_id, entry.state, entry.result) == ("job", ResultState.DIRTY, written)
            assert entry.problem is None

    def test_the_same_again_is_a_no_op(self, store: JobResultStore, backend: Backend) -> None:
        """Recording the same result again changes nothing, dirty or clean."""
        store.create_dirty(result(), None)
        before = list(backend.scan(""))
        store.create_dirty(result(), None)
        assert before == list(backend.scan(""))

        store.mark_clean("job", None)
        before = list(backend.scan(""))
        store.create_dirty(result(), None)
        assert before == list(backend.scan(""))

    @pytest.mark.parametrize("state", ["dirty", "clean", "expired"])
    def test_another_result_is_refused(
        self, store: JobResultStore, backend: Backend, state: str
    ) -> None:
        """The first durable result wins forever, through cleaning and expiry (H6)."""
        store.create_dirty(result(), None)
        if state != "dirty":
            store.mark_clean("job", None)
        if state == "expired":
            store.delete("job")
        before = contents(backend)

        with pytest.raises(ResultExists) as caught:
            store.create_dirty(result(status=JobStatus.FAILED), None)
        assert (caught.value.job_id, caught.value.state) == ("job", state)
        assert before == contents(backend)

    def test_an_operation_that_is_refused_with_it(
        self, store: JobResultStore, backend: Backend
    ) -> None:
        """Its conflict names it: the job has no result."""
        mine = Create("mine/x", b"2")
        backend.commit(Create("mine/x", b"1"))
        before = contents(backend)
        with pytest.raises(Conflict) as caught:
            store.create_dirty(result(), None, also=(mine,))
        assert caught.value.op == mine
        assert before == contents(backend)

    def test_the_same_after_expiry_is_refused(self, store: JobResultStore) -> None:
        """An expired result is not written again, not even the very same."""
        expired(store)
        with pytest.raises(ResultExists) as caught:
            store.create_dirty(result(), None)
        assert caught.value.state == "expired"

    def test_an_old_fence(self, store: JobResultStore, backend: Backend, other: Backend) -> None:
        """A replaced leader can neither record a result nor mark one clean."""
        with lead(backend) as leadership:
            old = leadership.fence
            store.create_dirty(result("mine"), old)
        with lead(other):
            before = contents(backend)
            with pytest.raises(Fenced):
                store.create_dirty(result(), old)
            with pytest.raises(Fenced):
                store.mark_clean("mine", old)
            assert before == contents(backend)

    def test_the_largest_payload(self, store: JobResultStore, backend: Backend) -> None:
        """256 KiB of JSON pass; one more byte is TooLarge, says what to do, and writes nothing."""
        largest = "x" * (MAX_PAYLOAD - 2)
        store.create_dirty(result("fits", largest), None)
        entry = store.get("fits")
        assert entry is not None
        assert entry.result == result("fits", largest)
        before = contents(backend)
        for create in (store.create_dirty, store.create_dirty_async):
            with pytest.raises(TooLarge, match="location"):
                create(result("over", largest + "x"), None)
        assert before == contents(backend)

    @pytest.mark.parametrize("payload", [math.nan, {1, 2}, {1: 2}, b"x", [math.inf]], ids=repr)
    def test_what_is_not_json(self, store: JobResultStore, backend: Backend, payload: Any) -> None:
        """A payload that is not JSON is refused by name and writes nothing."""
        with pytest.raises(InvalidInput, match="payload is not JSON"):
            store.create_dirty(result(payload=payload), None)
        assert contents(backend) == {}

    def test_racing_writers(self, store: JobResultStore, reader: JobResultStore) -> None:
        """Of many different results of one job exactly one becomes durable."""

        def create(number: int) -> int | None:
            try:
                (store, reader)[number % 2].create_dirty(result(payload=number), None)
            except ResultExists:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [n for n in pool.map(create, range(16)) if n is not None]
        entry = reader.get("job")
        assert entry is not None
        assert entry.result is not None
        assert winners == [entry.result.payload]

    def test_pipelined(self, store: JobResultStore) -> None:
        """Results in flight are durable once their futures say so; a known job is a Conflict."""
        futures = [store.create_dirty_async(result(f"j{n}"), None) for n in range(50)]
        for future in futures:
            future.result(BOUND)
        assert len(list(store.dirty())) == 50

        assert isinstance(store.create_dirty_async(result("j0"), None).exception(BOUND), Conflict)
        for future in [store.mark_clean_async(f"j{n}", None) for n in range(50)]:
            future.result(BOUND)
        assert list(store.dirty()) == []
        assert isinstance(store.mark_clean_async("j0", None).exception(BOUND), Conflict)


class TestMarkClean:
    def test_clean(self, store: JobResultStore, reader: JobResultStore) -> None:
        """A clean result keeps its body and is dirty no more; again is a no-op."""
        store.create_dirty(result(), None)
        for _ in range(2):
            store.mark_clean("job", None)
            entry = reader.get("job")
            assert entry is not None
            assert (entry.state, entry.result) == (ResultState.CLEAN, result())

    def test_without_a_result(self, store: JobResultStore, backend: Backend) -> None:
        """Marking a job without a result is refused and invents nothing (H5)."""
        with pytest.raises(NoSuchResult):
            store.mark_clean("job", None)
        assert contents(backend) == {}

    def test_an_expired_one(self, store: JobResultStore) -> None:
        """An expired result was clean already: a no-op."""
        expired(store)
        store.mark_clean("job", None)
        assert store.has_entry("job")

    def test_its_bookkeeping_ends_with_it(self, store: JobResultStore, backend: Backend) -> None:
        """`also` is part of the same commit: both happen, or neither."""
        backend.commit(Create("cleanup/job", b"journal"))
        store.create_dirty(result(), None)
        with pytest.raises(Conflict):
            store.mark_clean("job", None, also=(Absent("cleanup/job"),))
        assert store.has_dirty("job")
        assert backend.get("cleanup/job") is not None

        store.mark_clean("job", None, also=(Delete("cleanup/job"),))
        assert store.has_clean("job")
        assert backend.get("cleanup/job") is None


class TestReading:
    def test_no_entry(self, store: JobResultStore) -> None:
        """A job that never ended has no entry of any kind."""
        assert store.get("job") is None
        assert not store.has_dirty("job")
        assert not store.has_clean("job")
        assert not store.has_entry("job")
        assert list(store.list()) == list(store.dirty()) == []

    def test_the_three_states(self, store: JobResultStore, reader: JobResultStore) -> None:
        """has_dirty, has_clean and has_entry tell dirty, clean and expired apart."""
        store.create_dirty(result("dirty"), None)
        store.create_dirty(result("clean"), None)
        store.mark_clean("clean", None)
        expired(store, "expired")

        found = {
            job: (reader.has_dirty(job), reader.has_clean(job), reader.has_entry(job))
            for job in ("dirty", "clean", "expired", "none")
        }
        assert found == {
            "dirty": (True, False, True),
            "clean": (False, True, True),
            "expired": (False, False, True),
            "none": (False, False, False),
        }
        entry = reader.get("expired")
        assert entry is not None
        assert (entry.state, entry.result, entry.problem) == (ResultState.EXPIRED, None, None)

    @pytest.fixture
    def many(self, store: JobResultStore) -> JobResultStore:
        """j00 to j29: dirty, clean or expired by turns, FINISHED or FAILED by turns."""
        for number in range(30):
            job_id = f"j{number:02}"
            status = JobStatus.FAILED if number % 2 else JobStatus.FINISHED
            store.create_dirty(result(job_id, status=status), None)
            if number % 3:
                store.mark_clean(job_id, None)
            if number % 3 == 2:
                store.delete(job_id)
        return store

    @pytest.mark.parametrize(
        ("state", "rests"),
        [(None, (0, 1)), (ResultState.DIRTY, (0,)), (ResultState.CLEAN, (1,)),
         (ResultState.EXPIRED, (2,))],
    )  # fmt: skip
    @pytest.mark.parametrize("after", [None, "j00", "j13", "j14x", "j29", "a", "z"])
    @pytest.mark.parametrize("limit", [None, 0, 1, 7])
    def test_list(
        self,
        many: JobResultStore,
        state: ResultState | None,
        rests: tuple[int, ...],
        after: str | None,
        limit: int | None,
    ) -> None:
        """Every filter, starting point and limit lists exactly the entries it should, in order."""
        numbers = [n for n in range(30) if n % 3 in rests]
        expected = [f"j{n:02}" for n in numbers if after is None or f"j{n:02}" > after][:limit]
        found = list(many.list(state=state, after=after, limit=limit))
        assert expected == [entry.job_id for entry in found]
        if state:
            assert {entry.state for entry in found} <= {state}

    def test_list_by_status(self, many: JobResultStore) -> None:
        """The status filter counts towards the limit only what it lets through."""
        failed = [n for n in range(30) if n % 2 and n % 3 != 2]
        found = many.list(status=JobStatus.FAILED, limit=5)
        assert [f"j{n:02}" for n in failed[:5]] == [entry.job_id for entry in found]
        both = many.list(status=JobStatus.FAILED, state=ResultState.CLEAN)
        assert [f"j{n:02}" for n in failed if n % 3 == 1] == [entry.job_id for entry in both]

    def test_dirty_in_order(self, many: JobResultStore) -> None:
        """`dirty` yields the dirty entries alone, in the order of their ids."""
        assert [f"j{n:02}" for n in range(0, 30, 3)] == [e.job_id for e in many.dirty()]

    def test_ids_that_are_prefixes_of_each_other(self, store: JobResultStore) -> None:
        """Jobs `a`, `a-b`, `a.b` and `ab` are four jobs."""
        for job_id in ("ab", "a.b", "a", "a-b"):
            store.create_dirty(result(job_id), None)
        store.mark_clean("a", None)
        assert [e.job_id for e in store.dirty()] == ["a-b", "a.b", "ab"]
        assert [(e.job_id, e.state.value) for e in store.list()] == [
            ("a", "clean"), ("a-b", "dirty"), ("a.b", "dirty"), ("ab", "dirty")
        ]  # fmt: skip


class TestWait:
    def test_it_is_there_already(self, store: JobResultStore) -> None:
        """A result that exists is returned without waiting, dirty or clean."""
        store.create_dirty(result(payload=1), None)
        assert store.wait("job", 0.0) == result(payload=1)
        store.mark_clean("job", None)
        assert store.wait("job", 0.0) == result(payload=1)

    def test_it_comes(self, store: JobResultStore, reader: JobResultStore) -> None:
        """J4: waiters are woken by the dirty result, while cleanup has not even begun."""
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit((store, reader)[n % 2].wait, "job", BOUND) for n in range(4)]
            store.create_dirty(result("jobs"), None)
            store.create_dirty(result(payload=1), None)
            assert [result(payload=1)] * 4 == [each.result(BOUND) for each in waiting]
        assert store.has_dirty("job")

    def test_it_does_not_come(self, store: JobResultStore) -> None:
        """A wait ends with TimeoutError that names the job."""
        for timeout in (0.0, 0.05, -1e-3):
            with pytest.raises(TimeoutError, match="'job'"):
                store.wait("job", timeout)

    def test_an_expired_one(self, store: JobResultStore) -> None:
        """Waiting for what was expired ends at once with ResultExpired."""
        expired(store)
        with pytest.raises(ResultExpired, match="expired"):
            store.wait("job")
        assert issubclass(ResultExpired, NoSuchResult)

    @pytest.mark.parametrize("timeout", [True, "1", float("nan")])
    def test_a_timeout_that_is_none(self, store: JobResultStore, timeout: float) -> None:
        """What cannot be waited for is refused, before a result is looked for."""
        with pytest.raises(InvalidInput, match="seconds"):
            store.wait("job", timeout)

    def test_an_unreadable_one(self, store: JobResultStore, backend: Backend) -> None:
        """Waiting for what cannot be read ends at once with CorruptRecord."""
        backend.commit(Create(keys.RESULTS + "job", b"garbage"))
        with pytest.raises(CorruptRecord):
            store.wait("job")

    def test_in_asyncio(self, store: JobResultStore, reader: JobResultStore) -> None:
        """`await_` leaves the loop free and returns what `wait` would."""

        async def main() -> None:
            waiting = asyncio.create_task(reader.await_("job", BOUND))
            await asyncio.to_thread(store.create_dirty, result(payload=2), None)
            assert await waiting == result(payload=2)
            with pytest.raises(TimeoutError):
                await store.await_("never", 0.0)

        asyncio.run(main())

    def test_canceled_in_asyncio(self, store: JobResultStore) -> None:
        """Cancelling the task ends the wait, and its thread with it."""

        async def main() -> None:
            waiting = asyncio.create_task(store.await_("never"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        asyncio.run(main())
        join_those_that_await("never")

    def test_many_in_asyncio(self, store: JobResultStore) -> None:
        """Waits take no thread of the loop's pool, which the loop itself needs."""

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(1))
            waits = [asyncio.create_task(store.await_("job", BOUND)) for _ in range(3)]
            await asyncio.sleep(0)
            async with asyncio.timeout(BOUND / 2):
                assert await loop.getaddrinfo("127.0.0.1", 80)
                await asyncio.to_thread(store.create_dirty, result(), None)
            assert await asyncio.gather(*waits) == [result()] * 3

        asyncio.run(main())

    def test_a_loop_that_ends_first(self, store: JobResultStore) -> None:
        """A wait whose loop has been closed ends without an error."""

        async def main() -> None:
            asyncio.create_task(store.await_("never"))  # noqa: RUF006 - asyncio.run cancels it.
            await asyncio.sleep(0)

        asyncio.run(main())
        join_those_that_await("never")


def join_those_that_await(job_id: str) -> None:
    for thread in threading.enumerate():
        if thread.name == f"jrs-await-{job_id}":
            thread.join(BOUND)
            assert not thread.is_alive()


class TestDelete:
    def test_a_clean_one(self, store: JobResultStore, backend: Backend) -> None:
        """Deleting leaves a small tombstone and nothing else; again is a no-op."""
        store.create_dirty(result(payload="x" * 1000, finished_at=5.0), None)
        store.mark_clean("job", None)
        for _ in range(2):
            with because("late"):
                store.delete("job")
            end = Tombstone("job", JobStatus.FINISHED, 5.0, 1000.0, by=submitter(), reason="late")
            tombstone = encode(end)
            assert contents(backend) == {"tombstones/job": tombstone}

    def test_a_dirty_one(self, store: JobResultStore, backend: Backend) -> None:
        """A dirty result is not deleted: its cleanup has not ended."""
        store.create_dirty(result(), None)
        before = contents(backend)
        with pytest.raises(ResultIsDirty, match="'job'"):
            store.delete("job")
        assert before == contents(backend)

    def test_none(self, store: JobResultStore, backend: Backend) -> None:
        """Deleting what never was is refused and leaves no tombstone."""
        with pytest.raises(NoSuchResult):
            store.delete("job")
        assert contents(backend) == {}

    def test_racing(self, store: JobResultStore, reader: JobResultStore) -> None:
        """Clients that delete at the same time all succeed, and one tombstone is left."""
        store.create_dirty(result(), None)
        store.mark_clean("job", None)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: (store, reader)[n % 2].delete("job"), range(8)))
        assert [e.job_id for e in store.list(state=ResultState.EXPIRED)] == ["job"]


class TestExpire:
    @pytest.fixture
    def aged(self, store: JobResultStore) -> JobResultStore:
        """Clean results c1 to c9 that ended at 100, 200, …, 900; dirty ones as old; now is 1000."""
        for number in range(1, 10):
            for kind in "cd":
                job_id = f"{kind}{number}"
                store.create_dirty(result(job_id, finished_at=100.0 * number), None)
            store.mark_clean(f"c{number}", None)
        return store

    @pytest.mark.parametrize(
        ("older_than", "keep", "gone"),
        [(0.0, 0, range(1, 10)), (500.0, 0, range(1, 6)), (500.1, 0, range(1, 5)),
         (1000.0, 0, ()), (0.0, 4, range(1, 6)), (0.0, 9, ()), (0.0, 100, ()),
         (500.0, 7, range(1, 3))],
    )  # fmt: skip
    def test_by_age_and_number(
        self,
        aged: JobResultStore,
        backend: Backend,
        older_than: float,
        keep: int,
        gone: Sequence[int],
    ) -> None:
        """Exactly the clean results that are old enough go, the `keep` newest ones never."""
        assert [f"c{n}" for n in gone] == aged.expire(older_than, keep)
        assert [f"c{n}" for n in gone] == [e.job_id for e in aged.list(state=ResultState.EXPIRED)]
        assert [f"d{n}" for n in range(1, 10)] == [e.job_id for e in aged.dirty()]
        told = [one.text for one in cluster_history.read(backend)]
        names = [f"c{n}" for n in reversed(gone)]
        more = f" and {len(names) - 5} more" if names[5:] else ""
        assert told == ([f"expired: {', '.join(names[:5])}{more}"] if gone else [])
        left = [f"c{n}" for n in range(1, 10) if n not in gone]
        assert left == [e.job_id for e in aged.list(state=ResultState.CLEAN)]

    def test_again(self, aged: JobResultStore) -> None:
        """Expiring again finds nothing more to do."""
        aged.expire(500.0)
        assert aged.expire(500.0) == []

    def test_it_permits_no_second_run(self, aged: JobResultStore) -> None:
        """An expired job is still known, so that it cannot be recorded, hence run, again."""
        aged.expire(0.0)
        assert aged.has_entry("c1")
        with pytest.raises(ResultExists):
            aged.create_dirty(result("c1", "second run"), None)

    def test_unreadable_ones_stay(self, aged: JobResultStore, backend: Backend) -> None:
        """An entry that cannot be read has no age and is left to the operator."""
        backend.commit(Create(keys.RESULTS + "bad", b"garbage"))
        aged.expire(0.0)
        assert backend.get(keys.RESULTS + "bad") is not None

    @pytest.mark.parametrize("wrong", [(-1.0, 0), (0.0, -1)])
    def test_no_age(self, aged: JobResultStore, wrong: tuple[float, int]) -> None:
        """A negative age or number is refused and deletes nothing."""
        with pytest.raises(InvalidInput):
            aged.expire(*wrong)
        assert list(aged.list(state=ResultState.EXPIRED)) == []


class TestUnreadable:
    @pytest.fixture(
        params=[
            b"",
            b"garbage",
            encode(result("bad"))[:-1],
            encode(result("bad")).replace(b"FINISHED", b"FINISHER"),
            encode(result("bad")).replace(b"result/1", b"result/2"),
            encode(Tombstone("bad")),
            encode(result("other")),
        ],
        ids=["empty", "garbage", "cut", "flipped", "future", "type", "misplaced"],
    )
    def bad(self, request: pytest.FixtureRequest, store: JobResultStore, backend: Backend) -> str:
        """Job `bad` has a dirty entry that cannot be read; jobs `a` and `z` are fine."""
        store.create_dirty(result("a"), None)
        backend.commit(Create("results/bad", request.param), Create("dirty/bad", b""))
        store.create_dirty(result("z"), None)
        return "bad"

    def test_it_is_reported_and_blocks_nobody(self, store: JobResultStore, bad: str) -> None:
        """get, list and dirty report the entry as a problem and yield all others (FLINK-40554)."""
        for entries in (store.list(), store.dirty()):
            found = {entry.job_id: entry for entry in entries}
            assert list(found) == ["a", bad, "z"]
            assert found["a"].result == result("a")
            assert found["z"].result == result("z")
            assert found[bad] == store.get(bad)
        entry = store.get(bad)
        assert entry is not None
        assert entry.result is None
        assert entry.problem
        assert "results/bad" in entry.problem
        assert not entry.uncertain
        assert store.has_entry(bad)

    def test_it_is_not_overwritten(self, store: JobResultStore, backend: Backend, bad: str) -> None:
        """The first result wins even where it cannot be read: it is held, not replaced."""
        before = contents(backend)
        with pytest.raises(ResultExists):
            store.create_dirty(result(bad), None)
        with pytest.raises(ResultIsDirty):
            store.delete(bad)
        assert before == contents(backend)

    def test_an_operator_may_end_it(self, store: JobResultStore, bad: str) -> None:
        """Marked clean by hand and deleted, it leaves a tombstone: the job never runs again."""
        store.mark_clean(bad, None)
        store.delete(bad)
        entry = store.get(bad)
        assert entry is not None
        assert entry.state is ResultState.EXPIRED

    def test_a_marker_without_its_result(self, store: JobResultStore, backend: Backend) -> None:
        """A marker without a result is reported, not passed over."""
        backend.commit(Create("dirty/lost", b""))
        [entry] = store.dirty()
        assert (entry.job_id, entry.result) == ("lost", None)
        assert entry.problem


def test_a_job_id_is_one_of_its_cluster(tmp_path: Path) -> None:
    """J2: what a job of one cluster has left, a result or a tombstone, is nothing to the job
    of that id in another cluster of the same backend."""
    url = (tmp_path / "store").as_uri()
    with open_backend(url, cluster="one") as one, open_backend(url, cluster="two") as two:
        JobResultStore(one).create_dirty(result(payload="of one"), None)
        expired(JobResultStore(one), "old")
        there = JobResultStore(two)

        assert not there.has_entry("job")
        assert not there.has_entry("old")

        there.create_dirty(result(payload="of two"), None)

        assert JobResultStore(one).wait("job", 0.0).payload == "of one"
        assert there.wait("job", 0.0).payload == "of two"


BAD_IDS = ["", "a/b", "a b", "x" * 200, "../etc", "a\n", None]


@pytest.mark.parametrize("job_id", BAD_IDS, ids=lambda name: repr(name)[:12])
@pytest.mark.parametrize(
    "call",
    [
        lambda store, job_id: store.create_dirty(result(job_id), None),
        lambda store, job_id: store.mark_clean(job_id, None),
        lambda store, job_id: store.mark_clean_async(job_id, None),
        lambda store, job_id: store.get(job_id),
        lambda store, job_id: store.has_dirty(job_id),
        lambda store, job_id: store.has_clean(job_id),
        lambda store, job_id: store.has_entry(job_id),
        lambda store, job_id: store.wait(job_id, 0.0),
        lambda store, job_id: asyncio.run(store.await_(job_id, 0.0)),
        lambda store, job_id: store.delete(job_id),
    ],
    ids=["create", "clean", "clean_async", "get", "has_dirty", "has_clean", "has_entry", "wait",
         "await", "delete"],
)  # fmt: skip
def test_what_is_no_job_id(
    store: JobResultStore, call: Callable[[JobResultStore, Any], Any], job_id: Any
) -> None:
    """Every call refuses what is no job id."""
    with pytest.raises(InvalidInput, match="not a job id"):
        call(store, job_id)


class TestFailedSync:
    """The file backend under a store whose disk fails one sync."""

    @pytest.fixture
    def failing(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
        """Arm the next sync of a log to fail; return the list that then names the failure."""
        sync = os.fdatasync
        failed: list[str] = []

        def fail(fd: int) -> None:
            monkeypatch.setattr(os, "fdatasync", sync)
            failed.append("EIO")
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        def arm() -> list[str]:
            monkeypatch.setattr(os, "fdatasync", fail)
            return failed

        return arm

    def test_it_is_unknown(self, tmp_path: Path, failing: Callable[[], list[str]]) -> None:
        """A failed sync is OutcomeUnknown, never 'nothing was changed'; called again on the same
        handle, the write is settled."""
        with open_backend(tmp_path.as_uri()) as backend:
            store = JobResultStore(backend)
            failed = failing()
            with pytest.raises(OutcomeUnknown):
                store.create_dirty_async(result(), None).result(BOUND)
            assert failed == ["EIO"]
            store.create_dirty(result(), None)
            assert store.has_dirty("job")
        with open_backend(tmp_path.as_uri()) as backend:
            assert JobResultStore(backend).has_dirty("job")

    @pytest.mark.parametrize("call", ["create_dirty", "mark_clean", "delete"])
    def test_it_is_read_back(
        self, tmp_path: Path, failing: Callable[[], list[str]], call: str
    ) -> None:
        """The store reads back what became of its write, on the same handle, which then works
        again; a new handle reads the same."""
        url = tmp_path.as_uri()
        with open_backend(url) as backend:
            store = JobResultStore(backend)
            if call != "create_dirty":
                store.create_dirty(result(), None)
            if call == "delete":
                store.mark_clean("job", None)
            failed = failing()
            if call == "create_dirty":
                store.create_dirty(result(), None)
            elif call == "mark_clean":
                store.mark_clean("job", None)
            else:
                store.delete("job")
            assert failed == ["EIO"]
            store.create_dirty(result("next"), None)
            found = contents(backend)
            assert store.has_dirty("job") == (call == "create_dirty")
            assert store.has_clean("job") == (call == "mark_clean")
            assert store.has_entry("job")
        with open_backend(url) as backend:
            assert contents(backend) == found


def test_waits_that_end_leave_nothing_behind(store: JobResultStore, backend: Backend) -> None:
    """Waits that ended hold no watch and no thread."""
    before = set(threading.enumerate())
    for _ in range(200):
        with pytest.raises(TimeoutError):
            store.wait("never", 0.0)
    assert set(threading.enumerate()) <= before
    backend.commit(Create("results/never", b""))
