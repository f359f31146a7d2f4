"""Runs when a Python of a chaos run starts: lets its disk be slow or broken, its clock be wrong.

A nemesis writes to the page that `JRS_CHAOS_PAGE` names: three numbers, for the seconds that each
sync takes longer, whether syncs fail, and the seconds by which the wall clock is wrong. What Python
asks through `os`, `time` and `datetime` is concerned; a JVM, and what C code does, is not.
"""

import errno
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class _Function:
    """Stands in the place of a function in C, and behaves as one: it is no method where a class has
    it as an attribute, and is pickled by its name."""

    def __init__(self, module: Any, name: str, call: Callable[..., Any]) -> None:
        self.__module__ = module.__name__
        self._name = name
        self._call = call
        setattr(module, name, self)

    def __call__(self, *given: Any) -> Any:
        return self._call(*given)

    def __reduce__(self) -> str:
        return self._name


# Imported inside functions: ctypes, gc, datetime, since each Python of a run loads this module.


def _meddle(path: str) -> None:
    try:
        with open(path, "rb") as file:
            page = mmap.mmap(file.fileno(), 24, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return  # The run is over.
    read = struct.Struct("ddd").unpack_from

    def slow(real: Callable[[Any], None]) -> Callable[[Any], None]:
        def sync(fd: Any) -> None:
            delay, fails, _ = read(page)
            if fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if delay:
                time.sleep(delay)
            real(fd)

        return sync

    for name in ("fsync", "fdatasync"):
        _Function(os, name, slow(getattr(os, name)))
    _skew_time(lambda: read(page)[2])
    with suppress(ImportError):  # Some builds of Python have no ctypes.
        _skew_datetime()


def _skew_time(ahead: Callable[[], float]) -> None:
    """Let the wall clock of `time` be ahead by some seconds. `datetime.today()` asks it, too."""
    now, now_ns, of, of_ns = time.time, time.time_ns, time.clock_gettime, time.clock_gettime_ns

    def is_wall(clock: int) -> bool:
        return clock == time.CLOCK_REALTIME

    _Function(time, "time", lambda: now() + ahead())
    _Function(time, "time_ns", lambda: now_ns() + int(ahead() * 1e9))
    _Function(time, "clock_gettime", lambda clock: of(clock) + ahead() * is_wall(clock))
    _Function(time, "clock_gettime_ns",
              lambda clock: of_ns(clock) + int(ahead() * 1e9) * is_wall(clock))  # fmt: skip

    def of_now(real: Callable[..., Any], default: Callable[[], Any]) -> Callable[..., Any]:
        return lambda at=None: real(default() if at is None else at)

    for name in ("gmtime", "localtime", "ctime"):
        _Function(time, name, of_now(getattr(time, name), lambda: time.time()))
    _Function(time, "asctime", of_now(time.asctime, lambda: time.localtime()))
    form = time.strftime
    _Function(time, "strftime", lambda text, *at: form(text, *(at or (time.localtime(),))))


def _skew_datetime() -> None:
    """Let `datetime.now()` and `utcnow()` ask `time`. They are of a type in C, whose attributes
    Python cannot set; a type in its place would break `isinstance` and pickles."""
    import ctypes
    import gc
    from datetime import UTC, datetime

    def now(of: Any, tz: Any = None) -> Any:
        return of.fromtimestamp(time.time(), tz)

    def utcnow(of: Any) -> Any:
        return of.fromtimestamp(time.time(), UTC).replace(tzinfo=None)

    (attributes,) = gc.get_referents(datetime.__dict__)
    attributes.update(now=classmethod(now), utcnow=classmethod(utcnow))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime))


def _pass_on() -> None:
    """Run the module of this name that would have been found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    this = sys.modules.pop(__name__, None)
    try:
        __import__("sitecustomize")
    except ImportError:
        if this is not None:
            sys.modules[__name__] = this


if __name__ == "sitecustomize":
    if "JRS_CHAOS_PAGE" in os.environ:
        _meddle(os.environ["JRS_CHAOS_PAGE"])
    _pass_on()
