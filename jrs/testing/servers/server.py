"""Server: an etcd or a ZooKeeper of one or three members that tests start, hurt and heal.

A `Server` is the whole ensemble; it knows whether members are healthy and which one leads. A
`Member` is one of its servers. A `Provisioner` decides where they run.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import urlencode

from jrs.contract.clock import Deadline
from jrs.testing.servers.errors import ServerUnhealthy
from jrs.testing.servers.provisioner import Provisioner, Runner, Seat

START_TIMEOUT = 60.0
"""Seconds for a start until the server is healthy. A ZooKeeper takes 0.5 s on an idle machine."""

_POLL = 0.02
_ATTEMPTS = 5
_PORT_TAKEN = ("address already in use", "BindException")


class Member:
    """One member of an ensemble, or the only one."""

    def __init__(self, seat: Seat, runner: Runner, health: Callable[[float], str | None]) -> None:
        self.seat = seat
        self._runner = runner
        self._health = health

    @property
    def name(self) -> str:
        return self.seat.name

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port for clients."""
        return self.seat.host, self.seat.port

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended; also while it is paused."""
        return self._runner.running

    @property
    def paused(self) -> bool:
        return self._runner.paused

    def start(self, *, wait: bool = True, timeout: float = START_TIMEOUT) -> None:
        """Start it with its earlier ports and data, and wait until it is healthy.

        Args:
            wait: False if it cannot become healthy, because most of the ensemble is down.
            timeout: seconds.

        Raises:
            ServerUnhealthy: it was not healthy within `timeout`, or it ended.
        """
        self._runner.start()
        if wait:
            self.wait(timeout)

    def wait(self, timeout: float = START_TIMEOUT) -> None:
        """Wait until it is healthy: it serves, and knows a leader.

        Raises:
            ServerUnhealthy: not within `timeout` seconds, or it is not running.
        """
        deadline = Deadline.after(timeout)
        while (why := self._health(max(0.1, min(2.0, deadline.remaining())))) is not None:
            if not self.running:
                raise ServerUnhealthy(f"{self} is not running", self.log())
            if deadline.expired:
                raise ServerUnhealthy(
                    f"{self} is not healthy after {timeout:g} s: {why}", self.log()
                )
            time.sleep(_POLL)

    def healthy(self, timeout: float = 2.0) -> bool:
        """Return whether it serves and knows a leader; asks for at most `timeout` seconds."""
        return self._health(timeout) is None

    def stop(self) -> None:
        """End it gracefully. Its data stays."""
        self._runner.stop()

    def kill(self) -> None:
        """End it by SIGKILL. Its data stays."""
        self._runner.kill()

    def pause(self) -> None:
        """Let it hang, as after SIGSTOP: connections stay open, and nothing is answered."""
        self._runner.pause()

    def resume(self) -> None:
        """Let a paused member continue."""
        self._runner.resume()

    def log(self) -> str:
        """Return the end of what it printed."""
        return self._runner.log()

    def close(self) -> None:
        """Kill it and forget its data. Idempotent."""
        self._runner.close()

    def __str__(self) -> str:
        return f"{self.name} at {self.seat.host}:{self.seat.port}"


class Server(ABC):
    """An ensemble: ``server[0]`` is its first member, and `kill()` kills all members.

    ::

        with some_server as server:
            backend = open_backend(server.url())
            server[server.leader()].kill()

    Leaving the context kills the members and removes their data.
    """

    scheme: ClassVar[str]

    def __init__(self, place: Provisioner, members: int = 1) -> None:
        self._place = place
        self._count = members
        self._fresh = True
        self.members = self._seat()

    @abstractmethod
    def _build(self, seats: Sequence[Seat]) -> list[Member]:
        """Return a member for each seat, not started."""

    @abstractmethod
    def _leads(self, member: Member, timeout: float) -> int | None:
        """Return the term of the leadership that `member` claims, or None."""

    @abstractmethod
    def _url_options(self) -> dict[str, str]:
        """Return the options that a URL needs: the TLS files."""

    def _prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Prepare the server once, when its members are healthy for the first time."""

    @property
    def endpoints(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each member, for clients. Final once it was started."""
        return tuple(member.endpoint for member in self.members)

    @property
    def url_part(self) -> str:
        """The endpoints as ``h1:p1,h2:p2``."""
        return ",".join(f"{host}:{port}" for host, port in self.endpoints)

    def url(self, prefix: str = "", *, endpoints: Sequence[tuple[str, int]] | None = None) -> str:
        """Return the URL for `jrs.open_backend`, with its TLS files and without credentials.

        Args:
            prefix: the URL's path, without a leading slash.
            endpoints: the addresses in the URL instead of the members', e.g. those of proxies.
        """
        hosts = ",".join(f"{host}:{port}" for host, port in endpoints or self.endpoints)
        path = f"/{prefix}" if prefix else ""
        options = self._url_options()
        return f"{self.scheme}://{hosts}{path}{'?' + urlencode(options) if options else ''}"

    def start(self, timeout: float = START_TIMEOUT) -> None:
        """Start every member that is not running; return when all are healthy.

        Raises:
            ServerUnhealthy: a member was not healthy within `timeout` seconds.
        """
        deadline = Deadline.after(timeout)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                for member in self.members:
                    member.start(wait=False)
                for member in self.members:
                    member.wait(deadline.remaining())
                break
            except ServerUnhealthy as error:
                # Another process took a port before the server could bind it.
                clash = any(sign in error.log for sign in _PORT_TAKEN)
                if not (self._fresh and clash and attempt < _ATTEMPTS):
                    raise
                for member in self.members:
                    member.close()
                self.members = self._seat()
        if self._fresh:
            self._fresh = False
            self._prepare()

    def stop(self) -> None:
        """End every member gracefully. The data stays."""
        for member in self.members:
            member.stop()

    def kill(self) -> None:
        """End every member by SIGKILL. The data stays."""
        for member in self.members:
            member.kill()

    def pause(self) -> None:
        """Let every member hang, as after SIGSTOP."""
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        """Let every member continue."""
        for member in self.members:
            member.resume()

    def heal(self, timeout: float = START_TIMEOUT) -> None:
        """Resume paused members, start ended ones, and wait until all are healthy.

        Raises:
            ServerUnhealthy: not within `timeout` seconds.
        """
        self.resume()
        self.start(timeout)

    def leader(self, timeout: float = START_TIMEOUT) -> int:
        """Wait until a member leads, and return its index.

        Raises:
            ServerUnhealthy: none leads within `timeout` seconds.
        """
        deadline = Deadline.after(timeout)
        while True:
            # A member that was cut off may still believe that it leads; the newest term is right.
            terms = {
                term: index
                for index, member in enumerate(self.members)
                if member.running
                and not member.paused
                and (term := self._leads(member, max(0.1, min(2.0, deadline.remaining()))))
                is not None
            }
            if terms:
                return terms[max(terms)]
            if deadline.expired:
                raise ServerUnhealthy(
                    f"no member of {self.url_part} leads after {timeout:g} s",
                    "\n".join(f"{member}: {member.log()}" for member in self.members),
                )
            time.sleep(_POLL)

    def close(self) -> None:
        """Kill all members and remove their data. Idempotent."""
        for member in self.members:
            member.close()
        self._place.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __getitem__(self, index: int) -> Member:
        return self.members[index]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def _seat(self) -> tuple[Member, ...]:
        return tuple(self._build(self._place.seats(self._count)))
