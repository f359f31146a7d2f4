"""Faults that hurt one thing at the same time: none undoes the harm of another one."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from jrs.testing.chaos.faults import (
    Nemesis,
    disconnect,
    failing_disk,
    no_descriptors,
    partition,
    pause,
    skew,
    slow_disk,
)
from jrs.testing.chaos.harm import Harms
from jrs.testing.chaos.meddling import Meddler
from jrs.testing.servers import Proxies, Server
from tests.support import until


class OneHost:
    """An arena with one host, and one process on it."""

    disk: Path | None = None
    server: Server | None = None

    def __init__(
        self, page: Path | None = None, pid: int | None = None, network: Proxies | None = None
    ) -> None:
        self.harms = Harms()
        self._meddler = None if page is None else Meddler(page)
        self._pid = pid
        self._network = network

    def hosts(self) -> list[str]:
        return ["m1"]

    def leading(self) -> str:
        return "m1"

    def pids(self, who: str) -> list[int]:
        return [] if self._pid is None else [self._pid]

    def starve(self, pid: int) -> None:
        pass

    def network(self, host: str) -> Proxies | None:
        return self._network

    def meddler(self, host: str) -> Meddler:
        assert self._meddler is not None
        return self._meddler


def strike(arena: OneHost, nemesis: Nemesis) -> Iterator[str]:
    """Let a nemesis strike; the next step of what is returned heals it."""
    (fault,) = nemesis.faults
    harm = fault.strike(arena, Random(1))
    assert next(harm)
    return harm


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        made.stdout.readline()
        try:
            yield made
        finally:
            made.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_disk_and_a_clock_that_are_wrong_together(tmp_path: Path) -> None:
    """Each fault ends alone; delays do not add up, and skews do."""

    def page() -> tuple[float, ...]:
        return struct.unpack("ddd", (tmp_path / "page").read_bytes())

    arena = OneHost(page=tmp_path / "page")
    first, ahead = strike(arena, slow_disk(0.2)), strike(arena, skew(30))
    by = page()[2]
    second, fails = strike(arena, slow_disk(0.1)), strike(arena, failing_disk())
    again = strike(arena, skew(30))
    assert page() == (0.2, 1.0, 2 * by)
    for harm, left in (
        (first, (0.1, 1.0, 2 * by)),
        (ahead, (0.1, 1.0, by)),
        (fails, (0.1, 0.0, by)),
        (again, (0.1, 0.0, 0.0)),
        (second, (0.0, 0.0, 0.0)),
    ):
        next(harm, None)
        assert page() == left


def test_a_process_that_is_stopped_twice_continues_once() -> None:
    """The end of one pause does not wake a process out of another one."""
    with process() as one:
        arena = OneHost(pid=one.pid)
        first, second = strike(arena, pause(9)), strike(arena, pause(1))
        until(lambda: state(one.pid) == "T", "it is stopped")
        next(second, None)
        assert state(one.pid) == "T"
        next(first, None)
        until(lambda: state(one.pid) != "T", "it continues")


def test_a_limit_that_a_process_had_is_restored() -> None:
    """A process may have other limits than the one that runs the test, and is starved twice."""
    with process() as one:
        arena = OneHost(pid=one.pid)
        had = (99, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        resource.prlimit(one.pid, resource.RLIMIT_NOFILE, had)
        first, second = strike(arena, no_descriptors()), strike(arena, no_descriptors())
        low = resource.prlimit(one.pid, resource.RLIMIT_NOFILE)
        assert low[0] < 99
        next(first, None)
        assert resource.prlimit(one.pid, resource.RLIMIT_NOFILE) == low
        next(second, None)
        assert resource.prlimit(one.pid, resource.RLIMIT_NOFILE) == had


def test_a_process_that_has_ended_needs_no_healing() -> None:
    """The harm to it is forgotten, and that to the others is not."""
    with process() as one:
        arena = OneHost(pid=one.pid)
        harm = strike(arena, pause(9))
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        with pytest.raises(ProcessLookupError):
            next(harm, None)
    with process() as other:
        later = OneHost(pid=other.pid)
        later.harms = arena.harms
        next(strike(later, pause(9)), None)
        until(lambda: state(other.pid) != "T", "it continues")


def test_a_network_that_is_cut_twice() -> None:
    """The end of a disconnection, or of one direction's, does not end a partition."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with Proxies([server.getsockname()]) as network:
            arena = OneHost(network=network)
            whole = strike(arena, partition("leader"))
            one_way, reset = strike(arena, partition("one way")), strike(arena, disconnect())
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(network.endpoints[0], 10)
            next(reset, None)
            with socket.create_connection(network.endpoints[0], 10) as client:
                client.sendall(b"x")
                server.settimeout(0.1)
                for harm in (one_way, whole):
                    with pytest.raises(TimeoutError):  # Nothing arrives.
                        server.accept()
                    next(harm, None)
                server.settimeout(10)
                with server.accept()[0] as heard:
                    heard.settimeout(10)
                    assert heard.recv(1) == b"x"
