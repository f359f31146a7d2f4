"""PID 1 of a container: reaps orphaned processes, so that no zombie is left.

The kernel makes PID 1 the parent of every process whose parent has ended. A master cannot reap
them itself, because it cannot distinguish them from the children that its own threads wait for.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def stay_behind() -> None:
    """Continue in a child if this process is PID 1, which then only reaps.

    PID 1 forwards signals to the child and ends when the child ends, with the child's exit status.
    The kernel then ends all other processes of the container. Call it before any thread is started.
    """
    if os.getpid() != 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    passed_on = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
    # Block the signals until the child exists.
    signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in passed_on:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
