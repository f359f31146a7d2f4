"""The commit of a stream's batch: its head moves under the fence; then it is published."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import Conflict, Fenced, JobHeld, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Fence, Record, Update
from jrs.records import keys
from jrs.records.heads import StreamHead
from jrs.recovery.attempt import batch_committer
from jrs.recovery.attempt.batch_committer import BatchCommitter, LateCommit
from jrs.recovery.checkpoint_format import plan_files
from jrs.recovery.leader.take_over import take_over
from jrs.store import attempt_fence, heads, history
from tests.recovery.attempt.stream_attempt import PART, Attempt
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory


@pytest.fixture
def lead(memory: FaultyMemory, tmp_path: Path) -> Lead:
    return Lead(memory, tmp_path / "jobs")


def head(lead: Lead) -> StreamHead:
    found = heads.stored(lead.backend, "job", "sums")
    assert found is not None
    return found[0]


def published(lead: Lead) -> dict[str, str]:
    return {name.split("/")[2]: text for name, text in lead.published().items()}


def test_batches_are_committed(lead: Lead) -> None:
    """The head moves with each batch, also with one that has no rows (A5)."""
    attempt = Attempt(lead)
    assert head(lead) == StreamHead("job", "sums", 1, -1)
    attempt.run(0)
    attempt.committer.commit(1, [])
    attempt.run(2)
    attempt.committer.commit(2, ["part-of-a-repeated-run"])  # Its files are left to be swept.

    assert (head(lead).generation, head(lead).batch) == (1, 2)
    assert published(lead) == {"batch=0": "rows 0", "batch=2": "rows 2"}
    assert list(attempt.staging.iterdir()) == []


def test_what_was_not_committed_is_swept(lead: Lead) -> None:
    """A3: a try that failed leaves its files; the next commit removes them, and it alone."""
    attempt = Attempt(lead)
    attempt.write(7, "of a try that failed")
    others = attempt.staging / "something-else"
    others.write_text("not of the sink")
    attempt.run(0)

    assert list(attempt.staging.iterdir()) == [others]


def test_the_history_has_some_of_the_batches(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the commit of the batch; most of them have no event."""
    monkeypatch.setattr(batch_committer, "_FIRST", (2,))
    monkeypatch.setattr(batch_committer, "_MANY", 3)
    attempt = Attempt(lead)
    for batch in range(7):
        attempt.run(batch)

    told = [one.about for one in history.read(lead.backend, "job")]
    assert told == [{"stage": "sums", "batches": number} for number in (2, 3, 6)]


def test_a2_an_attempt_that_was_shut_out_publishes_nothing(lead: Lead) -> None:
    """A2, C1: whatever its filesystem lets it do: its folders are all still there."""
    attempt = Attempt(lead)
    attempt.run(0)
    before = head(lead)
    attempt_fence.shut_out(lead.backend, "job", lead.leadership.fence)

    with pytest.raises(Fenced):
        attempt.run(1)
    assert head(lead) == before
    assert published(lead) == {"batch=0": "rows 0"}


def test_a2_a_second_attempt_of_one_epoch_shuts_the_first_out(lead: Lead) -> None:
    """A2: two attempts of one epoch have one folder, and only one of them publishes."""
    first = Attempt(lead)
    first.run(0)
    second = Attempt(lead, attempt=2)
    with pytest.raises(Fenced):
        first.run(1, "the first's")
    second.run(1)

    assert published(lead) == {"batch=0": "rows 0", "batch=1": "rows 1"}


@pytest.mark.parametrize("publisher", ["the attempt", "the next leader"])
def test_a3_what_was_committed_is_published_later(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, publisher: str
) -> None:
    """A3: the attempt dies behind its commit, and its rows are published all the same."""
    attempt = Attempt(lead)
    attempt.run(0)
    with monkeypatch.context() as patch:
        patch.setattr(BatchCommitter, "_publish", lambda *_, **how: died())
        with pytest.raises(Died):
            attempt.run(1)
    assert published(lead).keys() == {"batch=0"}
    if publisher == "the attempt":
        attempt.committer.begin()
    else:
        take_over(lead.backend, lead.storage, "job", Fence(9, lead.leadership.fence.version))

    assert published(lead) == {"batch=0": "rows 0", "batch=1": "rows 1"}


