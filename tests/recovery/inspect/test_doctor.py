"""The doctor finds what would make a backend dangerous, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.memory import MemoryBackend, MemoryWatch, Space
from jrs.contract.backend import Backend, Diagnostic
from jrs.contract.clock import Deadline
from jrs.contract.errors import OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Fence, Op, Update
from jrs.contract.watch import Watch
from jrs.records import keys
from jrs.recovery.inspect.doctor import examine
from jrs.recovery.processes import memory


def found(backend: Backend, **fields: Any) -> dict[str, Diagnostic]:
    # By a clock that stands, so that no commit is slow because this machine is busy.
    given = {"ttl": 60.0, "clock": lambda: 0.0, **fields}
    return {one.what: one for one in examine(backend, backend, **given)}


def bad(diagnostics: dict[str, Diagnostic]) -> set[str]:
    return {what for what, finding in diagnostics.items() if finding.remedy is not None}


def test_a_backend_that_is_fit(open_store: Callable[[], Backend]) -> None:
    """Nothing is wrong with it, and nothing of the doctor's stays."""
    backend = open_store()
    diagnostics = found(backend)
    assert bad(diagnostics) == set()
    assert {"write", "fence", "commits", "watch"} <= diagnostics.keys()
    assert list(backend.scan(keys.DOCTOR)) == []


def test_a_leader_is_not_disturbed(open_store: Callable[[], Backend]) -> None:
    backend = open_store()
    leadership = backend.campaign("leads", ttl=60.0, stop=threading.Event())
    assert leadership is not None
    with leadership:
        diagnostics = found(open_store())
        assert bad(diagnostics) == set()
        assert "epoch 1 passes" in diagnostics["fence"].detail
        assert not leadership.lost.is_set()
        backend.commit(Create("k", b""), fence=leadership.fence)


def test_a_group_that_dies_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container of Kubernetes, where one attempt without memory ends all."""
    monkeypatch.setattr(memory, "_ROOT", tmp_path)
    group = tmp_path / "memory.oom.group"
    group.write_text("1\n")
    (wrong,) = [one for one in found(MemoryBackend(Space())).values() if one.remedy is not None]
    group.write_text("0\n")

    assert (wrong.what, "singleProcessOOMKill" in str(wrong.remedy)) == ("memory", True)
    assert bad(found(MemoryBackend(Space()))) == set()


def test_a_ttl_out_of_range(open_store: Callable[[], Backend]) -> None:
    assert bad(found(open_store(), ttl=1e6)) == {"ttl"}


def test_slow_commits() -> None:
    """Judged by the ttl that they have to fit into."""

    def clock(now: list[float] = [0.0]) -> float:  # noqa: B006
        now[0] += 1.0
        return now[0]

    backend = MemoryBackend(Space())
    assert bad(found(backend, ttl=15.0, clock=clock)) == {"commits"}
    assert bad(found(backend, ttl=60.0, clock=clock)) == set()


class NoFence(MemoryBackend):
    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        super()._commit(ops, None, deadline)


class Forgetful(MemoryBackend):
    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        if not any(isinstance(op, Create) for op in ops):
            super()._commit(ops, fence, deadline)


class Deaf(MemoryBackend):
    def watch(self, prefix: str) -> Watch:
        return MemoryWatch(Space(), prefix)


class Down(MemoryBackend):
    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        if any(isinstance(op, Update) for op in ops):
            raise Unavailable("the server is down")
        super()._commit(ops, fence, deadline)

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        future: Future[None] = Future()
        future.set_exception(OutcomeUnknown("the server went down"))
        return future


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (NoFence, {"fence"}),
        (Forgetful, {"write"}),
        (Deaf, {"watch"}),
        (Down, {"error"}),
    ],
)
def test_what_is_wrong_is_found(kind: type[MemoryBackend], wrong: set[str]) -> None:
    backend = kind(Space())
    assert bad(found(backend, ttl=0.5)) == wrong
    assert list(backend.scan(keys.DOCTOR)) == []
