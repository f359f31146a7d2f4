r"""The watchdog: a tiny program that ties the lifetime of one attempt to its master's.

It reads the launch from its standard input, a pipe whose other end only the master holds, and
starts the attempt as ``python -m PROGRAM``. Then it waits for three things: the attempt's end, the
end of the pipe, and the end of the leadership. The kernel closes the pipe however the master dies.
UNTIL is the descriptor of the moment at which the leadership is over (see `Lifeline`): a master
that is stopped, or cut off, no longer moves that moment. The watchdog imports nothing that could
block it: a job's Python may be stopped, or stuck in C code, and still ends with its master.

It is the parent of every process that the attempt leaves behind: it reaps them, and ends only when
all of them have ended. If the watchdog itself is killed, the kernel kills the attempt. HELD is the
lifeline's pipe, which it shares with the attempt. Its last word, on its standard output, reports
how the attempt ended.

    python -m jrs.recovery.attempt.watchdog \
        PROGRAM OLD_MARK STDOUT STDERR [UNTIL HELD] < pipe > word
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from typing import BinaryIO

import attrs

from jrs.contract.clock import NAP, Deadline, lease_time
from jrs.contract.errors import Unavailable

from ..processes import marks, prctl

_LEFT = 60.0
"""Seconds to wait for the processes that the attempt has left; they are killed repeatedly."""

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

    def to_line(self) -> bytes:
        return json.dumps(attrs.asdict(self)).encode()

    @classmethod
    def from_line(cls, line: bytes) -> Word:
        return cls(**json.loads(line))


def main() -> None:
    program, mark, out, err, *line = sys.argv[1:]
    until, held = (int(line[0]), int(line[1])) if line else (None, None)
    prctl.adopt_orphans()
    launch = sys.stdin.buffer.readline()
    if not launch.endswith(b"\n"):
        return  # The master died before it could pass a launch.
    ended, ended_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(ended_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watchdog = os.getpid()
    with open(out, "ab") as stdout, open(err, "ab") as stderr, _in_memory(launch) as stdin:
        attempt = subprocess.Popen(
            [sys.executable, "-m", program],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, marks.OLD_MARK: mark},
            pass_fds=() if held is None else (held,),
            # Called in this process's only thread, which lives as long as the process.
            preexec_fn=lambda: prctl.die_with(watchdog),
        )
    lapsed = _watch(attempt, until, ended)
    clean = _end(attempt, ended, Deadline.after(_LEFT))
    with suppress(BrokenPipeError):  # The master is dead.
        os.write(sys.stdout.fileno(), Word(attempt.returncode, clean, lapsed).to_line())


def _watch(attempt: subprocess.Popen[bytes], until: int | None, ended: int) -> bool:
    """Wait until the attempt has ended, or has to; return whether its leadership is over."""
    pipe = sys.stdin.fileno()
    while attempt.returncode is None:
        left = _left(until)
        if left == 0:
            return True  # Another master may start the job again from now on.
        if pipe in _wait([pipe, ended], None if left is None else min(left, NAP)):
            return False  # The master died, or wants the attempt to end.
        _reap(attempt)
    return False


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
