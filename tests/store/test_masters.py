"""The registry of masters: what requires that none runs hears one whose clock is behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jrs import Client, MasterInfo, WrongState
from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.codec import encode
from jrs.store import cluster_format, masters
from jrs.store.before_migration import obstacles
from jrs.store.cluster_format import raise_format
from jrs.store.masters import Registry
from jrs.testing.contract import lead
from tests.recovery.conftest import memory, root
from tests.recovery.support import FaultyMemory, spoil

__all__ = ["memory", "root"]

OLD = MasterInfo("m1", "h", 1, 1.0, 0.0, reads_format=1)


def behind(backend: Backend, info: MasterInfo = OLD) -> None:
    """Write a heartbeat of a host whose clock is 20 seconds behind."""
    Registry(backend, now=lambda: time.time() - 20.0).put(info)


@pytest.fixture
def beats(memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the master write a heartbeat whenever something waits for it."""
    behind(memory)
    monkeypatch.setattr(masters, "_sleep", lambda seconds: behind(memory))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Gets the seconds of each wait for a heartbeat, which takes no time here."""
    waits: list[float] = []
    monkeypatch.setattr(masters, "_sleep", waits.append)
    return waits


def test_an_epoch_that_cannot_be_read(memory: FaultyMemory) -> None:
    """The master that leads is not said to stand by, nor the cluster to have had no master."""
    client = Client(memory)
    client.raise_cluster_format()
    with lead(memory) as leadership:
        for name, epoch in (("m1", leadership.epoch), ("m2", None)):
            Registry(memory).put(MasterInfo(name, "h", 1, 1.0, 0.0, leading=epoch))
        sound = memory.get(keys.EPOCH)
        assert sound is not None
        spoil(memory, keys.EPOCH)

        assert [view.role.name for view in client.masters()] == ["LEADER", "STANDBY"]
        found = client.leader()
        assert (found.epoch, found.leader) == (None, None)
        assert "fsck --repair" in str(found)
        assert keys.EPOCH in found.problem
        assert str(found) == client.fsck().nobody_leads
        with pytest.raises(WrongState, match="fsck --repair"):
            client.switchover()
        spoil(memory, keys.EPOCH, sound.value)


GUARDS: dict[str, Callable[[Client], object]] = {
    "raise the format": lambda client: raise_format(client.backend),
    "adopt a storage": lambda client: client.adopt_storage(),
}


@pytest.mark.usefixtures("beats")
@pytest.mark.parametrize("guard", GUARDS)
def test_a_master_with_another_clock_is_heard(
    memory: FaultyMemory, root: Path, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    """It runs, although it seems to be gone."""
    root.mkdir(exist_ok=True)
    monkeypatch.setattr(cluster_format, "format_of", lambda backend: 4)
    assert Registry(memory).running() == []
    with pytest.raises(WrongState, match="m1"):
        GUARDS[guard](Client(memory, storage=root))


@pytest.mark.usefixtures("beats")
def test_it_is_heard_before_a_migration(memory: FaultyMemory) -> None:
    """It is one of the obstacles."""
    assert any("master 'm1' runs on h" in one for one in obstacles(memory))


def test_a_master_that_is_dead_is_not_heard(memory: FaultyMemory, waits: list[float]) -> None:
    """After one wait that is longer than a heartbeat, it is gone."""
    behind(memory)

    assert Registry(memory).heard() == []
    assert len(waits) == 1
    assert waits[0] > masters.INTERVAL


def test_nothing_is_waited_for_where_that_is_known(
    memory: FaultyMemory, waits: list[float]
) -> None:
    """No master is registered, one runs by any clock, or those that seem gone do not matter."""
    assert Registry(memory).heard() == []
    behind(memory)
    assert Registry(memory).heard(lambda info: info.name != "m1") == []
    Registry(memory).put(MasterInfo("m2", "h", 2, 1.0, 0.0))
    assert [info.name for info in Registry(memory).heard()] == ["m2"]
    assert waits == []


def test_a_master_that_begins_meanwhile_is_heard(
    memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its clock is behind."""
    behind(memory)
    late = MasterInfo("late", "h", 2, 1.0, time.time() - 20.0)
    monkeypatch.setattr(
        masters, "_sleep", lambda _: memory.overwrite(keys.MASTERS + "late", encode(late))
    )

    assert [info.name for info in Registry(memory).heard()] == ["late"]
