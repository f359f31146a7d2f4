"""Servers as local processes: started, killed, paused and found again on their data."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jrs.contract.clock import Deadline
from jrs.testing.servers import (
    EtcdServer,
    Local,
    Server,
    ServerMissing,
    ServerUnhealthy,
    ZooKeeperServer,
)
from jrs.testing.servers.fixtures import had
from jrs.testing.servers.ports import Ports
from jrs.testing.servers.process import Process
from tests.testing.servers.values import read, write

Start = Callable[..., Server]


KINDS: list[type[Server]] = [EtcdServer, ZooKeeperServer]
NAMES = [kind.scheme for kind in KINDS]


@pytest.fixture(params=KINDS, ids=NAMES)
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start a private server of each kind, as processes whatever else this machine offers."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(had(lambda: request.param(Local(), **options)))


@pytest.fixture(scope="module", params=KINDS, ids=NAMES)
def _three(request: pytest.FixtureRequest) -> Iterator[Server]:
    with had(lambda: request.param(Local(), 3)) as server:
        yield server


@pytest.fixture
def ensemble(_three: Server) -> Server:
    """An ensemble of each kind, healthy."""
    _three.heal()
    return _three


def test_data_and_ports_survive_a_kill(start: Start) -> None:
    """What was acknowledged is there after kill -9 and a start, at the same endpoint."""
    server = start()
    endpoints = server.endpoints
    write(server, "kept", b"value")
    server.kill()

    assert not server[0].running
    assert not server[0].healthy(1.0)

    server.start()

    assert endpoints == server.endpoints
    assert read(server, "kept") == b"value"


def test_a_graceful_stop_keeps_data(start: Start) -> None:
    """A server that was stopped comes back with what it held."""
    server = start()
    write(server, "kept", b"value")
    server.stop()

    assert not server[0].running

    server.start()

    assert read(server, "kept") == b"value"


def test_a_paused_server_accepts_and_answers_nothing(start: Start) -> None:
    """A pause is a hang: its port still accepts, and nothing comes until it is resumed."""
    server = start()
    server.pause()

    assert server[0].paused
    assert server[0].running
    assert not server[0].healthy(0.5)

    server.resume()
    server[0].wait()

    assert not server[0].paused


def test_healing_brings_back_the_killed_and_the_paused(ensemble: Server) -> None:
    """One call makes an ensemble whole again, whatever was done to its members."""
    ensemble[0].kill()
    ensemble[1].pause()
    ensemble.heal()

    assert all(member.healthy() for member in ensemble)
    assert not any(member.paused for member in ensemble)


@pytest.mark.parametrize("hurt", ["kill", "pause"])
def test_another_leads_after_the_leader_is_gone(ensemble: Server, hurt: str) -> None:
    """The leader is known, and when it is killed or hangs, so is the next one."""
    first = ensemble.leader()
    getattr(ensemble[first], hurt)()
    second = ensemble.leader()

    assert first != second
    assert ensemble[second].healthy()


def test_a_minority_serves_nothing(ensemble: Server) -> None:
    """One of three is not healthy, and a start that waits for it says so."""
    ensemble[0].kill()
    ensemble[1].kill()
    with pytest.raises(ServerUnhealthy, match="is not healthy after"):
        while True:  # It works for a moment, until it misses the others.
            ensemble[2].wait(1.0)


def test_a_server_that_cannot_start_says_why(start: Start, request: pytest.FixtureRequest) -> None:
    """A start that fails raises at once, with the end of the server's log."""
    etcd = request.node.callspec.params["start"] is EtcdServer
    wrong = {"flags": ["--no-such-flag"]} if etcd else {"config": ["tickTime=soon"]}
    with pytest.raises(ServerUnhealthy, match="not running") as error:
        start(**wrong)

    assert ("no-such-flag" if etcd else "soon") in str(error.value)


def test_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    """A test run that is killed leaves no server behind, nor one started from a thread of it."""
    program = textwrap.dedent("""
        import sys, threading
        from pathlib import Path
        from jrs.testing.servers.process import Process

        process = Process(["sleep", "600"], Path(sys.argv[1]), {})
        starter = threading.Thread(target=process.start)
        starter.start()
        starter.join()
        print(process.pid, flush=True)
        sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        server = os.pidfd_open(int(starter.stdout.readline()))
        try:
            assert not _ended(server, 0.0)  # Though the thread that asked for it is gone.

            starter.kill()

            assert _ended(server, 30.0)
        finally:
            os.close(server)


def test_a_pause_is_over_when_the_process_is_killed(tmp_path: Path) -> None:
    """A paused process can be killed, and started again it is not paused."""
    process = Process(["sleep", "600"], tmp_path / "log", {})
    process.start()
    process.pause()
    process.kill()

    assert not process.running
    assert not process.paused

    process.start()

    assert not process.paused

    process.close()


def test_a_process_that_ignores_sigterm_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends it in any case."""
    monkeypatch.setattr("jrs.testing.servers.process._STOP_TIMEOUT", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    deaf += "print('deaf', flush=True); signal.pause()"
    process = Process([sys.executable, "-c", deaf], tmp_path / "log", {})
    process.start()
    deadline = Deadline.after(30.0)
    while "deaf" not in process.log():
        assert not deadline.expired
    process.stop()

    assert not process.running


def test_nobody_else_gets_a_port_that_was_taken() -> None:
    """Ports are kept for their holder while nothing listens there."""
    ports, others = Ports(), Ports()
    try:
        mine = {ports.take() for _ in range(20)}
        theirs = {others.take() for _ in range(20)}

        assert len(mine) == len(theirs) == 20
        assert not mine & theirs
    finally:
        ports.close()
        others.close()


def test_a_port_that_was_snatched_is_replaced(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose port was taken before it could bind starts on another one."""
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        taken = squatter.getsockname()[1]
        take = Ports.take
        offers = iter([taken])
        monkeypatch.setattr(Ports, "take", lambda self: next(offers, None) or take(self))
        server = start()

        assert server.endpoints[0][1] != taken


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the binaries the error says which package has them."""
    (tmp_path / "setpriv").symlink_to("/usr/bin/setpriv")
    monkeypatch.setenv("PATH", str(tmp_path))
    place = Local()
    seat = place.seats(1)[0]
    with pytest.raises(ServerMissing, match="apt-get install etcd-server"):
        place.etcd(seat, [], files=None, fsync=False)
    with pytest.raises(ServerMissing, match="apt-get install openjdk-17-jre-headless"):
        place.zookeeper(seat, 1, [], [], files=None)

    place.close()


def _ended(pidfd: int, seconds: float) -> bool:
    return bool(select.select([pidfd], [], [], seconds)[0])
