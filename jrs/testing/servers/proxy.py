"""Proxy: the network between a client and a server, which a test can freeze, cut and heal.

A frozen proxy behaves like a dead router: connections stay open, and nothing arrives, not even the
end of a connection. Freezing one direction makes the worst case for a client: the server carries
out a request, and the answer never arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import attrs

from jrs.testing.servers.ports import Ports

_TIMEOUT = 10.0
_CHUNK = 65536
_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing drops unsent bytes, and the other end sees a reset."""


@attrs.define(eq=False)
class _Direction:
    """One direction through the proxy.

    Attributes:
        open: set while bytes pass.
        swallows: whether bytes disappear.
    """

    open: asyncio.Event = attrs.Factory(asyncio.Event)
    swallows: bool = False


@attrs.define(eq=False)
class _Link:
    """One connection: both sockets, and whether bytes were lost."""

    client: socket.socket
    server: socket.socket | None = None
    torn: bool = False

    def close(self, *, reset: bool) -> None:
        for end in (self.client, self.server):
            if end is not None:
                if reset:
                    with contextlib.suppress(OSError):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()


class Proxy:
    """A port of the loopback that forwards to a server; runs in its own thread.

    Every method returns once it has taken effect: after `freeze()` no byte passes.

    Args:
        target: host and port of the server, which need not be up.
        delay: seconds for which each piece of bytes is held, in each direction.
    """

    def __init__(self, target: tuple[str, int], *, delay: float = 0.0) -> None:
        self.target = target
        self._delay = delay
        self._ports = Ports()
        self.endpoint = ("127.0.0.1", self._ports.take())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"jrs-proxy-{self.endpoint[1]}", daemon=True
        )
        self._requests = _Direction()
        self._replies = _Direction()
        self._tasks: dict[asyncio.Task[None], _Link] = {}
        self._listener: socket.socket | None = None
        self._held = threading.Event()
        self._closed = False
        self._thread.start()
        try:
            self.restore()
        except BaseException:
            self.close()
            raise

    def freeze(self, *, requests: bool = True, replies: bool = True) -> None:
        """Hold all bytes of old and new connections from now on; connecting still works.

        Args:
            requests: hold the bytes that clients send.
            replies: hold the bytes that the server sends.
        """

        async def freeze() -> None:
            self._held.clear()
            for direction, wanted in ((self._requests, requests), (self._replies, replies)):
                if wanted:
                    direction.open.clear()

        self._run(freeze())

    def thaw(self) -> None:
        """Pass the held bytes, and all later ones."""

        async def thaw() -> None:
            self._requests.open.set()
            self._replies.open.set()

        self._run(thaw())

    def swallow(self) -> None:
        """Accept all bytes and pass none, until `restore()`."""

        async def swallow() -> None:
            for direction in (self._requests, self._replies):
                direction.swallows = True
                direction.open.set()

        self._run(swallow())

    def cut(self) -> None:
        """Reset all connections and refuse new ones, until `restore()`."""

        async def cut() -> None:
            await self._shut()
            await self._reset_all()

        self._run(cut())

    def restore(self) -> None:
        """Pass everything again. A connection that has lost bytes is reset."""

        async def restore() -> None:
            for direction in (self._requests, self._replies):
                direction.swallows = False
            for task, link in list(self._tasks.items()):
                if link.torn:
                    await _cancel(task)
            self._requests.open.set()
            self._replies.open.set()
            self._listen()

        self._run(restore())

    def shape(self, *, requests: bool, replies: bool, connections: bool) -> None:
        """Be as told, whatever it was before.

        Args:
            requests: pass the bytes that clients send; else hold them.
            replies: pass the bytes that the server sends; else hold them.
            connections: accept connections; else reset all, and refuse new ones.
        """

        async def shape() -> None:
            if not connections:
                await self._shut()
                await self._reset_all()
            for direction, passes in ((self._requests, requests), (self._replies, replies)):
                (direction.open.set if passes else direction.open.clear)()
            if connections:
                self._listen()

        self._run(shape())

    def wait_until_held(self, timeout: float = _TIMEOUT) -> None:
        """Wait until bytes were held since the last `freeze()`.

        The end of a connection does not count. Heartbeats do: a test that is about one request
        has to look for that request as well.

        Raises:
            TimeoutError: no bytes were held within `timeout` seconds.
        """
        if not self._held.wait(timeout):
            raise TimeoutError(f"nothing came to be held within {timeout:g} s")

    def close(self) -> None:
        """Reset all connections and end the thread. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self.cut()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_TIMEOUT)
            self._loop.close()
            self._ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, change: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(change, self._loop).result(_TIMEOUT)

    def _accept(self, listener: socket.socket) -> None:
        # Not by a task: a canceled task loses the connection that it has just accepted.
        try:
            client, _ = listener.accept()
        except OSError:
            return  # The client is already gone.
        link = _Link(client)
        task = self._loop.create_task(self._serve(link))
        self._tasks[task] = link
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        # Even a task that was canceled before its first step.
        self._tasks.pop(task).close(reset=True)

    async def _serve(self, link: _Link) -> None:
        reset = True
        try:
            link.client.setblocking(False)
            link.client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._requests.open.wait()
            link.server = socket.socket()
            link.server.setblocking(False)
            link.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(link.server, self.target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(link, link.client, link.server, self._requests))
                both.create_task(self._pump(link, link.server, link.client, self._replies))
            reset = False  # Both ends have finished sending, but may still have to read the rest.
        except (OSError, ExceptionGroup):
            pass  # One end is gone; the code below tells the other one.
        finally:
            link.close(reset=reset)

    async def _pump(
        self, link: _Link, source: socket.socket, sink: socket.socket, way: _Direction
    ) -> None:
        while True:
            data: bytes | None
            try:
                data = await self._loop.sock_recv(source, _CHUNK)
            except OSError:
                data = None
            if not way.open.is_set():
                if data:
                    self._held.set()
                await way.open.wait()  # This also delays the news that this end is gone.
            if data is None:
                raise ConnectionResetError
            if self._delay:
                await asyncio.sleep(self._delay)
            if way.swallows:
                link.torn = True
                if not data:
                    return
                continue
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            await self._send(sink, data, way)

    async def _send(self, sink: socket.socket, data: bytes, way: _Direction) -> None:
        left = memoryview(data)
        while left:
            await way.open.wait()
            # Not sock_sendall, which would keep sending during a freeze.
            try:
                left = left[sink.send(left) :]
            except BlockingIOError:
                await self._writable(sink)

    async def _writable(self, sink: socket.socket) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        self._loop.add_writer(sink, wake)
        try:
            await ready
        finally:
            self._loop.remove_writer(sink)

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(self.endpoint, backlog=128)
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    async def _shut(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
        self._listener = None

    async def _reset_all(self) -> None:
        for task in list(self._tasks):
            await _cancel(task)


class Proxies:
    """A proxy for each member of a server, in their order: ``proxies[0].cut()``."""

    def __init__(self, targets: Sequence[tuple[str, int]]) -> None:
        with contextlib.ExitStack() as stack:
            self._all = tuple(stack.enter_context(Proxy(target)) for target in targets)
            self._stack = stack.pop_all()

    @property
    def endpoints(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each proxy, for ``server.url(endpoints=…)``."""
        return tuple(proxy.endpoint for proxy in self._all)

    def freeze(self, *, requests: bool = True, replies: bool = True) -> None:
        """Freeze all proxies."""
        for proxy in self._all:
            proxy.freeze(requests=requests, replies=replies)

    def thaw(self) -> None:
        """Thaw all proxies."""
        for proxy in self._all:
            proxy.thaw()

    def cut(self) -> None:
        """Cut all proxies."""
        for proxy in self._all:
            proxy.cut()

    def restore(self) -> None:
        """Restore all proxies."""
        for proxy in self._all:
            proxy.restore()

    def shape(self, *, requests: bool, replies: bool, connections: bool) -> None:
        """Shape all proxies."""
        for proxy in self._all:
            proxy.shape(requests=requests, replies=replies, connections=connections)

    def close(self) -> None:
        """Close all proxies. Idempotent."""
        self._stack.close()

    def __getitem__(self, index: int) -> Proxy:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Proxy]:
        return iter(self._all)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
