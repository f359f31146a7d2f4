"""Connections: how they are accepted, and when they are ended although their client is still there.

Who connects needs no token for it, and takes a descriptor. So a connection is ended that sends no
whole request in time, and there are at most so many that the process keeps descriptors for its
work. If there are that many, those whose client does nothing make room for new ones.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable

from jrs.contract.clock import Clock
from jrs.sidecar.certificates import NamingProtocol

_log = logging.getLogger("jrs.sidecar")

HEAD_WITHIN = 10.0
"""Seconds in which a TLS handshake, and the head of a request, have to be complete."""
_MOST = 4096
_KEPT = 128
"""Descriptors that are kept for all but connections, unless that is more than half of them."""
_SHORT_LIVED = 16
"""Places for connections that are ended after `HEAD_WITHIN`, unless that is more than an eighth."""
_REST = 1.0
"""Seconds until another client is accepted after none could be, for example for want of a
descriptor."""
_SAID_EVERY = 60.0


class Protocol(NamingProtocol):
    """HTTP that ends connections on which no head of a request becomes complete in time.

    uvicorn bounds only the time between an answer and the first byte of the next request.
    """

    among: Connections
    """Set by them."""
    _late: asyncio.TimerHandle | None = None
    _heard = 0
    _seen = 0
    _since = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered, and the client has taken all answers."""
        return self._is_answered and not self._unsent

    def is_stuck(self, now: float) -> bool:
        """Return whether the client, as far as the calls of this tell, has taken nothing for
        `HEAD_WITHIN` of an answer that waits for it, or sent nothing of a body.

        Args:
            now: in seconds of a monotonic clock.
        """
        unsent = self._unsent
        if not unsent and (self._is_answered or not self.cycle.more_body):
            return False
        if (seen := unsent or -self._heard) != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= HEAD_WITHIN

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        self._heard += 1
        self.among.heard(self)
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.among.lost(self)
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _unsent(self) -> int:
        """How many bytes wait until the client reads. An answer counts as complete before."""
        if self not in self.connections:  # The handshake is not complete.
            return 0
        # The transport of TLS does not count what it has given to the one below, and does not name
        # that.
        below = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        of_tls = 0 if below is None else below.get_write_buffer_size()
        return int(self.transport.get_write_buffer_size() + of_tls)

    def _watch_head(self) -> None:
        if not self._is_answered or self.timeout_keep_alive_task is not None:
            if self._late is not None:
                self._late.cancel()
            self._late = None
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_WITHIN, self.transport.abort)


class Connections:
    """The connections of a server: for each one too many, the one is ended that has been silent
    for longest among those without a request, else among those that are stuck. If there is none,
    the new one gets one of a few places from which it is ended soon; so probes get answers while
    followers have all others. If these are taken as well, it is refused.

    uvicorn, left to itself, accepts without a bound, and does not know of a client whose TLS
    handshake is not complete. Use it in the event loop's thread.

    Args:
        listening: is not closed here.
        tls: None: connections are not encrypted.
        most: how many there are at once.
    """

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
        most: int,
        clock: Clock = time.monotonic,
    ) -> None:
        self._listening = listening
        self._tls = tls
        self._most = most
        self._clock = clock
        self._open: dict[Protocol, asyncio.Task[None]] = {}
        """With what makes each; the one that has been silent for longest comes first."""
        self._say_from = 0.0

    async def accept(self, make: Callable[[], Protocol]) -> None:
        """Accept connections until this is canceled; those that are open stay.

        Args:
            make: returns what speaks to a client.
        """
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        while True:
            try:
                client, _ = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:  # Otherwise it has gone away.
                    self._say("no connection is accepted: %s", error)
                    await asyncio.sleep(_REST)
                continue
            lasting = self._has_room()
            if lasting or len(self._open) < self._most:
                protocol = make()
                protocol.among = self
                self._open[protocol] = loop.create_task(self._connect(protocol, client))
                if not lasting:
                    loop.call_later(HEAD_WITHIN, self._end, protocol)
            else:
                client.close()
            await asyncio.sleep(0)  # As long as clients wait, `sock_accept` does not.

    def heard(self, protocol: Protocol) -> None:
        """Note that a client has sent something."""
        if (task := self._open.pop(protocol, None)) is not None:
            self._open[protocol] = task

    def lost(self, protocol: Protocol) -> None:
        """Note that a connection has ended."""
        self._open.pop(protocol, None)

    async def _connect(self, protocol: Protocol, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        within = None if self._tls is None else HEAD_WITHIN
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, client, ssl=self._tls,
                ssl_handshake_timeout=within, ssl_shutdown_timeout=within,
            )  # fmt: skip
        except BaseException as error:
            self.lost(protocol)
            client.close()
            if not isinstance(error, OSError):  # It went away, or the handshake has failed.
                raise

    def _has_room(self) -> bool:
        """Return whether a new connection may stay; end another one for it if there is one."""
        if len(self._open) < self._most - min(_SHORT_LIVED, self._most // 8):
            return True
        self._say("%d connections are open: idle ones are ended for new ones", len(self._open))
        now = self._clock()
        # All are looked at, so that each one that is stuck is known from now on.
        stuck = [one for one in self._open if one.is_stuck(now)]
        idle = (one for one in self._open if one.is_idle)
        ended = next(itertools.chain(idle, stuck), None)
        if ended is None:
            return False
        self._end(ended)
        return True

    def _end(self, protocol: Protocol) -> None:
        making = self._open.pop(protocol, None)
        if making is None:
            return
        if making.done():
            protocol.transport.abort()
        else:
            making.cancel()

    def _say(self, text: str, *about: object) -> None:
        """Log a warning, unless one was logged within a minute."""
        now = self._clock()
        if now >= self._say_from:
            self._say_from = now + _SAID_EVERY
            _log.warning(text, *about)


def most_connections() -> int:
    """Return how many connections this process can have at once, by its limit of descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(limit - _KEPT, limit // 2))
