"""A Spark standalone cluster of a test's own, on a host and under a user of its own.

Two workers run as another user than the driver, in an environment that has pyspark and pyarrow, and
not jrs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path

import attrs
import pyspark

from jrs.testing.servers.errors import ServerMissing

from .support import until

USER = 65534
"""nobody: the user of the workers, and its group."""
_AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")


@attrs.frozen
class Standalone:
    """A running cluster with two cores, one on each worker."""

    master: str
    storage: Path
    """A folder that the workers' group can use."""


@contextmanager
def standalone(address: str, host: Sequence[str]) -> Iterator[Standalone]:
    """Run a cluster.

    Args:
        address: of its host.
        host: the command that runs a command there.

    Raises:
        ServerMissing: another user cannot run this environment's Python.
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
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_NO_DAEMONIZE": "1",
        }

        def start(what: str, *options: str) -> None:
            program = f"{environment['SPARK_HOME']}/bin/spark-class"
            name = f"org.apache.spark.deploy.{what}"
            # Executors write for their group, which the driver's user has to be in.
            command = ("sh", "-c", 'umask 0007; exec "$@"', "sh", program, name, *options)
            process = subprocess.Popen(
                [*host, *_AS_USER, *command, "--host", address],
                env={name: value for name, value in environment.items() if value},
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context((folder / f"{what}.log").open("ab")),
            )
            stack.callback(process.wait, 60)
            stack.callback(process.kill)

        master = f"spark://{address}:7077"
        start("master.Master", "--port", "7077", "--webui-port", "8080")
        for number in (1, 2):
            port = str(8080 + number)
            start(
                "worker.Worker",
                "-c",
                "1",
                "-m",
                "1g",
                "-d",
                str(work),
                "--webui-port",
                port,
                master,
            )
        until(lambda: _workers(address) == 2, "two workers have registered")
        yield Standalone(master, storage)


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
