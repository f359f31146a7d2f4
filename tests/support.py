"""What every test may need: waiting for a condition, not for the clock."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Fence, Op, Record
from jrs.contract.pending_commit import PendingCommit
from jrs.testing.chaos.surroundings import environment as environment
from jrs.testing.polling import Poll

BOUND = 60.0
"""Seconds after which a condition that should hold soon is taken to never hold."""


class FakeClock:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def descriptors() -> set[tuple[str, str]]:
    """Return the open descriptors of this process, each with what it is open on.

    A test looks for new ones instead of counting: what an earlier test left may close meanwhile.
    """
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # That of the listing, or closed since.
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def in_long_form(long: int, short: int) -> int:
    """Return how many there are of something: fewer unless JRS_SOAK=1 asks for the long form."""
    return long if os.environ.get("JRS_SOAK") else short


def refuse_threads(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[str]:
    """Have the system refuse so many threads whose name begins like that; return those refused."""
    start, refused = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return refused


def rot(folder: Path, key: str) -> None:
    """Have the disk lose the record of a key: where a run below the folder has it, are zeros."""
    lost = 0
    for run in folder.rglob("*.run"):
        data = bytearray(run.read_bytes())
        at = data.find(b"\t%s\t" % key.encode())
        if at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at) + 1
            data[begin:end] = bytes(end - begin)
            run.write_bytes(data)
            lost += 1
    assert lost, f"no run has {key}"


def hold(monkeypatch: pytest.MonkeyPatch, backend: Backend, *held: str) -> None:
    """Have keys be held, as damage has the file backend hold them: no read and no commit that
    needs one of them is answered."""
    get, get_many, commit = backend._get, backend._get_many, backend._commit
    commit_async = backend._commit_async

    def damage(key: str) -> CorruptRecord:
        return CorruptRecord(f"{key}: held, because of damage")

    def check(names: Iterable[str]) -> None:
        for key in names:
            if key in held:
                raise damage(key)

    def held_get(key: str, deadline: Deadline) -> Record | None:
        check([key])
        return get(key, deadline)

    def held_get_many(names: Sequence[str], deadline: Deadline) -> list[Any]:
        found = get_many([key for key in names if key not in held], deadline)
        rest = iter(found)
        return [damage(key) if key in held else next(rest) for key in names]

    def held_commit(ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        check(op.key for op in ops)
        commit(ops, fence, deadline)

    def held_commit_async(ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        try:
            check(op.key for op in ops)
        except CorruptRecord as error:
            refused = PendingCommit()
            refused.settle(error)
            return refused
        return commit_async(ops, fence)

    monkeypatch.setattr(backend, "_get", held_get)
    monkeypatch.setattr(backend, "_get_many", held_get_many)
    monkeypatch.setattr(backend, "_commit", held_commit)
    monkeypatch.setattr(backend, "_commit_async", held_commit_async)


def until(
    condition: Callable[[], Any], what: str | Callable[[], str], timeout: float = BOUND
) -> Any:
    """Return what `condition` returns once that is true.

    Args:
        what: what holds then; or a function that also says how things are if that is in vain.
    """
    deadline, poll = Deadline.after(timeout), Poll()
    while not (found := condition()):
        assert not deadline.expired, f"waited in vain until {what() if callable(what) else what}"
        poll.sleep()
    return found
