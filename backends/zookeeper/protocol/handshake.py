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

import attrs

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
_ROUND = 0.5
"""Seconds for a further round; a shorter one would tell nothing but that its time was up."""
_ENDED = (
    "ends connections: check that it is a ZooKeeper, that it has a quorum, and that this host does "
    "not have too many connections (maxClientCnxns)"
)


def shortest_session(access: Access, deadline: Deadline) -> float:
    """Return the shortest timeout, in seconds, that the server grants a session.

    Asks again until the deadline, and each time waits longer for an answer, where waiting may help:
    a server may hang for a while, and while its ensemble elects a leader it ends the connection.

    Raises:
        Unavailable: no endpoint can be reached; the message gives the newest reason for each.
        WrongAddress: the address or the certificates are wrong; waiting does not help.
    """
    endpoints = access.address.endpoints
    pause, longest = _PAUSE, ANSWER_TIMEOUT
    is_first = True
    while True:
        faults: list[Fault] = []
        for number, endpoint in enumerate(endpoints):
            share = deadline.remaining() / (len(endpoints) - number)
            try:
                return _ask(access, endpoint, longest, Deadline.after(share * 0.7))
            except _Failed as failed:
                until = Deadline.after(min(1.0, share * 0.2))
                faults.append(failed.fault(endpoint, access, until))
        why = f"{access.where}: {'; '.join(dict.fromkeys(fault.what for fault in faults))}"
        if all(fault.wrong for fault in faults):
            raise WrongAddress(why)
        # A server that was there a moment ago may be about to start again.
        if is_first and all(fault.lasting for fault in faults):
            raise Unavailable(why)
        if deadline.remaining() < pause + _ROUND:
            raise Unavailable(why)
        is_first = False
        time.sleep(pause)
        pause, longest = min(2 * pause, _LONGEST_PAUSE), 2 * longest


def _ask(access: Access, endpoint: tuple[str, int], longest: float, deadline: Deadline) -> float:
    """Return what the first address of an endpoint that answers grants.

    Args:
        longest: most seconds for one address.

    Raises:
        _Failed: none answers.
    """
    host, port = endpoint
    try:
        until = Deadline.after(min(longest, deadline.remaining() / 2))
        addresses = resolve(host, port, until)
    except OSError as error:
        raise _Failed([error]) from error
    errors: list[OSError] = []
    for number, address in enumerate(addresses):
        share = deadline.remaining() / (len(addresses) - number)
        try:
            with _Talk(access, address, host, Deadline.after(min(longest, share))) as talk:
                shortest = talk.connect(timeout=0.001)
                with contextlib.suppress(OSError):
                    talk.end()  # If this fails, the session soon ends by itself.
                return shortest
        except OSError as error:
            errors.append(error)
    raise _Failed(errors)


class _Failed(Exception):
    """No address of an endpoint has answered.

    Args:
        errors: those of its addresses, or of looking for them.
    """

    def __init__(self, errors: list[OSError]) -> None:
        super().__init__(*errors)
        self._errors = errors

    def fault(self, endpoint: tuple[str, int], access: Access, deadline: Deadline) -> Fault:
        """Return what is wrong with the endpoint, after a look at it."""
        foreign = [isinstance(error, _OtherProtocol) for error in self._errors]
        passing = any(isinstance(error, TimeoutError) for error in self._errors)
        found = look(endpoint, access.address.tls, deadline)
        if found is not None:
            return attrs.evolve(found, lasting=found.lasting and not passing)
        host, port = endpoint
        # Of several addresses, the one that said most.
        told = self._errors[foreign.index(True) if any(foreign) else -1]
        return Fault(f"{host}:{port} {_said(told)}", lasting=all(foreign), wrong=all(foreign))


class _OtherProtocol(OSError):
    """The server is not a ZooKeeper."""


class _Talk:
    """One connection to one address."""

    def __init__(
        self, access: Access, address: tuple[str, int], host: str, deadline: Deadline
    ) -> None:
        self._access = access
        self._deadline = deadline
        context = None if access.tls is None else access.tls.get()
        self._wire = connect(address, host, context, deadline)

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
