"""Serving the application: at a socket of the user's own, or at a TCP port that is guarded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs
import uvicorn

from jrs.client.client import Client
from jrs.contract.errors import InvalidInput
from jrs.contract.own_thread import in_own_thread
from jrs.host.listening import Address, Listening
from jrs.host.reloading import Reloaded
from jrs.sidecar.changes import Changes
from jrs.sidecar.connections import Connections, Protocol, most_connections
from jrs.sidecar.routes import application
from jrs.sidecar.tokens import TokenFile

_log = logging.getLogger("jrs.sidecar")

_GRACE = 5
"""Seconds that requests in flight have at the end."""
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


@attrs.frozen
class Tls:
    """The files of TLS. With `client_ca`, only owners of its certificates can connect."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def files(self) -> tuple[Path | None, ...]:
        """All of them."""
        return self.certificate, self.key, self.client_ca


@attrs.frozen
class Guards:
    """What guards the API.

    Raises:
        InvalidInput: from `check`; a TCP port would be open to everybody.
    """

    tokens: Path | None = None
    tls: Tls | None = None
    hosts: tuple[str, ...] = ()
    """Further names under which the server is asked for."""

    def check(self, address: Address) -> None:
        """Raise `InvalidInput` unless an address is guarded."""
        by_certificate = self.tls is not None and self.tls.client_ca is not None
        if address.path is None and self.tokens is None and not by_certificate:
            raise InvalidInput(
                f"{address} can be reached by others: give --token-file FILE, or --tls-cert, "
                "--tls-key and --tls-client-ca; or listen at unix:/path"
            )


class _Server(uvicorn.Server):
    """A server that the command's own signal handling ends, and that accepts by `Connections`."""

    def __init__(
        self, config: uvicorn.Config, connections: Connections, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._ready = ready
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        if self.started:
            self._accepting = asyncio.create_task(self._connections.accept(self._protocol))
            self._accepting.add_done_callback(self._end)
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        accepting = self._accepting
        has_ended = accepting is not None and not accepting.cancel()
        await super().shutdown([])
        if accepting is not None and has_ended:
            accepting.result()  # Raises why.

    def _end(self, accepting: asyncio.Task[None]) -> None:
        self.should_exit = True  # A server that accepts nobody is of no use.

    def _protocol(self) -> Protocol:
        return Protocol(self.config, self.server_state, self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    client: Client,
    address: Address,
    guards: Guards,
    stop: threading.Event,
    ready: Callable[[Address], None] = lambda at: None,
) -> None:
    """Serve the API and the pages until `stop` is set, or until the backend has no use any more.

    Args:
        ready: called once requests are answered, with the address that has the port.

    Raises:
        InvalidInput: the address, the token file or a certificate cannot be used.
        FolderReplaced: the folder of the backend was moved, removed or replaced. It has ended; a
            new process opens the folder that is there then.
    """
    guards.check(address)
    tokens = None if guards.tokens is None else TokenFile(guards.tokens)
    context = None if guards.tls is None else _current_context(guards.tls)
    listening = address.bind()
    try:
        changes = Changes(client.backend)
        app = application(
            client,
            changes,
            hosts=names(address, guards.hosts),
            tokens=tokens,
            secure=context is not None,
        )  # fmt: skip
        config = uvicorn.Config(
            app, http=Protocol, ws="none", loop="asyncio", lifespan="on", log_config=None,
            access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE,
            log_level=logging.WARNING,
        )  # fmt: skip
        config.load()
        connections = Connections(listening.socket, context, most_connections())
        server = _Server(config, connections, lambda: ready(listening.address))
        asyncio.run(_run(server, changes, listening, stop))
    finally:
        listening.close()


def names(address: Address, more: Iterable[str]) -> list[str]:
    """Return the names under which a server at an address may be asked for."""
    own = [f"[{address.host}]" if ":" in address.host else address.host, socket.gethostname()]
    return [*_LOCAL, *(name for name in own if name), *more]


async def _run(
    server: uvicorn.Server, changes: Changes, listening: Listening, stop: threading.Event
) -> None:
    serving = asyncio.create_task(server.serve())
    while not (serving.done() or stop.is_set() or changes.over):
        await asyncio.wait([serving], timeout=0.1)
    # A server that takes its place need not wait until this one has ended.
    await in_own_thread(lambda _: listening.leave(), "jrs-leave")
    changes.end()  # Before the server waits for what is open.
    server.should_exit = True
    await serving
    if changes.replaced is not None:
        raise changes.replaced


def _current_context(tls: Tls) -> ssl.SSLContext:
    """Return a context with which each handshake uses the files as they are then: certificates are
    renewed, and authorities replaced, while the server runs.

    Raises:
        InvalidInput: the files cannot be used.
    """
    current = Reloaded(
        tls.files, lambda: _context(tls), lambda why: _log.warning("%s; the old ones are used", why)
    )
    context = current.get()

    def begin(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = current.get()

    context.sni_callback = begin  # It is called for clients that name no host as well.
    return context


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Without a password, OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(tls.certificate, tls.key, password="")
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session is not verified again: an authority that is gone would stay trusted.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"the certificates cannot be used: {error}") from None
    return context
