"""A handshake without kazoo: shows the timeouts that a server grants, or why it is unreachable.

It uses no threads, keeps nothing, and ends within the deadline.
"""

from __future__ import annotations

import contextlib
import math
import select
import ssl
import struct
import time

from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable, WrongAddress

from ...remote.diagnostics import Fault, look, resolve
from . import codec
from .access import Access
from .sockets import ANSWER_TIMEOUT, connect

_CONNECT = struct.Struct("!iqiq")
_CONNECTED = struct.Struct("!ii")
_REQUEST = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_NOBODY = b"\0" * 16
_AUTH_XID = -4
_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
"""Seconds before all endpoints are asked again: at first, and at most."""
_ENDED = (
    "ends connections: check that it is a ZooKeeper, that it has a quorum, and that this host does "
    "not have too many connections (maxClientCnxns)"
)


def shortest_session(access: Access, deadline: Deadline) -> float:
    """Return the shortest timeout, in seconds, that the server grants a session.

    Asks again until the deadline where a server ends the connection, as every server does while its
    ensemble elects a leader.

    Raises:
        Unavailable: no endpoint can be reached; the message gives the reason for each.
        WrongAddress: the address or the certificates are wrong; waiting does not help.
    """
    pause = _PAUSE
    while True:
        try:
            return _ask_each(access, deadline)
        except _Elects as error:
            if deadline.remaining() <= pause:
                raise Unavailable(str(error)) from None
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _ask_each(access: Access, deadline: Deadline) -> float:
    """Return what the first endpoint that answers grants; raise as `shortest_session`, or `_Elects`
    if a server has ended the connection."""
    faults, elects = [], False
    for number, (host, port) in enumerate(access.address.endpoints):
        left = len(access.address.endpoints) - number
        turn = Deadline.after(min(ANSWER_TIMEOUT, deadline.remaining() / left * 0.7))
        try:
            with _Talk(access, host, port, turn) as talk:
                shortest = talk.connect(timeout=0.001)
                with contextlib.suppress(OSError):
                    talk.end()  # If this fails, the session soon ends by itself.
                return shortest
        except (OSError, ssl.SSLError) as error:
            until = Deadline.after(min(1.0, deadline.remaining() / left * 0.9))
            fault = look((host, port), access.address.tls, until)
            foreign = isinstance(error, _OtherProtocol)
            said = _said(error)
            elects |= fault is None and said == _ENDED
            faults.append(fault or Fault(f"{host}:{port} {said}", wrong=foreign))
    why = f"{access.where}: {'; '.join(dict.fromkeys(fault.what for fault in faults))}"
    if all(fault.wrong for fault in faults):
        raise WrongAddress(why)
    raise _Elects(why) if elects else Unavailable(why)


class _Elects(Unavailable):
    """A server has ended the connection: its ensemble may be electing a leader."""


class _OtherProtocol(OSError):
    """The server is not a ZooKeeper."""


class _Talk:
    """One connection to one endpoint."""

    def __init__(self, access: Access, host: str, port: int, deadline: Deadline) -> None:
        self._access = access
        self._deadline = deadline
        problem: OSError | None = None
        context = None if access.tls is None else access.tls.get()
        for address in resolve(host, port, deadline):
            try:
                self._wire = connect(address, host, context, deadline)
                return
            except OSError as error:
                problem = error
        raise problem or OSError("it has no address")

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *exc: object) -> None:
        self._wire.close()

    def connect(self, *, timeout: float) -> float:
        """Begin a session; return the granted timeout in seconds."""
        self._send(
            _CONNECT.pack(0, 0, round(timeout * 1000), 0)
            + _LENGTH.pack(len(_NOBODY))
            + _NOBODY
            + b"\0"
        )
        reply = self._receive()
        if len(reply) < _CONNECTED.size:
            raise _OtherProtocol("does not speak ZooKeeper's protocol")
        granted: int = _CONNECTED.unpack_from(reply)[1]
        return granted / 1000

    def end(self) -> None:
        """End the session and wait for the server's answer."""
        for scheme, credential in self._access.auth_data:
            body = _LENGTH.pack(0) + codec.text(scheme) + codec.text(credential)
            self._send(_REQUEST.pack(_AUTH_XID, codec.AUTH) + body)
            self._receive()
        self._send(_REQUEST.pack(1, codec.CLOSE))
        self._receive()

    def _send(self, message: bytes) -> None:
        data = memoryview(_LENGTH.pack(len(message)) + message)
        while data:
            try:
                data = data[self._wire.send(data) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._await(select.POLLOUT)
            except ssl.SSLWantReadError:
                self._await(select.POLLIN)

    def _receive(self) -> bytes:
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if not 0 <= length <= 1 << 20:
            raise _OtherProtocol("does not speak ZooKeeper's protocol")
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            try:
                piece = self._wire.recv(size - len(read))
            except (BlockingIOError, ssl.SSLWantReadError):
                self._await(select.POLLIN)
                continue
            if not piece:
                raise OSError(_ENDED)
            read += piece
        return read

    def _await(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._wire.fileno(), event)
        if not poll.poll(math.ceil(self._deadline.remaining() * 1000)):
            raise TimeoutError("does not answer")


def _said(error: OSError) -> str:
    if isinstance(error, ConnectionError):
        return _ENDED
    return error.strerror or str(error) or type(error).__name__
