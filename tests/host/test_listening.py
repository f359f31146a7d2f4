"""A client whose host is gone does not stay."""

from __future__ import annotations

import socket

import pytest

from jrs.host.listening import Address


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_silent_client_is_asked_whether_it_is_there(host: str) -> None:
    """What a port accepts has keep-alive: within a minute or two the system ends the connection of
    a client that does not answer, also where the server has nothing to send. TCP alone never
    does."""
    with (
        Address.of(f"{host}:0").bind() as listening,
        socket.create_connection(listening.getsockname()[:2]),
    ):
        accepted, _ = listening.accept()
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
