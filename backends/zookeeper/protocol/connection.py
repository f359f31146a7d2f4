"""A connection: one session on kazoo, with its requests in the order in which they were made.

It works around kazoo in three ways:

- Requests are not passed to kazoo while it is not connected, but wait here, until their caller's
  deadline.
- A server that hangs is detected although requests are sent to it, which kazoo counts as
  heartbeats: after some silence, the next endpoint is tried.
- Requests are sent only after the session has been authenticated.

A write that was sent and lost its answer with the connection may still be on its way. The servers
refuse it once the session has another connection; but a connection that kazoo has begun and given
up may come late as well, and take the session back to the server that then gets the write. So a
session that lost a write ends before anything is read again, and a new one begins.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    ConnectionLoss,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import RetryFailedError

from jrs.contract.clock import Deadline
from jrs.contract.errors import AccessDenied, JrsError, Unavailable

from ...remote.shield import Shield
from . import codec
from .access import Access
from .request import Request
from .sockets import PATIENCE, BufferedSocket, Handler

_WINDOW = 128
"""Most requests in kazoo at a time; more would block the threads that wake kazoo's thread."""
_SILENCE = 3.0
"""Seconds without a message from the server, while requests wait, after which it counts as hung."""
_LONGEST_READ = 8.0
"""Seconds within which an idle connection notices that the server is gone."""
_AT_ONCE = 65536
"""Most bytes of waiting requests that are sent at once."""
_TICK = 0.25
_REVIVAL = 1.0
"""Seconds between two attempts to log in again."""
_FAREWELL = 1.0
"""Seconds that `close` waits for the server."""


_log = logging.getLogger("jrs.backends.zookeeper")
_log.addHandler(logging.NullHandler())
_log.setLevel(logging.WARNING)
# Below this level kazoo logs credentials and session passwords: never let them through.
_log.addFilter(lambda record: record.levelno >= logging.INFO)
logging.getLogger("kazoo").addHandler(logging.NullHandler())


class _Protocol(ConnectionHandler):  # type: ignore[misc]
    """kazoo's protocol handler, with a callback when it is ready and shorter timeouts.

    Attributes:
        session: the number of the newest session.
        in_doubt: the session that lost a write; it ends instead of getting another connection.
    """

    granted = 0.0
    session = 0
    in_doubt = -1
    ready: Callable[[], None]
    _xid: int

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
        try:
            reading, connecting = super()._connect(*place)
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError from error
        except AuthFailedError as error:
            if isinstance(error.__cause__, ConnectionDropped):
                raise error.__cause__ from None  # The network failed, not the login.
            raise
        self.granted = round(reading * 1.5) / 1000
        self.session = self.client.client_id[0]
        if self.session == self.in_doubt:
            self._invoke(connecting / 1000, CloseInstance, xid=1)
            raise SessionExpiredError("a write of this session was lost")
        self.ready()
        return min(reading, _LONGEST_READ * 1000), connecting

    def _read(self, length: int, timeout: float) -> bytes:
        read: bytes = super()._read(length, min(timeout, PATIENCE))
        return read

    def _write(self, message: bytes, timeout: float) -> None:
        with self._socket_error_handling():
            try:
                sent = self._socket.send(message)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                sent = 0
        if sent < len(message):
            super()._write(memoryview(message)[sent:], min(timeout, PATIENCE))

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


