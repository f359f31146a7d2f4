"""HealthServer: a small HTTP server on one thread, with the standard library alone.

It answers from memory, so that one thread is enough. A client that is slow is dropped after some
seconds, and so is the oldest one when too many are connected: none of them delays another.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Self

import attrs

from jrs.contract.runtime import RUNTIME, Runtime
from jrs.host.listening import Address

from .facts import MasterHealth
from .probes import Answer, answer

_PATIENCE = 5.0
"""Seconds that a client has for its request and for reading the answer."""
_MOST_CLIENTS = 64
_MOST_BYTES = 8192
"""Bytes of a request's head."""
_TICK = 1.0
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""What says that the process, or the host, has no descriptor or no memory for a client."""
_ALWAYS = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
    "Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\n"
)


@attrs.define(eq=False)
class _Client:
    connection: socket.socket
    until: float
    request: bytes = b""
    rest: bytes = b""
    """What is still to be sent."""


class HealthServer:
    """Serves the probes and the metrics of a master, while it is entered.

    Raises:
        InvalidInput: from the constructor; the address cannot be used.
    """

    def __init__(self, address: Address, health: MasterHealth, runtime: Runtime = RUNTIME) -> None:
        self._health = health
        self._listening = address.bind()
        self._listening.socket.setblocking(False)
        self._wakes, self._wake = socket.socketpair()
        self._clients: dict[socket.socket, _Client] = {}
        self._selector = selectors.DefaultSelector()
        self._accepts_from: float | None = None
        """When it accepts clients again; None: it does."""
        self._over = False
        self._thread = runtime.thread(self._run, "jrs-health")

    @property
    def port(self) -> int:
        """The TCP port, also if any free one was asked for; 0 for a socket in a folder."""
        return self._listening.address.port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over = True
        self._listening.leave()
        self._wake.send(b"\0")
        self._thread.join()
        self._listening.close()
        self._wake.close()
        self._wakes.close()

    # -- its thread ------------------------------------------------------------------------

    def _run(self) -> None:
        events = selectors.EVENT_READ
        self._selector.register(self._listening.socket, events, self._accept)
        self._selector.register(self._wakes, events, lambda: None)
        with self._selector:
            while not self._over:
                for key, _ in self._selector.select(_TICK):
                    call: Callable[[], None] = key.data
                    call()
                now = time.monotonic()
                for client in [one for one in self._clients.values() if one.until < now]:
                    self._drop(client)
                if self._accepts_from is not None and self._accepts_from <= now:
                    self._accepts_from = None
                    self._selector.register(self._listening.socket, events, self._accept)
            for client in list(self._clients.values()):
                self._drop(client)

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.socket.accept()
        except OSError as error:
            if (
                error.errno in _SHORT
            ):  # The client stays in the queue, and would be told of forever.
                self._selector.unregister(self._listening.socket)
                self._accepts_from = time.monotonic() + _TICK
            return  # Else it has gone away.
        connection.setblocking(False)
        if len(self._clients) >= _MOST_CLIENTS:
            self._drop(next(iter(self._clients.values())))
        client = _Client(connection, time.monotonic() + _PATIENCE)
        self._clients[connection] = client
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(client))

    def _read(self, client: _Client) -> None:
        try:
            found = client.connection.recv(_MOST_BYTES)
        except OSError:
            found = b""
        client.request += found
        if not found:
            self._drop(client)
        elif b"\r\n\r\n" in client.request:
            client.rest = self._answer(client.request)
            write = selectors.EVENT_WRITE
            self._selector.modify(client.connection, write, lambda: self._write(client))
        elif len(client.request) > _MOST_BYTES:
            self._drop(client)

    def _write(self, client: _Client) -> None:
        try:
            sent = client.connection.send(client.rest)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        client.rest = client.rest[sent:]
        if not client.rest:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        if self._clients.pop(client.connection, None) is None:
            return  # Two events named it.
        with suppress(OSError, KeyError, ValueError):
            self._selector.unregister(client.connection)
        client.connection.close()

    def _answer(self, request: bytes) -> bytes:
        first, *headers = request.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        try:
            found = answer(method, path, self._health.facts(), _accepted(headers))
        except Exception as error:  # A probe that ends this thread would end the master.
            found = Answer(500, f"{type(error).__name__}\n")
        body = found.body.encode()
        more = "".join(f"{name}: {value}\r\n" for name, value in found.headers)
        head = (
            f"HTTP/1.1 {found.status} {HTTPStatus(found.status).phrase}\r\n"
            f"Content-Type: {found.kind}\r\nContent-Length: {len(body)}\r\n{_ALWAYS}{more}\r\n"
        )
        return head.encode("latin-1") + (body if method == "GET" else b"")


def _accepted(headers: list[str]) -> str:
    """Return the value of the headers Accept of a request."""
    named = (line.partition(":") for line in headers)
    return ",".join(value for name, _, value in named if name.strip().lower() == "accept")
