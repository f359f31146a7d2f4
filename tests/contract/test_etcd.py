"""The contract on etcd: on one server, and on three."""

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
from jrs.testing.servers import EtcdServer
from tests.contract.short import ShortStatefulContract


class Single(BackendFixtures):
    @pytest.fixture
    def opener(self, etcd_server: EtcdServer) -> Opener:
        return lambda cluster: open_backend(etcd_server.url(), cluster=cluster)


class Ensemble(BackendFixtures):
    @pytest.fixture
    def opener(self, etcd_ensemble: EtcdServer) -> Opener:
        return lambda cluster: open_backend(etcd_ensemble.url(), cluster=cluster)


class TestRead(Single, ReadContract): ...


class TestCommit(Single, CommitContract): ...


class TestFencing(Single, FencingContract): ...


class TestPaging(Single, PagingContract): ...


class TestCreated(Single, CreatedContract): ...


class TestLimits(Single, LimitsContract): ...


class TestWatch(Single, WatchContract): ...


class TestElection(Single, ElectionContract): ...


class TestConcurrency(Single, ConcurrencyContract): ...


class TestMultiProcess(Single, MultiProcessContract): ...


class TestStateful(Single, ShortStatefulContract): ...


class TestEnsembleRead(Ensemble, ReadContract): ...


class TestEnsembleCommit(Ensemble, CommitContract): ...


class TestEnsembleFencing(Ensemble, FencingContract): ...


class TestEnsemblePaging(Ensemble, PagingContract): ...


class TestEnsembleCreated(Ensemble, CreatedContract): ...


class TestEnsembleLimits(Ensemble, LimitsContract): ...


class TestEnsembleWatch(Ensemble, WatchContract): ...


class TestEnsembleElection(Ensemble, ElectionContract): ...


class TestEnsembleConcurrency(Ensemble, ConcurrencyContract): ...


class TestEnsembleMultiProcess(Ensemble, MultiProcessContract): ...


class TestEnsembleStateful(Ensemble, ShortStatefulContract):
    examples = 8
