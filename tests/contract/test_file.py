"""The contract on the file backend."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.errors import Conflict
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.testing.contract import (
    BackendFixtures,
    CommitContract,
    ConcurrencyContract,
    CreatedContract,
    ElectionContract,
    FencingContract,
    LimitsContract,
    MultiProcessContract,
    Opener,
    PagingContract,
    ReadContract,
    StatefulContract,
    WatchContract,
)
from tests.support import BOUND


class File(BackendFixtures):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda cluster: open_backend(tmp_path.as_uri(), cluster=cluster)


class Compacting(BackendFixtures):
    """A segment so short that nearly every commit of a case seals one."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda cluster: FileBackend(tmp_path, cluster, seal_at=200)


class TestRead(File, ReadContract): ...


class TestCommit(File, CommitContract): ...


class TestFencing(File, FencingContract): ...


class TestPaging(File, PagingContract): ...


class TestCreated(File, CreatedContract): ...


class TestLimits(File, LimitsContract): ...


class TestWatch(File, WatchContract): ...


class TestElection(File, ElectionContract): ...


class TestConcurrency(File, ConcurrencyContract): ...


class TestMultiProcess(File, MultiProcessContract): ...


def test_the_end_of_a_commit_is_told_before_its_caller_knows(tmp_path: Path) -> None:
    """Done or failed; also of a commit that nobody waits for."""
    told, called, goes_on = list[BaseException | None](), threading.Semaphore(0), threading.Event()

    def ended(error: BaseException | None) -> None:
        told.append(error)
        called.release()
        assert goes_on.wait(BOUND)

    with open_backend(tmp_path.as_uri(), cluster="c") as backend, ThreadPoolExecutor(1) as pool:
        backend.commit_ended = ended
        commits: list[Callable[[], Future[None]]] = [
            lambda: backend.commit_async(Create("a", b"1")),
            lambda: pool.submit(backend.commit, Create("b", b"2")),
            lambda: backend.commit_async(Create("b", b"2")),
        ]
        for commit in commits:
            goes_on.clear()
            future = commit()
            assert called.acquire(timeout=BOUND)
            assert not future.done()
            goes_on.set()
            assert future.exception(BOUND) is told[-1]

    assert told[:2] == [None, None]
    assert isinstance(told[2], Conflict)


class TestStateful(File, StatefulContract): ...


class TestReadCompacting(Compacting, ReadContract): ...


class TestCommitCompacting(Compacting, CommitContract): ...


class TestFencingCompacting(Compacting, FencingContract): ...


class TestPagingCompacting(Compacting, PagingContract): ...


class TestCreatedCompacting(Compacting, CreatedContract): ...


class TestLimitsCompacting(Compacting, LimitsContract): ...


class TestWatchCompacting(Compacting, WatchContract): ...


class TestConcurrencyCompacting(Compacting, ConcurrencyContract): ...


class TestMultiProcessCompacting(Compacting, MultiProcessContract): ...


class TestStatefulCompacting(Compacting, StatefulContract): ...


def test_a_closed_handle_has_lost_its_lead(tmp_path: Path) -> None:
    """A leader whose handle is closed writes nothing, so it gives up the lead, and its threads
    end; a disk that is only busy is another matter."""
    backend = FileBackend(tmp_path / "store")
    leadership = backend.campaign("m", ttl=0.5, stop=threading.Event())
    assert leadership is not None
    backend.close()
    assert leadership.lost.wait(60.0)
    leadership.resign()
