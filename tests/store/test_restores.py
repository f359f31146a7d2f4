"""Restores next to what reads and changes a job meanwhile, in memory and on files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from jrs import JobSpec
from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord
from jrs.contract.operations import Create, Fence, Record, Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import StopMode
from jrs.records.snapshots import RestoreRecord
from jrs.store import restores
from jrs.store.jobs import JobCatalog
from jrs.store.stop_transitions import StopEvent
from jrs.store.stops import JobStops
from jrs.testing.contract import lead

SPEC = encode(JobSpec("job", "jobs:job"))
RESTORE = encode(RestoreRecord("job", "1", "job", 1.0))


@pytest.fixture
def fence(backend: Backend) -> Iterator[Fence]:
    with lead(backend) as leadership:
        yield leadership.fence


def move(backend: Backend) -> None:
    """Move a restore in the former form, in the spec's place, to its own key."""
    spec = backend.get(keys.JOBS + "job")
    assert spec is not None
    moved = Create(keys.RESTORES + "job", RESTORE)
    backend.commit(Update(spec.key, SPEC, spec.version), moved)


def get_then_move(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the restore move right after the first read of a key. Keys that are read together are
    read one after the other, as far as the contract says."""
    get_many = backend.get_many

    def first_get(wanted: Sequence[str]) -> list[Record | CorruptRecord | None]:
        monkeypatch.setattr(backend, "get_many", get_many)
        found = get_many(wanted[:1])
        move(backend)
        return [*found, *get_many(wanted[1:])]

    monkeypatch.setattr(backend, "get_many", first_get)


def scan_then_move(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the restore move right after the first scan."""
    scan = backend.scan

    def first_scan(prefix: str, **options: Any) -> Iterator[Record]:
        found = list(scan(prefix, **options))
        monkeypatch.setattr(backend, "scan", scan)
        move(backend)
        yield from found

    monkeypatch.setattr(backend, "scan", first_scan)


@pytest.mark.parametrize(
    ("moves", "read"),
    [
        (get_then_move, lambda backend: [restores.stored(backend, "job")]),
        (scan_then_move, lambda backend: list(restores.scan(backend))),
    ],
)
def test_a_restore_that_moves_is_seen(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    moves: Callable[[Backend, pytest.MonkeyPatch], None],
    read: Callable[[Backend], list[Record | None]],
) -> None:
    """Another process moves it to its own key between the two reads."""
    backend.commit(Create(keys.JOBS + "job", RESTORE))
    moves(backend, monkeypatch)

    assert {found and found.value for found in read(backend)} == {RESTORE}
    assert backend.get(keys.RESTORES + "job") is not None


@pytest.mark.parametrize("change", ["advance", "hold"])
def test_a_leader_does_not_change_a_stop_during_a_restore(
    backend: Backend, fence: Fence, change: str
) -> None:
    """It has decided before the restore began: it has to decide again."""
    JobCatalog(backend).submit(JobSpec("job", "jobs:job"))
    stops = JobStops(backend)
    stop = stops.request("job", StopMode.SUSPEND)
    backend.commit(Create(keys.RESTORES + "job", RESTORE))

    with pytest.raises(Conflict):
        if change == "advance":
            stops.advance(stop, StopEvent.COMPLETE, fence)
        else:
            stops.hold("job", "a damaged checkpoint", fence)

    assert stops.get("job") == stop
