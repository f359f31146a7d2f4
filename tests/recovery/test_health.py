"""The probes of real masters: roles across a kill -9, and a backend that is frozen."""

from __future__ import annotations

import http.client
import shutil
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jrs import connect
from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.servers import EtcdServer
from tests.recovery.support import job
from tests.support import BOUND, until

Cluster = Callable[[str], "Probed"]


class _Unix(http.client.HTTPConnection):
    """A connection to a socket in a folder."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=BOUND)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(BOUND)
        self.sock.connect(str(self._path))


class Probed:
    """Masters that listen, each at a socket with its name."""

    def __init__(self, url: str, folder: Path) -> None:
        self._folder = folder
        self.url, self.cluster = url, uuid.uuid4().hex[:8]
        self.masters = Masters(url, cluster=self.cluster, storage=folder / "jobs")

    def start(self, name: str, *options: str) -> MasterProcess:
        listen = ["--listen", f"unix:{self._folder / name}"]
        return self.masters.start(name, options=[*listen, *options])

    def get(self, name: str, path: str) -> tuple[int, str, str | None]:
        """Return the status, the body and the epoch."""
        connection = _Unix(self._folder / name)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.getheader("X-JRS-Epoch")
        finally:
            connection.close()

    def status(self, name: str, path: str) -> int:
        """Return the status; 0 while nothing listens."""
        try:
            return self.get(name, path)[0]
        except (FileNotFoundError, ConnectionError):
            return 0

    def figures(self, name: str) -> dict[str, float]:
        return {
            sample.name + "".join(f",{value}" for value in sample.labels.values()): sample.value
            for family in text_string_to_metric_families(self.get(name, "/metrics")[1])
            for sample in family.samples
        }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:

        def make(url: str) -> Probed:
            made = Probed(url, tmp_path)
            stack.enter_context(made.masters)
            return made

        yield make


@pytest.mark.parametrize("kind", ["file", "etcd"])
def test_roles_across_a_kill(
    kind: str, request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path
) -> None:
    """The leader says so by its status code, and the standby too; after a kill -9 of the leader the
    standby answers as the leader, in a newer epoch, and has counted what it did."""
    etcd = kind == "etcd"
    url = request.getfixturevalue("etcd_server").url() if etcd else (tmp_path / "s").as_uri()
    probed = cluster(url)
    first = probed.start("m1")
    probed.masters.until(lambda: probed.status("m1", "/leader") == 200, "m1 leads")
    probed.start("m2")
    probed.masters.until(lambda: probed.status("m2", "/standby") == 200, "m2 stands by")
    assert probed.status("m2", "/leader") == probed.status("m1", "/standby") == 503
    epoch = int(probed.get("m1", "/leader")[2] or 0)

    first.kill()
    probed.masters.until(lambda: probed.status("m2", "/leader") == 200, "m2 leads")

    assert int(probed.get("m2", "/leader")[2] or 0) > epoch
    assert probed.status("m2", "/standby") == 503
    assert probed.status("m1", "/livez") == 0
    with connect(url, cluster=probed.cluster) as client:
        handle = client.submit(job("add"), id="sum")
        assert handle.result(timeout=BOUND).payload == 3
    probed.masters.until(
        lambda: probed.figures("m2")["jrs_attempts_ended_total,completed"] == 1, "it ended"
    )
    found = probed.figures("m2")
    assert found["jrs_leader"] == found["jrs_elections_total"] == found["jrs_leaders_lost"] == 1
    assert found["jrs_failover_seconds_count"] == found["jrs_attempts_started_total"] == 1
    assert found["jrs_lease_remaining_seconds"] > 0


def test_a_standby_whose_storage_goes_away(cluster: Cluster, tmp_path: Path) -> None:
    """It says that it must not lead before it is elected, and after the leader's death; once its
    storage is back, it leads."""
    url, mount = (tmp_path / "s").as_uri(), tmp_path / "mount"
    probed = cluster(url)
    leader = probed.start("m1")
    probed.masters.until(lambda: probed.status("m1", "/leader") == 200, "m1 leads")
    mount.symlink_to(tmp_path / "jobs")
    probed.start("m2", "--storage", str(mount))
    probed.masters.until(lambda: probed.status("m2", "/standby") == 200, "m2 stands by")
    assert probed.figures("m2")["jrs_master_held"] == 0
    mount.unlink()
    mount.mkdir()

    probed.masters.until(lambda: probed.status("m2", "/standby") == 503, "m2 must not lead")
    assert probed.status("m2", "/readyz") == 503
    assert str(mount) in probed.get("m2", "/readyz")[1]
    found = probed.figures("m2")
    assert (found["jrs_master_held"], found["jrs_backend_reachable"]) == (1, 1)
    assert probed.status("m1", "/readyz") == 200
    leader.kill()
    with connect(url, cluster=probed.cluster) as client:
        until(lambda: "m2 must not lead: " in str(client.leader()), "the client says so, too")
        assert not client.leader().standby
    shutil.rmtree(mount)
    mount.symlink_to(tmp_path / "jobs")
    probed.masters.until(lambda: probed.status("m2", "/leader") == 200, "m2 leads")


def test_probes_answer_while_etcd_is_frozen(cluster: Cluster, etcd_server: EtcdServer) -> None:
    """A frozen backend keeps no probe waiting: the masters are alive, and soon neither leads nor is
    ready; all of that ends with the freeze."""
    probed = cluster(etcd_server.url())
    probed.start("m1")
    probed.masters.until(lambda: probed.status("m1", "/leader") == 200, "m1 leads")
    member = next(iter(etcd_server))
    member.pause()
    try:
        for _ in range(50):
            assert probed.status("m1", "/livez") == 200
        probed.masters.until(lambda: probed.status("m1", "/leader") == 503, "its lease has ended")
        assert probed.status("m1", "/livez") == 200
        probed.masters.until(
            lambda: probed.status("m1", "/readyz") == 503, "it says that it is not ready"
        )
        assert probed.status("m1", "/livez") == 200
    finally:
        member.resume()
    probed.masters.until(lambda: probed.status("m1", "/leader") == 200, "it leads again")


def test_a_master_that_waits_for_its_backend_is_alive(tmp_path: Path) -> None:
    """A master whose backend does not answer yet waits for it, and its probes say so."""
    import subprocess
    import sys

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # It accepts no connection.
        url = f"etcd://127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "jrs", "--backend", url, "master"]
        command += ["--storage", str(tmp_path), "--listen", f"unix:{tmp_path / 'm'}"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                probed = Probed.__new__(Probed)
                probed._folder = tmp_path
                until(lambda: probed.status("m", "/livez") == 200, "it is alive")
                assert probed.status("m", "/readyz") == 503
                assert probed.status("m", "/leader") == 503
            finally:
                process.terminate()
