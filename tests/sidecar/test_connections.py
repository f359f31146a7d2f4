"""Connections: those that send nothing end, and neither they nor many of them shut others out."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from jrs import Client
from jrs.host.listening import Address
from jrs.sidecar import connections
from jrs.sidecar import serving as server
from jrs.sidecar.connections import Connections, Protocol, most_connections
from jrs.sidecar.serving import Guards, Tls, serve
from jrs.testing.servers.certificates import make_certificates
from tests.sidecar.conftest import OPERATE, Served, serving
from tests.support import BOUND, until

_ANYONE = ssl.create_default_context()
_ANYONE.check_hostname, _ANYONE.verify_mode = False, ssl.CERT_NONE


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
def made(monkeypatch: pytest.MonkeyPatch) -> list[Connections]:
    """What the servers of a test have made; the kernel takes little of an answer, as with a slow
    link."""
    found: list[Connections] = []

    def make(listening: socket.socket, *more: Any) -> Connections:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        found.append(Connections(listening, *more))
        return found[-1]

    monkeypatch.setattr(server, "Connections", make)
    return found


@pytest.fixture
def served_few(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(server, "most_connections", lambda: 2)
    with serving(client, tmp_path) as served:
        yield served


def answers(served: Served) -> bool:
    with suppress(ConnectionError):
        return served.get("/livez").status == 200
    return False


def test_probes_get_answers_while_all_follow(
    client: Client, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch,
    made: list[Connections],
) -> None:  # fmt: skip
    """A connection in one of the last places ends soon, even one with a request."""
    monkeypatch.setattr(server, "most_connections", lambda: 8)
    client.submit("m:f", id="job")
    with serving(client, tmp_path) as served:
        streams = []
        for _ in range(7):
            streams.append(served.events("/v1/jobs/job/events"))
            closing.callback(streams[-1].close)
            streams[-1].next()
        for idle in (False, True):  # One that made room for it was in the last place, too.
            if idle:
                monkeypatch.setattr(connections, "HEAD_WITHIN", 10 * BOUND)
                silent(served, closing)
                until(lambda: len(made[0]._open) == 8, "it is accepted")
            monkeypatch.setattr(connections, "HEAD_WITHIN", 0.2)
            until(lambda: ends_a_stream(served), "a stream in the last place is ended")
            until(lambda: answers(served), "a probe gets its answer")
        client.job("job").cancel()
        for stream in streams:
            stream.next()


def ends_a_stream(served: Served) -> bool:
    with suppress(ConnectionError):
        stream = served.events("/v1/jobs/job/events")
        stream.until_its_end()
        stream.close()
        return True
    return False


def reading_nothing(served: Served, context: ssl.SSLContext | None = None) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    made.settimeout(BOUND)
    made.connect(("127.0.0.1", served.port))
    return made if context is None else context.wrap_socket(made)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    "sent",
    [
        b"GET /static/jrs.css HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        b"Authorization: Bearer %b\r\n\r\n" % OPERATE.encode(),
    ],
)
def test_clients_that_do_nothing_shut_nobody_out(
    served_few: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """They read no answer, or send no body."""
    monkeypatch.setattr(connections, "STUCK_AFTER", 0.4)
    monkeypatch.setattr(connections, "_LOOK_EVERY", 0.05)
    for _ in range(2):
        closing.enter_context(reading_nothing(served_few)).sendall(sent)

    until(lambda: answers(served_few), "it answers")


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("encrypted", [False, True])
def test_an_answer_that_is_read_slowly_is_whole(
    client: Client, tmp_path: Path, tls: Tls, closing: ExitStack, encrypted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its connection is not idle as long as a part of it has not left."""
    monkeypatch.setattr(server, "most_connections", lambda: 1)
    with serving(client, tmp_path, tls=tls if encrypted else None) as served:
        slow = closing.enter_context(reading_nothing(served, _ANYONE if encrypted else None))
        head = "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        slow.sendall(f"{head}Authorization: Bearer {OPERATE}\r\n\r\n".encode())
        found = slow.recv(1)
        until_its_end(silent(served, closing))
        while part := slow.recv(1 << 16):
            found += part
        slow.close()
    top, _, body = found.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in top


