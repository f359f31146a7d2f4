"""Containers: servers from the public images, by testcontainers, if a Docker engine answers.

`JRS_TEST_ETCD_IMAGE` and `JRS_TEST_ZOOKEEPER_IMAGE` name other images, which must accept the same
command and configuration as the public ones.
"""

from __future__ import annotations

import os
import socket
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.testing.servers.errors import ServerMissing, ServerUnhealthy
from jrs.testing.servers.ports import Ports
from jrs.testing.servers.provisioner import Provisioner, Runner, Seat

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container as Handle
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

# Imported inside functions: docker, testcontainers, since servers are also found without them.

ETCD_IMAGE_VARIABLE = "JRS_TEST_ETCD_IMAGE"
ETCD_IMAGE = "quay.io/coreos/etcd:v3.5.16"
ZOOKEEPER_IMAGE_VARIABLE = "JRS_TEST_ZOOKEEPER_IMAGE"
ZOOKEEPER_IMAGE = "zookeeper:3.9.3"

_SOCKET = "unix:///var/run/docker.sock"
_TIMEOUT = 60
_PULL_TIMEOUT = 600
_STOP_TIMEOUT = 15
_CLIENT, _PLAIN, _PEER, _ELECTION = 5001, 5002, 5003, 5004
"""The ports inside of a container; the first two are published."""


def etcd_image() -> str:
    """Return the name of the image of etcd."""
    return os.environ.get(ETCD_IMAGE_VARIABLE) or ETCD_IMAGE


def zookeeper_image() -> str:
    """Return the name of the image of ZooKeeper."""
    return os.environ.get(ZOOKEEPER_IMAGE_VARIABLE) or ZOOKEEPER_IMAGE


def require(image: str) -> None:
    """Check that containers of an image can be started; pull the image if necessary.

    Raises:
        ServerMissing: no engine answers, or an image is missing and cannot be pulled.
    """
    with _client() as client:
        from testcontainers.core.config import testcontainers_config as settings

        _require(client, image)
        if not settings.ryuk_disabled:
            _require(client, settings.ryuk_image)  # It removes the leftovers of a killed test run.


def probe() -> None:
    """Check that something listens on the socket of the environment's engine, if it is a socket.

    The docker client leaves a socket open for every failed connection, so it must not try.

    Raises:
        OSError: nothing listens there.
    """
    scheme, _, path = os.environ.get("DOCKER_HOST", _SOCKET).partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as attempt:
            attempt.settimeout(_TIMEOUT)
            attempt.connect(path)


