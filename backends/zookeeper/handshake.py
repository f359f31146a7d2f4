"""A session by hand: to learn what a server grants, or why it can not be spoken to; and to end one.

No threads, no retries and nothing kept: what takes place takes place within the deadline.
"""

from __future__ import annotations

import math
import select
import ssl
import struct
from collections.abc import Mapping
from typing import Any

import attrs

from jrs.backends.diagnosis import diagnose
from jrs.backends.guardian import Ender
from jrs.backends.zookeeper import wire
from jrs.backends.zookeeper.access import Access
from jrs.backends.zookeeper.sockets import PATIENCE, connect, resolve
from jrs.clock import Deadline
from jrs.errors import Unavailable

_CONNECT = struct.Struct("!iqiq")
_CONNECTED = struct.Struct("!iiq")
_REQUEST = struct.Struct("!ii")
_LENGTH = struct.Struct("!i")
_NOBODY = b"\0" * 16
_AUTH_XID = -4


@attrs.frozen
class Session:
    """What a server says to a client that connects. `timeout` is 0 where its session is gone."""

    id: int
    password: bytes = attrs.field(repr=False)
    timeout: float


def shortest_session(access: Access, deadline: Deadline) -> float:
    """Return the shortest timeout, in seconds, that the server grants a session.

    Raises:
        Unavailable: no endpoint can be spoken to; the message says why, for each of them.
    """
    problems = []
    for number, (host, port) in enumerate(access.address.endpoints):
        left = len(access.address.endpoints) - number
        turn = Deadline.after(min(PATIENCE, deadline.remaining() / left * 0.7))
        try:
            with _Talk(access, host, port, turn) as talk:
                session = talk.connect(timeout=0.001)
                talk.end()
                return session.timeout
        except (OSError, ssl.SSLError) as error:
            patience = Deadline.after(min(1.0, deadline.remaining() / left * 0.9))
            why = diagnose(host, port, access.address.tls, patience)
            problems.append(why or f"{host}:{port} {_said(error)}")
    raise Unavailable(f"{access.where}: {'; '.join(dict.fromkeys(problems))}")


def end_session(access: Access, session_id: int, password: bytes, deadline: Deadline) -> None:
    """End a session of whatever connection; it is well if it is gone already.

    Raises:
        Unavailable: no endpoint could be told so.
    """
    problem: Exception | None = None
    for host, port in access.address.endpoints:
        try:
            with _Talk(access, host, port, Deadline.after(min(PATIENCE, deadline.remaining()))) as (
                talk
            ):
                if talk.connect(timeout=60.0, session=session_id, password=password).timeout:
                    talk.end()
                return
        except OSError as error:
            problem = error
    raise Unavailable(f"{access.where}: the session could not be ended") from problem


def ender(config: Mapping[str, Any]) -> Ender:
    """Return what ends sessions for a guardian, whose secrets are `secret_of` them."""
    access = Access.from_config(config)

    def end(secret: bytes, deadline: Deadline) -> None:
        end_session(access, int.from_bytes(secret[:8], "big", signed=True), secret[8:], deadline)

    return end


def secret_of(session_id: int, password: bytes) -> bytes:
    """Return a session's id and password as one."""
    return session_id.to_bytes(8, "big", signed=True) + password


class _Talk:
    """One connection to one endpoint."""

    def __init__(self, access: Access, host: str, port: int, deadline: Deadline) -> None:
        self._access = access
        self._deadline = deadline
        problem: OSError | None = None
        for address in resolve(host, port, deadline):
            try:
                self._wire = connect(address, host, access.context, deadline)
                return
            except OSError as error:
                problem = error
        raise problem or OSError("it has no address")

    def __enter__(self) -> _Talk:
        return self

    def __exit__(self, *exc: object) -> None:
        self._wire.close()

    def connect(self, *, timeout: float, session: int = 0, password: bytes = _NOBODY) -> Session:
        """Begin a session, or take over one."""
        milliseconds = round(timeout * 1000)
        self._send(
            _CONNECT.pack(0, 0, milliseconds, session)
            + _LENGTH.pack(len(password))
            + password
            + b"\0"
        )
        reply = self._receive()
        _, granted, found = _CONNECTED.unpack_from(reply)
        (length,) = _LENGTH.unpack_from(reply, _CONNECTED.size)
        at = _CONNECTED.size + _LENGTH.size
        return Session(found, reply[at : at + length], max(0, granted) / 1000)

    def end(self) -> None:
        """End the session, and wait until the server has."""
        for scheme, credential in self._access.auth_data:
            body = _LENGTH.pack(0) + wire.text(scheme) + wire.text(credential)
            self._send(_REQUEST.pack(_AUTH_XID, wire.AUTH) + body)
            self._receive()
        self._send(_REQUEST.pack(1, wire.CLOSE))
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
            raise OSError("does not speak ZooKeeper's protocol")
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
                raise OSError("ends connections: is it a ZooKeeper, and has it a quorum?")
            read += piece
        return read

    def _await(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._wire.fileno(), event)
        if not poll.poll(math.ceil(self._deadline.remaining() * 1000)):
            raise TimeoutError("does not answer")


def _said(error: OSError) -> str:
    if isinstance(error, ConnectionError):
        return "ends connections: is it a ZooKeeper, and has it a quorum?"
    return error.strerror or str(error) or type(error).__name__
