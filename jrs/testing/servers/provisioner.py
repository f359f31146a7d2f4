"""Provisioner: where the members of a server run, and how they are started and hurt there.

There are provisioners for this machine, for containers and for network namespaces. A provisioner
gives each member a `Seat`, its addresses, and a `Runner`, its process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import attrs


@attrs.frozen
class Seat:
    """Where one member listens.

    Attributes:
        name: the member's name, for its log and its configuration.
        host, port: the address for tests and clients.
        plain_port: the port for questions without TLS, if that is another port.
        listen_host, listen_port, listen_plain_port: the same addresses as the member sees them.
        peer_host, peer_port, election_port: the address for the other members.
    """

    name: str
    host: str
    port: int
    plain_port: int
    listen_host: str
    listen_port: int
    listen_plain_port: int
    peer_host: str
    peer_port: int
    election_port: int


class Runner(ABC):
    """The process or container of one member. No method waits until the server is healthy."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether it was started and has not ended; True while it is paused."""

    @property
    @abstractmethod
    def paused(self) -> bool: ...

    @abstractmethod
    def start(self) -> None:
        """Start it with its earlier data. Does nothing if it is running."""

    @abstractmethod
    def stop(self) -> None:
        """End it, by force if necessary; return when it has ended. Idempotent."""

    @abstractmethod
    def kill(self) -> None:
        """End it by SIGKILL; return when it has ended. Idempotent."""

    @abstractmethod
    def pause(self) -> None:
        """Stop all of its threads, and return then. Its connections stay."""

    @abstractmethod
    def resume(self) -> None:
        """Let it continue. Idempotent."""

    @abstractmethod
    def log(self) -> str:
        """Return the end of its output."""

    @abstractmethod
    def close(self) -> None:
        """Kill it and remove its data. Idempotent."""


class Provisioner(ABC):
    """The place where members run."""

    @abstractmethod
    def seats(self, count: int) -> tuple[Seat, ...]:
        """Reserve a seat for each member, and release the earlier seats."""

    @abstractmethod
    def etcd(
        self, seat: Seat, arguments: Sequence[str], *, files: Path | None, fsync: bool
    ) -> Runner:
        """Return the runner of an etcd with these arguments; the provisioner adds the data folder.

        Args:
            files: the folder of the files that the arguments name.
            fsync: False if data must survive only the process and not the machine; versions that
                always sync ignore it.
        """

    @abstractmethod
    def zookeeper(
        self,
        seat: Seat,
        number: int,
        config: Sequence[str],
        properties: Sequence[str],
        *,
        files: Path | None,
    ) -> Runner:
        """Return the runner of a ZooKeeper; the provisioner adds the data folder.

        Args:
            number: its id in the ensemble, from 1.
            config: lines of its zoo.cfg.
            properties: Java's system properties, as NAME=VALUE.
            files: the folder of the files that the configuration names.
        """

    @abstractmethod
    def close(self) -> None:
        """Release seats and data, after the runners are closed. Idempotent."""
