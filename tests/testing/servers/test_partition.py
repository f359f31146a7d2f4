"""A partition between servers, by network namespaces: the majority continues without its leader."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jrs.contract.clock import Deadline
from jrs.testing.servers import Server
from jrs.testing.servers.namespaces import Hosts, Namespaces
from tests.testing.servers.values import read, write
from tests.unshared import as_root, place, server

__all__ = ["as_root", "place", "server"]

pytestmark = pytest.mark.usefixtures("as_root")


def test_a_leader_that_is_cut_off_from_its_peers(server: Server, place: Namespaces) -> None:
    """Others elect a new one; it still answers us, and serves nothing until it is back."""
    write(server, "key", b"before")
    first = server.leader()
    for other in {0, 1, 2} - {first}:
        place.hosts.cut(first, other)
    second = _another(server, first)

    _until_sick(server, first)
    assert server[second].healthy()

    place.hosts.mend()
    server.heal()

    assert read(server, "key") == b"before"


def test_a_leader_that_is_isolated(server: Server, place: Namespaces) -> None:
    """Nobody reaches it, not even a client elsewhere; after it is back all is well."""
    first = server.leader()
    place.hosts.isolate(first)
    second = _another(server, first)

    assert not _reaches(place, first)
    assert _reaches(place, second)
    assert not server[first].healthy(0.5)

    place.hosts.mend()
    server.heal()

    assert _reaches(place, first)


def test_nothing_is_left_behind(place: Namespaces) -> None:
    """Namespaces and links go with the place, and those of a killed run with the next one."""
    place.close()
    dead = subprocess.Popen(["true"])
    dead.wait(20.0)
    stale = f"jrs-{dead.pid}-000000-0"
    subprocess.run(["ip", "netns", "add", stale], check=True, timeout=20.0)
    Hosts(1).close()
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout

    assert stale not in names
    assert f"jrs-{os.getpid()}-" not in names


def _another(server: Server, first: int) -> int:
    deadline = Deadline.after(60.0)
    while (leader := server.leader()) == first:  # It takes an ensemble a moment to miss its leader.
        assert not deadline.expired

    return leader


def _until_sick(server: Server, index: int) -> None:
    deadline = Deadline.after(60.0)
    while server[index].healthy():
        assert not deadline.expired


def _reaches(place: Namespaces, index: int) -> bool:
    """Return whether a client on a host of its own can connect to a member."""
    program = f"import socket; socket.create_connection(({place.hosts.address(index)!r}, 2379), 1)"
    command = place.hosts.command(3, sys.executable, "-W", "ignore", "-c", program)
    return not subprocess.run(command, capture_output=True, timeout=60.0).returncode
