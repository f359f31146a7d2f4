"""The process runner: every attempt in a session of its own, ended as a whole.

The master holds one end of a pipe, the attempt's watchdog the other; see `watchdog`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from jrs.contract import credentials, masks
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.fork import forget_in_children

from ...files import logs
from ...processes import marks
from ...rules.retention import LogLimits
from .. import host
from ..context import AttemptContext
from ..launch import EXIT_CANNOT_START, EXIT_DIED, EXIT_FENCED, EXIT_JVM_DIED, launch_of
from ..watchdog import Word
from . import AttemptExit, OnEnd, Runner, RunningAttempt
from .reports import Reports

_STDERR_TAIL = 4096
"""Bytes."""

_WATCHDOG = 1.0
"""Seconds that a watchdog has to end its attempt when asked to."""


class ProcessRunner(Runner):
    """Runs attempts as ``python -m PROGRAM`` under a watchdog.

    Args:
        url: the backend's URL as the attempt opens it, secrets included.
        program: the module that reads a `Launch` and runs the attempt.
        limits: the bytes of logs that are kept.
    """

    def __init__(
        self,
        url: str,
        program: str,
        limits: LogLimits = LogLimits(),  # noqa: B008 - it cannot be changed
    ) -> None:
        self._limits = limits
        self._url = url
        self._program = program
        self._secrets = credentials.secrets_of(os.environ)
        self._reports = Reports()

    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        if function is not None:
            raise InvalidInput("a function of the driver cannot run in a process of its own")
        marks.check_visible()
        spec = context.spec
        host.check(spec, _environment())
        job_secrets = host.secrets_of(spec)
        url, cluster = context.backend.url, context.backend.cluster
        old_mark = marks.old_mark(url, cluster, spec.job_id, context.fence.epoch, context.attempt)
        folder = context.storage.logs(spec.job_id)
        logs.make_room(folder, self._limits.room_in_job)
        out, err = (logs.stream(folder, context.attempt, name) for name in logs.STREAMS)
        line = context.lifeline
        inherited = (line.until, line.held) if line else ()
        reports = self._reports.open(context.on_report)
        try:
            launch = launch_of(context, self._url, self._secrets, job_secrets, reports.writing)
            watchdog = self._watchdog(context, old_mark, out, err, reports.writing, inherited)
        except BaseException:
            self._reports.close(reports)
            raise
        finally:
            os.close(reports.writing)
        reveal = masks.hide(job_secrets.values())

        def ended(how: AttemptExit) -> None:
            self._reports.close(reports)
            on_end(how)

        return ProcessAttempt(watchdog, context, launch.to_line(), err, ended, reveal)

    def _watchdog(
        self,
        context: AttemptContext,
        old_mark: str,
        out: Path,
        err: Path,
        reports: int,
        inherited: tuple[int, ...],
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jrs.recovery.attempt.watchdog",
                self._program,
                old_mark,
                out,
                err,
                str(self._limits.stream),
                str(reports),
                *map(str, inherited),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**_environment(), marks.MARK: context.mark},
            pass_fds=(reports, *inherited),
        )


class ProcessAttempt(RunningAttempt):
    """A watchdog and its attempt."""

    def __init__(
        self,
        watchdog: subprocess.Popen[bytes],
        context: AttemptContext,
        launch: bytes,
        stderr: Path,
        on_end: OnEnd,
        reveal: Callable[[], None],
    ) -> None:
        self._watchdog = watchdog
        self._marks = marks.marks_of(context.mark)
        self._stderr = stderr
        self._on_end = on_end
        self._reveal = reveal
        self._pipe = threading.Lock()
        self._is_dead = False
        assert watchdog.stdin is not None
        try:
            watchdog.stdin.write(launch)
            watchdog.stdin.flush()
        except BrokenPipeError:
            pass  # It died at once; the waiter reports how.
        self._waiter = threading.Thread(
            target=self._wait, name=f"jrs-attempt-{context.job_id}", daemon=True
        )
        forget_in_children(self)
        self._waiter.start()

    def end(self, deadline: Deadline) -> bool:
        self._close_pipe()
        self._waiter.join(min(_WATCHDOG, deadline.remaining() / 2))
        if not self._is_dead:
            # Not left to the watchdog alone: it may have been stopped.
            try:
                marks.end(self._marks, deadline)
            except Unavailable:
                return False
            self._waiter.join(deadline.bounded())
        return True

    def _wait(self) -> None:
        code = self._watchdog.wait()
        word = self._word() or Word(code, clean=False, lapsed=False)
        self._close_pipe()
        self._is_dead = word.clean or self._ends_all()
        self._on_end(
            AttemptExit(
                message=_says(word),
                detail=_tail(self._stderr),
                exit_status=word.status,
                fenced=word.status == EXIT_FENCED,
                cannot_start=word.status == EXIT_CANNOT_START,
                lapsed=word.lapsed,
                timed_out=bool(word.timed_out),
            )
        )
        self._reveal()  # The texts of its end are masked by now.

    def _word(self) -> Word | None:
        """Return the watchdog's last word, or None if it was killed before."""
        assert self._watchdog.stdout is not None
        with self._watchdog.stdout as pipe:
            # A child that was just forked may hold the other end: do not wait for an end of file.
            os.set_blocking(pipe.fileno(), False)
            said = pipe.read()
        return Word.from_line(said) if said else None

    def _ends_all(self) -> bool:
        """End the processes that a killed watchdog has left."""
        try:
            marks.end(self._marks, Deadline.after(60.0))
        except Unavailable:
            return False  # The next attempt checks again before it starts.
        return True

    def _close_pipe(self) -> None:
        with self._pipe:
            if self._watchdog.stdin is not None and not self._watchdog.stdin.closed:
                try:
                    self._watchdog.stdin.close()
                except BrokenPipeError:
                    pass

    def forget(self) -> Iterable[int]:
        """Have a forked child close the pipe: it must not hold it open for its parent."""
        pipe = self._watchdog.stdin
        return () if pipe is None or pipe.closed else (pipe.fileno(),)


def _says(word: Word) -> str:
    if word.lapsed:
        return "its leadership was over"
    if word.timed_out:
        return word.timed_out
    status = word.status
    if status < 0:
        return f"its process was killed by signal {-status}"
    if status == EXIT_JVM_DIED:
        return "the JVM of its SparkSession died"
    if status == EXIT_DIED:
        return "its function raised an exception"
    return f"its process exited with status {status} and left no result"


def _tail(path: Path) -> str:
    # With room for a secret that begins in front of the tail.
    found = logs.end_of(path, _STDERR_TAIL + masks.longest() * 4)
    return masks.masked(found.decode(errors="replace"))[-_STDERR_TAIL:]


def _environment() -> dict[str, str]:
    """Return the environment of the watchdog, the attempt and its children: no secrets."""
    return {**credentials.without_secrets(os.environ), "PYTHONPATH": _python_path()}


def _python_path() -> str:
    """Let the attempt import what its master can: the script's folder, and PYTHONPATH."""
    parts = [sys.path[0] or os.getcwd(), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(part for part in parts if part)
