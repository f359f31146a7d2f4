"""The commands of docs/production.md that back a store up and restore it, run by bash as the page
has them: with real masters, a real etcd and a real ZooKeeper.

What belongs to the reader's host is replaced: folders, URLs, and `systemctl`, which starts and
stops the programs of the test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import yaml

from jrs import JobStatus, NoSuchJob, connect
from jrs.contract.errors import NoSuchCluster, Unavailable
from jrs.testing.servers import ServerMissing
from jrs.testing.servers.fixtures import missing
from jrs.testing.servers.local import etcd_binary, zookeeper_classpath
from jrs.testing.servers.ports import Ports
from tests.deploy.found import JRS, KIT, ROOT, output, status, tool
from tests.deploy.units import FOLDER
from tests.support import until

PAGE = ROOT / "docs" / "production.md"
JOBS = Path(__file__).parent / "jobs"
START = "systemctl start jrs-master@1 jrs-master@2"
STOP = "systemctl stop 'jrs-*.service'"
SYSTEMCTL = """
chown() { :; }  # The users of the page are not on this host.
jrs() {
  local status=0
  command jrs "$@" || status=$?
  [ "$status" = 0 ] || [ "$1:$status" = fsck:1 ]  # Left-overs, which the page explains.
}
begin() {  # NAME, COMMAND…
  (cd {jobs} && exec env JRS_CONFIG={folder}/etc/jrs.toml setsid "${@:2}" \\
    >> "{folder}/$1.log" 2>&1 < /dev/null) &
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
      start/jrs-api) begin "$unit" {jrs} serve --listen unix:{folder}/api.sock ;;
      start/etcd | start/zookeeper) begin "$unit" {server} ;;
      stop/jrs-\\*.service) end jrs-api; end jrs-master@1; end jrs-master@2 ;;
      stop/etcd | stop/zookeeper) end "$unit" ;;
      start/--no-block | */cron) ;;
      *) echo "systemctl $verb $unit" >&2; return 1 ;;
    esac
  done
}
"""
"""Masters, the API and servers as units. A stop waits until the process is gone, as systemctl's."""


def blocks(heading: str) -> list[str]:
    """Return the commands of each block below a heading of the page."""
    text = PAGE.read_text().partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    found = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found, heading
    return ["\n".join(re.findall(r"^\$ (.*)$", block, re.MULTILINE)) for block in found]


def commands(heading: str) -> str:
    """Return the commands below a heading of the page."""
    return "\n".join(blocks(heading))


