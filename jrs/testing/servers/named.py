"""Named: a server that others run, found by its URL. Tests can use it, but not hurt it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from jrs.backends.remote.address import Address
from jrs.testing.servers.errors import NotOurs, ServerError
from jrs.testing.servers.provisioner import Provisioner, Runner, Seat


def _refuse(what: str) -> NoReturn:
    raise NotOurs(what)


class Named(Provisioner):
    """The servers of a URL.

    Args:
        url: the URL of a backend; its servers have no TLS and no authentication.
        default_port: the port if the URL has none.
        refuse: called with the reason if a test wants to kill, pause or stop a server; raises.

    Raises:
        ServerError: the URL has credentials or TLS, which these tests cannot use.
    """

    def __init__(
        self, url: str, default_port: int, refuse: Callable[[str], NoReturn] = _refuse
    ) -> None:
        self.address = Address.parse(url, default_port=default_port, environment={})
        if self.address.tls or self.address.user or self.address.prefix:
            raise ServerError(
                f"tests use {self.address.hosts} without TLS, user and prefix: name it without"
            )
        self._refuse = refuse

    def seats(self, count: int) -> tuple[Seat, ...]:
        return tuple(
            Seat(
                name=f"{host}:{port}",
                host=host,
                port=port,
                plain_port=port,
                listen_host=host,
                listen_port=port,
                listen_plain_port=port,
                peer_host=host,
                peer_port=0,
                election_port=0,
            )
            for host, port in self.address.endpoints
        )

    def etcd(
        self, seat: Seat, arguments: Sequence[str], *, files: Path | None, fsync: bool
    ) -> Runner:
        return _NotOurs(seat, self._refuse)

    def zookeeper(
        self,
        seat: Seat,
        number: int,
        config: Sequence[str],
        properties: Sequence[str],
        *,
        files: Path | None,
    ) -> Runner:
        return _NotOurs(seat, self._refuse)

    def close(self) -> None:
        pass


class _NotOurs(Runner):
    running = True
    paused = False

    def __init__(self, seat: Seat, refuse: Callable[[str], NoReturn]) -> None:
        self._seat = seat
        self._refuse = refuse

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self._refuse(f"the server at {self._seat.name} is not ours to stop")

    def kill(self) -> None:
        self._refuse(f"the server at {self._seat.name} is not ours to kill")

    def pause(self) -> None:
        self._refuse(f"the server at {self._seat.name} is not ours to pause")

    def resume(self) -> None:
        pass

    def log(self) -> str:
        return "(its log is not here)"

    def close(self) -> None:
        pass