@pytest.mark.parametrize("applied", [True, False])
def test_a3_a_commit_whose_outcome_is_unknown(
    lead: Lead, memory: FaultyMemory, applied: bool
) -> None:
    """A3: it is read back, or repeated with the same files; nothing is deleted."""
    attempt = Attempt(lead)
    files = attempt.write(0)
    memory.fault(keys.HEADS, OutcomeUnknown, kind=Update, after=applied, times=1)
    if not applied:
        with pytest.raises(OutcomeUnknown):
            attempt.committer.commit(0, files)
        assert published(lead) == {}
    attempt.committer.commit(0, files)

    assert head(lead).batch == 0
    assert published(lead) == {"batch=0": "rows 0"}


def test_a_backend_that_is_away(lead: Lead, memory: FaultyMemory) -> None:
    """Nothing is changed, and the same call succeeds later."""
    attempt = Attempt(lead)
    files = attempt.write(0)
    memory.down = True
    with pytest.raises(Unavailable):
        attempt.committer.commit(0, files)
    memory.down = False
    attempt.committer.commit(0, files)

    assert published(lead) == {"batch=0": "rows 0"}


def test_a3_a_batch_that_was_planned_again(lead: Lead) -> None:
    """A3: the same number, but other input: held, since either choice would lose rows."""
    attempt = Attempt(lead)
    attempt.plan()
    attempt.run(0)
    plan = attempt.query.ck / "offsets" / "0"
    attempt.run(0)  # Repeated with the same input.
    plan.write_text('v1\n{"batchWatermarkMs":0}\n7')

    with pytest.raises(JobHeld, match="planned again with other input"):
        attempt.run(0)
    assert published(lead) == {"batch=0": "rows 0"}


@pytest.mark.parametrize("batch", [0, 3])
def test_a3_a_gap(lead: Lead, batch: int) -> None:
    """A3: a batch that does not follow the head, in either direction, is held."""
    attempt = Attempt(lead)
    attempt.run(0)
    attempt.run(1)
    with pytest.raises(JobHeld, match=f"at batch {batch} and its output at batch 1"):
        attempt.run(batch)
    assert head(lead).batch == 1
    assert published(lead).keys() == {"batch=0", "batch=1"}


def test_the_rows_of_the_newest_batch_are_lost(lead: Lead) -> None:
    """The head names rows that are nowhere: held, and an empty folder says that it was meant."""
    attempt = Attempt(lead)
    attempt.run(0)
    (attempt.out / "batch=0" / f"{PART}0.parquet").unlink()
    (attempt.out / "batch=0").rmdir()
    with pytest.raises(JobHeld, match="make an empty folder batch=0"):
        attempt.committer.begin()
    (attempt.out / "batch=0").mkdir()
    attempt.committer.begin()


def test_rows_that_were_moved_away(lead: Lead) -> None:
    """Once Spark has noted the batch, its rows were published, and a user may move them."""
    attempt = Attempt(lead)
    attempt.plan()
    attempt.run(0)
    attempt.query.commit()
    (attempt.out / "batch=0").rename(attempt.out.parent / "elsewhere")
    attempt.committer.begin()


def test_another_batch_is_in_its_place(lead: Lead) -> None:
    """Rows that count are never dropped for others that have their number."""
    attempt = Attempt(lead)
    (attempt.out / "batch=0").mkdir()
    (attempt.out / "batch=0" / f"{PART}7.parquet").write_text("of an earlier history")
    for _ in range(2):
        with pytest.raises(JobHeld, match="batch=0 is not batch 0 that was committed"):
            attempt.run(0)
    with pytest.raises(JobHeld, match="batch=0 is not batch 0 that was committed"):
        take_over(lead.backend, lead.storage, "job", Fence(9, lead.leadership.fence.version))
    assert not attempt.staging.exists()  # Held, and out of the attempt's reach all the same.
    (attempt.out / "batch=0").rename(attempt.out.parent / "elsewhere")
    take_over(lead.backend, lead.storage, "job", Fence(10, lead.leadership.fence.version))
    assert published(lead) == {"batch=0": "rows 0", f"{PART}7.parquet": "of an earlier history"}