class Containers(Provisioner):
    """The Docker engine of the environment: a container for each member, in a common network.

    The ports are published on fixed ports of the loopback, so the engine must be local.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="jrs-containers-")
        self._ports = Ports()
        self._network: Network | None = None
        self._generation = 0

    def seats(self, count: int) -> tuple[Seat, ...]:
        self._ports.close()
        self._generation += 1
        unique = uuid.uuid4().hex[:12]
        return tuple(
            Seat(
                name=f"m{index}",
                host="127.0.0.1",
                port=self._ports.take(),
                plain_port=self._ports.take(),
                listen_host="0.0.0.0",
                listen_port=_CLIENT,
                listen_plain_port=_PLAIN,
                peer_host=f"jrs-{unique}-m{index}",
                peer_port=_PEER,
                election_port=_ELECTION,
            )
            for index in range(count)
        )

    def etcd(
        self, seat: Seat, arguments: Sequence[str], *, files: Path | None, fsync: bool
    ) -> Runner:
        def configure(container: DockerContainer) -> None:
            # Not a flag: a version that does not know the variable ignores it.
            container.with_env("ETCD_UNSAFE_NO_FSYNC", "false" if fsync else "true")

        command = ["/usr/local/bin/etcd", "--data-dir=/etcd-data", *arguments]
        return self._runner(etcd_image(), seat, command, files, configure)

    def zookeeper(
        self,
        seat: Seat,
        number: int,
        config: Sequence[str],
        properties: Sequence[str],
        *,
        files: Path | None,
    ) -> Runner:
        file = Path(self._folder.name) / f"{seat.name}-{self._generation}.cfg"
        file.write_text("\n".join(["dataDir=/data", *config]) + "\n")

        def configure(container: DockerContainer) -> None:
            container.with_volume_mapping(str(file), "/conf/zoo.cfg", "ro")
            container.with_env("ZOO_MY_ID", str(number))
            container.with_env("ZK_SERVER_HEAP", "128")
            container.with_env("JMXDISABLE", "true")
            container.with_env("SERVER_JVMFLAGS", " ".join(f"-D{name}" for name in properties))

        # Through a shell: the image's entry point would drop root, and then could not read files
        # that only their owner can read.
        command = ["bash", "-c", "exec zkServer.sh start-foreground"]
        return self._runner(zookeeper_image(), seat, command, files, configure)

    def close(self) -> None:
        if self._network is not None:
            self._network.remove()
            self._network._docker.client.close()
            self._network = None
        self._ports.close()
        self._folder.cleanup()

    def _runner(
        self,
        image: str,
        seat: Seat,
        command: list[str],
        files: Path | None,
        configure: Callable[[DockerContainer], None],
    ) -> Runner:
        def create() -> DockerContainer:
            from testcontainers.core.container import DockerContainer
            from testcontainers.core.network import Network

            if self._network is None:
                self._network = Network().create()
            container = DockerContainer(image).with_command(command)
            container.with_network(self._network).with_network_aliases(seat.peer_host)
            for inside, outside in ((_CLIENT, seat.port), (_PLAIN, seat.plain_port)):
                # Only on the loopback: a server for tests is open to every process that reaches it.
                container.ports[f"{inside}/tcp"] = (seat.host, outside)  # type: ignore[assignment]
            if files is not None:
                container.with_volume_mapping(str(files), str(files), "ro")
            configure(container)
            return container

        return _Container(create)


class _Container(Runner):
    """A container; the first start creates it, and later ones start it again."""

    def __init__(self, create: Callable[[], DockerContainer]) -> None:
        self._create = create
        self._container: DockerContainer | None = None

    @property
    def running(self) -> bool:
        return self._status() in ("running", "paused")

    @property
    def paused(self) -> bool:
        return self._status() == "paused"

    def start(self) -> None:
        with _translated():
            if self._container is None:
                self._container = self._create()
                self._container.start()
            elif not self.running:
                self._handle().start()

    def stop(self) -> None:
        if self.running:
            with _translated():
                self.resume()
                self._handle().stop(timeout=_STOP_TIMEOUT)

    def kill(self) -> None:
        if self.running:
            with _translated():
                self._handle().kill()
                self._handle().wait(timeout=_TIMEOUT)

    def pause(self) -> None:
        if self._status() == "running":
            with _translated():
                self._handle().pause()

    def resume(self) -> None:
        if self.paused:
            with _translated():
                self._handle().unpause()

    def log(self) -> str:
        if self._container is None:
            return ""
        with _translated():
            return bytes(self._handle().logs(tail=40)).decode(errors="replace").strip()

    def close(self) -> None:
        if self._container is not None:
            with _translated():
                self._container.stop(force=True, delete_volume=True)
            self._container = None

    def _status(self) -> str:
        if self._container is None:
            return "absent"
        with _translated():
            handle = self._handle()
            handle.reload()
            return str(handle.status)

    def _handle(self) -> Handle:
        assert self._container is not None
        return self._container.get_wrapped_container()


def _require(client: DockerClient, image: str) -> None:
    from docker.errors import DockerException, ImageNotFound

    try:
        client.images.get(image)
    except ImageNotFound:
        name, _, tag = image.rpartition(":")
        try:
            client.images.pull(name, tag)
        except DockerException as error:
            raise ServerMissing(f"the image {image} cannot be pulled: {error}") from error


@contextmanager
def _client() -> Iterator[DockerClient]:
    try:
        import docker
        import testcontainers  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise ServerMissing("containers need: pip install testcontainers") from error
    try:
        probe()
        client = docker.from_env(timeout=_PULL_TIMEOUT)  # This asks for its version.
    except (OSError, docker.errors.DockerException) as error:
        raise ServerMissing(f"no Docker engine answers: {error}") from error
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Translate a refusal of the engine into our own error."""
    from docker.errors import DockerException

    try:
        yield
    except DockerException as error:
        raise ServerUnhealthy("the Docker engine refused", str(error)) from error
