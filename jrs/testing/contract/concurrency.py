"""Many threads, many processes, and random histories against a dict."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, Fenced, JrsError, Unavailable, WrongProcess
from jrs.contract.operations import Create, Delete, Fence, Update
from jrs.testing.contract.fixtures import BOUND, Opener, contents, lead, present
from jrs.testing.model import check_against_model
from jrs.testing.worker import Died, Worker


class ConcurrencyContract:
    """One handle, many threads, many commits in flight."""

    def test_many_open_a_new_cluster_at_once(self, handles: Opener) -> None:
        """Masters that start at the same time: each of them finds the cluster or creates it."""
        for _ in range(3):
            cluster = f"contract-{uuid.uuid4().hex}"
            with ThreadPoolExecutor(8) as pool:
                opened = list(pool.map(handles, [cluster] * 8))
            opened[0].commit(Create("k", b""))
            assert all(backend.get("k") is not None for backend in opened)

    def test_many_threads_many_keys(self, backend: Backend, other: Backend) -> None:
        """All commits of many threads through one handle are stored."""

        def write(thread: int) -> None:
            for number in range(50):
                backend.commit(Create(f"t/{thread}-{number}", b"%d" % number))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(8)))

        expected = {f"t/{t}-{n}": b"%d" % n for t in range(8) for n in range(50)}
        assert expected == contents(other)

    def test_contended_updates_lose_nothing(self, backend: Backend, other: Backend) -> None:
        """Read-modify-write of one key by many threads loses no acknowledged success."""
        backend.commit(Create("n", b"0"))

        def count(thread: int) -> int:
            client = (backend, other)[thread % 2]
            done = 0
            for _ in range(40):
                record = present(client, "n")
                try:
                    client.commit(Update("n", b"%d" % (int(record.value) + 1), record.version))
                    done += 1
                except Conflict:
                    pass
            return done

        with ThreadPoolExecutor(8) as pool:
            done = sum(pool.map(count, range(8)))

        assert b"%d" % done == present(backend, "n").value

    def test_one_creator_wins(self, backend: Backend, other: Backend) -> None:
        """If many threads create one key, exactly one succeeds, and its value is stored."""
        barrier = threading.Barrier(8)

        def create(thread: int) -> int | None:
            barrier.wait(BOUND)
            try:
                (backend, other)[thread % 2].commit(Create("k", b"%d" % thread))
            except Conflict:
                return None
            return thread

        with ThreadPoolExecutor(8) as pool:
            winners = [w for w in pool.map(create, range(8)) if w is not None]

        assert len(winners) == 1
        assert b"%d" % winners[0] == present(other, "k").value

    def test_pipelined_commits_keep_their_order(self, backend: Backend, other: Backend) -> None:
        """Pipelined commits of one caller are applied in the order of the calls."""
        futures = []
        for _ in range(150):
            futures.append(backend.commit_async(Create("k", b"")))
            futures.append(backend.commit_async(Delete("k")))
        futures.append(backend.commit_async(Create("k", b"last")))
        for future in futures:
            assert future.result(BOUND) is None

        assert contents(other) == {"k": b"last"}

    def test_each_pipelined_commit_has_its_own_outcome(self, backend: Backend) -> None:
        """If one of many pipelined commits is refused, the others succeed."""
        futures = [backend.commit_async(Create(f"k/{n // 2}", b"%d" % n)) for n in range(200)]
        outcomes = [future.exception(BOUND) for future in futures]

        assert outcomes[::2] == [None] * 100
        assert all(isinstance(error, Conflict) for error in outcomes[1::2])
        assert [error.op for error in outcomes[1::2] if isinstance(error, Conflict)] == [
            Create(f"k/{n // 2}", b"%d" % n) for n in range(1, 200, 2)
        ]
        assert {f"k/{n}": b"%d" % (2 * n) for n in range(100)} == contents(backend)

    def test_pipelined_and_waiting_callers_mix(self, backend: Backend, other: Backend) -> None:
        """Waiting and pipelining callers do not starve each other."""

        def flow(thread: int) -> None:
            futures = [backend.commit_async(Create(f"a/{thread}-{n}", b"")) for n in range(50)]
            for number in range(20):
                backend.commit(Create(f"b/{thread}-{number}", b""))
            for future in futures:
                future.result(BOUND)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(flow, range(4)))

        assert len(contents(other, "a/")) == 4 * 50
        assert len(contents(other, "b/")) == 4 * 20

    def test_a_future_is_settled_when_its_handle_closes(
        self, backend: Backend, other: Backend
    ) -> None:
        """Closing settles every commit, and no commit that failed is stored."""
        futures = [backend.commit_async(Create(f"k/{n}", b"")) for n in range(100)]
        backend.close()
        outcomes = [future.exception(BOUND) for future in futures]

        assert all(error is None or isinstance(error, JrsError) for error in outcomes)
        stored = contents(other)
        for number, error in enumerate(outcomes):
            if error is None:
                assert f"k/{number}" in stored
            elif isinstance(error, Unavailable):
                assert f"k/{number}" not in stored


class MultiProcessContract:
    """Several processes on one cluster. Skipped if the backend supports only one process."""

    def test_processes_see_each_other(self, backend: Backend, worker: Callable[[], Worker]) -> None:
        """Every process reads what another one was told is committed."""
        one, two = worker(), worker()
        one.commit(Create("k", b"1"))
        record = two.get("k")
        assert record is not None
        two.commit(Update("k", b"2", record.version))

        assert present(backend, "k").value == b"2"
        assert one.scan("") == two.scan("") == list(backend.scan(""))
        with pytest.raises(Conflict):
            one.commit(Update("k", b"3", record.version))

    def test_contended_updates(self, backend: Backend, worker: Callable[[], Worker]) -> None:
        """Processes that each add N times to one number lose no addition."""
        backend.commit(Create("n", b"0"))
        workers = [worker() for _ in range(4)]
        for process in workers:
            process.send("count", "n", 50)
        for process in workers:
            process.receive()

        assert present(backend, "n").value == b"200"

    def test_a_killed_process_loses_nothing(
        self, backend: Backend, worker: Callable[[], Worker]
    ) -> None:
        """A kill -9 loses no acknowledged commit; at most one more is stored, without a gap."""
        process = worker()
        process.send("pour", "k/")
        acknowledged = max(process.receive() for _ in range(100))
        process.kill()
        stored = contents(backend, "k/")

        assert {f"k/{n}" for n in range(acknowledged + 1)} <= stored.keys()
        assert {f"k/{n}" for n in range(len(stored))} == stored.keys()
        backend.commit(Create("on", b""))

    def test_a_killed_leader_is_replaced(
        self, backend: Backend, worker: Callable[[], Worker]
    ) -> None:
        """After a kill -9 of the leader another process leads, and the old fence is refused."""
        process = worker()
        old = process.lead("killed", backend.capabilities.min_ttl)
        process.commit(Create("k", b""), fence=old)
        process.kill()
        with lead(backend) as leadership:
            assert leadership.epoch > old.epoch
            with pytest.raises(Fenced):
                backend.commit(Create("l", b""), fence=old)

        with pytest.raises(Died):
            process.receive()

    def test_one_leader_among_processes(
        self, backend: Backend, worker: Callable[[], Worker]
    ) -> None:
        """Processes that campaign at once lead one after the other, with growing epochs."""
        workers = {worker(): name for name in ("a", "b", "c")}
        fences: list[Fence] = []
        for process, name in workers.items():
            process.send("lead_briefly", name, 5.0)
        for process in workers:
            epoch, version = process.receive()
            fences.append(Fence(epoch, version))

        assert len({fence.epoch for fence in fences}) == 3
        newest = max(fences, key=lambda fence: fence.epoch)
        assert [fence == newest for fence in fences] == [
            backend.is_current(fence) for fence in fences
        ]

    def test_a_forked_child_may_not_use_the_handle(self, backend: Backend, other: Backend) -> None:
        """A handle belongs to the process that opened it. In a forked child, which has none of the
        handle's threads, each call fails at once and says to open another one. Closing the handle
        there does no harm."""
        if not backend.capabilities.multi_process:
            pytest.skip("one process only, as its capabilities say")
        backend.commit(Create("k", b"1"))
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: backend.get("k"),
            "get_many": lambda: backend.get_many(["k", "l"]),
            "scan": lambda: list(backend.scan("")),
            "commit": lambda: backend.commit(Create("l", b"")),
            "commit_async": lambda: backend.commit_async(Create("l", b"")),
            "watch": lambda: backend.watch(""),
            "campaign": lambda: backend.campaign(
                "me", ttl=backend.capabilities.min_ttl, stop=threading.Event()
            ),
        }
        assert _in_a_child(calls, backend.close) == dict.fromkeys(calls, "refused")
        backend.commit(Create("m", b""))

        assert contents(backend) == contents(other) == {"k": b"1", "m": b""}


def _in_a_child(calls: dict[str, Callable[[], object]], last: Callable[[], None]) -> dict[str, str]:
    """Fork, make the calls in the child, and return the result of each."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Forking next to threads is the point.
        child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(BOUND))  # A child that hangs is ended.
            seen = {name: _outcome(call) for name, call in calls.items()}
            last()
            os.write(writing, json.dumps(seen).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    assert said, "the child hung, or died"
    found: dict[str, str] = json.loads(said)
    return found


def _outcome(call: Callable[[], object]) -> str:
    try:
        return f"returned {call()!r}"
    except WrongProcess:
        return "refused"
    except BaseException as error:
        return repr(error)


class StatefulContract:
    """The backend compared with a dict: random histories of all operations through two clients."""

    def test_behaves_like_a_dict(self, handles: Opener, cluster: str) -> None:
        """Every history has the same outcomes and contents as with a plain dict."""
        numbers = iter(range(10**9))

        def fresh() -> tuple[Opener, str]:
            return handles, f"{cluster}-{next(numbers)}"

        check_against_model(fresh)
