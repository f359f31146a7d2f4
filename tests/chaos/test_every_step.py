"""Die at every step: kill -9 before and after each thing that a process sends to its server.

The process reaches the server through a toll, which lets so many pieces pass and then kills it:
before the piece is passed on, or just after, when its answer will be heard by nobody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from jrs.contract.errors import Fenced
from jrs.contract.operations import Create, Delete, Fence, Update
from jrs.store.opening import open_backend
from jrs.testing.contract import contents, lead
from jrs.testing.servers import Server
from jrs.testing.worker import Died, Nursery, Worker

TTL = 10.0
"""Waited out by nobody: a guardian ends what the dead have left."""


class Toll:
    """A port that leads to a server, and kills the process that sends the fatal piece."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint: tuple[str, int] = self._listener.getsockname()
        self._turn = threading.Lock()
        self._open: list[socket.socket] = []
        self._pid = 0
        self._left = 0
        self._before = False
        self.passed = 0
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def arm(self, pid: int, fatal: int, *, before: bool) -> None:
        """Kill `pid` at the fatal piece from now on; each piece of everybody counts."""
        with self._turn:
            self._pid, self._left, self._before, self.passed = pid, fatal, before, 0

    def disarm(self) -> int:
        """Kill nobody any more; return how many pieces have passed since it was armed."""
        with self._turn:
            self._pid = 0
            return self.passed

    def close(self) -> None:
        # Closed alone, it would still let the one in who comes next: a guardian that tries again.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._open.append(near)
                far = socket.create_connection(self._target)
                self._open.append(far)
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for pump in (self._requests, self._replies):
                    threading.Thread(target=pump, args=(near, far), daemon=True).start()

    def _requests(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                with self._turn:
                    self.passed += 1
                    self._left -= 1
                    fatal = self._pid if self._left == 0 else 0
                    if fatal and self._before:
                        os.kill(fatal, signal.SIGKILL)
                        break
                    far.sendall(data)
                    if fatal:
                        os.kill(fatal, signal.SIGKILL)
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_WR)

    def _replies(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                near.sendall(data)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_WR)


@pytest.fixture
def toll(server: Server) -> Iterator[Toll]:
    toll = Toll(server.endpoints[0])
    yield toll
    toll.close()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


def committed(worker: Worker) -> Iterator[None]:
    """Commit four times; a step is over when it is acknowledged."""
    worker.commit(Create("a", b"1"), Create("b", b"1"))
    yield
    found = worker.get("a")
    assert found is not None
    worker.commit(Update("a", b"2", found.version), Delete("b"), Create("c", b""))
    yield
    worker.commit(Create("b", b"2"))
    yield
    worker.commit(Delete("c"))
    yield


STATES: list[dict[str, bytes]] = [
    {},
    {"a": b"1", "b": b"1"},
    {"a": b"2", "c": b""},
    {"a": b"2", "b": b"2", "c": b""},
    {"a": b"2", "b": b"2"},
]


@pytest.mark.parametrize("when", ["before", "after"])
def test_die_at_every_step_of_commits(
    server: Server, toll: Toll, nursery: Nursery, cluster: str, when: str
) -> None:
    """What was acknowledged is there, and at most one commit more, as a whole."""
    url = server.url(endpoints=[toll.endpoint])
    fatal, lived = 0, False
    while not lived:
        fatal += 1
        name = f"{cluster}-{fatal}"
        worker = nursery.worker(url, name)
        worker.scan("")
        acknowledged = 0
        toll.arm(worker.pid, fatal, before=when == "before")
        with contextlib.suppress(Died):
            for _ in committed(worker):
                acknowledged += 1
        # Not told by its answers: one that is killed after its last piece may still give the last.
        lived = toll.disarm() < fatal
        worker.kill()
        with open_backend(server.url(), cluster=name) as backend:
            found = contents(backend)

            assert found in STATES[acknowledged : acknowledged + 2], f"{when} piece {fatal}"

            backend.commit(Create("on", b""))

    assert fatal > 5

    print(f"{server.scheme}: killed {when} each of {fatal - 1} pieces of four commits")


@pytest.mark.parametrize("when", ["before", "after"])
def test_die_at_every_step_of_leading(
    server: Server, toll: Toll, nursery: Nursery, cluster: str, when: str
) -> None:
    """A master dies while it comes to lead, leads, or hands over. Another one leads at once, every
    epoch is greater than all before, and no old fence is current."""
    url = server.url(endpoints=[toll.endpoint])
    fences: list[Fence] = []
    fatal, lived = 0, False
    with open_backend(server.url(), cluster=cluster) as backend:
        while not lived:
            fatal += 1
            worker = nursery.worker(url, cluster)
            worker.scan("")
            done = 0
            toll.arm(worker.pid, fatal, before=when == "before")
            with contextlib.suppress(Died):
                fence = worker.lead(f"mortal-{fatal}", TTL)

                assert not fences or fence.epoch > fences[-1].epoch

                fences.append(fence)
                for number in range(2):
                    worker.commit(Create(f"of/{fatal}.{number}", b""), fence=fence)
                    done += 1
                worker.call("resign")
            lived = toll.disarm() < fatal
            worker.kill()
            with lead(backend, f"next-{fatal}", TTL) as leadership:
                assert not fences or leadership.epoch > fences[-1].epoch, f"{when} piece {fatal}"

                for old in fences[-3:]:
                    with pytest.raises(Fenced):
                        backend.commit(Create(f"stale/{fatal}", b""), fence=old)
                fences.append(leadership.fence)
                found = len(contents(backend, f"of/{fatal}."))

                assert done <= found <= done + 1, f"{when} piece {fatal}"

        assert contents(backend, "stale/") == {}

    assert fatal > 5

    print(f"{server.scheme}: killed {when} each of {fatal - 1} pieces of a leadership")
