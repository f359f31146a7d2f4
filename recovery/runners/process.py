"""The process runner: a session of its own for every attempt, ended as a whole.

Master, warden, attempt: the master holds one end of a pipe, the warden the other; see `warden`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from jrs import credentials
from jrs.clock import Deadline
from jrs.errors import InvalidInput, Unavailable
from jrs.fork import forget_in_children
from jrs.recovery import attempt, processes
from jrs.recovery.job import AttemptContext
from jrs.recovery.runners import Ended, OnEnd, Runner, RunningAttempt

_STDERR_TAIL = 4096


class ProcessRunner(Runner):
    """Runs attempts as ``python -m jrs.recovery.attempt`` under a warden.

    Args:
        url: the backend's URL as the attempt opens it, secrets included.
        storage: the root of all jobs' folders.
    """

    def __init__(self, url: str, storage: Path) -> None:
        self._url = url
        self._storage = storage
        self._secrets = credentials.secrets_of(os.environ)

    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        if function is not None:
            raise InvalidInput("a function of the driver can not run in a process of its own")
        spec = context.spec
        mark = processes.mark_of_attempt(
            context.backend.url,
            context.backend.cluster,
            spec.job_id,
            context.fence.epoch,
            context.attempt,
        )
        logs = context.storage.logs(spec.job_id)
        out, err = (logs / f"attempt-{context.attempt}.{kind}" for kind in ("out", "err"))
        line = context.lifeline
        inherited = (line.until, line.held) if line else ()
        until = [str(line.until)] if line else []
        warden = subprocess.Popen(
            [sys.executable, "-m", "jrs.recovery.warden", mark, out, err, *until],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=_environment(),
            pass_fds=inherited,
        )
        launch = attempt.launch_of(context, self._url, self._storage, self._secrets)
        return ProcessAttempt(warden, mark, launch.to_line(), err, on_end)


class ProcessAttempt(RunningAttempt):
    """One warden and what it guards."""

    def __init__(
        self,
        warden: subprocess.Popen[bytes],
        mark: str,
        launch: bytes,
        stderr: Path,
        on_end: OnEnd,
    ) -> None:
        self._warden = warden
        self._mark = mark
        self._stderr = stderr
        self._on_end = on_end
        self._pipe = threading.Lock()
        assert warden.stdin is not None
        try:
            warden.stdin.write(launch)
            warden.stdin.flush()
        except BrokenPipeError:
            pass  # It died at once; the waiter says how.
        self._waiter = threading.Thread(
            target=self._wait, name=f"jrs-attempt-{mark.split(':')[1]}", daemon=True
        )
        forget_in_children(self)
        self._waiter.start()

    def end(self, deadline: Deadline) -> bool:
        self._close_pipe()
        try:
            # Not left to the warden alone: somebody may have stopped or killed it.
            processes.end(self._mark, deadline)
        except Unavailable:
            return False
        self._waiter.join(deadline.bounded())
        if self._waiter.is_alive():
            self._warden.kill()
            self._waiter.join(deadline.bounded())
        return not processes.marked(self._mark)

    def _wait(self) -> None:
        code = self._warden.wait()
        self._close_pipe()
        # A warden that was itself killed leaves its attempt to us.
        try:
            processes.end(self._mark, Deadline.after(60.0))
        except Unavailable:
            pass  # The next attempt looks again before it starts.
        status = 128 - code if 128 < code <= 128 + signal.SIGRTMAX else code
        self._on_end(
            Ended(
                message=_says(status),
                detail=_tail(self._stderr),
                exit_status=status,
                fenced=status == attempt.EXIT_FENCED,
            )
        )

    def _close_pipe(self) -> None:
        with self._pipe:
            if self._warden.stdin is not None and not self._warden.stdin.closed:
                try:
                    self._warden.stdin.close()
                except BrokenPipeError:
                    pass

    def forget(self) -> Iterable[int]:
        """A child must not hold the pipe open for its parent."""
        pipe = self._warden.stdin
        return () if pipe is None or pipe.closed else (pipe.fileno(),)


def _says(status: int) -> str:
    if status < 0:
        return f"its process was killed by signal {-status}"
    if status == attempt.EXIT_JVM_DIED:
        return "the JVM of its SparkSession died"
    if status == attempt.EXIT_DIED:
        return "its function raised an exception"
    return f"its process exited with status {status} and left no result"


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _STDERR_TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _environment() -> dict[str, str]:
    """Return what the watchdog, the attempt and all that it starts inherit: nothing secret."""
    return {**credentials.without_secrets(os.environ), "PYTHONPATH": _python_path()}


def _python_path() -> str:
    """Let the attempt import what its master can: the script's folder, and PYTHONPATH."""
    parts = [sys.path[0] or os.getcwd(), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(part for part in parts if part)
