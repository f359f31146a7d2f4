"""The proxy: what is frozen arrives late, what is cut is refused, what is swallowed is gone."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import Iterator

import pytest

from jrs.testing.servers import EtcdServer
from jrs.testing.servers.proxy import Proxies, Proxy

BOUND = 20.0


class Echo:
    """A server that sends back what it gets, and remembers it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint: tuple[str, int] = self._listener.getsockname()
        self.heard = b""
        self._threads = [threading.Thread(target=self._accept, name="echo")]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="echo")
            thread.start()
            self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    self.heard += data
                    connection.sendall(data)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(BOUND)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.endpoint) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(proxy.endpoint, BOUND) as client:
        assert _says(client, b"hello") == b"hello"

        yield client


def test_bytes_held_by_a_freeze_arrive_after_it(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    """Nothing passes while it is frozen, and nothing is lost by it."""
    proxy.freeze()
    client.sendall(b" world")
    proxy.wait_until_held()

    assert echo.heard == b"hello"

    proxy.thaw()

    assert _exactly(client, 6) == b" world"
    assert echo.heard == b"hello world"


def test_with_replies_frozen_the_server_hears_and_the_client_does_not(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    """The worst case for a client: done, and not known."""
    proxy.freeze(requests=False)
    client.sendall(b" world")
    proxy.wait_until_held()

    assert echo.heard == b"hello world"

    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_connecting_works_while_frozen(proxy: Proxy, client: socket.socket) -> None:
    """A new connection is accepted, hears nothing, and works after the thaw."""
    proxy.freeze()
    with socket.create_connection(proxy.endpoint, BOUND) as second:
        second.sendall(b"again")
        second.settimeout(0.1)
        with pytest.raises(TimeoutError):
            second.recv(1)
        second.settimeout(BOUND)
        proxy.thaw()

        assert _exactly(second, 5) == b"again"


def test_a_cut_resets_and_refuses_until_it_is_restored(proxy: Proxy, client: socket.socket) -> None:
    """Connections end at once, new ones are refused, and the port is the same afterwards."""
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(proxy.endpoint, BOUND)
    proxy.restore()
    with socket.create_connection(proxy.endpoint, BOUND) as second:
        assert _says(second, b"again") == b"again"


def test_a_black_hole_loses_bytes_and_so_the_connection(
    echo: Echo, proxy: Proxy, client: socket.socket
) -> None:
    """Bytes that were swallowed never arrive; a stream with a hole in it is reset at the end."""
    proxy.swallow()
    client.sendall(b" world")
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(BOUND)
    proxy.restore()
    with pytest.raises(ConnectionResetError):
        client.recv(1)

    assert echo.heard == b"hello"


def test_the_end_of_a_stream_passes(echo: Echo, proxy: Proxy, client: socket.socket) -> None:
    """A client that is done with sending still gets the rest."""
    client.sendall(b"bye")
    client.shutdown(socket.SHUT_WR)

    assert _exactly(client, 3) == b"bye"
    assert client.recv(1) == b""


def test_large_streams_pass_whole_through_freezes(proxy: Proxy, client: socket.socket) -> None:
    """Megabytes arrive in order, though the proxy is frozen in the middle of them."""
    sent = bytes(range(256)) * 16384
    sender = threading.Thread(target=client.sendall, args=(sent,), name="sender")
    sender.start()
    got = b""
    for _ in range(4):
        got += _exactly(client, 1024 * 1024)
        proxy.freeze()
        proxy.thaw()
    sender.join(BOUND)

    assert got == sent


def test_a_server_that_is_down_resets_its_client(echo: Echo) -> None:
    """A connection to nothing is accepted and reset; the proxy keeps working."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        target = nobody.getsockname()
    with Proxy(target) as proxy:
        for _ in range(2):
            with pytest.raises(ConnectionResetError):  # Maybe while it is still connecting.
                with socket.create_connection(proxy.endpoint, BOUND) as client:
                    client.recv(1)


def test_no_thread_is_left_behind(echo: Echo) -> None:
    """Closing ends its thread, also when it is frozen with a client waiting."""
    proxy = Proxy(echo.endpoint)
    with socket.create_connection(proxy.endpoint, BOUND):
        proxy.freeze()
        proxy.close()
    proxy.close()

    assert not [t for t in threading.enumerate() if t.name.startswith("jrs-proxy-")]


def test_a_server_behind_proxies(etcd_ensemble: EtcdServer) -> None:
    """An ensemble has a proxy for each member, and its URL leads through them."""
    with Proxies(etcd_ensemble.endpoints) as proxies:
        assert len(proxies) == 3
        names = ",".join(f"{host}:{port}" for host, port in proxies.endpoints)

        assert etcd_ensemble.url("jrs", endpoints=proxies.endpoints) == f"etcd://{names}/jrs"


def _says(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return _exactly(client, len(text))


def _exactly(client: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size and (data := client.recv(size - len(got))):
        got += data
    return bytes(got)


def test_a_cut_leaves_no_socket_open(proxy: Proxy) -> None:
    """Nor of a connection that was made in the moment of the cut."""
    gc.collect()  # What other tests left.
    gc.disable()
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(proxy.endpoint, BOUND):
                proxy.cut()
            proxy.restore()
    finally:
        gc.enable()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        gc.collect()

    assert [str(one.message) for one in warned if one.category is ResourceWarning] == []
