"""Runs when a Python of a chaos run starts: lets its disk be slow or broken, its clock be wrong.

A nemesis writes to the page that `JRS_CHAOS_PAGE` names: three numbers, for the seconds that each
sync takes longer, whether syncs fail, and the seconds by which the wall clock is wrong. What Python
asks through `os` and `time` is concerned; a JVM, and what C code does, is not.
"""

import errno
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from typing import Any


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
        setattr(os, name, slow(getattr(os, name)))
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + read(page)[2]
    time.time_ns = lambda: now_ns() + int(read(page)[2] * 1e9)


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
