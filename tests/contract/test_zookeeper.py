"""The contract on the ZooKeeper backend: on a server alone, and on an ensemble of three."""

import os

import pytest
from hypothesis import settings

from jrs.store.opening import open_backend
from jrs.testing.contract import (
    BackendFixtures,
    CommitContract,
    ConcurrencyContract,
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
from jrs.testing.model import check_against_model, histories
from jrs.testing.servers import ZooKeeperServer


class Alone(BackendFixtures):
    @pytest.fixture
    def opener(self, zookeeper_server: ZooKeeperServer) -> Opener:
        return lambda cluster: open_backend(zookeeper_server.url(), cluster=cluster)


class Ensemble(BackendFixtures):
    @pytest.fixture
    def opener(self, zookeeper_ensemble: ZooKeeperServer) -> Opener:
        return lambda cluster: open_backend(zookeeper_ensemble.url(), cluster=cluster)


class TestRead(Alone, ReadContract): ...


class TestCommit(Alone, CommitContract): ...


class TestFencing(Alone, FencingContract): ...


class TestPaging(Alone, PagingContract): ...


class TestLimits(Alone, LimitsContract): ...


class TestWatch(Alone, WatchContract): ...


class TestElection(Alone, ElectionContract): ...


class TestConcurrency(Alone, ConcurrencyContract): ...


class TestMultiProcess(Alone, MultiProcessContract): ...


class Shorter(StatefulContract):
    """Fewer histories unless JRS_SOAK is set: each step costs round trips to real servers."""

    examples = 20

    def test_behaves_like_a_dict(self, handles: Opener, cluster: str) -> None:
        numbers = iter(range(10**9))
        how = histories()
        if not os.environ.get("JRS_SOAK"):
            how = settings(how, max_examples=self.examples)
        check_against_model(lambda: (handles, f"{cluster}-{next(numbers)}"), how)


class TestStateful(Alone, Shorter): ...


class TestReadEnsemble(Ensemble, ReadContract): ...


class TestCommitEnsemble(Ensemble, CommitContract): ...


class TestFencingEnsemble(Ensemble, FencingContract): ...


class TestPagingEnsemble(Ensemble, PagingContract): ...


class TestLimitsEnsemble(Ensemble, LimitsContract): ...


class TestWatchEnsemble(Ensemble, WatchContract): ...


class TestElectionEnsemble(Ensemble, ElectionContract): ...


class TestConcurrencyEnsemble(Ensemble, ConcurrencyContract): ...


class TestMultiProcessEnsemble(Ensemble, MultiProcessContract): ...


class TestStatefulEnsemble(Ensemble, Shorter):
    examples = 8
