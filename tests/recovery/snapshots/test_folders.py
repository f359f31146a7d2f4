"""The locks of folders, and children that are forked while one is held, as user code may do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jrs.recovery.snapshots.folders import locked


def forked(work: Callable[[], object]) -> int:
    """Do something in a forked child; return its process id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def is_free(folder: Path) -> bool:
    with locked(folder) as mine:
        return mine


def test_a_child_does_not_keep_a_lock(tmp_path: Path) -> None:
    """A released lock is free, and a forked child does not release the lock of its parent."""
    wait, end = os.pipe()

    def sleep() -> None:
        os.close(end)
        os.read(wait, 1)

    with locked(tmp_path) as mine:
        sleeps = forked(sleep)
        os.waitpid(forked(lambda: None), 0)
        assert mine
        assert not is_free(tmp_path)

    assert is_free(tmp_path)
    os.close(end)
    os.waitpid(sleeps, 0)
    os.close(wait)


def test_a_child_that_leaves_the_lock(tmp_path: Path) -> None:
    """A child that ends what it has of its parent's work ends nothing of its parent's."""
    lock = locked(tmp_path)
    assert lock.__enter__()

    os.waitpid(forked(lambda: lock.__exit__(None, None, None)), 0)

    assert not is_free(tmp_path)
    lock.__exit__(None, None, None)
    assert is_free(tmp_path)


def test_a_child_that_outlives_who_held_the_lock(tmp_path: Path) -> None:
    """What a process that has died was doing can be told from what is under way."""
    wait, end = os.pipe()
    told, tell = os.pipe()

    def tell_and_sleep() -> None:
        os.close(end)
        os.write(tell, b".")
        os.read(wait, 1)

    def die_with_the_lock() -> None:
        with locked(tmp_path) as mine:
            forked(tell_and_sleep)
            os._exit(0 if mine else 1)

    _, status = os.waitpid(forked(die_with_the_lock), 0)

    assert status == 0
    assert os.read(told, 1) == b"."
    assert is_free(tmp_path)
    for fd in (wait, end, told, tell):
        os.close(fd)
