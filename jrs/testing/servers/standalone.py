"""A Spark standalone cluster of a test's own, on a host and under a user of its own.

Two workers run as another user than the driver, in an environment that has pyspark and pyarrow, and
not jrs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO

import attrs

from jrs.contract.clock import Deadline
from jrs.testing.polling import Poll

from .errors import ServerMissing

USER = 65534
"""nobody: the user of the workers, and its group."""
_PATIENCE = 120.0
"""Seconds until the workers have registered, at most."""
_AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")


@attrs.frozen
class Standalone:
    """A running cluster with two cores, one on each worker."""

    master: str
    storage: Path
    """A folder that the workers' group can use."""


@contextmanager
def standalone(
    address: str, host: Sequence[str], *, ends_applications: bool = True
) -> Iterator[Standalone]:
    """Run a cluster.

    Args:
        address: of its host.
        host: the command that runs a command there.
        ends_applications: whether it ends an application when it is asked to.

    Raises:
        ServerMissing: another user cannot run this environment's Python, or the cluster does not
            start.
    """
    with ExitStack() as stack:
        # Not in pytest's folder, which only its own user can enter.
        # Executors may still write when it is removed.
        made = tempfile.TemporaryDirectory(prefix="jrs-standalone-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        folder.chmod(0o755)
        python = _environment(folder / "environment")
        storage, work = folder / "storage", folder / "work"
        for path in (storage, work):
            path.mkdir()
            shutil.chown(path, group=USER)
            path.chmod(0o2770)
        environment = {
            "HOME": str(work),
            "JAVA_HOME": os.environ.get("JAVA_HOME", ""),
            "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
            "SPARK_HOME": str(_spark_home()),
            "SPARK_MASTER_OPTS": "" if ends_applications else "-Dspark.ui.killEnabled=false",
            "SPARK_NO_DAEMONIZE": "1",
        }

        def start(what: str, *options: str) -> None:
            log = stack.enter_context((folder / f"{what}.log").open("ab"))
            process = _start(host, what, (*options, "--host", address), environment, work, log)
            stack.callback(process.wait, 60)
            stack.callback(process.kill)

        master = f"spark://{address}:7077"
        start("master.Master", "--port", "7077", "--webui-port", "8080")
        for port in ("8081", "8082"):
            limits = ("-c", "1", "-m", "1g", "-d", str(work))
            start("worker.Worker", *limits, "--webui-port", port, master)
        deadline, poll = Deadline.after(_PATIENCE), Poll()
        while _workers(address) != 2:
            if deadline.expired:
                raise ServerMissing(f"the workers have not registered in {_PATIENCE:.0f} s")
            poll.sleep()
        yield Standalone(master, storage)


def _start(
    host: Sequence[str],
    what: str,
    options: Sequence[str],
    environment: Mapping[str, str],
    work: Path,
    log: IO[bytes],
) -> subprocess.Popen[bytes]:
    program = f"{environment['SPARK_HOME']}/bin/spark-class"
    name = f"org.apache.spark.deploy.{what}"
    # Executors write for their group, which the driver's user has to be in.
    command = ("sh", "-c", 'umask 0007; exec "$@"', "sh", program, name, *options)
    return subprocess.Popen(
        [*host, *_AS_USER, *command],
        env={name: value for name, value in environment.items() if value},
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
    )


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServerMissing("PySpark is not installed")
    return Path(found.origin).parent


def _environment(folder: Path) -> Path:
    """Return the Python of an environment with this one's packages, but without jrs."""
    packages = folder / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
    packages.mkdir(parents=True)
    # Its .pth files, one of which leads to jrs, are not read from there.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python3"
    python.parent.mkdir()
    why = ""
    # The first may be in the home of this user, where no other one can run it.
    for real in (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info[1]}"):
        (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(real)}\n")
        python.unlink(missing_ok=True)
        python.symlink_to(real)
        probe = "import pyspark, pyarrow, importlib.util as u; assert u.find_spec('jrs') is None"
        # By a shell: it has none of root's rights left.
        done = subprocess.run(
            [*_AS_USER, "sh", "-c", 'exec "$@"', "sh", python, "-c", probe],
            cwd="/", env={}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode == 0:
            return python
        why = done.stderr[-500:]
    raise ServerMissing(f"another user cannot run Spark here: {why}")


def _workers(address: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}:8080/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, HTTPException, ValueError):
        return 0  # It has not started yet.
