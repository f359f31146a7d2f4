"""The sessions of a connection, one after the other: what kazoo does to connect and to send.

A write that was sent and lost its answer with the connection may still be on its way. The servers
refuse it once the session has another connection; but a connection that kazoo has begun and given
up may come late as well, and take the session back to the server that then gets the write. So a
session that lost a write ends before anything is read again, and a new one begins.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KeeperState
from kazoo.retry import RetryFailedError

from . import codec
from .request import Request
from .sockets import ANSWER_TIMEOUT, SilenceLimit

_LONGEST_READ = 8.0
"""Seconds within which an idle connection notices that the server is gone."""
_AT_ONCE = 65536
"""Most bytes of waiting requests that are sent at once."""

log = logging.getLogger("jrs.backends.zookeeper")
log.addHandler(logging.NullHandler())
log.setLevel(logging.WARNING)
# Below this level kazoo logs credentials and session passwords: never let them through.
log.addFilter(lambda record: record.levelno >= logging.INFO)
logging.getLogger("kazoo").addHandler(logging.NullHandler())


class Sessions(ConnectionHandler):  # type: ignore[misc]
    """kazoo's protocol handler, with a callback when it is ready and shorter timeouts.

    Attributes:
        session: the id and the password of the newest session.
        in_doubt: those of a session that lost a write, until it has ended.
        ended: whether a server has acknowledged that it closed the session.
        silence_limit: how long an answer may take before the next endpoint is tried.
    """

    granted = 0.0
    session: tuple[int, bytes] | None = None
    in_doubt: tuple[int, bytes] | None = None
    ended = False
    ready: Callable[[], None]
    silence_limit: SilenceLimit
    _left: tuple[str, int] | None = None
    """The endpoint that was tried last."""
    _xid: int

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        try:
            found: list[tuple[str, str, int]] = super()._expand_client_hosts()
        except OSError as error:
            # Without a descriptor for the look-up: as if no name were known. Any such error would
            # end kazoo's thread, and with it the session.
            log.warning("no host can be looked up: %s", error.strerror)
            return []
        # The one that was left comes last: it may hang.
        return sorted(found, key=lambda place: place[1:] == self._left)

    def _connect_attempt(self, *place: Any) -> object:
        try:
            return super()._connect_attempt(*place)
        except RetryFailedError:
            raise
        except Exception:
            # Any other error would end kazoo's thread with a traceback, and the client forever.
            self.client._session_callback(KeeperState.CONNECTING)
            return None

    def _connect(self, *place: Any) -> tuple[float, float]:
        client = self.client
        self._left = place[1:]
        if self.in_doubt is not None:  # kazoo forgets a session whose login fails.
            client._session_id, client._session_passwd = self.in_doubt
        try:
            reading, connecting = super()._connect(*place)
        except SessionExpiredError:
            self.in_doubt = None
            raise
        except self.handler.timeout_exception:
            self.silence_limit.lengthen()
            raise
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError from error
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):
                raise error.__cause__ from None  # The network failed, not the login.
            raise
        self.granted = round(reading * 1.5) / 1000
        self.session = client.client_id
        if self.in_doubt is not None:
            self._invoke(connecting / 1000, CloseInstance, xid=1)
            self.in_doubt = None
            raise SessionExpiredError("a write of this session was lost")
        self.ready()
        return min(reading, _LONGEST_READ * 1000), connecting

    def _read(self, length: int, timeout: float) -> bytes:
        read: bytes = super()._read(length, min(timeout, self.silence_limit.within(ANSWER_TIMEOUT)))
        return read

    def _read_response(self, header: Any, buffer: Any, offset: int) -> int | None:
        found: int | None = super()._read_response(header, buffer, offset)
        self.ended = found == CloseInstance.type  # After that kazoo reads no more.
        return found

    def _write(self, message: bytes, timeout: float) -> None:
        with self._socket_error_handling():
            try:
                sent = self._socket.send(message)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
        if sent < len(message):
            longest = self.silence_limit.within(ANSWER_TIMEOUT)
            super()._write(memoryview(message)[sent:], min(timeout, longest))

    def _send_request(self, reading: float, connecting: float) -> None:
        # All waiting requests at once: sending each alone takes most of a request's time.
        queue, pending = self.client._queue, self.client._pending
        frames: list[bytes] = []
        size = 0
        while queue and size < _AT_ONCE and isinstance(queue[0][0], Request):
            request, target = queue.popleft()
            self._xid = self._xid % 0x7FFFFFFF + 1
            pending.append((request, target, self._xid))
            frames.append(codec.frame(self._xid, request.type, request.serialize()))
            size += len(frames[-1])
        if frames:
            self._read_sock.recv(len(frames))  # Each request woke this thread with one byte.
            self._write(b"".join(frames), connecting)
        else:
            super()._send_request(reading, connecting)
