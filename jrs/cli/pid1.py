"""PID 1 of a container: reaps what nobody else does, so that no zombie is left.

The kernel gives every process whose parent has ended to PID 1. A master cannot reap them itself: it
cannot tell them from the children that its own threads wait for.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def stay_behind() -> None:
    """Go on in a child if this process is PID 1, which from then on only reaps.

    PID 1 passes signals on to the child, and ends with it, with its exit status: then the kernel
    ends whatever is left in the container. Call it before any thread is started.
    """
    if os.getpid() != 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    passed_on = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
    # Blocked until there is a child to pass them on to.
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
