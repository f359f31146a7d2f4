"""The plan of a batch is recorded before the stage's function is called for it (A6)."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import attrs
import pytest

from jrs.contract.errors import Fenced, InvalidInput, JobHeld, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.heads import StreamPlan
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.recovery.checkpoint_format import plan_files
from jrs.recovery.checkpoint_format.position import position
from jrs.store import attempt_fence, heads
from jrs.store.stops import JobStops
from tests.recovery.attempt.stream_attempt import Attempt
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import FakeQuery
from tests.recovery.support import FaultyMemory, spec


@pytest.fixture
def lead(memory: FaultyMemory, tmp_path: Path) -> Lead:
    return Lead(memory, tmp_path / "jobs")


class Stage:
    """An attempt whose stream calls a function for each batch."""

    def __init__(self, lead: Lead, attempt: int = 1, query: FakeQuery | None = None) -> None:
        self.attempt = Attempt(lead, attempt, uses_sink=False)
        self.query = query or self.attempt.query
        self.query.ck, self.query.source = self.attempt.query.ck, "file:///in"
        self.keeper = PlanKeeper(self.attempt.context, "sums", self.query.ck)
        self.keeper.begin()
        if query is None:
            self.query.start()

    def call(self) -> int:
        """Plan a batch, and do all that comes before its call."""
        self.query.plan()
        batch = self.query.batch + 1
        self.keeper.keep(batch)
        return batch

    def run(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.call()
            self.query.commit()


def plan(lead: Lead) -> StreamPlan | None:
    record = lead.backend.get(keys.plan("job", "sums"))
    return None if record is None else decode(StreamPlan, record.value, record.key)


def kept(lead: Lead) -> StreamPlan:
    found = plan(lead)
    assert found is not None
    return found


def test_a6_what_plans_a_batch(lead: Lead) -> None:
    """A6: the offsets, the new entries of the sources' logs, and the commit before them."""
    stage = Stage(lead)
    stage.call()
    first = kept(lead)
    assert (first.generation, first.batch, first.epoch, first.attempt) == (1, 0, 1, 1)
    assert first.files.keys() == {
        "offsets/0", "metadata", "sources/0/0", "state/0/_metadata/metadata"
    }  # fmt: skip
    stage.query.commit()
    stage.run()
    second = kept(lead)

    assert second.batch == 1
    assert second.files.keys() == {"offsets/1", "commits/0", "sources/0/1"}
    for name, text in second.files.items():
        assert (stage.query.ck / name).read_text() == text


