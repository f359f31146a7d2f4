"""A server as a process of this machine, which never outlives the process that started it.

`setpriv --pdeathsig KILL` asks the kernel to kill the server when its starter ends; unlike with a
`preexec_fn`, no Python runs between fork and exec. But for the kernel the starter is a *thread*,
not a process. So one thread that lives as long as this process starts all servers, and tests may
start servers from any thread.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.provisioner import Runner

_STOP_TIMEOUT = 15.0
_TAIL = 4096

_UNLESS_ORPHANED = '[ "$PPID" = "$1" ] || exit; shift; exec "$@"'
"""The starter may have died before that request: then nothing else would end the server."""


def setpriv() -> str:
    """Return the path of setpriv.

    Raises:
        ServerMissing: it is not installed.
    """
    found = shutil.which("setpriv")
    if found is None:
        raise ServerMissing("no 'setpriv' on the PATH: apt-get install util-linux")
    return found


class Process(Runner):
    """A command whose output goes to a file.

    Args:
        command: the program and its arguments.
        log: the file to which its output is appended.
        environment: its whole environment.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._log = log
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def paused(self) -> bool:
        return self._paused and self.running

    @property
    def pid(self) -> int | None:
        """The pid, while it is running."""
        return self._process.pid if self._process is not None and self.running else None

    def start(self) -> None:
        if not self.running:
            self._paused = False
            self._process = _starter().submit(self._launch).result()

    def stop(self) -> None:
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        self.resume()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        if self._process is not None and self.running:
            self._paused = True
            self._signal(signal.SIGSTOP)
            # The signal was only sent: wait until the kernel has stopped every thread.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._paused = False

    def log(self) -> str:
        try:
            with self._log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL))
                return file.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        self.kill()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # This first checks whether the process has ended.

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    *(setpriv(), "--pdeathsig", "KILL", "--"),
                    *("sh", "-c", _UNLESS_ORPHANED, "sh", str(os.getpid())),
                    *self._command,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # Not in the terminal's process group: Ctrl-C is for the tests, which then end the
                # server.
                start_new_session=True,
            )


_lock = threading.Lock()
_starters: dict[int, ThreadPoolExecutor] = {}


def _starter() -> ThreadPoolExecutor:
    """Return the thread of this process that starts servers; a forked child has its own."""
    with _lock:
        if os.getpid() not in _starters:
            _starters.clear()
            _starters[os.getpid()] = ThreadPoolExecutor(1, thread_name_prefix="jrs-servers")
        return _starters[os.getpid()]