def leaving_unread(raw: socket.socket, made: Connections, encrypted: bool) -> Callable[[], None]:
    """Leave answers unread until some wait in the server; return what sends, in one write, a last
    request and the end, and waits until the server closes."""
    sends: Any = raw
    got, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    if encrypted:
        sends = _ANYONE.wrap_bio(got, out)
        while wants_more(sends.do_handshake):
            raw.sendall(out.read())
            got.write(raw.recv(1 << 16))
        raw.sendall(out.read())
    protocol = until(lambda: next((one for one in made._open if one.transport), None), "it is made")

    def send(text: bytes) -> None:
        sends.write(text) if encrypted else raw.sendall(text)

    get = b"GET /static/jrs.css HTTP/1.1\r\nHost: localhost\r\n"
    for request in itertools.count(1):
        send(get + b"\r\n")
        raw.sendall(out.read())
        until(partial(has_answered, protocol, request), "it is answered")
        if waiting(protocol):
            break

    def end() -> None:
        send(get + b"Connection: close\r\n\r\n")
        assert not encrypted or wants_more(sends.unwrap)
        raw.sendall(out.read())
        until(protocol.transport.is_closing, "it closes")

    return end


def has_answered(protocol: Protocol, requests: int) -> bool:
    return protocol.server_state.total_requests == requests


def waiting(protocol: Any) -> int:
    """Return how many bytes wait below TLS, or without it."""
    tls = getattr(protocol.transport, "_ssl_protocol", None)
    sends = protocol.transport if tls is None else tls._transport
    return int(sends.get_write_buffer_size())


def wants_more(step: Callable[[], object]) -> bool:
    try:
        step()
    except ssl.SSLWantReadError:
        return True
    return False


@pytest.mark.parametrize("encrypted", [False, True])
def test_closing_ends_though_the_client_reads_nothing(
    client: Client, tmp_path: Path, tls: Tls, closing: ExitStack, encrypted: bool,
    monkeypatch: pytest.MonkeyPatch, made: list[Connections],
) -> None:  # fmt: skip
    with serving(client, tmp_path, tls=tls if encrypted else None) as served:
        raw = closing.enter_context(reading_nothing(served))
        end = leaving_unread(raw, made[0], encrypted)
        monkeypatch.setattr(connections, "STUCK_AFTER", 0.2)
        end()
        until(lambda: not made[0]._open, "it ends")


def test_a_client_that_ends_tls_without_reading_ends_no_server(
    client: Client, tmp_path: Path, tls: Tls, closing: ExitStack, monkeypatch: pytest.MonkeyPatch,
    made: list[Connections],
) -> None:  # fmt: skip
    """asyncio closes the connection, and uvicorn closes it again."""
    monkeypatch.setattr(server, "most_connections", lambda: 1)
    monkeypatch.setattr(connections, "_LOOK_EVERY", 0.05)
    with serving(client, tmp_path, tls=tls) as served:
        leaving_unread(closing.enter_context(reading_nothing(served)), made[0], encrypted=True)()
        (protocol,) = made[0]._open
        until(lambda: protocol.transport._ssl_protocol is None, "it is closed twice")  # type: ignore[attr-defined]
        until_its_end(silent(served, closing))

        monkeypatch.setattr(connections, "STUCK_AFTER", 0.4)
        until(lambda: shakes_hands(served), "another client gets its place")


def shakes_hands(served: Served) -> bool:
    with suppress(OSError), reading_nothing(served, _ANYONE):
        return True
    return False


