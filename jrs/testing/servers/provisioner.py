"""Place: where the members of a server run, and what starts and hurts each of them there.

This machine, containers, and network namespaces are places. A place gives each member a `Seat`,
which says where it listens, and a `Runner`, which is its process.
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
        name: of the member, for its log and its configuration.
        host, port: where tests and clients reach it.
        plain_port: where its health can be asked without TLS, where that is another port.
        listen_host, listen_port, listen_plain_port: the same as the member itself sees them.
        peer_host, peer_port, election_port: where the other members reach it.
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
    """One member's process, or container. Nothing here waits for the server to be healthy."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether it was started and has not ended; also while it is paused."""

    @property
    @abstractmethod
    def paused(self) -> bool: ...

    @abstractmethod
    def start(self) -> None:
        """Launch it, on the data it left behind. Nothing happens if it is running."""

    @abstractmethod
    def stop(self) -> None:
        """End it gracefully, or else by force; return when it has ended. Idempotent."""

    @abstractmethod
    def kill(self) -> None:
        """Kill it by SIGKILL; return when it has ended. Idempotent."""

    @abstractmethod
    def pause(self) -> None:
        """Stop it from running; its connections stay. Return when no thread of it runs."""

    @abstractmethod
    def resume(self) -> None:
        """Let it run on. Idempotent."""

    @abstractmethod
    def log(self) -> str:
        """Return the end of what it printed."""

    @abstractmethod
    def close(self) -> None:
        """Kill it and forget its data. Idempotent."""


class Provisioner(ABC):
    """Where members run."""

    @abstractmethod
    def seats(self, count: int) -> tuple[Seat, ...]:
        """Reserve a seat for each member, letting go of those reserved before."""

    @abstractmethod
    def etcd(
        self, seat: Seat, arguments: Sequence[str], *, files: Path | None, fsync: bool
    ) -> Runner:
        """Return what runs an etcd with these arguments; the place adds its data folder.

        Args:
            files: a folder that the arguments name files of.
            fsync: False where data need not survive the machine, only the process; ignored by
                versions that cannot leave it out.
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
        """Return what runs a ZooKeeper; the place adds its data folder.

        Args:
            number: its id in the ensemble, from 1.
            config: lines of its zoo.cfg.
            properties: Java's system properties, as NAME=VALUE.
            files: a folder that the configuration names files of.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of seats and data. Idempotent. Its runners are closed by then."""
