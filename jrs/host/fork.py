"""Fork: releases a parent's descriptors in a forked child. PySpark and multiprocessing fork.

A lock or a pipe that signals the death of a process gives no signal while a child holds it open.
The child does not close the descriptor, because its old owner could then close the next file with
the same number. The child redirects the descriptor to ``/dev/null`` instead.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Protocol


class Holder(Protocol):
    """An object that only the process that created it may use."""

    def forget(self) -> Iterable[int]:
        """Become unusable in a forked child, where no other thread runs, and return the
        descriptors to release."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()


def forget_in_children(holder: Holder) -> None:
    """Register `holder`, so that `forget` runs in every child forked while the holder exists."""
    _holders.add(holder)


def _after_fork() -> None:
    descriptors = [fd for holder in _holders for fd in holder.forget()]
    if descriptors:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in descriptors:
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_after_fork)