class Connection:
    """A sequence of sessions: when one ends, the next one begins.

    Args:
        timeout: the timeout of the sessions, in seconds; the server may grant less or more.
        name: the name of its threads.
        session: the id and the password of a session to take over.
    """

    def __init__(
        self,
        access: Access,
        *,
        timeout: float,
        name: str,
        session: tuple[int, bytes] | None = None,
    ) -> None:
        self.where = access.where
        self._handler = Handler(name, access.context)
        self._client = KazooClient(
            hosts=access.address.hosts,
            timeout=timeout,
            client_id=session,
            handler=self._handler,
            auth_data=access.auth_data,
            sasl_options=access.sasl_options,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.5},
            logger=_log,
        )
        self._protocol = _Protocol(
            self._client, self._client._conn_retry.copy(), _log, access.sasl_options
        )
        self._protocol.ready = self._up
        self._client._connection = self._protocol
        self._client.add_listener(self._changed)
        self._mutex = threading.Lock()
        self._changes = threading.Condition(self._mutex)
        self._outbox: deque[Request] = deque()
        self._flying: set[Request] = set()
        self._connected = False
        self._closed = False
        self._generation = 0
        self._heard = 0.0
        self._refused: JrsError | None = None
        self._over = threading.Event()
        self.on_tick: Callable[[], None] = lambda: None
        """Called a few times a second."""
        self.keeps_session = False
        """Whether the session survives the loss of a write: no harm is done if that comes late."""
        self.shield = Shield(f"{name}-shield")
        self._keeper = threading.Thread(target=self._keep, name=f"{name}-keeper", daemon=True)

    @property
    def granted(self) -> float:
        """The session's timeout, in seconds, as the server granted it."""
        return self._protocol.granted

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def session(self) -> tuple[int, bytes] | None:
        """The session's id and password, while it is connected."""
        found: tuple[int, bytes] | None = self._client.client_id
        return found

    def start(self, deadline: Deadline) -> None:
        """Connect and log in; return when requests can be made.

        Raises:
            Unavailable: not within the deadline.
            AccessDenied: the server rejects the user or the password.
        """
        self._client.start_async()
        self._keeper.start()
        with self._changes:
            self._changes.wait_for(
                lambda: self._connected or self._refused is not None, deadline.bounded()
            )
            connected, refused = self._connected, self._refused
        if not connected:
            self.close()
            raise refused or Unavailable(f"{self.where}: no session within the deadline")

    def submit(self, *requests: Request) -> None:
        """Send the requests in this order, behind earlier ones, as soon as a connection exists.

        To stop waiting, cancel the requests. Before this returns, only other threads run the
        requests' callbacks.

        Raises:
            Unavailable: the connection was closed.
        """
        self.shield.run(lambda: self._submit(requests))

    def _submit(self, requests: Sequence[Request]) -> None:
        with self._mutex:
            if self._closed:
                raise Unavailable("this handle is closed")
            for request in requests:
                request.answered = self._answered
                request.current = self._current
            self._outbox.extend(requests)
            self._pump()

    def close(self) -> None:
        """End the session and every thread. Requests in flight are answered or lost. Idempotent."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            unsent = list(self._outbox)
            self._outbox.clear()
            connected = self._connected
            self._changes.notify_all()
        for request in unsent:
            request.set_exception(Unavailable("this handle was closed; nothing was changed"))
        self._over.set()
        self.shield.close(_FAREWELL)
        if self._keeper.ident is not None:
            self._keeper.join()
        self._handler.given_up = not connected
        farewell = threading.Timer(_FAREWELL, self._cut)
        farewell.start()
        try:
            self._client.stop()
            self._client.close()
        finally:
            farewell.cancel()
            farewell.join()

    # -- from and to kazoo's thread --------------------------------------------------------

    def _current(self) -> int:
        return self._generation

    def _pump(self) -> None:
        # Our own flag is not enough: when the connection is lost, kazoo first fails its requests.
        while (
            self._outbox
            and self._connected
            and len(self._flying) < _WINDOW
            and self._client.connected
        ):
            request = self._outbox.popleft()
            if request.canceled:
                continue
            if not self._flying:
                self._heard = time.monotonic()
            request.generation = self._generation
            self._flying.add(request)
            self._client._queue.append((request, request))
            try:
                self._protocol._write_sock.send(b"\0")
            except (OSError, AttributeError):
                return  # kazoo is being closed, and will fail its requests.

    def _answered(self, request: Request) -> None:
        with self._mutex:
            if request.completed:
                return
            request.completed = True
            self._flying.discard(request)
            self._heard = time.monotonic()
            if request.sent and request.lost and not self.keeps_session:
                self._protocol.in_doubt = self._protocol.session
            self._pump()
        # The callback refers to the request: break the cycle, to spare the garbage collector.
        notify, request.notify = request.notify, _nobody
        notify(request)

    def _up(self) -> None:
        with self._mutex:
            self._connected = True
            self._refused = None
            self._generation += 1
            self._heard = time.monotonic()
            self._changes.notify_all()
            self._pump()

    def _changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            return  # `_up` follows once the session is authenticated.
        with self._mutex:
            self._connected = False
            self._generation += 1
            # kazoo has failed the requests that it knew. The others came too late to be sent.
            stranded = list(self._flying)
            if self._client.client_state == KeeperState.AUTH_FAILED:
                self._refused = AccessDenied(f"{self.where}: wrong user or password")
            self._changes.notify_all()
        for request in stranded:
            request.cancel()
            request.set_exception(ConnectionLoss())

    def _cut(self) -> None:
        """End the current connection, or the attempt to connect; kazoo then connects again."""
        self._handler.given_up = self._closed
        socket = self._protocol._socket
        if isinstance(socket, BufferedSocket):
            socket.abort()

    def _keep(self) -> None:
        revive_at = 0.0
        while not self._over.wait(_TICK):
            self.on_tick()
            with self._mutex:
                hangs = (
                    self._connected and self._flying and time.monotonic() - self._heard > _SILENCE
                )
                if hangs:
                    self._heard = time.monotonic()
                while self._outbox and self._outbox[0].canceled:
                    self._outbox.popleft()
            if hangs:
                self._cut()
            routine = self._protocol._connection_routine
            if routine is not None and not routine.is_alive() and time.monotonic() > revive_at:
                # kazoo gives up forever if a login fails, even because of a lost connection.
                self._client.start_async()
                revive_at = time.monotonic() + _REVIVAL

    # -- waiting for one request -----------------------------------------------------------

    def write(self, ops: Sequence[bytes], deadline: Deadline) -> Request:
        """Send one multi and wait; return the answered request. Check its `codec.failure`.

        Raises:
            Unavailable: the request was not sent.
            OutcomeUnknown: the request was sent, but not answered in time.
        """
        answered = threading.Lock()
        answered.acquire()
        request = Request(codec.MULTI, codec.multi(ops), lambda _: answered.release())
        self.submit(request)
        if not answered.acquire(timeout=deadline.bounded()):
            raise self.overdue(request)
        problem = request.problem(self.where)
        if problem is not None:
            raise problem
        return request

    def overdue(self, request: Request) -> JrsError:
        """Return the error for a write whose deadline has passed."""
        if request.cancel():
            return Unavailable(f"{self.where}: no answer within the deadline; nothing was changed")
        request.error = ConnectionLoss()
        problem = request.problem(self.where)
        assert problem is not None
        return problem


def _nobody(_: Request) -> None:
    """Ignore the request: the callback of a completed request."""
