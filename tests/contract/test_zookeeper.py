"""The contract on the ZooKeeper backend: on a server alone, and on an ensemble of three."""

import pytest

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
    WatchContract,
)
from jrs.testing.servers import ZooKeeperServer
from tests.backends.zookeeper.support import patient as patient
from tests.contract.short import ShortStatefulContract


class Alone(BackendFixtures):
    @pytest.fixture
    def opener(self, zookeeper_server: ZooKeeperServer) -> Opener:
        return lambda cluster: open_backend(zookeeper_server.url(), cluster=cluster)


class Ensemble(BackendFixtures):
    """Handles at the followers: a client of the leader may see a moment later what others were told
    by a follower, which the contract's cases do not wait for."""

    @pytest.fixture
    def opener(self, zookeeper_ensemble: ZooKeeperServer) -> Opener:
        leads = zookeeper_ensemble.leader()
        ends = [end for at, end in enumerate(zookeeper_ensemble.endpoints) if at != leads]
        return lambda cluster: open_backend(zookeeper_ensemble.url(endpoints=ends), cluster=cluster)


class TestRead(Alone, ReadContract): ...


class TestCommit(Alone, CommitContract): ...


class TestFencing(Alone, FencingContract): ...


class TestPaging(Alone, PagingContract): ...


class TestCreated(Alone, CreatedContract): ...


class TestLimits(Alone, LimitsContract): ...


class TestWatch(Alone, WatchContract): ...


class TestElection(Alone, ElectionContract): ...


class TestConcurrency(Alone, ConcurrencyContract): ...


class TestMultiProcess(Alone, MultiProcessContract): ...


class TestStateful(Alone, ShortStatefulContract): ...


class TestReadEnsemble(Ensemble, ReadContract): ...


class TestCommitEnsemble(Ensemble, CommitContract): ...


class TestFencingEnsemble(Ensemble, FencingContract): ...


class TestPagingEnsemble(Ensemble, PagingContract): ...


class TestCreatedEnsemble(Ensemble, CreatedContract): ...


class TestLimitsEnsemble(Ensemble, LimitsContract): ...


class TestWatchEnsemble(Ensemble, WatchContract): ...


class TestElectionEnsemble(Ensemble, ElectionContract): ...


class TestConcurrencyEnsemble(Ensemble, ConcurrencyContract): ...


class TestMultiProcessEnsemble(Ensemble, MultiProcessContract): ...


class TestStatefulEnsemble(Ensemble, ShortStatefulContract):
    examples = 8
