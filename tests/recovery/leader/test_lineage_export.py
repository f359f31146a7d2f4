"""The export of the history: its position moves behind what was taken, and only for the leader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.contract.errors import CorruptRecord, Fenced, InvalidInput, Unavailable
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.exports import ExportRecord
from jrs.records.history import HistoryKind
from jrs.recovery.leader.lineage_export import EventRefused, LineageExport, NotTaken
from jrs.recovery.leader.openlineage import OpenLineage
from jrs.recovery.rules.lineage_runs import RunEvent, RunState
from jrs.store import feed
from jrs.store.historian import Historian
from jrs.store.history_texts import attempt_died, attempt_started
from tests.recovery.support import FaultyMemory, Leader, leader_context

KEY = keys.export("openlineage")


class World:
    """A leadership that exports, and a receiver that takes what it is told to."""

    def __init__(self, backend: FaultyMemory, root: Path) -> None:
        self.backend = backend
        self.leader = Leader(backend, root)
        self.sent: list[tuple[str, str, int]] = []
        self.refuses: list[str] = []
        self.said: list[str] = []
        self.export = self.exporting(self.leader)

    def exporting(self, leader: Leader) -> LineageExport:
        context = leader_context(
            leader.leadership,
            self.backend,
            leader.storage,
            report=lambda event: self.said.append(f"{event.kind}: {event.message}"),
        )
        return LineageExport(context, self.send)

    def send(self, event: RunEvent) -> None:
        if self.refuses:
            raise NotTaken(self.refuses[0])
        self.sent.append((event.state.value, event.job_id, event.attempt))

    def happens(self, job_id: str, kind: HistoryKind, text: str, attempt: int = 0) -> None:
        historian = Historian(self.backend, "m", 1, attempt)
        with historian.recorded(job_id, kind, text) as event:
            self.backend.commit(*event)

    def starts(self, job_id: str, attempt: int = 1) -> None:
        self.happens(job_id, HistoryKind.ATTEMPT, attempt_started(attempt))

    def record(self) -> ExportRecord | None:
        stored = self.backend.get(KEY)
        return None if stored is None else decode(ExportRecord, stored.value, stored.key)


@pytest.fixture
def world(memory: FaultyMemory, tmp_path: Path) -> Iterator[World]:
    made = World(memory, tmp_path)
    yield made
    made.leader.stop()
    made.leader.leadership.resign()


def test_the_position_moves_behind_what_was_taken(world: World) -> None:
    """Not past an event that the receiver refused; what it has taken is not sent twice."""
    world.starts("a")
    world.starts("b")
    real, taken = world.export._send, 0

    def once(event: RunEvent) -> None:
        nonlocal taken
        if taken:
            raise NotTaken("503")
        taken += 1
        real(event)

    world.export._send = once
    with pytest.raises(NotTaken):
        world.export.run_once()
    assert world.record() is None

    world.export._send = real
    assert not world.export.run_once()
    assert world.sent == [("START", "a", 1), ("START", "b", 1)]
    position = world.record()
    assert position is not None
    assert position.open == {"a": 1, "b": 1}
    assert not feed.read(world.backend, position.cursor).events


def test_an_event_that_is_refused_for_good_blocks_no_other(world: World) -> None:
    """It is left out, which one line says and the record counts, also over a commit that fails."""
    bad = {"b", "c"}

    def send(event: RunEvent) -> None:
        if event.job_id in bad:
            raise EventRefused("422 Client Error")
        world.send(event)

    for name in "abcde":
        world.starts(name)
    world.export._send = send
    world.backend.fault(KEY, Unavailable, kind=Create, times=1)
    with pytest.raises(Unavailable):
        world.export.run_once()
    world.export.run_once()
    position = world.record()

    assert world.sent == [("START", name, 1) for name in "ade"]
    assert position is not None
    assert (position.refused, position.gaps) == (2, 0)
    assert not feed.read(world.backend, position.cursor).events
    (said,) = [one for one in world.said if "refuses" in one]
    assert said.startswith("error: OpenLineage refuses the event START of attempt 1: 422")


def test_an_older_leader_moves_nothing(world: World, tmp_path: Path) -> None:
    """Once it is replaced, it sends nothing more, and its commit is refused; the next leader sends
    the same from where the position is."""
    world.starts("a")
    world.export.run_once()
    before = world.record()
    world.starts("a", 2)

    def replaced(event: RunEvent) -> None:
        world.send(event)
        if world.leader.leadership.lost.is_set():
            return
        world.leader.stop()
        world.leader.leadership.resign()
        world.leader = Leader(world.backend, tmp_path, candidate="next")

    old = world.exporting(world.leader)
    old._send = replaced
    with pytest.raises(Fenced):
        old.run_once()
    assert world.record() == before
    with pytest.raises(Fenced):
        old.run_once()

    world.exporting(world.leader).run_once()
    again = [("ABORT", "a", 1), ("START", "a", 2)]
    assert world.sent == [("START", "a", 1), again[0], *again]


def test_a_commit_of_unknown_outcome(world: World) -> None:
    """It is read back, or the same is sent once more."""
    world.starts("a")
    world.backend.fault(KEY, Unavailable, kind=Create, times=1)
    with pytest.raises(Unavailable):
        world.export.run_once()
    assert world.record() is None
    world.exporting(world.leader).run_once()

    assert world.sent == [("START", "a", 1)] * 2
    assert world.record() is not None


def test_a_place_that_was_swept(world: World) -> None:
    """It says so once, counts it, and continues with the oldest that is kept: what it was not told
    of is made up for, as far as an event names the attempt."""
    world.starts("a")
    world.starts("b")
    world.export.run_once()
    world.happens("a", HistoryKind.DIED, attempt_died(1, "exit 9"))
    world.starts("a", 2)
    world.happens("a", HistoryKind.ENDED, "FINISHED", attempt=2)
    feed.sweep(world.backend, world.leader.fence, keep=1)
    world.export.run_once()
    world.export.run_once()

    assert world.sent[2:] == [("ABORT", "a", 1), ("START", "a", 2), ("COMPLETE", "a", 2)]
    assert len([one for one in world.said if one.startswith("error: events were swept")]) == 1
    position = world.record()
    assert position is not None
    assert (position.open, position.gaps) == ({"b": 1}, 1)


def test_nothing_new_writes_nothing(world: World) -> None:
    """A look that finds nothing costs a read."""
    world.starts("a")
    world.export.run_once()
    commits = len(world.backend.commits)
    world.export.run_once()

    assert len(world.backend.commits) == commits


def test_a_damaged_position(world: World) -> None:
    """The export waits for an operator; it does not begin again by itself."""
    world.backend.commit(Create(KEY, b"rot"))
    with pytest.raises(CorruptRecord, match=KEY):
        world.export.run_once()


def test_many_open_attempts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is bounded: the attempts that started first are given up."""
    monkeypatch.setattr("jrs.recovery.leader.lineage_export.MOST_OPEN", 2)
    for name in "abc":
        world.starts(name)
    world.export.run_once()
    position = world.record()

    assert position is not None
    assert position.open == {"b": 1, "c": 1}


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "OPENLINEAGE_URL"),
        ({"OPENLINEAGE_URL": "not a url"}, "not a url"),
        ({"OPENLINEAGE_URL": "localhost"}, "valid url"),
        ({"OPENLINEAGE_DISABLED": "true"}, "noop"),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "nonsense"}, "nonsense"),
        (
            {
                "OPENLINEAGE__TRANSPORT__TYPE": "async_http",
                "OPENLINEAGE__TRANSPORT__URL": "http://127.0.0.1:1",
            },
            "async_http",
        ),
        (
            {
                "OPENLINEAGE__TRANSPORT__TYPE": "composite",
                "OPENLINEAGE__TRANSPORT__TRANSPORTS__A__TYPE": "http",
                "OPENLINEAGE__TRANSPORT__TRANSPORTS__A__URL": "http://127.0.0.1:1",
            },
            "continue_on_failure",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used(
    environment: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is refused at the start, also where events could be lost without a word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with pytest.raises(InvalidInput, match=says):
        OpenLineage("c")
    assert os.environ == before  # What jobs inherit.


def test_what_is_sent_is_a_function_of_the_event(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two leaders send the same bytes."""
    from openlineage.client.serde import Serde

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    event = RunEvent(RunState.FAIL, "j", 3, 1793000000.123456, "exit 9")
    one, other = (Serde.to_json(OpenLineage("c")._made(event)) for _ in range(2))

    assert one == other
    assert '"eventTime": "2026-10-26T' in one