def test_a_batch_without_rows_is_planned_again(lead: Lead) -> None:
    """After a power cut its plan is lost; what it then reads is committed under its number."""
    attempt = Attempt(lead)
    attempt.plan()
    attempt.committer.commit(0, [])
    plan = attempt.query.ck / "offsets" / "0"
    plan.write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":7}')
    for text in ("f1", "f1 and f2"):  # Another entry of the source's own log has that number.
        entry = attempt.query.ck / "sources" / "0" / "7"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text(text)
        if text == "f1":
            attempt.committer.commit(0, [])
    attempt.run(0)
    assert published(lead) == {"batch=0": "rows 0"}
    entry.write_text("f3")
    with pytest.raises(JobHeld, match="planned again with other input"):
        attempt.run(0)


def test_a_commit_of_a_query_that_was_stopped(lead: Lead) -> None:
    """It takes nothing from the query that was started since."""
    attempt = Attempt(lead)
    attempt.committer.new_run()
    run = attempt.committer.new_run()
    files = attempt.write(0)
    with pytest.raises(LateCommit):
        attempt.committer.commit(0, ["of-the-first-run"], "another run")
    attempt.committer.commit(0, files, run)
    assert published(lead) == {"batch=0": "rows 0"}


def test_a_late_write_of_its_own(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try takes effect just before the second one: that is no other attempt."""
    attempt = Attempt(lead)
    files = attempt.write(0)
    commit = lead.backend._commit

    def twice(*given: Any) -> None:
        commit(*given)
        commit(*given)

    monkeypatch.setattr(lead.backend, "_commit", twice)
    attempt.committer.commit(0, files)
    assert published(lead) == {"batch=0": "rows 0"}


def test_the_output_is_missing(lead: Lead) -> None:
    """Rows that are staged are not called lost: its folder is made again, and the call repeated."""
    attempt = Attempt(lead)
    attempt.out.rmdir()
    files = attempt.write(0)
    with pytest.raises(Unavailable, match="batch 0 of stage 'sums' cannot be published"):
        attempt.committer.commit(0, files)
    attempt.committer.commit(0, files)

    assert published(lead) == {"batch=0": "rows 0"}


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_disk_that_is_full_for_a_while(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """Whichever rename fails, behind the commit or before it: the same call succeeds later, and the
    batch is there once."""
    attempt = Attempt(lead)
    attempt.run(0)
    files = [*attempt.write(1), *attempt.write(2)]
    rename, calls = os.rename, 0

    def failing(*paths: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(*paths)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(Unavailable, match="No space left"):
        attempt.committer.commit(1, files)
    attempt.committer.commit(1, files)

    assert head(lead).batch == 1
    assert published(lead).keys() == {"batch=0", "batch=1"}
    assert len(list((attempt.out / "batch=1").iterdir())) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.ESTALE])
def test_a_plan_that_cannot_be_made_durable_now(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The batch waits for the disk, and nothing of it counts until then."""
    attempt = Attempt(lead)
    attempt.plan()
    files, sync, left = attempt.write(0), plan_files.sync, [number]

    def fails(path: Path) -> None:
        if left:
            raise OSError(left.pop(), os.strerror(number), str(path))
        sync(path)

    monkeypatch.setattr(plan_files, "sync", fails)
    with pytest.raises(Unavailable, match=f"committing batch 0 .*{os.strerror(number)}"):
        attempt.committer.commit(0, files)
    assert head(lead).batch == -1
    attempt.committer.commit(0, files)

    assert published(lead) == {"batch=0": "rows 0"}


@pytest.mark.parametrize(("number", "error"), [(errno.EMFILE, Unavailable), (errno.EIO, JobHeld)])
def test_a_plan_that_cannot_be_read(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """What the disk has lost holds the job; the batch waits for what it does not give now."""
    attempt = Attempt(lead)
    attempt.plan()
    files = attempt.write(0)

    def fails(path: Path) -> bytes:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", fails)
        with pytest.raises(error, match=os.strerror(number)):
            attempt.committer.commit(0, files)
    attempt.committer.commit(0, files)

    assert published(lead) == {"batch=0": "rows 0"}


def test_a_stage_that_began_without_heads(lead: Lead, memory: FaultyMemory) -> None:
    """A job of an earlier format gets its head where it is, once the format is raised."""
    memory.marked_format = heads.SINCE_FORMAT - 1
    attempt = Attempt(lead)
    attempt.run(0)
    attempt.run(1)
    attempt.run(1)
    assert heads.stored(memory, "job", "sums") is None
    memory.marked_format = heads.SINCE_FORMAT

    after = Attempt(lead, attempt=2)
    assert head(lead) == StreamHead("job", "sums", 1, 1)
    after.run(1, "discarded")
    after.run(2)
    assert published(lead) == {f"batch={n}": f"rows {n}" for n in range(3)}


def test_the_end_of_the_output(lead: Lead, memory: FaultyMemory) -> None:
    """The mark of a finished stage is committed on the condition that its output ends there."""
    attempt = Attempt(lead)
    attempt.run(0)
    end = attempt.committer.ends_at(0)
    assert end is not None
    memory.commit(Create("before", b""), end)
    with pytest.raises(JobHeld, match="its checkpoint is at batch 1 and its output at batch 0"):
        attempt.committer.ends_at(1)

    attempt.run(1)
    with pytest.raises(Conflict):
        memory.commit(Create("after", b""), end)
    memory.marked_format = heads.SINCE_FORMAT - 1
    assert Attempt(lead, attempt=2).committer.ends_at(5) is None


def test_a_stage_that_comes_back_from_another_sink(lead: Lead) -> None:
    """The head passes over the batches that the other sink has; over no others."""
    attempt = Attempt(lead)
    for batch in range(2):
        attempt.plan()
        attempt.run(batch)
        attempt.query.commit()
    attempt.query.run(3)
    again = Attempt(lead, attempt=2, uses_sink=False)
    again.committer.begin(since=4)
    assert head(lead).batch == 3
    with pytest.raises(JobHeld, match="its output ends at batch 3"):
        again.committer.skip(4)

    for _ in range(2):
        again.committer.begin(since=6)  # The query was not started before its attempt died.
        again.committer.skip(4)
    again.run(5)
    assert published(lead) == {"batch=0": "rows 0", "batch=1": "rows 1", "batch=5": "rows 5"}


def test_a5_a_batch_that_spread_the_state(lead: Lead) -> None:
    """A5: no sink sees it, so the head passes over it; over no batch that has read something."""
    attempt = Attempt(lead)
    attempt.plan()
    attempt.run(0)
    offsets = attempt.query.ck / "offsets"
    (offsets / "1").write_bytes((offsets / "0").read_bytes())
    attempt.committer.skip(1)
    attempt.committer.skip(1)
    assert head(lead).batch == 1
    attempt.run(2)
    (offsets / "2").write_bytes((offsets / "0").read_bytes())
    (offsets / "3").write_text('v1\n{"batchWatermarkMs":0}\n7')

    with pytest.raises(JobHeld, match="its output ends at batch 2"):
        attempt.committer.skip(3)


def test_a6_a_plan_is_durable_before_its_batch_counts(
    lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A6: after a power cut an empty plan would leave nothing to repeat the batch by."""
    attempt = Attempt(lead)
    steps: list[str] = []
    sync, move = plan_files.sync, BatchCommitter._move

    def note_sync(path: Path) -> None:
        steps.append(os.path.relpath(path, attempt.query.ck))
        sync(path)

    def note_move(self: BatchCommitter, record: Record, head: StreamHead) -> None:
        steps.append("the head moves")
        move(self, record, head)

    monkeypatch.setattr(plan_files, "sync", note_sync)
    monkeypatch.setattr(BatchCommitter, "_move", note_move)
    attempt.plan()
    attempt.run(0)
    assert {"offsets/0", "offsets", "metadata", "."} <= set(steps[:-1])
    assert steps[-1] == "the head moves"
    attempt.query.commit()
    attempt.plan()
    steps.clear()
    attempt.run(1)
    assert steps == ["offsets/1", "commits/0", "offsets", "commits", ".", "the head moves"]


def test_a4_a_restore_begins_a_generation(lead: Lead) -> None:
    """A4: the head moves back, and its generation says that the numbers are used again."""
    attempt = Attempt(lead)
    for batch in range(3):
        attempt.run(batch)
    lead.backend.commit(*heads.restored_ops(lead.backend, "job", {"sums": 1}))
    assert head(lead) == StreamHead("job", "sums", 2, 1)
    lead.backend.commit(*heads.restored_ops(lead.backend, "job", {}))
    assert head(lead) == StreamHead("job", "sums", 3, -1)
    assert heads.generation_of(lead.backend, "job") == 3


def test_a4_a_stream_that_begins_after_a_restore(lead: Lead) -> None:
    """A4: its head has the generation of the job, as the streams have that it had before."""
    lead.backend.commit(*heads.restored_ops(lead.backend, "job", {}))
    Attempt(lead).run(0)
    assert head(lead).generation == 2


def test_a4_a_generation_that_cannot_be_read(lead: Lead) -> None:
    """A4: a guess could be one that was: the job is held, and a restore begins a later one."""
    lead.backend.commit(Create(keys.GENERATIONS + "job", b"{"))
    with pytest.raises(JobHeld, match="restore the job from a snapshot"):
        Attempt(lead)
    lead.backend.commit(*heads.restored_ops(lead.backend, "job", {}))
    assert heads.generation_of(lead.backend, "job") > 1_000_000_000


def test_a_damaged_head(lead: Lead) -> None:
    """It is not known which rows count: nothing is deleted."""
    attempt = Attempt(lead)
    key = keys.head("job", "other")
    lead.backend.commit(Create(key, b"{"))
    attempt.write(0)

    with pytest.raises(JobHeld, match="restore the job from a snapshot"):
        take_over(lead.backend, lead.storage, "job", Fence(9, lead.leadership.fence.version))
    assert not attempt.staging.exists()  # The attempt that made it has no path to it any more.
    assert list(lead.folder.glob("e9/streams/sums/staging/part-*"))
    lead.backend.commit(*heads.restored_ops(lead.backend, "job", {"sums": -1, "other": 4}))
    take_over(lead.backend, lead.storage, "job", Fence(10, lead.leadership.fence.version))
    found = heads.stored(lead.backend, "job", "other")
    assert found is not None
    assert found[0].batch == 4


class Died(BaseException):
    pass


def died() -> None:
    raise Died


class Deadly:
    """Dies before a step, or behind it: the one of this number."""

    def __init__(self, last: int) -> None:
        self._left = last

    def step(self, call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*given: object, **named: object) -> object:
            self._count()
            done = call(*given, **named)
            self._count()
            return done

        return wrapped

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Died


def test_death_at_every_step(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt dies before or behind each rename and each commit of a batch; Spark repeats the
    batch in the next attempt, and each row is there once."""
    lead = Lead(memory, tmp_path / "jobs")
    batch = last = 0
    while True:
        last += 1
        deadly = Deadly(last)
        attempt = Attempt(lead, attempt=last)
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", deadly.step(os.rename))
            patch.setattr(memory, "_commit", deadly.step(memory._commit))
            try:
                attempt.run(batch)
                break
            except Died:
                pass
        Attempt(lead, attempt=1000 + last).run(batch)
        batch += 1
    assert batch > 5
    assert published(lead) == {f"batch={n}": f"rows {n}" for n in range(batch + 1)}


def test_errors_are_ours(lead: Lead) -> None:
    """Whatever happens to the stage's folders, an attempt that leads gets no wrong verdict."""
    attempt = Attempt(lead)
    attempt.staging.rmdir()
    with pytest.raises(FileNotFoundError):
        attempt.committer.commit(0, ["missing"])
    assert head(lead).batch == -1
