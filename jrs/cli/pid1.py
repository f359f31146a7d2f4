"""PID 1 of a container: reaps orphaned processes, so that no zombie is left.

The kernel makes PID 1 the parent of every process whose parent has ended. A master cannot reap
them itself, because it cannot distinguish them from the children that its own threads wait for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

_PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
_LINGERS = 30
"""Seconds for which PID 1 waits for what a killed child has left."""


def stay_behind() -> None:
    """Continue in a child if this process is PID 1, which then only reaps.

    PID 1 forwards signals to the child and ends when the child ends, with the child's exit status.
    The kernel then ends all other processes of the container. So if the child was killed or
    failed, PID 1 first waits until these have ended by themselves: watchdogs end the attempts, and
    then the guardian ends the session, so that another master can lead before the ttl. Call
    it before any thread is started.
    """
    if os.getpid() != 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    # Block the signals until the child exists.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):  # It has just ended.
            os.kill(child, number)

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            if code != 0:
                _linger(code if code > 0 else 128 - code)
            os._exit(0)


def _linger(code: int) -> NoReturn:
    """Exit when no other process is left, or after a while."""
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(code))
    signal.alarm(_LINGERS)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(code)
