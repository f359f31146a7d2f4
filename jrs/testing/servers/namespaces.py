"""Namespaces: each member on a host of its own, so that the network between *servers* can fail.

A host is a network namespace; a bridge in one more namespace joins them all, this process included.
It needs iproute2 and root, or root in a private user namespace, in which an ordinary user can run a
whole test::

    unshare -Urnm sh -c 'mount -t tmpfs jrs /run && ip link set lo up && exec "$@"' sh pytest …

The command that `command()` returns runs a process of a test or a client on a host.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.local import Local
from jrs.testing.servers.provisioner import Seat

_TIMEOUT = 30.0
_CLIENT, _PLAIN, _PEER, _ELECTION = 2379, 2381, 2380, 3888
_OUTSIDE = 254


class Hosts:
    """Network namespaces joined by a bridge, numbered from 0.

    Raises:
        ServerMissing: this machine cannot make them.
    """

    def __init__(self, count: int) -> None:
        if shutil.which("ip") is None:
            raise ServerMissing("no 'ip' on the PATH: apt-get install iproute2")
        if os.geteuid() != 0:
            raise ServerMissing("network namespaces need root, or 'unshare -Urnm'")
        _sweep()
        system = random.SystemRandom()
        # In the names of links, which have at most 15 characters and must differ from those of
        # other tests.
        self._mark = f"{system.randrange(16**6):06x}"
        self._count = count
        # A network that is reserved for benchmarks of networks.
        self._subnet = f"198.{system.choice((18, 19))}.{system.randrange(256)}"
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def address(self, index: int) -> str:
        """Return the address of a host."""
        return f"{self._subnet}.{index + 1}"

    def command(self, index: int, *command: str) -> tuple[str, ...]:
        """Return the command that runs `command` on a host."""
        return "ip", "netns", "exec", self._name(index), *command

    def isolate(self, index: int) -> None:
        """Cut a host off, as if its cable were pulled."""
        _ip("-n", self._hub, "link", "set", f"j{self._mark}{index}", "down")

    def cut(self, one: int, other: int) -> None:
        """Cut the connection between two hosts; all other hosts still reach both."""
        for here, there in ((one, other), (other, one)):
            _ip("-n", self._name(here), "route", "replace", "blackhole", self.address(there))

    def mend(self) -> None:
        """Undo everything that was isolated or cut. Idempotent."""
        for index in range(self._count):
            _ip("-n", self._hub, "link", "set", f"j{self._mark}{index}", "up")
            _ip("-n", self._name(index), "route", "flush", "type", "blackhole")

    def close(self) -> None:
        """Remove the hosts. Processes that still run there are cut off forever. Idempotent."""
        for name in (*map(self._name, range(self._count)), self._hub):
            with suppress(ServerMissing):
                _ip("netns", "delete", name)

    @property
    def _hub(self) -> str:
        return f"jrs-{os.getpid()}-{self._mark}-hub"

    def _name(self, index: int) -> str:
        return f"jrs-{os.getpid()}-{self._mark}-{index}"

    def _make(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge0", "up")
        for index in range(self._count):
            _ip("netns", "add", self._name(index))
            _ip("-n", self._name(index), "link", "set", "lo", "up")
            self._plug(index, self._name(index), self.address(index))
        self._plug(_OUTSIDE, None, f"{self._subnet}.{_OUTSIDE}")

    def _plug(self, number: int, host: str | None, address: str) -> None:
        """Connect a host, or this process's own namespace, to the bridge and give it an address."""
        here = () if host is None else ("-n", host)
        plug, end = f"j{self._mark}{number}", f"e{self._mark}{number}"
        _ip(*here, "link", "add", end, "type", "veth", "peer", "name", plug, "netns", self._hub)
        _ip(*here, "address", "add", f"{address}/24", "dev", end)
        _ip(*here, "link", "set", end, "up")
        _ip("-n", self._hub, "link", "set", plug, "master", "bridge0")
        _ip("-n", self._hub, "link", "set", plug, "up")


class Namespaces(Local):
    """A place with one host for each member, and `clients` hosts for processes of clients.

    Member 0 of a server is on host 0, and so on; the first client is on the host behind the last
    member. TLS is not available, because the certificates are for the loopback.

    Raises:
        ServerMissing: this machine cannot make namespaces.
    """

    def __init__(self, members: int = 3, clients: int = 0) -> None:
        self.hosts = Hosts(members + clients)
        super().__init__()

    def seats(self, count: int) -> tuple[Seat, ...]:
        self._generation += 1
        return tuple(
            Seat(
                name=f"m{index}",
                host=self.hosts.address(index),
                port=_CLIENT,
                plain_port=_PLAIN,
                listen_host=self.hosts.address(index),
                listen_port=_CLIENT,
                listen_plain_port=_PLAIN,
                peer_host=self.hosts.address(index),
                peer_port=_PEER,
                election_port=_ELECTION,
            )
            for index in range(count)
        )

    def prefix(self, seat: Seat) -> tuple[str, ...]:
        return self.hosts.command(int(seat.name.removeprefix("m")))

    def close(self) -> None:
        super().close()
        self.hosts.close()


def _ip(*arguments: str) -> None:
    command: Sequence[str] = ("ip", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode:
        raise ServerMissing(f"'{' '.join(command)}' is refused here: {done.stderr.strip()}")


def _sweep() -> None:
    """Remove the leftovers of killed test runs."""
    found = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    for line in found.stdout.splitlines():
        name = line.split()[0]
        parts = name.split("-")
        if parts[0] != "jrs" or len(parts) != 4 or not parts[1].isdigit():
            continue
        try:
            os.kill(int(parts[1]), 0)
        except ProcessLookupError:
            with suppress(ServerMissing):
                _ip("netns", "delete", name)
        except PermissionError:
            pass
