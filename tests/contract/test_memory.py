"""The contract on the memory backend; all but its processes: it is for one, as it declares."""

import uuid

import pytest

from jrs.backends.memory import MemoryLeadership
from jrs.contract.backend import Backend
from jrs.contract.operations import Fence
from jrs.store.opening import open_backend
from jrs.testing.contract import (
    BackendFixtures,
    CommitContract,
    ConcurrencyContract,
    CreatedContract,
    ElectionContract,
    FencingContract,
    Hang,
    LimitsContract,
    Opener,
    PagingContract,
    ReadContract,
    StatefulContract,
    WatchContract,
    lead,
)


class Memory(BackendFixtures):
    @pytest.fixture
    def opener(self) -> Opener:
        url = f"memory://{uuid.uuid4().hex}"
        return lambda cluster: open_backend(url, cluster=cluster)

    @pytest.fixture
    def hang(self) -> Hang:
        """There is no process to stop: the leadership itself hangs on request."""

        def hang(backend: Backend, ttl: float) -> Fence:
            leadership = lead(backend, "hung", ttl)
            assert isinstance(leadership, MemoryLeadership)
            leadership.hang()
            return leadership.fence

        return hang


class TestRead(Memory, ReadContract): ...


class TestCommit(Memory, CommitContract): ...


class TestFencing(Memory, FencingContract): ...


class TestPaging(Memory, PagingContract): ...


class TestCreated(Memory, CreatedContract): ...


class TestLimits(Memory, LimitsContract): ...


class TestWatch(Memory, WatchContract): ...


class TestElection(Memory, ElectionContract): ...


class TestConcurrency(Memory, ConcurrencyContract): ...


class TestStateful(Memory, StatefulContract): ...
