"""The container path for real: testcontainers and a Docker engine of our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import docker
import pytest

from jrs.testing.servers import Server, ServerMissing, find_etcd, find_zookeeper
from jrs.testing.servers.containers import Containers, require
from tests.testing.servers.dockerd import needed_engine
from tests.testing.servers.images import make_etcd_image, make_zookeeper_image
from tests.testing.servers.values import read, write


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """A Docker engine of our own, with images of Debian's etcd and ZooKeeper."""
    with needed_engine() as host, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host)
        patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        patch.setenv("JRS_TEST_ETCD_IMAGE", make_etcd_image(host))
        patch.setenv("JRS_TEST_ZOOKEEPER_IMAGE", make_zookeeper_image(host))
        yield host


@pytest.fixture(params=[find_etcd, find_zookeeper], ids=["etcd", "zookeeper"])
def find(request: pytest.FixtureRequest, engine: str) -> Callable[..., Server]:
    """Find a server of each kind, where an engine answers."""
    found: Callable[..., Server] = request.param
    return found


def test_a_server_in_a_container(find: Callable[..., Server], engine: str) -> None:
    """It is found, written to, killed, paused and stopped as a process is, and keeps its data."""
    with find() as server:
        assert isinstance(server._place, Containers)
        endpoints = server.endpoints
        write(server, "kept", b"value")
        server.kill()

        assert not server[0].running

        server.start()
        server.pause()

        assert server[0].paused
        assert not server[0].healthy(0.5)

        server.heal()
        server.stop()

        assert not server[0].running

        server.heal()

        assert endpoints == server.endpoints
        assert server.leader() == 0
        assert read(server, "kept") == b"value"

    assert _containers(engine) == 0


def test_an_ensemble_in_containers(find: Callable[..., Server], engine: str) -> None:
    """Three find each other, and another one leads when the leader hangs or is killed."""
    with find(3) as server:
        write(server, "kept", b"value")
        first = server.leader()
        server[first].pause()
        second = server.leader()

        assert first != second

        server[first].kill()  # Also while it is paused.
        server.heal()

        assert read(server, "kept") == b"value"

    assert _containers(engine) == 0


def test_containers_read_certificates(find: Callable[..., Server]) -> None:
    """TLS works there, too: the files of its owner are mounted."""
    with find(tls=True) as server:
        assert server[0].healthy()
        assert "ca=" in server.url()


def test_what_cannot_be_pulled_is_named(engine: str) -> None:
    """An image that is not there and not to be had is a missing server, not a broken one."""
    with pytest.raises(ServerMissing, match="localhost:1/jrs-no-such-image"):
        require("localhost:1/jrs-no-such-image:1")


def test_without_an_engine_there_are_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine is no error as long as the packages are here."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(ServerMissing, match="no Docker engine answers"):
        require("any:1")
    server = find_etcd()
    try:
        assert not isinstance(server._place, Containers)
    finally:
        server.close()


def _containers(host: str) -> int:
    client = docker.DockerClient(host)
    try:
        return len(client.containers.list(all=True))
    finally:
        client.close()
