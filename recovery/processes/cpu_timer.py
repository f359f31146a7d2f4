"""CpuTimer: a timer of the kernel that ends a process whose one thread computes for too long."""

from __future__ import annotations

import ctypes
import signal
import threading
import time

ENDED_BY = signal.SIGVTALRM
"""The signal that it ends the process with."""


class _Event(ctypes.Structure):
    """``struct sigevent``."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _Spec(ctypes.Structure):
    """``struct itimerspec``."""

    _fields_ = tuple(
        (name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns")
    )


class CpuTimer:
    """Ends the process once the calling thread has used that much processor time without re-arming.

    Only the kernel can do this: while one thread has the interpreter's lock, no other thread of
    the process runs. A thread that waits, or is stopped, uses no processor time.

    Args:
        seconds: of processor time of the calling thread.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._id: ctypes.c_void_p | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        clock = time.pthread_getcpuclockid(threading.get_ident())
        event, made = _Event(signo=ENDED_BY), ctypes.c_void_p()
        try:
            if self._libc.timer_create(clock, ctypes.byref(event), ctypes.byref(made)) == 0:
                self._id = made
        except AttributeError:
            pass  # The C library has no timers: the leader is replaced after its ttl.

    def arm(self) -> None:
        """Give the thread its whole time, from now on."""
        self._set(self._seconds)

    def disarm(self) -> None:
        """Let the thread compute for as long as it likes."""
        self._set(0.0)

    def delete(self) -> None:
        """Return the timer to the kernel. Idempotent."""
        if self._id is not None:
            self._libc.timer_delete(self._id)
            self._id = None

    def _set(self, seconds: float) -> None:
        if self._id is not None:
            whole = int(seconds)
            spec = _Spec(0, 0, whole, int((seconds - whole) * 1e9))
            self._libc.timer_settime(self._id, 0, ctypes.byref(spec), None)
