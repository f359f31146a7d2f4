"""Connections: those that send nothing end, and neither they nor many of them shut others out."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from jrs import Client
from jrs.sidecar import connections
from jrs.sidecar import serving as server
from jrs.sidecar.connections import most_connections
from jrs.sidecar.serving import Tls
from jrs.testing.servers.certificates import make_certificates
from tests.sidecar.conftest import Served, serving
from tests.support import BOUND, until


def silent(served: Served, closing: ExitStack) -> socket.socket:
    """Return a connection that sends nothing."""
    made = socket.create_connection(("127.0.0.1", served.port), timeout=BOUND)
    return closing.enter_context(made)


def until_its_end(connection: socket.socket) -> None:
    with suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass


def test_connections_that_send_no_request_are_ended(
    served: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no token: not on a first request, and not on a later one. A follower stays."""
    served.client.submit("m:f", id="job")
    followed = served.events("/v1/jobs/job/events")
    closing.callback(followed.close)
    followed.next()
    monkeypatch.setattr(connections, "HEAD_WITHIN", 0.2)

    whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for first in (b"", b"GET /li", whole):
        with socket.create_connection(("127.0.0.1", served.port), timeout=BOUND) as silent:
            silent.sendall(first)
            with suppress(ConnectionError):
                if first == whole and silent.recv(1 << 16):
                    silent.sendall(b"GET /li")
                while silent.recv(1 << 16):
                    pass

    served.client.job("job").cancel()
    followed.next()


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    made = make_certificates(tmp_path)
    return Tls(made.cert, made.key)


def test_a_handshake_has_to_be_complete_in_time(
    client: Client, tmp_path: Path, tls: Tls, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python alone leaves a client a minute for it."""
    monkeypatch.setattr(connections, "HEAD_WITHIN", 0.2)
    with serving(client, tmp_path, tls=tls) as served:
        until_its_end(silent(served, closing))


@pytest.mark.parametrize("encrypted", [False, True])
def test_many_silent_connections_shut_nobody_out(
    client: Client, tmp_path: Path, tls: Tls, closing: ExitStack, monkeypatch: pytest.MonkeyPatch,
    encrypted: bool,
) -> None:  # fmt: skip
    """For each one too many, the one that was silent for longest is ended; over TLS, also while its
    handshake is not complete."""
    monkeypatch.setattr(connections, "HEAD_WITHIN", 10 * BOUND)
    monkeypatch.setattr(server, "most_connections", lambda: 4)
    with serving(client, tmp_path, tls=tls if encrypted else None) as served:
        opened = [silent(served, closing) for _ in range(20)]
        for one in opened[:-4]:
            until_its_end(one)
        opened[-1].settimeout(0.0)
        with pytest.raises(BlockingIOError):
            opened[-1].recv(1)


def test_streams_are_not_ended_for_others(served_few: Served, closing: ExitStack) -> None:
    """While each connection has a request, a new one is refused; it is accepted once one ends."""
    served_few.client.submit("m:f", id="job")
    streams = [served_few.events("/v1/jobs/job/events") for _ in range(2)]
    for stream in streams:
        closing.callback(stream.close)
        stream.next()

    until_its_end(silent(served_few, closing))

    served_few.client.job("job").cancel()
    for stream in streams:
        stream.next()
    streams.pop().close()
    until(lambda: answers(served_few), "it answers")


@pytest.fixture
def served_few(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(server, "most_connections", lambda: 2)
    with serving(client, tmp_path) as served:
        yield served


def answers(served: Served) -> bool:
    with suppress(ConnectionError):
        return served.get("/livez").status == 200
    return False


@pytest.mark.parametrize(
    ("limit", "most"), [(64, 32), (1024, 896), (65536, 4096), (resource.RLIM_INFINITY, 4096)]
)
def test_descriptors_are_kept(limit: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))

    assert most_connections() == most
