"""Listening: a client whose host is gone does not stay; a socket is that of one process."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from jrs.contract.errors import InvalidInput
from jrs.host.listening import Address


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_silent_client_is_asked_whether_it_is_there(host: str) -> None:
    """What a port accepts has keep-alive: within a minute or two the system ends the connection of
    a client that does not answer, also where the server has nothing to send. TCP alone never
    does."""
    with (
        closing(Address.of(f"{host}:0").bind()) as listening,
        socket.create_connection(listening.socket.getsockname()[:2]),
    ):
        accepted, _ = listening.socket.accept()
        with accepted:
            found = {
                option: accepted.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            }
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert found == {
        socket.TCP_KEEPIDLE: 30,
        socket.TCP_KEEPINTVL: 10,
        socket.TCP_KEEPCNT: 3,
    }


def test_a_process_that_ends_leaves_the_socket_of_the_next(tmp_path: Path) -> None:
    """One that starts while another one ends takes the path over, and keeps it."""
    address = Address.of(f"unix:{tmp_path}/jrs.sock")
    ends = address.bind()
    ends.socket.close()  # As a server does that waits for the requests in flight.
    with closing(address.bind()) as starts:
        ends.close()
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(str(address.path))
        with pytest.raises(InvalidInput, match="another process listens"):
            address.bind()
        starts.leave()
        with closing(address.bind()) as next_one:
            assert next_one.address.path == address.path
    assert not list(tmp_path.iterdir())


def test_a_locked_folder_stops_nobody_for_long(tmp_path: Path) -> None:
    """A process that can read a folder can lock it. Then a process that ends leaves its socket
    there, and one that starts says why it does not."""
    address = Address.of(f"unix:{tmp_path}/jrs.sock")
    with closing(address.bind()) as ends:
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_SH)
            ends.leave()
            with pytest.raises(InvalidInput, match="another process keeps"):
                Address.of(f"unix:{tmp_path}/other.sock").bind()
        finally:
            os.close(folder)
        assert [path.name for path in tmp_path.iterdir()] == ["jrs.sock"]
    assert not list(tmp_path.iterdir())


def test_many_clients_at_once_can_connect(tmp_path: Path) -> None:
    """At a socket of a folder, one for whom there is no place would be refused at once."""
    with ExitStack() as stack:
        listening = stack.enter_context(closing(Address.of(f"unix:{tmp_path}/jrs.sock").bind()))
        for _ in range(200):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect(str(listening.address.path))
