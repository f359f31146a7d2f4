"""The kernel's services for the processes of an attempt, requested by prctl(2)."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends.

    Raises:
        OSError: the kernel refuses.
    """
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Have the kernel kill this process as soon as its parent, of that pid, has ended.

    The kernel watches the *thread* of the parent that forked: that thread has to live as long as
    the parent does.

    Raises:
        OSError: the kernel refuses.
    """
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # The parent ended before the kernel was asked.


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl({option}): {os.strerror(ctypes.get_errno())}")
