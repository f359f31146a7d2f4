"""The commands of docs/production.md that back a store up and restore it, run by bash as the page
has them: with real masters, a real etcd and a real ZooKeeper.

What belongs to the reader's host is replaced: folders, URLs, and `systemctl`, which starts and
stops the programs of the test.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from jrs import JobStatus, NoSuchJob, connect
from jrs.contract.errors import NoSuchCluster, Unavailable
from jrs.testing.servers import ServerMissing
from jrs.testing.servers.fixtures import missing
from jrs.testing.servers.local import etcd_binary, zookeeper_classpath
from jrs.testing.servers.ports import Ports
from tests.deploy.found import JRS, ROOT, tool
from tests.support import until

PAGE = ROOT / "docs" / "production.md"
JOBS = Path(__file__).parent / "jobs"
SYSTEMCTL = """
chown() { :; }  # The users of the page are not on this host.
jrs() {
  local status=0
  (cd {jobs} && exec {jrs} "$@") || status=$?
  [ "$status" = 0 ] || [ "$1:$status" = fsck:1 ]  # Left-overs, which the page explains.
}
begin() {  # NAME, COMMAND…
  (cd {jobs} && exec setsid "${@:2}" >> "{folder}/$1.log" 2>&1 < /dev/null) &
  echo $! > "{folder}/$1.pid"
}
end() {  # NAME
  local pid
  [ -e "{folder}/$1.pid" ] || return 0
  pid=$(cat "{folder}/$1.pid")
  kill "$pid"
  # A zombie has ended; the process that adopted it may take its time.
  while grep -sq '^State:.[^Z]' "/proc/$pid/status"; do sleep 0.05; done
  rm "{folder}/$1.pid"
}
systemctl() {
  local verb=$1 unit
  for unit in "${@:2}"; do
    case $verb/$unit in
      start/jrs-master@*) begin "$unit" {jrs} master --name "m${unit#*@}" ;;
      stop/jrs-master@\\*) end jrs-master@1; end jrs-master@2 ;;
      start/etcd | start/zookeeper) begin "$unit" {server} ;;
      stop/*) end "$unit" ;;
    esac
  done
}
"""
"""Masters and servers as units. A stop waits until the process is gone, as systemctl does."""


def commands(heading: str) -> str:
    """Return the commands below a heading of the page."""
    text = PAGE.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    found = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    assert found, heading
    return "\n".join(found)


@attrs.frozen
class Host:
    """A host whose commands are those of the page."""

    folder: Path
    url: str
    server: str
    environment: Mapping[str, str]
    places: tuple[tuple[str, str], ...]

    def run(self, commands: str) -> str:
        """Run commands of the page; return what they print."""
        for theirs, ours in (*self.places, ("/backup", str(self.folder / "backup"))):
            commands = commands.replace(theirs, ours)
        script = SYSTEMCTL
        for name, value in (
            ("jobs", JOBS), ("jrs", JRS), ("folder", self.folder), ("server", self.server),
        ):  # fmt: skip
            script = script.replace(f"{{{name}}}", str(value))
        ended = subprocess.run(
            ["bash", "-euc", f"{script}\n{commands}"], env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{commands}\n{ended.stdout}\n{self.logs()}"
        return ended.stdout

    def logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()}" for log in self.folder.glob("*.log"))

    def finish(self, job_id: str) -> None:
        """Submit a job, if it is unknown, and wait until it has finished."""
        with connect(self.url) as client:
            job = client.submit("etl:nightly", id=job_id, exist_ok=True)
            assert job.result(60).status is JobStatus.FINISHED

    def status(self, job_id: str) -> JobStatus | None:
        """Return the status of a job; None if the store does not know it."""
        with connect(self.url) as client:
            try:
                return client.job(job_id).status()
            except NoSuchJob:
                return None

    def answers(self) -> bool:
        try:
            self.status("any")
        except Unavailable:
            return False
        except NoSuchCluster:
            pass
        return True


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of the commands; the processes that they leave are ended afterwards."""
    (tmp_path / "backup").mkdir()
    # What is restored has the lease of a leader, which has to end first.
    (tmp_path / "jrs.toml").write_text("ttl = 4.0\n")
    yield {"PYTHONPATH": str(ROOT), "JRS_CONFIG": str(tmp_path / "jrs.toml")}
    for file in tmp_path.glob("*.pid"):
        subprocess.run(["kill", file.read_text().strip()], check=False)


def test_the_file_backend(tmp_path: Path, environment: dict[str, str]) -> None:
    """Results of before the backup are there, those of after it are not, and masters lead at once:
    the storage was restored with the store."""
    url = (tmp_path / "jrs").as_uri()
    places = (("/var/lib/jrs", str(tmp_path / "jrs")),)
    host = Host(tmp_path, url, "", {**environment, "JRS_BACKEND": url}, places)
    host.run("systemctl start jrs-master@1 jrs-master@2")
    host.finish("before")
    host.run(commands("Back up the file backend"))
    host.finish("after")
    host.run(commands("Restore the file backend"))

    assert host.status("before") is JobStatus.FINISHED
    assert host.status("after") is None
    host.finish("after")  # It runs again, as the page says.
    host.run("systemctl stop 'jrs-master@*'")


def restored(host: Host, kind: str) -> None:
    """Back the servers up and restore them as the page does; masters wait until the loss is
    accepted."""
    host.run(f"systemctl start {kind.lower()}")
    until(host.answers, "the server answers")
    host.run("systemctl start jrs-master@1 jrs-master@2")
    host.finish("before")
    host.run(commands(f"Back up {kind}"))
    until(host.answers, "the server answers")
    host.run("systemctl stop 'jrs-master@*'\nsystemctl start jrs-master@1 jrs-master@2")
    host.finish("after")  # In a later epoch than that of the backup.
    host.run(commands(f"Restore {kind}"))
    said = "the store is older than the files"
    until(lambda: said in host.logs(), "the masters say why they wait")

    assert host.status("before") is JobStatus.FINISHED
    assert host.status("after") is None

    host.run(commands("Accept an older store"))
    host.finish("next")
    host.run(f"systemctl stop 'jrs-master@*'\nsystemctl stop {kind.lower()}")


def test_etcd(tmp_path: Path, environment: dict[str, str]) -> None:
    try:
        etcd = etcd_binary()
    except ServerMissing as error:
        missing(error)
    tool("etcdctl", "apt-get install etcd-client")
    ports = Ports()
    client, peer = (f"http://127.0.0.1:{ports.take()}" for _ in range(2))
    (tmp_path / "etcd").mkdir()
    server = (
        f"{etcd} --name=etcd1 --data-dir={tmp_path}/etcd/data --initial-cluster=etcd1={peer} "
        f"--listen-client-urls={client} --advertise-client-urls={client} "
        f"--listen-peer-urls={peer} --initial-advertise-peer-urls={peer}"
    )
    url = f"etcd://{client.removeprefix('http://')}/jrs"
    host = Host(
        tmp_path, url, server,
        {**environment, "JRS_BACKEND": url, "JRS_STORAGE": str(tmp_path / "storage")},
        (
            ("http://etcd1:2379", client), ("http://etcd1:2380", peer),
            ("/var/lib/etcd", f"{tmp_path}/etcd"),
        ),
    )  # fmt: skip
    restored(host, "etcd")
    ports.close()


def test_zookeeper(tmp_path: Path, environment: dict[str, str]) -> None:
    try:
        classpath = zookeeper_classpath()
    except ServerMissing as error:
        missing(error)
    ports = Ports()
    port, data = ports.take(), tmp_path / "zookeeper"
    data.mkdir()
    (tmp_path / "zoo.cfg").write_text(
        f"tickTime=1000\ndataDir={data}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
    )
    server = (
        "java -Xmx256m -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn "
        f"-cp {classpath} org.apache.zookeeper.server.quorum.QuorumPeerMain {tmp_path}/zoo.cfg"
    )
    url = f"zookeeper://127.0.0.1:{port}"
    host = Host(
        tmp_path, url, server,
        {**environment, "JRS_BACKEND": url, "JRS_STORAGE": str(tmp_path / "storage")},
        (("/var/lib/zookeeper", str(data)),),
    )  # fmt: skip
    restored(host, "ZooKeeper")
    ports.close()
