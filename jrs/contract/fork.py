"""Fork: what a forked child must not hold for its parent. PySpark and multiprocessing fork.

A lock or a pipe that tells others of a process's death tells nothing as long as a child holds it
open. It is not closed in the child: what has its number next would be closed along with the object
that had it before. It is made to point nowhere.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Protocol


class Holder(Protocol):
    """Something that belongs to the process that made it."""

    def forget(self) -> Iterable[int]:
        """Called in a forked child, where no other thread lives: become unusable, and return the
        descriptors to let go of."""


_holders: weakref.WeakSet[Holder] = weakref.WeakSet()


def forget_in_children(holder: Holder) -> None:
    """Have `holder` forget in every child that is forked while it exists."""
    _holders.add(holder)


def _after_fork() -> None:
    descriptors = [fd for holder in _holders for fd in holder.forget()]
    if descriptors:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in descriptors:
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_after_fork)
