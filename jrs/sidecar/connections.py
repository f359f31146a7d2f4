"""Connections: how they are accepted, and when they are ended although their client is still there.

Who connects needs no token for it, and takes a descriptor. So a connection is ended that sends no
whole request in time, and there are at most so many that the process keeps descriptors for its
work. If there are that many, those whose client does nothing make room for new ones.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import logging
import resource
import socket
import ssl
import struct
import termios
import time
from collections.abc import Callable, Iterator

from jrs.contract.clock import Clock
from jrs.sidecar.certificates import NamingProtocol

_log = logging.getLogger("jrs.sidecar")

HEAD_WITHIN = 10.0
"""Seconds in which a TLS handshake, and the head of a request, have to be complete."""
STUCK_AFTER = 30.0
"""Seconds in which a client has to take a part of what waits for it, or to send a part of a body.
A kernel tells a sender of many small reads at once: of 5 KB/s, each 17 seconds."""
_MOST = 4096
_KEPT = 128
"""Descriptors that are kept for all but connections, unless that is more than half of them."""
_SHORT_LIVED = 16
"""Places for connections that are ended after `HEAD_WITHIN`, unless that is more than an eighth."""
_REST = 1.0
"""Seconds until another client is accepted after none could be, for example for want of a
descriptor."""
_SAID_EVERY = 60.0
_LOOK_EVERY = 1.0
"""Seconds between two looks at all connections, while there are too many."""


class Protocol(NamingProtocol):
    """HTTP that ends connections on which no head of a request becomes complete in time, and those
    that are to close, while their client takes nothing of what still waits for it.

    uvicorn bounds only the time between an answer and the first byte of the next request.
    """

    among: Connections
    """Set by them."""
    _below: asyncio.Transport | None = None
    """What sends the bytes: below TLS, or the only one. A transport of TLS that is closed twice
    loses it, tells nothing any more, and its `abort` does nothing. None: before the handshake is
    complete, and at the end."""
    _late: asyncio.TimerHandle | None = None
    _heard = 0
    _seen = 0
    _since = 0.0
    _looked = 0.0

    def is_idle(self) -> bool:
        """Return whether no request is being answered, and the client has taken all answers."""
        return self._is_answered and not self._unsent

    def is_stuck(self, now: float) -> bool:
        """Return whether the client, as far as the calls of this tell, has taken nothing for
        `STUCK_AFTER` of an answer that waits for it, or sent nothing of a body.

        Args:
            now: in seconds of a monotonic clock.
        """
        lacks_body = not self._is_answered and self.cycle.more_body
        seen = self._unsent or (-self._heard if lacks_body else 0)
        if seen != self._seen or now - self._looked > STUCK_AFTER / 2:
            self._seen, self._since = seen, now  # The same number may be another answer's by now.
        self._looked = now
        return seen != 0 and now - self._since >= STUCK_AFTER

    def end(self) -> bool:
        """End the connection at once; return whether there is one yet."""
        if self._below is not None:
            self._below.abort()
        return self._below is not None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = getattr(transport, "_ssl_protocol", None)
        self._below = transport if tls is None else tls._transport
        self._socket = transport.get_extra_info("socket")
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._heard += 1
        self.among.heard(self)
        super().data_received(data)
        self._watch()

    def eof_received(self) -> None:
        super().eof_received()
        self.loop.call_soon(self._watch)  # The transport closes behind this call.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self.among.lost(self)
        self._below = None
        if self._late is not None:
            self._late.cancel()
        super().connection_lost(exc)

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _unsent(self) -> int:
        """How many bytes wait until the client reads, here and in the kernel; TLS keeps some only
        while others wait below it. An answer counts as complete before."""
        if self._below is None:
            return 0
        waiting = self._below.get_write_buffer_size()
        if self._socket is None:
            return waiting
        # The kernel takes megabytes, and for a long time no more while a slow client reads them.
        (held,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
        return waiting + int(held)

    def _watch(self) -> None:
        """Bound the time until a head is complete, and that of closing."""
        if self._below is None:
            return  # It has ended meanwhile.
        is_in_time = not self._is_answered or self.timeout_keep_alive_task is not None
        if is_in_time and not self.transport.is_closing():
            if self._late is not None:
                self._late.cancel()
            self._late = None
        elif self._late is None:
            allowed = STUCK_AFTER if self.transport.is_closing() else HEAD_WITHIN
            self._late = self.loop.call_later(allowed, self._end_late, self._unsent)

    def _end_late(self, unsent: int) -> None:
        self._late = None
        if self._unsent in (0, unsent):
            self.end()
        else:
            self._watch()  # The client takes what waits.


class Connections:
    """The connections of a server: for each one too many, the one is ended that has been silent
    for longest among those without a request. If there is none, the new one gets one of a few
    places from which it is ended soon; so probes get answers while followers have all others. If
    these are taken as well, it is refused. While there are too many, those that are stuck end.

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
        self._look: asyncio.TimerHandle | None = None

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
        try:
            await loop.connect_accepted_socket(
                lambda: protocol, client, ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HEAD_WITHIN,
            )  # fmt: skip
        except BaseException as error:
            self.lost(protocol)
            client.close()
            if not isinstance(error, OSError):  # It went away, or the handshake has failed.
                raise

    def _has_room(self) -> bool:
        """Return whether a new connection may stay; end another for it if too many are open."""
        if self._is_full():
            self._say("%d connections are open: idle ones are ended for new ones", len(self._open))
            for one in list(itertools.islice(self._found(Protocol.is_idle), 1)):
                self._end(one)
            if self._look is None:
                self._end_stuck()
        return not self._is_full()

    def _is_full(self) -> bool:
        return len(self._open) >= self._most - min(_SHORT_LIVED, self._most // 8)

    def _end_stuck(self) -> None:
        """End those that are stuck, now and from time to time as long as there are too many:
        however rarely others come, each look knows what the one before has seen."""
        now, self._look = self._clock(), None
        for one in list(self._found(lambda one: one.is_stuck(now))):
            self._end(one)
        if self._is_full():
            self._look = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._end_stuck)

    def _found(self, look: Callable[[Protocol], bool]) -> Iterator[Protocol]:
        """Yield the connections of which a look says so, and those at which it fails: one alone
        must not end `accept`."""
        for one in self._open:
            try:
                found = look(one)
            except Exception:
                _log.exception("a connection is ended: it cannot be told what it does")
                found = True
            if found:
                yield one

    def _end(self, protocol: Protocol) -> None:
        making = self._open.pop(protocol, None)
        if making is not None and not protocol.end():
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
