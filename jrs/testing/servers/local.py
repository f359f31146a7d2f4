"""Local: servers as processes of this machine, from Debian's packages.

``etcd`` and ``java`` are looked for on the PATH. ZooKeeper is Debian's jar, whose manifest names
most of the jars it needs.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.ports import Ports
from jrs.testing.servers.process import Process, setpriv
from jrs.testing.servers.provisioner import Provisioner, Runner, Seat

_JARS = Path("/usr/share/java")
_CLASSPATH = ":".join(
    str(_JARS / name)
    for name in (
        "zookeeper.jar",
        # Not in its manifest: without them nothing is logged, and TLS lacks two parts of Netty.
        "slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar",
    )
)  # fmt: skip
_JAVA = (
    # Options for a fast start and a small process; they do not change its behavior. All that the
    # tests of a run have written is in its memory, twice: with 128 MB, 30 MB of data end it.
    "-Xmx512m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)  # fmt: skip


def etcd_binary() -> str:
    """Return the path of etcd, after checking that it can be started.

    Raises:
        ServerMissing: it is not installed.
    """
    setpriv()
    found = shutil.which("etcd")
    if found is None:
        raise ServerMissing("no 'etcd' on the PATH: apt-get install etcd-server")
    return found


def zookeeper_classpath() -> str:
    """Return the class path of ZooKeeper's server, after checking that Java is installed.

    Raises:
        ServerMissing: one of them is not installed.
    """
    setpriv()
    if shutil.which("java") is None:
        raise ServerMissing("no 'java' on the PATH: apt-get install openjdk-17-jre-headless")
    if not (_JARS / "zookeeper.jar").exists():
        raise ServerMissing(f"no {_JARS}/zookeeper.jar: apt-get install zookeeper")
    return _CLASSPATH


class Local(Provisioner):
    """This machine: members on ports of the loopback, their data in a temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="jrs-servers-")
        self._ports = Ports()
        self._generation = 0

    def seats(self, count: int) -> tuple[Seat, ...]:
        self._ports.close()
        self._generation += 1
        return tuple(self._seat(f"m{index}") for index in range(count))

    def etcd(
        self, seat: Seat, arguments: Sequence[str], *, files: Path | None, fsync: bool
    ) -> Runner:
        binary = etcd_binary()
        folder = self._home(seat)
        command = [*self.prefix(seat), binary, f"--data-dir={folder / 'data'}", *arguments]
        if not fsync and _knows(binary, "--unsafe-no-fsync"):
            command.append("--unsafe-no-fsync")
        # ETCD_NAME=… in the environment is a flag, too.
        environment = {name: v for name, v in os.environ.items() if not name.startswith("ETCD_")}
        return Process(command, folder / "log", environment)

    def zookeeper(
        self,
        seat: Seat,
        number: int,
        config: Sequence[str],
        properties: Sequence[str],
        *,
        files: Path | None,
    ) -> Runner:
        classpath = zookeeper_classpath()
        folder = self._home(seat)
        (folder / "data").mkdir()
        (folder / "data" / "myid").write_text(f"{number}\n")
        (folder / "zoo.cfg").write_text("\n".join([f"dataDir={folder / 'data'}", *config]) + "\n")
        command = [
            *self.prefix(seat),
            "java", *_JAVA, *(f"-D{name}" for name in properties),
            "-cp", classpath,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg"),
        ]  # fmt: skip
        # The JVM options of Spark or of a user are not for this JVM.
        kept = {n: v for n, v in os.environ.items() if n not in ("JAVA_TOOL_OPTIONS", "CLASSPATH")}
        return Process(command, folder / "log", kept)

    def prefix(self, seat: Seat) -> tuple[str, ...]:
        """Return the command that runs a member's command at its seat."""
        return ()

    def close(self) -> None:
        self._ports.close()
        self._folder.cleanup()

    def _seat(self, name: str) -> Seat:
        port, plain, peer, election = (self._ports.take() for _ in range(4))
        return Seat(
            name=name,
            host="127.0.0.1",
            port=port,
            plain_port=plain,
            listen_host="127.0.0.1",
            listen_port=port,
            listen_plain_port=plain,
            peer_host="127.0.0.1",
            peer_port=peer,
            election_port=election,
        )

    def _home(self, seat: Seat) -> Path:
        # One folder per try: the data of a try that lost its port contains that port.
        folder = Path(self._folder.name) / f"{seat.name}-{self._generation}"
        folder.mkdir()
        return folder


@functools.cache
def _knows(binary: str, flag: str) -> bool:
    """Return whether a server's help names a flag."""
    help_text = subprocess.run(
        [binary, "--help"], capture_output=True, text=True, timeout=30.0, check=False
    )
    return flag in help_text.stdout + help_text.stderr
