"""The warden: a tiny program between a master and one attempt, so that they can not part.

It reads the launch from its standard input, a pipe whose other end only the master holds, starts
the attempt, and from then on waits for three things: the attempt's end, the end of the pipe, and
the end of the leadership. The kernel closes the pipe however the master dies. UNTIL is the
descriptor of the moment at which the leadership is over (see `jrs.backend.Lifeline`): a master that
was stopped, or cut off, no longer moves it. The warden imports nothing that could block it: a job's
Python may be stopped, or stuck in C code, and still ends with its master.

    python -m jrs.recovery.warden MARK STDOUT STDERR [UNTIL] < pipe
"""

import os
import select
import signal
import struct
import subprocess
import sys
import time
from typing import BinaryIO

from jrs.clock import Deadline
from jrs.errors import Unavailable
from jrs.recovery import processes


def main() -> int:
    mark, out, err = sys.argv[1:4]
    until = int(sys.argv[4]) if len(sys.argv) > 4 else None
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 0  # The master died before it could say what to run.
    ended, ended_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(ended_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with open(out, "ab") as stdout, open(err, "ab") as stderr, _in_memory(line) as stdin:
        attempt = subprocess.Popen(
            [sys.executable, "-m", "jrs.recovery.attempt"],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, processes.MARK: mark},
        )
    while attempt.poll() is None:
        left = _left(until)
        ready, _, _ = select.select([sys.stdin.buffer, ended], [], [], left)
        if sys.stdin.buffer in ready:
            break  # The master died, or wants the attempt to end.
        if ended in ready:
            os.read(ended, 512)
        elif left == 0:
            break  # Whoever leads next may start the job again from now on.
    try:
        processes.end(mark, Deadline.after(60.0))
    except Unavailable as error:
        print(f"jrs: {error}", file=sys.stderr)
    status = attempt.wait()
    # Passed on as a shell would, since a process can not choose to have died by a signal.
    return status if status >= 0 else 128 - status


def _left(until: int | None) -> float | None:
    """Return the seconds until the leadership is over, or None if that is not known here."""
    if until is None:
        return None
    (moment,) = struct.unpack("d", os.pread(until, 8, 0))
    return max(0.0, float(moment) - time.monotonic())


def _in_memory(line: bytes) -> BinaryIO:
    """Return a file to read `line` from: unlike a pipe's, its writer never waits for a reader."""
    file = os.fdopen(os.memfd_create("launch"), "w+b")
    file.write(line)
    file.seek(0)
    return file


if __name__ == "__main__":
    sys.exit(main())
