"""The attempt's process as its watchdog starts it: by fork, or by exec.

A watchdog that was forked itself has all modules of the attempt in memory, and forks it. exec is
for what only it can do: another interpreter, and variables of the job's own, which Python and its
modules may read when they are loaded.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn, Protocol

import attrs

from jrs.contract import masks

from ..files.log_writer import Pump
from ..processes import marks, prctl
from ..processes.shown_by_proc import Shown
from .launch_socket import Kind, LaunchSocket, Message, understood
from .watchdog_pipe import AttemptPipe


class Child(Protocol):
    """A child process; its watchdog reaps it, and notes its exit code."""

    pid: int
    returncode: Any
    """Its exit code, or minus the signal's number; None while it lives."""


@attrs.define
class _Forked:
    pid: int
    returncode: int | None = None


class AttemptProcess:
    """The attempt's process, what it says, and the pipe by which it tells its limits.

    Args:
        program: the module that takes a `Launch` and runs the attempt.
        python: the interpreter; empty for this one.
        env: environment variables of the job's own settings.
        old_mark: the mark by which masters of earlier versions find it.
        shown: what /proc shows of this process, if it may be forked.

    Raises:
        OSError: the host lacks what it takes; no process of it is left.
    """

    def __init__(
        self, program: str, python: str, env: dict[str, str], old_mark: str, shown: Shown | None
    ) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self.pipe = AttemptPipe(reading)
        self.pump = Pump(streams=2)
        self.socket, inherited = LaunchSocket.pair()
        self._was_sent = False
        streams = (inherited.fileno(), *self.pump.ends)
        # Called in this process's only thread, which lives as long as the process.
        self.process: Child
        if shown is None or python or env:
            command = [python or sys.executable, "-m", program, str(writing)]
            self.process = _exec(command, _environment(env, old_mark), streams, writing)
        else:
            self.process = _fork(program, old_mark, streams, writing, shown)
        os.close(writing)
        inherited.close()
        try:
            self.pump.start()  # After the fork: until then, this process has one thread.
        except RuntimeError as error:
            # It waits for its launch: nothing of the user's has run in it.
            self.socket.close()
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.returncode = os.waitstatus_to_exitcode(os.waitpid(self.process.pid, 0)[1])
            raise OSError(errno.EAGAIN, str(error)) from error

    def launch(self, launch: Message, given: dict[str, Any]) -> int | None:
        """Pass the launch on; return the descriptor of the end of the leadership, if it has one.

        Raises:
            NotUnderstood: it is of another version of jrs, and was not passed on.
        """
        with understood():
            masks.hide(given["job_secrets"].values())
            self.pump.write_to(given["log_limit"], Path(given["stdout"]), Path(given["stderr"]))
        line, reports, *lifeline = launch.descriptors
        self._was_sent = self.socket.send(Kind.LAUNCH, line, reports, *lifeline[1:])
        os.close(line)
        os.close(reports)  # Only the attempt keeps it.
        return lifeline[0] if lifeline else None

    def had_read_launch(self) -> bool:
        """Return whether the process, which has died, had read its launch. Ask once."""
        return self._was_sent and self.socket.was_read()


def _environment(given: dict[str, str], old_mark: str) -> dict[str, str]:
    """Return the attempt's environment: the job's own variables, and what makes it find jrs."""
    paths = (given.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", ""))
    path = os.pathsep.join(filter(None, paths))
    old = {marks.OLD_MARK: old_mark} if old_mark else {}
    return {**os.environ, **given, "PYTHONPATH": path, **old}


def _exec(
    command: list[str], environment: dict[str, str], streams: tuple[int, ...], writing: int
) -> Child:
    watchdog = os.getpid()
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        pass_fds=(writing,),
        preexec_fn=lambda: prctl.die_with(watchdog),
    )


def _fork(
    program: str, old_mark: str, streams: tuple[int, ...], writing: int, shown: Shown
) -> Child:
    watchdog = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            prctl.die_with(watchdog)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            os.closerange(3, writing)
            os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
            os.environ[marks.OLD_MARK] = old_mark
            shown.variable(marks.OLD_MARK, old_mark)
            shown.arguments([sys.executable, "-m", program, str(writing)])
        except BaseException:
            os._exit(1)
        _become(program, writing)
    return _Forked(pid)


def _become(program: str, writing: int) -> NoReturn:
    """Run the program as ``python -m`` does, and end this process as that does."""
    status = 1
    try:
        module = sys.modules["__main__"] = sys.modules[program]
        sys.argv = [str(module.__file__)]
        module.main(writing)
        status = 0
    except SystemExit as exit:
        status = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
