"""The probes and the metrics of one master, served over a real socket."""

from __future__ import annotations

import http.client
import re
import resource
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from jrs.contract.errors import Fenced, InvalidInput, OutcomeUnknown
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Fence
from jrs.host.listening import Address
from jrs.recovery.health.facts import LATELY, LIVE_WITHIN, READY_WITHIN, UPKEEP, MasterHealth, Tally
from jrs.recovery.health.metrics import CONTENT_TYPE, OPEN_METRICS
from jrs.recovery.health.server import HealthServer
from tests.support import BOUND, FakeClock, descriptors, until


class Led(Leadership):
    """A leadership with a lease that a test shortens."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.fence = Fence(epoch, epoch)
        self.lost = threading.Event()
        self.left = 10.0

    def remaining(self) -> float:
        return self.left

    def resign(self) -> None:
        self.lost.set()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def health(clock: FakeClock) -> MasterHealth:
    return MasterHealth(clock)


@pytest.fixture
def server(health: MasterHealth) -> Iterator[HealthServer]:
    with HealthServer(Address.of("127.0.0.1:0"), health) as server:
        yield server


def get(
    server: HealthServer, path: str, method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND)
    connection.request(method, path, headers=headers)
    return connection.getresponse()


def statuses(server: HealthServer) -> dict[str, int]:
    names = ("livez", "readyz", "leader", "standby")
    return {name: get(server, f"/{name}").status for name in names}


def figures(server: HealthServer) -> dict[str, float]:
    """Return each sample of the metrics, by its name and its labels."""
    text = get(server, "/metrics").read().decode()
    return {
        sample.name + "".join(f",{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("accept", "is_open"),
    [
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
         "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),  # As Prometheus asks.
        ("text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.4", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=high", False),
        ("text/html, */*", False),
        ("", False),
    ],
)  # fmt: skip
def test_open_metrics(
    server: HealthServer, health: MasterHealth, accept: str, is_open: bool
) -> None:
    """A caller that asks for it gets OpenMetrics, which its own strict parser reads, with the
    samples of the text format; others get that."""
    health.answered()
    health.elected(Led(7), Tally)
    health.leads()
    answer = get(server, "/metrics", Accept=accept)
    text = answer.read().decode()

    assert answer.getheader("Content-Type") == (OPEN_METRICS if is_open else CONTENT_TYPE)
    assert text.endswith("# EOF\n") is is_open
    parse = open_metrics_families if is_open else text_string_to_metric_families
    named = {sample.name for family in parse(text) for sample in family.samples}
    assert {"jrs_elections_total", "jrs_failover_seconds_bucket", "jrs_leader"} <= named
    assert {re.split("[{ ]", line)[0] for line in text.splitlines() if line[0] != "#"} == named


def test_a_standby(server: HealthServer, health: MasterHealth, clock: FakeClock) -> None:
    """A master that does not lead is alive at once, and a standby once the backend answers."""
    assert statuses(server) == {"livez": 200, "readyz": 503, "leader": 503, "standby": 503}

    health.answered()
    assert statuses(server) == {"livez": 200, "readyz": 200, "leader": 503, "standby": 200}
    assert get(server, "/standby").getheader("X-JRS-Epoch") is None

    clock.now += READY_WITHIN + 1
    assert statuses(server) == {"livez": 200, "readyz": 503, "leader": 503, "standby": 503}


def test_a_leader(server: HealthServer, health: MasterHealth) -> None:
    """It leads once it has recovered the jobs, and names its epoch; no longer once its lease has
    ended, its loss is known, or it has stepped down."""
    led = Led(7)
    health.answered()
    health.elected(led, Tally)
    assert get(server, "/leader").status == 503

    health.leads()
    assert get(server, "/leader").status == 200
    assert get(server, "/standby").status == 503
    for path in ("/livez", "/leader", "/standby", "/metrics", "/nope"):
        assert get(server, path).getheader("X-JRS-Epoch") == "7", path
    assert get(server, "/leader", "POST").getheader("X-JRS-Epoch") == "7"

    led.left = -0.1
    assert get(server, "/leader").status == 503
    led.left = 5.0
    assert get(server, "/leader").status == 200
    led.lost.set()
    assert get(server, "/leader").status == 503
    health.stepped_down(lost=True)
    assert statuses(server) == {"livez": 200, "readyz": 200, "leader": 503, "standby": 200}


def test_a_leader_whose_loop_hangs(
    server: HealthServer, health: MasterHealth, clock: FakeClock
) -> None:
    """It is not alive, although its heartbeats continue; it is again once its loop turns."""
    health.elected(Led(1), Tally)
    health.leads()
    clock.now += LIVE_WITHIN + 1
    health.answered()
    assert statuses(server) == {"livez": 503, "readyz": 200, "leader": 200, "standby": 503}

    health.turned()
    assert get(server, "/livez").status == 200


def test_a_turn_while_the_master_steps_down(clock: FakeClock) -> None:
    """Its time is not noted once the leadership is over, so it is noted under the lock."""
    locked: list[bool] = []

    def counted() -> float:
        locked.append(own._lock.locked())
        return clock()

    own = MasterHealth(counted)
    own.turned()
    own.elected(Led(1), Tally)
    own.turned()
    own.stepped_down(lost=True)
    own.turned()
    clock.now += LIVE_WITHIN + 1

    assert own.facts().turn_age == 0.0
    assert locked == [True] * 3


def test_metrics_exist_from_the_start(server: HealthServer) -> None:
    """Each one is 0 before anything has happened, and none of them names a job."""
    found = figures(server)

    assert set(found.values()) == {0.0}
    assert {
        *("jrs_leader", "jrs_epoch", "jrs_lease_remaining_seconds", "jrs_elections_total"),
        *("jrs_leaderships_ended_total,lost", "jrs_attempts_ended_total,died"),
        *("jrs_jobs,queued", "jrs_jobs,held", "jrs_jobs,cleanup", "jrs_jobs,running"),
        *("jrs_commits_fenced_total", "jrs_commits_unknown_total", "jrs_failover_seconds_count"),
        *("jrs_export_failing_seconds", "jrs_export_refused_total", "jrs_snapshot_overdue_seconds"),
        *(f"jrs_upkeep_failing_seconds,{what}" for what in UPKEEP),
    } <= set(found)


def test_metrics_tell_what_happened(
    server: HealthServer, health: MasterHealth, clock: FakeClock
) -> None:
    """Each counter counts what its name says."""
    health.elected(Led(3), lambda: Tally(2, 5, 1, 4, 90.5, 12.5, 33.5))
    health.leaders_lost([10.0, LATELY - 0.75, LATELY])
    clock.now += 0.75
    health.leads()
    health.attempt_started()
    health.attempt_ended("died")
    health.commit_ended(Fenced("a newer leader"))
    health.commit_ended(OutcomeUnknown("who knows"))
    health.commit_ended(ValueError("no outcome"))
    found = figures(server)

    assert (found["jrs_leader"], found["jrs_epoch"]) == (1, 3)
    assert found["jrs_lease_remaining_seconds"] == 10
    assert (found["jrs_queue_oldest_seconds"], found["jrs_leaders_lost"]) == (33.5, 2)
    assert [found[f"jrs_jobs,{name}"] for name in ("running", "queued", "held", "cleanup")] == [
        2, 5, 1, 4,
    ]  # fmt: skip
    assert found["jrs_cleanup_oldest_seconds"] == 90.5
    assert found["jrs_snapshot_overdue_seconds"] == 12.5
    assert found["jrs_attempts_started_total"] == found["jrs_attempts_ended_total,died"] == 1
    assert found["jrs_commits_fenced_total"] == found["jrs_commits_unknown_total"] == 1
    assert (
        found["jrs_failover_seconds_bucket,1.0"] == found["jrs_failover_seconds_bucket,+Inf"] == 1
    )
    assert found["jrs_failover_seconds_sum"] == 0.75

    health.export_failed()
    clock.now += 3
    health.export_failed()
    health.export_refused()
    clock.now += 4
    found = figures(server)
    assert found["jrs_export_failing_seconds"] == 7
    assert found["jrs_export_refused_total"] == 1
    health.export_works()
    assert figures(server)["jrs_export_failing_seconds"] == 0
    health.export_failed()
    for failed in (False, True, True):
        health.upkeep_ended("feed", failed)
        clock.now += 1
    found = figures(server)
    failing = {what: found[f"jrs_upkeep_failing_seconds,{what}"] for what in UPKEEP}
    assert failing == dict.fromkeys(UPKEEP, 0) | {"feed": 2}

    health.stepped_down(lost=False)
    found = figures(server)
    assert found["jrs_export_failing_seconds"] == found["jrs_upkeep_failing_seconds,feed"] == 0
    assert found["jrs_leaderships_ended_total,resigned"] == found["jrs_elections_total"] == 1
    assert found["jrs_leader"] == found["jrs_epoch"] == found["jrs_jobs,queued"] == 0


def test_other_requests(server: HealthServer) -> None:
    """Only GET and HEAD are answered, and what is no probe is not found."""
    assert get(server, "/leader", "POST").status == 405
    assert get(server, "/v1/jobs").status == 404
    head = get(server, "/livez", "HEAD")
    assert (head.status, head.read()) == (200, b"")
    assert get(server, "/livez?verbose").status == 200


def test_slow_and_broken_clients_delay_nobody(server: HealthServer) -> None:
    """Clients that send nothing, half a request, too much of one, or that go away."""
    with socket.create_connection(("127.0.0.1", server.port), BOUND) as big:
        big.sendall(b"GET /livez HTTP/1.1\r\n" + b"x: y\r\n" * 4000)
    waiting = [socket.create_connection(("127.0.0.1", server.port), BOUND) for _ in range(100)]
    try:
        for one in waiting[::2]:
            one.sendall(b"GET /livez HT")
        assert get(server, "/livez").status == 200
    finally:
        for one in waiting:
            one.close()
    assert get(server, "/livez").status == 200


def test_a_process_without_free_descriptors(server: HealthServer) -> None:
    """It does not ask at once for a client that it cannot accept, and answers it later."""
    listening, selector = server._listening.socket, server._selector
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.settimeout(BOUND)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            client.connect(("127.0.0.1", server.port))
            until(lambda: listening not in selector.get_map(), "it waits for descriptors")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        client.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
    assert get(server, "/livez").status == 200


def test_a_socket_that_only_its_user_opens(tmp_path: Path, health: MasterHealth) -> None:
    """A socket in a folder has mode 0600; one that a killed process has left is replaced, one that
    is in use is not, nor is a file; and it is removed at the end."""
    path = tmp_path / "m.sock"
    address = Address.of(f"unix:{path}")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with HealthServer(address, health):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(BOUND)
            client.connect(str(path))
            client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert client.recv(64).startswith(b"HTTP/1.1 200 OK")
        with pytest.raises(InvalidInput, match="another process listens there"):
            HealthServer(address, health)
    assert not path.exists()

    path.write_text("mine")
    with pytest.raises(InvalidInput, match="something else is there"):
        HealthServer(address, health)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "text", ["8080", "unix:m.sock", "http://h:80", "h:99999", "a b:1", "unix:/" + "x" * 200]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidInput, match="write unix:/"):
        Address.of(text)


def test_the_thread_ends(health: MasterHealth) -> None:
    """Nothing is left of a server that was closed."""
    before = descriptors()
    with HealthServer(Address.of("127.0.0.1:0"), health) as server:
        with socket.create_connection(("127.0.0.1", server.port), BOUND):
            assert get(server, "/livez").status == 200
    until(lambda: "jrs-health" not in {thread.name for thread in threading.enumerate()}, "it ends")
    assert descriptors() <= before
