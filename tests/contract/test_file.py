"""The contract on the file backend."""

import threading
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
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
