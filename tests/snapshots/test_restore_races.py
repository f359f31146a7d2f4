"""Restores that somebody else is at as well, or that go on late: nothing live is taken away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jrs import keys
from jrs.backend import Delete
from jrs.errors import InvalidInput, JobIsRunning
from jrs.recovery.snapshots import SnapshotCatalog, replacing, restoring
from tests.recovery.support import FaultyMemory
from tests.snapshots.fabricate import FakeJob


class Died(BaseException):
    """Stands for the death of whoever restores."""


def dies(*args: object) -> Any:
    raise Died


def first(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, do: Callable[[], object]
) -> None:
    """Have `do` done once, right before a function is called for the first time."""
    real = getattr(module, name)

    def wrapped(*args: Any, **how: Any) -> Any:
        monkeypatch.setattr(module, name, real)
        do()
        return real(*args, **how)

    monkeypatch.setattr(module, name, wrapped)


def cut_off(
    catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch, number: int, **how: Any
) -> None:
    """Begin a restore that dies right behind its claim."""
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(replacing, "swap", dies)
        catalog.restore(catalog.get("job", number), **how)


def test_a_finish_that_comes_late_reverts_no_later_restore(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finishes a restore finishes the one that they have read of, and no other state."""
    catalog.create("job")
    job.run(2)
    catalog.create("job")
    job.suspend()
    cut_off(catalog, monkeypatch, 2)

    def somebody_else() -> None:
        catalog.finish_restore("job")
        catalog.restore(catalog.get("job", 1))

    first(monkeypatch, restoring, "opened", somebody_else)
    with pytest.raises(InvalidInput, match="somebody else has carried it out"):
        catalog.finish_restore("job", is_stopped=lambda job_id: True)

    assert not (job.query.ck / "commits/5").exists()
    assert catalog.pending_restore("job") is None


def test_resumed_while_it_is_put_together(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that stood at the first look, and was resumed since, is not robbed of its files."""
    catalog.create("job")
    job.suspend()
    first(monkeypatch, restoring, "_build", lambda: memory.commit(Delete(keys.STOPS + "job")))

    with pytest.raises(JobIsRunning, match="nothing was changed"):
        catalog.restore(catalog.get("job", 1))
    assert catalog.pending_restore("job") is None
    assert memory.get(keys.ATTEMPTS + "job") is not None