def test_a_connection_that_cannot_be_looked_at_is_ended(
    served_few: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = [silent(served_few, closing) for _ in range(2)]
    monkeypatch.setattr(Protocol, "is_idle", lambda self: 1 // 0)

    assert answers(served_few)
    until_its_end(opened[0])


def test_who_has_read_everything_is_not_stuck() -> None:
    """The next answer of the same size is another one."""

    class Below(asyncio.Transport):
        waits = 0

        def is_closing(self) -> bool:
            return False

        def get_write_buffer_size(self) -> int:
            return self.waits

    async def found() -> list[bool]:
        config = uvicorn.Config(lambda: None, http=Protocol, ws="none", log_config=None)
        protocol = Protocol(config, ServerState(), {})
        below, told = Below(), []
        protocol.connection_made(below)
        for waits, now in (500, 0), (0, 10), (500, 20), (500, 30), (500, 40), (500, 50), (500, 90):
            below.waits = waits
            told.append(protocol.is_stuck(now))
        return told

    # Nobody has looked between 50 and 90.
    assert asyncio.run(found()) == [False, False, False, False, False, True, False]


def test_what_the_kernel_holds_waits_for_the_client_too(
    client: Client, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a whole answer, and more: whether the client reads shows only there."""
    found = list[Connections]()

    def make(*given: Any) -> Connections:
        found.append(Connections(*given))
        return found[-1]

    monkeypatch.setattr(server, "Connections", make)
    with serving(client, tmp_path) as served:
        slow = closing.enter_context(reading_nothing(served))
        slow.sendall(b"GET /static/jrs.css HTTP/1.1\r\nHost: localhost\r\n\r\n")
        (protocol,) = until(lambda: [*found[0]._open], "it is accepted")
        until(lambda: has_answered(protocol, 1) and protocol.cycle.response_complete, "it is sent")
        assert not waiting(protocol)
        assert not protocol.is_idle()

        head, _, body = slow.recv(1 << 16).partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += slow.recv(1 << 16)
        until(protocol.is_idle, "the client has read it")


def test_stuck_connections_end_though_nobody_else_comes(
    served_few: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long after one client the next one comes."""
    monkeypatch.setattr(connections, "STUCK_AFTER", 0.4)
    monkeypatch.setattr(connections, "_LOOK_EVERY", 0.05)
    monkeypatch.setattr(connections, "HEAD_WITHIN", 10 * BOUND)
    get = b"GET /static/jrs.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    opened = [closing.enter_context(reading_nothing(served_few)) for _ in range(2)]
    for one in opened:
        one.sendall(get * 200)
    silent(served_few, closing)  # The only one that comes.

    for one in opened:
        until_its_end(one)


def test_stuck_connections_are_looked_for_rarely(
    served_few: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at all takes the time of those that have requests."""
    monkeypatch.setattr(connections, "_LOOK_EVERY", 10 * BOUND)
    looks: list[Protocol] = []
    monkeypatch.setattr(Protocol, "is_idle", lambda self: False)
    monkeypatch.setattr(Protocol, "is_stuck", lambda self, now: looks.append(self))
    for _ in range(2):
        silent(served_few, closing)

    for _ in range(3):
        until_its_end(silent(served_few, closing))

    assert len(looks) == 2


def test_why_no_connection_is_accepted_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and not each time; then connections are accepted again."""
    monkeypatch.setattr(connections, "_REST", 0.0)
    errors = [OSError(errno.EMFILE, "Too many open files")] * 3

    async def accept() -> None:
        loop = asyncio.get_running_loop()

        async def refused(_: socket.socket) -> None:
            raise errors.pop() if errors else KeyError("over")

        monkeypatch.setattr(loop, "sock_accept", refused)
        with socket.socket() as listening:
            await Connections(listening, None, 1).accept(lambda: pytest.fail("none came"))

    with caplog.at_level(logging.WARNING, "jrs.sidecar"), pytest.raises(KeyError):
        asyncio.run(accept())
    assert [one.message for one in caplog.records if one.name == "jrs.sidecar"] == [
        "no connection is accepted: [Errno 24] Too many open files"
    ]


def test_a_server_that_accepts_nobody_ends_by_the_error(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the loop is broken")

    monkeypatch.setattr(Connections, "accept", broken)

    with pytest.raises(RuntimeError, match="the loop is broken"):
        serve(client, Address(path=tmp_path / "socket"), Guards(), threading.Event())


@pytest.mark.parametrize(
    ("limit", "most"), [(64, 32), (1024, 896), (65536, 4096), (resource.RLIM_INFINITY, 4096)]
)
def test_descriptors_are_kept(limit: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))

    assert most_connections() == most
