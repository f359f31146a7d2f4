"""An unexpected error ends no thread that a master or a server needs for as long as it runs."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from jrs.backends.memory import MemoryBackend, Space
from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.contract.operations import Create, Record
from jrs.contract.runtime import call_until
from jrs.contract.watch import Watch
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader import hints
from jrs.recovery.leader.switchover import Switchovers
from jrs.sidecar import changes
from jrs.sidecar.changes import Changes
from jrs.store import masters
from jrs.store.masters import Registration, Registry
from jrs.testing.contract import lead
from tests.recovery.support import leader_context
from tests.support import BOUND, until


class Failing(MemoryBackend):
    """The next calls of `get` and `watch` fail, as if a backend had a defect."""

    left = 0
    watches = 0

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            raise OSError("a defect")

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        self._fail()
        return super()._get(key, deadline)

    def watch(self, prefix: str) -> Watch:
        self._fail()
        self.watches += 1
        return super().watch(prefix)


@pytest.fixture
def backend() -> Failing:
    return Failing(Space())


def test_each_reason_is_said_once() -> None:
    """That the backend does not answer is said by others."""
    one, other = ValueError("one"), ValueError("other")
    errors: list[Exception] = [one, one, Unavailable("no answer"), one, other, one]
    said, pauses = list[str](), list[bool]()

    def call() -> None:
        raise errors.pop(0)

    call_until(
        lambda: not errors,
        call,
        pause=lambda: pauses.append(True),
        report=said.append,
        failing="it fails",
    )

    assert said == [f"it fails: ValueError: {why}; trying again" for why in ("one", "other", "one")]
    assert len(pauses) == 6


def test_heartbeats(backend: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masters, "INTERVAL", 0.01)
    beaten, said = threading.Event(), list[str]()
    backend.left = 3
    registry = Registry(backend)
    with closing(Registration(registry, "m1", acknowledged=beaten.set, report=said.append)):
        assert beaten.wait(BOUND)
        assert [info.name for info in registry.masters()] == ["m1"]
    assert said == ["heartbeats fail: OSError: a defect; trying again"]


def test_switchovers(backend: Failing) -> None:
    said = list[str]()
    with closing(Registration(Registry(backend), "m1")) as registration:
        until(lambda: Registry(backend).masters(), "it is registered")
        backend.left = 1
        with Switchovers(backend, "m1", registration, threading.Event(), report=said.append):
            until(lambda: backend.watches, "it watches again")
    assert said == ["switchovers are not heard: OSError: a defect; trying again"]


def test_hints(backend: Failing, tmp_path: Path) -> None:
    said, heard, over = list[str](), list[frozenset[str] | None](), threading.Event()
    with lead(backend) as leadership:
        storage = JobStorage(tmp_path, backend.cluster)
        context = leader_context(
            leadership, backend, storage, report=lambda event: said.append(event.message)
        )
        backend.left = 1
        run = partial(hints.pass_on, context, over.is_set, heard.append, lambda seconds: None)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            until(lambda: backend.watches, "it watches again")
            backend.commit(Create("k", b"v"))
            until(lambda: frozenset({"k"}) in heard, "it hears again")
        finally:
            over.set()
            thread.join(BOUND)
    assert heard[0] is None
    assert said == ["changes are not heard: OSError: a defect; trying again"]


def test_changes_of_a_server(backend: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "_PAUSE", 0.01)

    async def hear() -> bool:
        watching = Changes(backend)
        with watching.reading("j") as reader:
            await reader.wait(0.0)
            watching.start()
            try:
                await asyncio.to_thread(until, lambda: backend.watches, "it watches again")
                await reader.wait(BOUND)  # After the error anything may have changed.
                backend.commit(Create("jobs/j", b"v"))
                return (await reader.wait(BOUND)).of("j")
            finally:
                await watching.stop()

    backend.left = 1
    assert asyncio.run(hear())
