"""A connection: one session on kazoo, with its requests in the order in which they were made.

It works around kazoo, and the servers, in four ways:

- Requests are not passed to kazoo while it is not connected, but wait here, until their caller's
  deadline.
- A server that hangs is detected although requests are sent to it, which kazoo counts as
  heartbeats: after some silence, which also another request does not end, the next endpoint is
  tried.
- A member of ZooKeeper 3.6.0 to 3.8.0 can miss that it has something to do, and then sleeps until
  the next request (ZOOKEEPER-4537). So a shorter silence is answered with another request.
- Requests are sent only after the session has been authenticated.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState, KeeperState

from jrs.contract.clock import Deadline
from jrs.contract.errors import AccessDenied, HandleClosed, JrsError, Unavailable
from jrs.contract.runtime import JrsThread, start_thread

from ...remote.signal_safe_calls import SignalSafeCalls
from . import codec
from .access import Access
from .request import Request
from .sessions import Sessions, log
from .sockets import BufferedSocket, Handler, SilenceLimit

_WINDOW = 128
"""Most requests in kazoo at a time; more would block the threads that wake kazoo's thread."""
_SILENCE = 3.0
"""Most seconds without a byte from the server, while requests wait: then it counts as hung."""
_NUDGE = 0.5
"""Seconds of such a silence after which another request is sent, to wake the server."""
_TICK = 0.25
_REVIVAL = 1.0
"""Seconds between two attempts to log in again."""
_FAREWELL = 1.0
"""Seconds that `close` waits for the server."""


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
        self._silence_limit = SilenceLimit(timeout)
        self._handler = Handler(name, access.tls, self._silence_limit)
        self._client = KazooClient(
            hosts=access.address.hosts,
            timeout=timeout,
            client_id=session,
            handler=self._handler,
            auth_data=access.auth_data,
            sasl_options=access.sasl_options,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.5},
            logger=log,
        )
        self._protocol = Sessions(
            self._client, self._client._conn_retry.copy(), log, access.sasl_options
        )
        self._protocol.ready = self._up
        self._protocol.silence_limit = self._silence_limit
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
        self._nudged = 0.0
        self._revive_at = 0.0
        self._refused: JrsError | None = None
        self._over = threading.Event()
        self.on_tick: Callable[[], None] = lambda: None
        """Called a few times a second."""
        self.tolerates_late_writes = False
        """Whether a lost write may come late. Otherwise the session that lost it is ended."""
        self.safe_calls = SignalSafeCalls(f"{name}-calls")
        self._keeper = JrsThread(target=self._keep, name=f"{name}-keeper", daemon=True)

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
            Unavailable: not within the deadline, or this host has no thread left for it.
            AccessDenied: the server rejects the user or the password.
        """
        try:
            self._client.start_async()
            start_thread(self._keeper)
        except (RuntimeError, MemoryError, OSError, Unavailable) as error:
            self.close()
            raise Unavailable(f"{self.where}: no session: {error}") from error
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
            HandleClosed: the connection was closed.
        """
        self.safe_calls.run(lambda: self._submit(requests))

    def _submit(self, requests: Sequence[Request]) -> None:
        with self._mutex:
            if self._closed:
                raise HandleClosed
            self._outbox.extend(map(self._bound, requests))
            self._pump()

    def _bound(self, request: Request) -> Request:
        request.answered = self._answered
        request.current = self._current
        return request

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
        self.safe_calls.close(_FAREWELL)
        if self._keeper.ident is not None:
            self._keeper.join()
        self._handler.given_up = not connected
        ended = threading.Event()
        farewell = JrsThread(target=self._cut_unless, args=(ended,), name="jrs-zk-farewell")
        try:
            start_thread(farewell)
        except Unavailable:
            self._cut()  # At once: the server hears no farewell, and ends the session later.
        try:
            if self._protocol._write_sock is not None:
                self._client.stop()
            else:  # No descriptor was left for the sockets with which kazoo wakes its thread.
                self._handler.stop()
            self._client.close()
        finally:
            ended.set()
            if farewell.ident is not None:
                farewell.join()

    def end_session(self) -> None:
        """Close the connection like `close`. Idempotent.

        Raises:
            Unavailable: no server has acknowledged the end of the session, so that it may last
                until its timeout.
        """
        self.close()
        if self._protocol.session is not None and not self._protocol.ended:
            raise Unavailable(f"{self.where}: no answer to the end of the session")

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
            if not request.canceled and not self._pass_on(request):
                return

    def _pass_on(self, request: Request) -> bool:
        """Give a request to kazoo; return whether it takes more."""
        if not self._flying:
            self._heard = time.monotonic()
        request.generation = self._generation
        self._flying.add(request)
        self._client._queue.append((request, request))
        try:
            self._protocol._write_sock.send(b"\0")
        except (OSError, AttributeError):
            return False  # kazoo is being closed, and will fail its requests.
        return True

    def _answered(self, request: Request) -> None:
        with self._mutex:
            if request.completed:
                return
            request.completed = True
            self._flying.discard(request)
            now = time.monotonic()
            if request.reply is not None:
                self._silence_limit.restore(now - self._heard)
            self._heard = now
            # What is answered behind its deadline was given up, and is not lost.
            lost = request.lost and request.reply is None
            if request.sent and lost and not self.tolerates_late_writes:
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

    def _cut_unless(self, ended: threading.Event) -> None:
        if not ended.wait(_FAREWELL):
            self._cut()

    def _keep(self) -> None:
        while not self._over.wait(_TICK):
            try:
                self._look_after()
            except Exception as error:
                # Short of descriptors, threads or memory, which passes. Without this thread the
                # handle would never connect again.
                log.warning("%s: %r; tried again", self.where, error)

    def _look_after(self) -> None:
        self.on_tick()
        with self._mutex:
            hangs = self._check_silence(time.monotonic())
            while self._outbox and self._outbox[0].canceled:
                self._outbox.popleft()
        if hangs:
            self._cut()
        routine = self._protocol._connection_routine
        ended = routine is None or not routine.is_alive()  # None: it could not be started.
        if ended and time.monotonic() > self._revive_at:
            # kazoo gives up forever if a login fails, even because of a lost connection.
            self._revive_at = time.monotonic() + _REVIVAL
            self._client.start_async()

    def _check_silence(self, now: float) -> bool:
        """Return whether the server counts as hung; before that, try to wake it."""
        if not self._connected or not self._flying:
            return False
        readable, socket = False, self._protocol._socket
        if isinstance(socket, BufferedSocket):
            self._heard = max(self._heard, socket.heard_at)
            readable = socket.readable  # An answer that this process was too slow to read.
        silent = now - self._heard > self._silence_limit.within(_SILENCE)
        if silent and self._nudged > self._heard and not readable:
            self._silence_limit.lengthen()
            self._heard = now
            return True
        if now - max(self._heard, self._nudged) > _NUDGE and self._client.connected:
            self._nudged = now
            # Ahead of the waiting ones, for which there may be no room.
            self._pass_on(self._bound(Request(codec.EXISTS, codec.text("/") + b"\0", _nobody)))
        return False

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
