r"""The watchdog: a tiny program that ties the lifetime of one attempt to its master's.

It reads the launch from its standard input, a pipe whose other end only the master holds, and
starts the attempt as ``python -m PROGRAM``. Then it waits for four things: the attempt's end, the
end of the pipe, the end of the leadership, and the time limit of a stage. The kernel closes the
pipe however the master dies.
UNTIL is the descriptor of the moment at which the leadership is over (see `Lifeline`): a master
that is stopped, or cut off, no longer moves that moment. The watchdog imports nothing that could
block it: a job's Python may be stopped, or stuck in C code, and still ends with its master.

It is the parent of every process that the attempt leaves behind: it reaps them, and ends only when
all of them have ended. If the watchdog itself is killed, the kernel kills the attempt. HELD is the
lifeline's pipe, which it shares with the attempt. What these processes print passes through it into
the files STDOUT and STDERR, of at most LIMIT bytes each, with the job's secrets masked. REPORTS is
the writing end of the pipe through which the attempt reports to its master; only the attempt keeps
it. Its last word, on its standard output, reports how the attempt ended.

    python -m jrs.recovery.attempt.watchdog \
        PROGRAM OLD_MARK STDOUT STDERR LIMIT REPORTS [UNTIL HELD] < pipe > word
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import attrs

from jrs.contract import masks
from jrs.contract.clock import NAP, Deadline, lease_time
from jrs.contract.errors import Unavailable

from ..files.log_writer import Pump
from ..processes import marks, prctl
from . import scratch
from .stage_timer import StageLimits

_LEFT = 60.0
"""Seconds to wait for the processes that the attempt has left; they are killed repeatedly."""

_DRAINED = 5.0
"""Seconds to wait until the rest of the attempt's output is written: a disk may hang."""

_ROUND = 0.02
"""Seconds between two rounds of killing, if nothing has ended meanwhile."""


@attrs.frozen
class Word:
    """The last word of a watchdog."""

    status: int
    """The attempt's exit code, or minus the signal's number."""
    clean: bool
    """Whether no process that the attempt had started is left."""
    lapsed: bool
    """Whether the watchdog ended it because the leadership was over."""
    timed_out: str = ""
    """Which stage the watchdog ended it for; empty if none ran longer than its limit."""

    def to_line(self) -> bytes:
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def from_line(cls, line: bytes) -> Word:
        return cls(**json.loads(line))


def main() -> None:
    program, mark, out, err, limit, reporting, *line = sys.argv[1:]
    reports = int(reporting)
    until, held = (int(line[0]), int(line[1])) if line else (None, None)
    prctl.adopt_orphans()
    launch = sys.stdin.buffer.readline()
    if not launch.endswith(b"\n"):
        return  # The master died before it could pass a launch.
    given = json.loads(launch)
    masks.hide(given["job_secrets"].values())
    ended, ended_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(ended_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watchdog = os.getpid()
    told, teller = os.pipe2(os.O_CLOEXEC)
    limits = StageLimits(told)
    pump = Pump(int(limit), Path(out), Path(err))
    stdout, stderr = pump.ends
    with _in_memory(launch) as stdin:
        attempt = subprocess.Popen(
            [given["python"] or sys.executable, "-m", program, str(teller)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=_environment(given["env"], mark),
            pass_fds=(teller, reports) if held is None else (teller, reports, held),
            # Called in this process's only thread, which lives as long as the process.
            preexec_fn=lambda: prctl.die_with(watchdog),
        )
    os.close(teller)
    os.close(reports)
    pump.start()  # After the fork: until then, this process has one thread.
    lapsed, timed_out = _watch(attempt, until, ended, limits)
    clean = _end(attempt, ended, Deadline.after(_LEFT))
    if clean:
        scratch.remove(given["mark"])
    pump.join(_DRAINED)  # Before the last word: the master then reads the end of the log.
    with suppress(BrokenPipeError):  # The master is dead.
        os.write(sys.stdout.fileno(), Word(attempt.returncode, clean, lapsed, timed_out).to_line())


def _environment(given: dict[str, str], mark: str) -> dict[str, str]:
    """Return the attempt's environment: the job's own variables, and what makes it find jrs."""
    paths = (given.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", ""))
    path = os.pathsep.join(filter(None, paths))
    return {**os.environ, **given, "PYTHONPATH": path, marks.OLD_MARK: mark}


def _watch(
    attempt: subprocess.Popen[bytes], until: int | None, ended: int, limits: StageLimits
) -> tuple[bool, str]:
    """Wait until the attempt has ended, or has to; return whether its leadership is over, and which
    stage has run for too long."""
    pipe = sys.stdin.fileno()
    while attempt.returncode is None:
        left = _left(until)
        if left == 0:
            return True, ""  # Another master may start the job again from now on.
        waits = [] if left is None else [min(left, NAP)]
        limits.read()
        if (first := limits.first()) is not None:
            due, why = first
            if due <= time.monotonic():
                return False, why
            waits.append(due - time.monotonic())
        told = [limits.descriptor] if limits.is_open else []
        if pipe in _wait([pipe, *told, ended], max(0.0, min(waits)) if waits else None):
            return False, ""  # The master died, or wants the attempt to end.
        _reap(attempt)
    return False, ""


def _end(attempt: subprocess.Popen[bytes], ended: int, deadline: Deadline) -> bool:
    """Kill the attempt, then the processes that it left; return whether none is left."""
    while _reap(attempt):
        if attempt.returncode is None:
            os.kill(attempt.pid, signal.SIGKILL)
        elif deadline.expired:
            return False
        else:
            _kill_descendants()
        _wait([ended], _ROUND)
    return True


def _kill_descendants() -> None:
    with suppress(Unavailable):  # The host lacks resources: try again soon.
        for pid in marks.descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _reap(attempt: subprocess.Popen[bytes]) -> bool:
    """Reap every child that has ended; return whether any is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == attempt.pid:
            attempt.returncode = os.waitstatus_to_exitcode(status)


def _wait(descriptors: list[int], seconds: float | None) -> list[int]:
    """Wait until one of the descriptors can be read; the last of them reports signals."""
    ready, _, _ = select.select(descriptors, [], [], seconds)
    if descriptors[-1] in ready:
        os.read(descriptors[-1], 512)
    return ready


def _left(until: int | None) -> float | None:
    """Return the seconds until the leadership is over, or None if that is not known here."""
    if until is None:
        return None
    (moment,) = struct.unpack("d", os.pread(until, 8, 0))
    return max(0.0, float(moment) - lease_time())


def _in_memory(line: bytes) -> BinaryIO:
    """Return a file to read `line` from: unlike a pipe, it never blocks its writer."""
    file = os.fdopen(os.memfd_create("launch"), "w+b")
    file.write(line)
    file.seek(0)
    return file


if __name__ == "__main__":
    main()
