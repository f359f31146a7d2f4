"""Sockets for kazoo: connected within a deadline, TLS by our rules, read in bulk.

By itself kazoo also trusts the system's certificate authorities, does not compare host names, and
cannot be interrupted while it connects. It also does not see data that TLS has already decrypted,
so that a reply may wait until the next one arrives. The sockets of this module avoid all that; and
because they read large pieces, a reply needs fewer system calls.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from jrs.contract.clock import Deadline
from jrs.contract.runtime import JrsThread

from ...remote.tls import CurrentContext

_PIECE = 65536
ANSWER_TIMEOUT = 3.0
"""Most seconds for one attempt to connect, and for any answer during the handshake; afterwards the
next endpoint is tried."""

_PART = 1 / 6
"""The part of a session's timeout for which a server may be silent."""
_SHORTEST = 0.75
"""Seconds for which any server may be silent: garbage collections and slow disks take a while."""

_SLICE = 0.05


class SilenceLimit:
    """How long a server may be silent before the next one is tried.

    A part of the session's timeout, so that the session, and what depends on it, survives a server
    that hangs. Where all servers are slow it grows, until they answer in time.

    Args:
        session: the timeout of the session, in seconds.
    """

    def __init__(self, session: float) -> None:
        self._session = session
        self._given_up = 0

    def within(self, longest: float) -> float:
        """Return the seconds of silence that are borne, at most `longest`."""
        return min(longest, self._first * (1 << self._given_up))

    def lengthen(self) -> None:
        """Bear more: a server was given up."""
        self._given_up = min(self._given_up + 1, 3)

    def restore(self, silence: float) -> None:
        """Bear as much as at first, if a server has answered after a silence that is shorter."""
        if silence <= self._first:
            self._given_up = 0

    @property
    def _first(self) -> float:
        return max(_SHORTEST, self._session * _PART)


class BufferedSocket:
    """A connected socket with a buffer, with the interface that kazoo expects of a TLS socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.heard_at = time.monotonic()
        """When bytes came last, perhaps a part of a long reply."""
        self._socket = connected
        self._buffer = b""
        self._at = 0

    def pending(self) -> int:
        """Return the number of bytes that can be read without the network."""
        here = len(self._buffer) - self._at
        if not here and isinstance(self._socket, ssl.SSLSocket):
            return self._socket.pending()
        return here

    @property
    def readable(self) -> bool:
        """Whether the network has brought bytes, or the end of the connection, that wait here."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
        except ValueError:
            return False  # Another thread has closed the connection.
        return bool(poll.poll(0))

    def recv(self, size: int) -> bytes:
        if self._at == len(self._buffer):
            self.heard_at = time.monotonic()
            if size >= _PIECE:
                return self._socket.recv(size)
            self._buffer, self._at = self._socket.recv(_PIECE), 0
        piece = self._buffer[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def send(self, data: bytes | memoryview) -> int:
        return self._socket.send(data)

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def getpeername(self) -> Any:
        return self._socket.getpeername()

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        """End the connection, even while another thread reads it."""
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass  # The connection is already gone.


def connect(
    address: tuple[str, int],
    host: str,
    context: ssl.SSLContext | None,
    deadline: Deadline,
    given_up: Callable[[], bool] = lambda: False,
) -> BufferedSocket:
    """Connect to a numeric `address`, whose certificate must be issued for `host`.

    Raises:
        OSError: no connection within the deadline, or `given_up` returned True.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = made.connect_ex(address)
        if code == errno.EINPROGRESS:
            _await(made, select.POLLOUT, deadline, given_up)
            code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if context is not None:
            made = _encrypted(made, host, context, deadline, given_up)
    except BaseException:
        made.close()
        raise
    return BufferedSocket(made)


def _encrypted(
    plain: socket.socket,
    host: str,
    context: ssl.SSLContext,
    deadline: Deadline,
    given_up: Callable[[], bool],
) -> ssl.SSLSocket:
    made = context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                made.do_handshake()
            except ssl.SSLWantReadError:
                _await(made, select.POLLIN, deadline, given_up)
            except ssl.SSLWantWriteError:
                _await(made, select.POLLOUT, deadline, given_up)
            else:
                return made
    except BaseException:
        made.close()
        raise


def _await(
    made: socket.socket, event: int, deadline: Deadline, given_up: Callable[[], bool]
) -> None:
    poll = select.poll()
    poll.register(made, event)
    while not poll.poll(math.ceil(min(_SLICE, deadline.remaining()) * 1000)):
        if deadline.expired:
            raise TimeoutError("no answer")
        if given_up():
            raise OSError("given up")


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler of threads and sockets, with our own sockets."""

    def __init__(self, name: str, tls: CurrentContext | None, silence_limit: SilenceLimit) -> None:
        super().__init__()
        self.given_up = False
        """True while the client is being closed: connecting then stops waiting."""
        self._name = name
        self._tls = tls
        self._silence_limit = silence_limit

    def create_connection(
        self, address: tuple[str, int], hostname: str, **_its_own_rules: object
    ) -> BufferedSocket:
        # Each time, because the files may have been renewed since the last connection.
        context = None if self._tls is None else self._tls.get()
        deadline = Deadline.after(self._silence_limit.within(ANSWER_TIMEOUT))
        try:
            return connect(address, hostname, context, deadline, lambda: self.given_up)
        except TimeoutError as error:
            # kazoo takes every error of the system for a refusal.
            raise self.timeout_exception(str(error)) from error

    def select(
        self,
        reading: Sequence[Any],
        writing: Sequence[Any],
        _broken: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait like `select.select`, but never for data that a `BufferedSocket` has buffered."""
        poll = select.poll()
        by_number = {}
        at_hand = []
        for one in reading:
            if isinstance(one, BufferedSocket) and one.pending():
                at_hand.append(one)
            else:
                by_number[one.fileno()] = one
                poll.register(one, select.POLLIN)
        for one in writing:
            by_number[one.fileno()] = one
            poll.register(one, select.POLLOUT)
        milliseconds = None if timeout is None else math.ceil(timeout * 1000)
        ready = poll.poll(0 if at_hand else milliseconds)
        found = [by_number[number] for number, _ in ready]
        return (
            at_hand + [one for one in found if one in reading],
            [one for one in found if one in writing],
            [],
        )

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = JrsThread(target=func, args=args, kwargs=kwargs, name=self._name, daemon=True)
        thread.start()
        return thread