def test_a6_it_is_durable_before_the_call(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    """A6: Spark syncs none of these files; after a power cut they could be empty."""
    stage = Stage(lead)
    stage.run()
    synced: list[str] = []
    sync = plan_files.sync

    def note(path: Path) -> None:
        synced.append(os.path.relpath(path, stage.query.ck))
        sync(path)

    monkeypatch.setattr(plan_files, "sync", note)
    stage.query.plan()
    assert synced == []
    stage.keeper.keep(1)
    assert sorted(synced) == [
        ".", "commits", "commits/0", "offsets", "offsets/1", "sources", "sources/0", "sources/0/1"
    ]  # fmt: skip


def test_what_is_remembered_does_not_grow(lead: Lead) -> None:
    """A stream may run for years; Spark removes the files of its early batches."""
    stage = Stage(lead)

    def run(batches: int) -> int:
        for _ in range(batches):
            stage.run()
            (stage.query.ck / f"sources/0/{stage.query.batch}").unlink()
        return len(stage.keeper._files._durable)

    assert run(5) == run(50)


def test_a6_an_attempt_that_was_shut_out_calls_nothing(lead: Lead) -> None:
    """A6: it may still plan in its own folders, where nothing stops it; also a batch again."""
    stage = Stage(lead)
    stage.run()
    attempt_fence.shut_out(lead.backend, "job", lead.leadership.fence)
    with pytest.raises(Fenced):
        stage.call()
    assert kept(lead).batch == 0
    with pytest.raises(Fenced):
        stage.keeper.keep(0)


def test_a6_a_second_attempt_of_one_epoch(lead: Lead) -> None:
    first = Stage(lead)
    first.run()
    second = Stage(lead, attempt=2, query=first.query)
    with pytest.raises(Fenced):
        first.keeper.keep(1)
    second.call()
    assert (kept(lead).batch, kept(lead).attempt) == (1, 2)


@pytest.mark.parametrize(
    "lost",
    [
        ("offsets/2", "sources/0/2"),
        ("offsets/2",),
        ("sources/0/2",),
        ("offsets/2", "commits/1", "sources/0/2"),
        ("offsets/2", "commits", "sources"),
    ],
)
@pytest.mark.parametrize("emptied", [False, True])
def test_a6_the_next_attempt_has_the_same_plan(
    lead: Lead, lost: tuple[str, ...], emptied: bool
) -> None:
    """A6: whatever became of its files: the batch that was called is the batch that is called."""
    stage = Stage(lead)
    stage.run(2)
    stage.call()
    checkpoint = stage.query.ck
    before = {name: (checkpoint / name).read_text() for name in kept(lead).files}
    assert before.keys() >= {"offsets/2", "commits/1", "sources/0/2"}
    for name in lost:
        path = checkpoint / name
        if path.is_dir():
            shutil.rmtree(path)
        elif emptied:
            path.write_bytes(b"")
        else:
            path.unlink()
    Stage(lead, attempt=2, query=stage.query)

    assert {name: (checkpoint / name).read_text() for name in before} == before
    assert not (checkpoint / "offsets" / ".2.crc").exists() or "offsets/2" not in lost
    at = position(checkpoint)
    assert (at.planned, at.committed) == (2, 1)


def test_a6_a_batch_that_is_done_needs_no_plan(lead: Lead) -> None:
    """Spark may have removed its files since."""
    stage = Stage(lead)
    stage.run(3)
    (stage.query.ck / "sources/0/2").unlink()
    Stage(lead, attempt=2, query=stage.query)
    assert not (stage.query.ck / "sources/0/2").exists()


@pytest.mark.parametrize("lost", [range(2, 3), range(3)])
def test_a6_a_checkpoint_that_ends_before_it(
    lead: Lead, lost: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan was too large for its record, and is gone: another one would not do."""
    monkeypatch.setattr(plan_files, "_MOST", 0)
    stage = Stage(lead)
    stage.run(2)
    stage.call()
    assert kept(lead).files == {}
    for batch in lost:
        (stage.query.ck / "offsets" / str(batch)).unlink()
        (stage.query.ck / "commits" / str(batch)).unlink(missing_ok=True)
    with pytest.raises(JobHeld, match=r"called for batch 2, .* restore the job from a snapshot"):
        Stage(lead, attempt=2, query=stage.query)
    with pytest.raises(JobHeld, match="called for batch 2"):
        stage.keeper.keep(1)


def test_a6_a_large_plan(lead: Lead) -> None:
    """It is synced in its place; as much of it is recorded as may be, the offsets first."""
    stage = Stage(lead)
    stage.run()
    stage.query.plan()
    (stage.query.ck / "sources/0/1").write_text("v1\n" + "x" * 70_000)
    stage.keeper.keep(1)
    assert kept(lead).files.keys() == {"offsets/1", "commits/0"}


def test_a4_a_restore_takes_it_back(lead: Lead) -> None:
    """A4: a plan of an earlier generation is of another batch with that number."""
    stage = Stage(lead)
    stage.run(3)
    lead.backend.commit(*heads.restored_ops(lead.backend, "job", {}))
    shutil.rmtree(stage.query.ck)
    stage.query.batch = -1
    after = Stage(lead, attempt=2, query=stage.query)
    assert not (stage.query.ck / "offsets").exists()
    stage.query.start()
    after.run()
    assert (kept(lead).generation, kept(lead).batch) == (2, 0)


@pytest.mark.parametrize("applied", [True, False])
def test_a6_a_commit_whose_outcome_is_unknown(
    lead: Lead, memory: FaultyMemory, applied: bool
) -> None:
    stage = Stage(lead)
    stage.run()
    memory.fault(keys.PLANS, OutcomeUnknown, kind=Update, after=applied, times=1)
    if not applied:
        with pytest.raises(OutcomeUnknown):
            stage.call()
        stage.keeper.keep(1)
    else:
        stage.call()
    assert kept(lead).files.keys() == {"offsets/1", "commits/0", "sources/0/1"}


def test_a6_a_backend_that_is_away(lead: Lead, memory: FaultyMemory) -> None:
    stage = Stage(lead)
    stage.query.plan()
    memory.down = True
    with pytest.raises(Unavailable):
        stage.keeper.keep(0)
    memory.down = False
    stage.keeper.keep(0)
    assert kept(lead).batch == 0


def test_a6_a_disk_that_is_full(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is not called before the plan is durable, and the job does not fail."""
    stage = Stage(lead)
    stage.query.plan()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match=r"plan of batch 0 .* No space left"):
            stage.keeper.keep(0)
    stage.keeper.keep(0)
    (stage.query.ck / "offsets" / "0").unlink()
    again = Stage(lead, 2)
    (again.query.ck / "offsets" / "0").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match=r"restoring the newest plan .* No space left"):
            again.keeper.begin()
    again.keeper.begin()

    assert (again.query.ck / "offsets" / "0").is_file()


