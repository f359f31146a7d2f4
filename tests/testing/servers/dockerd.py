"""A private Docker engine for tests: Debian's, with folders and a socket of its own, as root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jrs.contract.clock import Deadline
from jrs.testing.servers.errors import ServerError, ServerMissing, ServerUnhealthy
from jrs.testing.servers.fixtures import missing
from jrs.testing.servers.process import Process

_TIMEOUT = 60.0


@contextmanager
def private_engine() -> Iterator[str]:
    """Run an engine; yield what DOCKER_HOST has to be. Its containers and images end with it.

    Raises:
        ServerMissing: there is none, or we are not root.
        ServerUnhealthy: it does not start here.
    """
    for program in ("dockerd", "containerd", "runc", "iptables"):
        if shutil.which(program) is None:
            raise ServerMissing(f"no '{program}' on the PATH: apt-get install docker.io")
    if os.getuid() != 0:
        raise ServerMissing("only root can run a private Docker engine")
    # A short path: it is that of sockets, too.
    folder = Path(tempfile.mkdtemp(prefix="jrs-docker-", dir="/tmp"))
    host = f"unix://{folder}/socket"
    command = [
        "dockerd", f"--host={host}",
        f"--data-root={folder}/data", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid",
        # It leaves this machine's own network as it is: a network of one's own needs none of this,
        # and ports are published by a proxy.
        "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
    ]  # fmt: skip
    engine = Process(command, folder / "log", dict(os.environ))
    try:
        engine.start()
        _wait(engine, f"{folder}/socket")
        yield host
    finally:
        engine.stop()
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def needed_engine() -> Iterator[str]:
    """Run a private engine; where there can be none, skip the test, or fail it in CI."""
    with ExitStack() as stack:
        try:
            host = stack.enter_context(private_engine())
        except ServerError as error:
            missing(error)
        yield host


def _wait(engine: Process, path: str) -> None:
    deadline = Deadline.after(_TIMEOUT)
    while True:
        # Not docker.DockerClient: it leaves a socket open for every connection that fails.
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(_TIMEOUT)
                connection.connect(path)
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                if b"200 OK" in connection.recv(4096):
                    return
        except OSError:
            pass
        if deadline.expired or not engine.running:
            raise ServerUnhealthy("the Docker engine did not start", engine.log())
        time.sleep(0.05)


def _unmount(folder: Path) -> None:
    for line in reversed(Path("/proc/mounts").read_text().splitlines()):
        where = line.split()[1]
        if where.startswith(f"{folder}/"):
            subprocess.run(["umount", where], check=False, timeout=_TIMEOUT, capture_output=True)
