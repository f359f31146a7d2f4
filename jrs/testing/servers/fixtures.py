"""Servers as pytest fixtures: ``pytest_plugins = ["jrs.testing.servers.fixtures"]``.

The shared servers live as long as the test run and are healed before each test. So a test may kill
and pause them, but must use a cluster id or a prefix of its own. A test that needs another
configuration, or that leaves data behind that other tests would notice, starts a private server.
The report of a test that fails has the end of the log of each member that it used.

If no server can run here, the test is skipped with a message that says what to install; with `CI`
in the environment it fails instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn, TypeVar

import pytest

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.etcd import EtcdServer
from jrs.testing.servers.found import find_etcd, find_zookeeper, named_etcd, named_zookeeper
from jrs.testing.servers.server import Server
from jrs.testing.servers.zookeeper import ZooKeeperServer

S = TypeVar("S", bound=Server)


def missing(why: object) -> NoReturn:
    """Skip the test, or fail it in CI, which must have everything."""
    if os.environ.get("CI"):
        pytest.fail(f"CI has to have every server: {why}", pytrace=False)
    pytest.skip(str(why))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the servers' logs to the report of a test that failed."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {}).values()
        for server in {value for value in used if isinstance(value, Server)}:
            for member in server:
                report.sections.append((f"log of {server.scheme} {member}", member.log()))
    return report


@contextmanager
def had(find: Callable[[], S]) -> Iterator[S]:
    """Enter the server that `find` returns; without one, skip the test or fail it."""
    try:
        server = find()
    except ServerMissing as error:
        missing(error)
    with server:
        yield server


@pytest.fixture(scope="session")
def _one_etcd() -> Iterator[EtcdServer]:
    with had(lambda: named_etcd(1, _skip) or find_etcd()) as server:
        yield server


@pytest.fixture(scope="session")
def _three_etcds() -> Iterator[EtcdServer]:
    with had(lambda: named_etcd(3, _skip) or find_etcd(3)) as server:
        yield server


@pytest.fixture(scope="session")
def _one_zookeeper() -> Iterator[ZooKeeperServer]:
    with had(lambda: named_zookeeper(1, _skip) or find_zookeeper()) as server:
        yield server


@pytest.fixture(scope="session")
def _three_zookeepers() -> Iterator[ZooKeeperServer]:
    with had(lambda: named_zookeeper(3, _skip) or find_zookeeper(3)) as server:
        yield server


@pytest.fixture
def etcd_server(_one_etcd: EtcdServer) -> EtcdServer:
    """The shared etcd of one member, healthy."""
    _one_etcd.heal()
    return _one_etcd


@pytest.fixture
def etcd_ensemble(_three_etcds: EtcdServer) -> EtcdServer:
    """The shared etcd of three members, all healthy."""
    _three_etcds.heal()
    return _three_etcds


@pytest.fixture
def zookeeper_server(_one_zookeeper: ZooKeeperServer) -> ZooKeeperServer:
    """The shared ZooKeeper of one member, healthy."""
    _one_zookeeper.heal()
    return _one_zookeeper


@pytest.fixture
def zookeeper_ensemble(_three_zookeepers: ZooKeeperServer) -> ZooKeeperServer:
    """The shared ZooKeeper of three members, all healthy."""
    _three_zookeepers.heal()
    return _three_zookeepers


@pytest.fixture
def start_etcd() -> Iterator[Callable[..., EtcdServer]]:
    """Start an etcd for this test alone: ``start_etcd(members=3, tls=True)``; options of
    `EtcdServer`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(had(lambda: find_etcd(**options)))


@pytest.fixture
def start_zookeeper() -> Iterator[Callable[..., ZooKeeperServer]]:
    """Start a ZooKeeper for this test alone; options of `ZooKeeperServer`."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(had(lambda: find_zookeeper(**options)))


def _skip(why: str) -> NoReturn:
    pytest.skip(why)