def test_a6_a_plan_that_cannot_be_read(lead: Lead) -> None:
    lead.backend.commit(Create(keys.plan("job", "sums"), b"{"))
    with pytest.raises(JobHeld, match="restore the job from a snapshot"):
        Stage(lead)


def test_a6_before_format_6(lead: Lead, memory: FaultyMemory) -> None:
    """Older masters would not remove the record."""
    memory.marked_format = heads.SINCE_FORMAT - 1
    stage = Stage(lead)
    stage.run(2)
    assert plan(lead) is None


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "offsets/../../x", ""])
def test_a6_a_path_that_leads_elsewhere(path: str) -> None:
    with pytest.raises(InvalidInput, match=r"is absolute|leads out of the checkpoint"):
        StreamPlan("job", "sums", 1, 0, 1, 1, {path: "text"})


def test_a_batch_that_an_earlier_attempt_was_called_for(lead: Lead) -> None:
    """Its sink may have it, whatever became of its state; no other batch, and none of this one."""
    first = Stage(lead)
    first.run(2)
    first.call()
    assert [first.keeper.may_have(batch) for batch in (1, 2, 3)] == [False] * 3

    second = Stage(lead, attempt=2, query=first.query)
    assert [second.keeper.may_have(batch) for batch in (1, 2, 3)] == [False, True, False]


def test_a_batch_that_a_restore_has_planned(lead: Lead) -> None:
    """The function was not called for it in this generation."""
    first = Stage(lead)
    first.run(2)
    first.call()
    record = lead.backend.get(keys.plan("job", "sums"))
    assert record is not None
    restored = attrs.evolve(kept(lead), epoch=0, attempt=0)
    lead.backend.commit(Update(record.key, encode(restored), record.version))

    assert not Stage(lead, attempt=2, query=first.query).keeper.may_have(2)


def test_a_batch_that_its_function_did_not_read(lead: Lead) -> None:
    """It ignored an error: no later attempt takes the batch for one that its sink has."""
    stage = Stage(lead)
    stage.run(2)
    batch = stage.call()
    stage.keeper.note_unread(batch)
    assert kept(lead).is_unread
    for attempt in (2, 3):
        again = Stage(lead, attempt, stage.query)
        assert not again.keeper.may_have(batch)
        again.keeper.keep(batch)
    stage.query.commit()
    again.call()
    assert not kept(lead).is_unread


@pytest.mark.parametrize("is_read", [True, False])
def test_an_unread_batch_that_changed_code_gets(lead: Lead, is_read: bool) -> None:
    """The batch is a new one for it: no sink has it by right, until that code was called for it."""
    stage = Stage(lead)
    batch = stage.call()
    stage.keeper.note_unread(batch)
    lead.backend.commit(Create(keys.JOBS + "job", encode(spec("job"))))
    JobStops(lead.backend).reconfigure("job", entry_point="etl.v2:main")

    changed = Stage(lead, 2, stage.query)
    assert not changed.keeper.may_have(batch)
    changed.keeper.keep(batch)
    if not is_read:
        changed.keeper.note_unread(batch)
    assert Stage(lead, 3, stage.query).keeper.may_have(batch) is is_read


def test_a_batch_that_the_former_code_has_written(lead: Lead) -> None:
    """Its sink may have it, whatever code the job gets; also next to a plan that is damaged."""
    stage = Stage(lead)
    batch = stage.call()
    lead.backend.commit(Create(keys.JOBS + "job", encode(spec("job"))))
    lead.backend.commit(Create(keys.plan("job", "other"), b"{"))
    JobStops(lead.backend).reconfigure("job", entry_point="etl.v2:main")
    assert Stage(lead, 2, stage.query).keeper.may_have(batch)


def test_a_batch_is_noted_by_no_attempt_that_was_shut_out(lead: Lead) -> None:
    stage = Stage(lead)
    batch = stage.call()
    attempt_fence.shut_out(lead.backend, "job", lead.leadership.fence)
    with pytest.raises(Fenced):
        stage.keeper.note_unread(batch)
    assert not kept(lead).is_unread
