"""JuiceFS for tests: a filesystem in a folder, which each host mounts for itself by FUSE.

A host is a mount namespace with a name and processes of its own. So hosts mount the filesystem at
the same path, and none of them knows what another one has cached. It needs root, ``/dev/fuse``,
Redis for the metadata, and the program that ``JRS_JUICEFS`` names: ``./dev long juicefs`` installs
it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.process import Process

from .support import until

PROGRAM = "JRS_JUICEFS"
UNCACHED = ("--attr-cache=0", "--entry-cache=0", "--dir-entry-cache=0")
"""The options of a mount that shows what is there, whatever its host has looked at before."""
_NAME = "jobs"
_ALONE = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child",
          "--mount-proc", "--uts", "sh", "-c")  # fmt: skip
_FIRST = 'echo "$0" > /proc/sys/kernel/hostname && { "$@" & wait; }'
"""The first process of a host, which reaps the others."""


@attrs.frozen
class Host:
    """A host that has the filesystem at `at`. It ends with all of its processes."""

    process: Process
    at: Path

    @property
    def seen(self) -> Path:
        """The mounted folder, for processes that are not on this host."""
        return Path(f"/proc/{self.process.pid}/root{self.at}")

    def command(self, *command: str) -> tuple[str, ...]:
        """Return the command that runs `command` on the host, and ends if it is killed itself."""
        spaces = f"/proc/{self.process.pid}/ns"
        enter = (f"--mount={spaces}/mnt", f"--uts={spaces}/uts", f"--pid={spaces}/pid_for_children")
        ends = ("setpriv", "--pdeathsig", "KILL", "--", "env", "SPARK_LOCAL_IP=127.0.0.1")
        return "nsenter", *enter, *ends, *command


@attrs.frozen
class Filesystem:
    """A filesystem that hosts can mount."""

    url: str
    folder: Path
    stack: ExitStack

    def host(self, name: str, at: Path, *options: str) -> Host:
        """Start a host; `options` are those of ``juicefs mount``."""
        return Host(self._start(at, options, (*_ALONE, _FIRST, name)), at)

    def mount(self, at: Path, *options: str) -> None:
        """Mount it in this process's own namespace, until the filesystem is closed."""
        self._start(at, options, ())

    def _start(self, at: Path, options: Sequence[str], prefix: Sequence[str]) -> Process:
        at.mkdir(parents=True, exist_ok=True)
        own = self.folder / f"mount-{len(list(self.folder.glob('mount-*')))}"
        own.mkdir()
        quiet = ("--no-usage-report", "--backup-meta=0", "--metrics=127.0.0.1:0")
        command = (_program(), "mount", *quiet, f"--cache-dir={own}", *options, self.url, str(at))
        process = Process(
            [*prefix, *command],
            own / "log",
            # One process, which the death of the host ends, too.
            {"PATH": os.environ["PATH"], "HOME": str(own), "JFS_SUPERVISOR": "1"},
        )  # fmt: skip
        self.stack.callback(process.close)
        process.start()

        def is_there() -> bool:
            assert process.running, process.log()
            return f" {at} " in Path(f"/proc/{process.pid}/mountinfo").read_text()

        until(is_there, f"{at} is mounted")
        return process


@contextmanager
def filesystem(folder: Path) -> Iterator[Filesystem]:
    """Make a filesystem, with all that it consists of in an empty folder.

    Raises:
        ServerMissing: it cannot be had here; the message says what to install.
    """
    program = _program()
    socket, bucket = folder / "redis", folder / "bucket"
    url = f"unix://{socket}"
    with ExitStack() as stack:
        redis = Process(
            ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "",
             "--dir", str(folder)],
            folder / "redis.log",
            {"PATH": os.environ["PATH"]},
        )  # fmt: skip
        stack.callback(redis.close)
        redis.start()
        until(socket.exists, "Redis listens")
        done = subprocess.run(
            [program, "format", "--storage=file", f"--bucket={bucket}/", url, _NAME],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        yield Filesystem(url, folder, stack)


def _program() -> str:
    if os.geteuid() != 0:
        raise ServerMissing("hosts that mount JuiceFS need root")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise ServerMissing("JuiceFS needs FUSE, and there is no /dev/fuse: modprobe fuse")
    for name in ("redis-server", "nsenter", "unshare"):
        if shutil.which(name) is None:
            raise ServerMissing(f"no {name!r}: apt-get install redis-server util-linux")
    found = os.environ.get(PROGRAM) or shutil.which("juicefs")
    if found is None:
        raise ServerMissing("no 'juicefs' on the PATH: ./dev long juicefs installs it")
    return found
