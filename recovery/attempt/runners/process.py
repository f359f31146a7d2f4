"""The process runner: every attempt in a session of its own, ended as a whole.

The master holds one end of a socket, the attempt's watchdog the other; see `watchdog`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from jrs.contract import masks
from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput
from jrs.contract.runtime import JrsThread
from jrs.host import credentials
from jrs.records.model import AttemptRecord, JobSpec

from ...files import logs
from ...processes import marks
from ...rules.retention import LogLimits
from ..context import AttemptContext
from ..host import HostLooks
from ..launch import (
    EXIT_CANNOT_START,
    EXIT_DIED,
    EXIT_FENCED,
    EXIT_JVM_DIED,
    launch_of,
)
from ..launch_socket import Kind
from ..warm_plan import plan_of
from ..watchdog import NO_PROCESS, Word
from . import AttemptExit, OnEnd, Runner, RunningAttempt
from .fork_server_process import ForkServer
from .reports import Reports
from .warm_pool import WarmPool
from .watchdog_process import WatchdogProcess, by_exec, environment

_STDERR_TAIL = 4096
"""Bytes."""

_WATCHDOG = 1.0
"""Seconds that a watchdog has to end its attempt when asked to."""

_REFUSED = (
    "the process of its attempt does not understand its master: another version of jrs was "
    "installed below this master, which has to be restarted, or for the interpreter of the job"
)

_KILL = 30.0
"""Seconds in which what a dead watchdog has left has to end."""


class ProcessRunner(Runner):
    """Runs attempts as processes of the program under a watchdog.

    A context manager, which ends the thread that it has started for all of them.

    Args:
        url: the backend's URL as the attempt opens it, secrets included.
        program: the module that takes a `Launch` and runs the attempt.
        limits: the bytes of logs that are kept.
        warm: processes that are prepared for attempts; None if there are none.
        fork_server: starts watchdogs sooner; None if there is none.
        shared: whether the group of the storage may change what attempts make.
    """

    def __init__(
        self,
        url: str,
        program: str,
        limits: LogLimits = LogLimits(),  # noqa: B008 - it cannot be changed
        warm: WarmPool | None = None,
        fork_server: ForkServer | None = None,
        *,
        shared: bool = False,
    ) -> None:
        self._limits = limits
        self._url = url
        self._program = program
        self._warm = warm
        self._fork_server = fork_server
        self._shared = shared
        self._secrets = credentials.secrets_of(os.environ)
        self._reports = Reports()
        self._host = HostLooks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reports.end()

    def reserve(self, spec: JobSpec, before: AttemptRecord | None) -> str | None:
        if self._warm is None:
            return None
        plan = plan_of(spec, before, shared=self._shared)
        return None if plan is None else self._warm.reserve(plan)

    def release(self, mark: str) -> None:
        if self._warm is not None:
            self._warm.release(mark)

    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        if function is not None:
            raise InvalidInput("a function of the driver cannot run in a process of its own")
        marks.check_visible()
        spec = context.spec
        found = self._host.look(spec, environment())
        folder = context.storage.logs(spec.job_id)
        logs.make_room(folder, self._limits.room_in_job)
        out, err = (logs.stream(folder, context.attempt, name) for name in logs.STREAMS)
        line = context.lifeline
        lifeline = (line.until, line.held) if line else ()
        launch = launch_of(
            context, self._url, self._secrets, found, (out, err), self._limits.stream
        )
        reports = self._reports.open(context.on_report)

        def ended(how: AttemptExit) -> None:
            self._reports.close(reports)
            on_end(how)

        with ExitStack() as undo:
            undo.callback(self._reports.close, reports)
            try:
                watchdog = self._watchdog(context)
                undo.callback(lambda: watchdog.end(Deadline.after(_KILL)))
                watchdog.send(Kind.LAUNCH, launch.to_line(), reports.writing, *lifeline)
            finally:
                os.close(reports.writing)
            reveal = masks.hide(found.secrets.values())
            undo.callback(reveal)
            attempt = ProcessAttempt(watchdog, spec.job_id, err, ended, reveal)
            undo.pop_all()
        return attempt

    def _watchdog(self, context: AttemptContext) -> WatchdogProcess:
        """Return the prepared process that was reserved for the attempt, or a new one."""
        prepared = None if self._warm is None else self._warm.take(context.mark)
        if prepared is not None:
            if prepared.lives:
                return prepared
            prepared.end(Deadline.after(_KILL))
        backend, epoch = context.backend, context.fence.epoch
        old_mark = marks.old_mark(
            backend.url, backend.cluster, context.job_id, epoch, context.attempt
        )
        if self._fork_server is not None:
            forked = self._fork_server.start(context.mark, old_mark)
            if forked is not None:
                return forked
        return WatchdogProcess(context.mark, by_exec(self._program, context.mark, old_mark))


class ProcessAttempt(RunningAttempt):
    """A watchdog and its attempt."""

    def __init__(
        self,
        watchdog: WatchdogProcess,
        job_id: str,
        stderr: Path,
        on_end: OnEnd,
        reveal: Callable[[], None],
    ) -> None:
        self._watchdog = watchdog
        self._stderr = stderr
        self._on_end = on_end
        self._reveal = reveal
        self._is_dead = False
        self._waiter = JrsThread(target=self._wait, name=f"jrs-attempt-{job_id}", daemon=True)
        self._waiter.start()

    def end(self, deadline: Deadline) -> bool:
        self._watchdog.close()
        self._waiter.join(min(_WATCHDOG, deadline.remaining() / 2))
        if not self._is_dead:
            # Not left to the watchdog alone: it may have been stopped.
            if not self._watchdog.end_all(deadline):
                return False
            self._waiter.join(deadline.bounded())
        return True

    def _wait(self) -> None:
        word = self._watchdog.wait()
        self._watchdog.close()
        self._is_dead = word.clean or self._watchdog.end_all()
        detail = _tail(self._stderr)
        self._on_end(
            AttemptExit(
                message=_says(word, detail),
                detail=detail,
                exit_status=word.status,
                fenced=word.status == EXIT_FENCED,
                cannot_start=word.refused or word.status == EXIT_CANNOT_START,
                lack=_REFUSED if word.refused else "",
                lapsed=word.lapsed,
                timed_out=bool(word.timed_out),
                begun=word.launched or word.refused,
                interrupted=word.interrupted,
            )
        )
        self._reveal()  # The texts of its end are masked by now.


def _says(word: Word, detail: str) -> str:
    if word.lapsed:
        return "its leadership was over"
    if word.timed_out:
        return word.timed_out
    if word.refused:
        return _REFUSED
    if not word.launched and word.status == NO_PROCESS:
        return f"its process could not be started: {word.said}"
    if not word.launched:
        return "the process that was prepared for it ended"
    if word.interrupted:
        said = detail.strip().rpartition("\n")[2].removeprefix("jrs: ")
        return said or "the backend or the storage did not answer it"
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