@attrs.frozen
class Host:
    """A host whose commands are those of the page. No variable is set for them: `jrs` is the
    command of the kit."""

    folder: Path
    url: str
    server: str = ""
    places: tuple[tuple[str, str], ...] = ()
    storage: str | None = None

    def __attrs_post_init__(self) -> None:
        programs, settings = self.folder / "bin", self.folder / "etc"
        for made in (programs, settings, self.folder / "backup"):
            made.mkdir(parents=True)
        text = (FOLDER / "jrs").read_text().replace("/etc/jrs/", f"{settings}/")
        text = text.replace("/opt/jobs", str(JOBS)).replace("/opt/jrs/bin/jrs", str(JRS))
        run = f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent}/systemd_run.py "$@"\n'
        for name, program in (("jrs", text), ("systemd-run", run)):
            (programs / name).write_text(program)
            (programs / name).chmod(0o755)
        # What is restored has the lease of a leader, which has to end first.
        lines = [f'backend = "{self.url}"', "ttl = 4.0"]
        lines += [f'storage = "{self.storage}"'] if self.storage else []
        (settings / "jrs.toml").write_text("\n".join(lines) + "\n")
        (settings / "backend.env").write_text("# No credentials.\n")

    def run(self, commands: str) -> str:
        """Run commands of the page; return what they print."""
        for theirs, ours in (*self.places, ("/backup", str(self.folder / "backup"))):
            commands = commands.replace(theirs, ours)
        script = SYSTEMCTL
        for name, value in (
            ("jobs", JOBS), ("jrs", JRS), ("folder", self.folder), ("server", self.server),
        ):  # fmt: skip
            script = script.replace(f"{{{name}}}", str(value))
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"{script}\n{commands}"],
            env={"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{commands}\n{ended.stdout}\n{self.logs()}"
        return ended.stdout

    def ask(self, job_id: str) -> None:
        """Submit a job through the API of the host."""
        socket = self.folder / "api.sock"
        until(socket.exists, "the API listens")
        body = json.dumps({"id": job_id, "entry": "etl:nightly", "arguments": {}})
        output([
            tool("curl", "apt-get install curl"), "--silent", "--fail-with-body",
            "--unix-socket", socket, "--header", "Content-Type: application/json",
            "--data", body, "http://localhost/v1/jobs",
        ])  # fmt: skip

    def check_copies(self) -> None:
        """Check that no other user of the host can read a copy: it has arguments and results."""
        copies = list((self.folder / "backup").iterdir())
        assert copies
        assert {copy.stat().st_mode & 0o777 for copy in copies} == {0o600}

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
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for hosts; the processes that they leave are ended afterwards."""
    yield tmp_path
    for file in tmp_path.glob("*/*.pid"):
        subprocess.run(["kill", file.read_text().strip()], check=False)


def test_the_file_backend(folder: Path) -> None:
    """Results of before the backup are there, those of after it are not, and masters lead at once:
    the storage was restored with the store. What the API accepts afterwards is in it as well. A
    copy can be looked at while the masters run."""
    host = Host(
        folder / "host1", (folder / "jrs").as_uri(), places=(("/var/lib/jrs", f"{folder}/jrs"),)
    )
    host.run("systemctl start jrs-master@1 jrs-master@2 jrs-api")
    host.finish("before")
    host.run(commands("Back up the file backend"))
    host.check_copies()
    host.finish("after")
    tested = host.run(commands("Test a restore"))
    assert "before" in tested
    assert "after" not in tested
    host.run(commands("Restore the file backend"))

    assert host.status("before") is JobStatus.FINISHED
    assert host.status("after") is None
    host.ask("asked")
    assert host.status("asked") is not None
    host.finish("asked")
    host.finish("after")  # It runs again, as the page says.
    host.run(STOP)


def restored(host: Host, kind: str, restore: Callable[[], None]) -> None:
    """Back the servers up and restore them as the page does; masters wait until the loss is
    accepted."""
    until(host.answers, "the server answers")
    host.run(START)
    host.finish("before")
    host.run(commands(f"Back up {kind}"))
    host.check_copies()
    until(host.answers, "the server answers")
    host.run(f"{STOP}\n{START}")
    host.finish("after")  # In a later epoch than that of the backup.
    restore()
    said = "the store is older than the files"
    until(lambda: said in host.logs(), "the masters say why they wait")

    assert host.status("before") is JobStatus.FINISHED
    assert host.status("after") is None

    host.run(commands("Accept an older store"))
    host.finish("next")
    host.run(STOP)


def test_etcd(folder: Path) -> None:
    """Three members, each a host of its own, are one cluster again."""
    try:
        etcd = etcd_binary()
    except ServerMissing as error:
        missing(error)
    tool("etcdctl", "apt-get install etcd-client")
    ports, names = Ports(), ("etcd1", "etcd2", "etcd3")
    client, peer = ({name: f"http://127.0.0.1:{ports.take()}" for name in names} for _ in range(2))
    places = [
        place
        for name in names
        for place in ((f"http://{name}:2379", client[name]), (f"http://{name}:2380", peer[name]))
    ]
    every = ",".join(f"{name}={peer[name]}" for name in names)
    url = f"etcd://{','.join(at.removeprefix('http://') for at in client.values())}/jrs"
    hosts = [
        Host(
            folder / name, url,
            f"{etcd} --name={name} --data-dir={folder}/{name}/etcd/data --initial-cluster={every} "
            f"--listen-client-urls={client[name]} --advertise-client-urls={client[name]} "
            f"--listen-peer-urls={peer[name]} --initial-advertise-peer-urls={peer[name]}",
            (*places, ("/var/lib/etcd", f"{folder}/{name}/etcd")),
            storage=f"{folder}/storage",
        )
        for name in names
    ]  # fmt: skip

    def healthy() -> bool:
        return all(status(f"{at}/health") == 200 for at in client.values())

    def restore() -> None:
        stop, member, check, start, kubernetes = blocks("Restore etcd")
        for host in hosts:
            host.run(stop)
        copy = (hosts[0].folder / "backup" / "etcd.db").read_bytes()
        own = "NAME=etcd1 PEER=http://etcd1:2380"
        assert own in member
        for name, host in zip(names, hosts, strict=True):
            (host.folder / "backup" / "etcd.db").write_bytes(copy)
            host.run(member.replace(own, own.replace("etcd1", name)))
        until(healthy, "the members answer")
        said = hosts[0].run(check)
        assert re.findall(r'(\d+) "cluster_id"', said) == ["3"], said
        hosts[0].run(start)
        assert all(line.startswith("kubectl ") for line in kubernetes.splitlines())

    for host in hosts:
        (host.folder / "etcd").mkdir()
        host.run("systemctl start etcd")
    until(healthy, "the members answer")
    restored(hosts[0], "etcd", restore)
    for host in hosts:
        host.run("systemctl stop etcd")
    ports.close()


def test_zookeeper(folder: Path) -> None:
    try:
        classpath = zookeeper_classpath()
    except ServerMissing as error:
        missing(error)
    ports = Ports()
    port, data = ports.take(), folder / "zookeeper"
    data.mkdir()
    (folder / "zoo.cfg").write_text(
        f"tickTime=1000\ndataDir={data}\ndataLogDir={data}-log\nclientPort={port}\n"
        "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    host = Host(
        folder / "host1", f"zookeeper://127.0.0.1:{port}",
        "java -Xmx256m -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn "
        f"-cp {classpath} org.apache.zookeeper.server.quorum.QuorumPeerMain {folder}/zoo.cfg",
        (("/var/lib/zookeeper", str(data)),),
        storage=f"{folder}/storage",
    )  # fmt: skip
    host.run("systemctl start zookeeper")
    restored(host, "ZooKeeper", lambda: print(host.run(commands("Restore ZooKeeper"))))
    host.run("systemctl stop zookeeper")
    ports.close()


def test_what_kubectl_stops() -> None:
    """Each workload of the manifests but the one that has the data is named, by its kind."""
    named = re.findall(
        r"kubectl -n jrs (?:scale|patch) (\w+) ([\w -]+?) --", commands("Restore etcd")
    )
    stopped = {(kind, name) for kind, names in named for name in names.split()}
    found = {
        (document["kind"].lower(), document["metadata"]["name"])
        for file in (KIT / "kubernetes").glob("*.yaml")
        for document in yaml.safe_load_all(file.read_text())
        if "template" in document.get("spec", {}) or "jobTemplate" in document.get("spec", {})
    }

    assert stopped == found
