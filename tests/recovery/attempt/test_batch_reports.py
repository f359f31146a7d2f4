"""What a commit of a batch says of the stream: in the same commit, and never at its cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jrs.contract.errors import OutcomeUnknown
from jrs.contract.operations import Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.heads import BatchReport, StreamPlan, StreamProgress
from jrs.recovery.attempt.batch_committer import BatchCommitter
from jrs.recovery.attempt.batch_reports import BatchReports
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.store import heads, streams
from tests.recovery.attempt.stream_attempt import Attempt
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory

FULL = StreamProgress(
    2**63 - 1, 1764100000.123456, *(2**63 - 1, 123456789.123456), 123456789.123456, 123456.789,
    1764100000.123, *(2**63 - 1,) * 4,
)  # fmt: skip


@pytest.fixture
def lead(memory: FaultyMemory, tmp_path: Path) -> Lead:
    return Lead(memory, tmp_path / "jobs")


def reporting(attempt: Attempt, progress: Callable[[], StreamProgress | None]) -> BatchCommitter:
    return BatchCommitter(attempt.context, "sums", attempt.staging.parent, attempt.out, progress)


def report(lead: Lead) -> BatchReport:
    found = heads.stored(lead.backend, "job", "sums")
    assert found is not None
    assert found[0].report is not None
    return found[0].report


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that is committed."""
    found: list[Any] = []
    commit = FaultyMemory.commit

    def noted(self: FaultyMemory, *ops: Any, **how: Any) -> None:
        found.append(ops)
        commit(self, *ops, **how)

    monkeypatch.setattr(FaultyMemory, "commit", noted)
    return found


def test_a_batch_is_one_commit_as_before(lead: Lead, commits: list[Any]) -> None:
    """The progress of the batch before is in the commit that moves the head."""
    attempt = Attempt(lead)
    plain: list[int] = []
    for batch in range(3):
        commits.clear()
        attempt.run(batch)
        plain.append(len(commits))
    committer = reporting(attempt, lambda: StreamProgress(batch - 1, rows=20))
    for batch in range(3, 6):
        commits.clear()
        committer.commit(batch, attempt.write(batch))
        assert len(commits) == plain[batch - 3] == 1
        assert report(lead).batch == batch
        assert report(lead).progress == StreamProgress(batch - 1, rows=20)
        assert report(lead).at > 0


def test_a_batch_of_a_function_is_one_commit_as_before(lead: Lead, commits: list[Any]) -> None:
    attempt = Attempt(lead, uses_sink=False)
    keeper = PlanKeeper(
        attempt.context, "sums", attempt.query.ck, lambda: StreamProgress(0, rows=20)
    )
    for batch in range(2):
        attempt.plan()
        commits.clear()
        keeper.keep(batch)
        assert len(commits) == 1
        attempt.query.commit()
    (status,) = streams.of_job(lead.backend, "job")

    assert (status.stage, status.batch, status.by_function) == ("sums", 1, True)
    assert status.batch_at is not None
    assert status.progress == StreamProgress(0, rows=20)


def test_the_next_attempt_keeps_what_is_known(lead: Lead) -> None:
    """Until Spark has reported again: with the number of the batch that it is of."""
    first = Attempt(lead)
    committer = reporting(first, lambda: StreamProgress(0, rows=7))
    committer.commit(0, first.write(0))
    committer.commit(1, first.write(1))
    second = Attempt(lead, 2)
    second.run(2)

    assert report(lead).batch == 2
    assert report(lead).progress == StreamProgress(0, rows=7)


@pytest.mark.parametrize("error", [RuntimeError("the JVM is gone"), OutcomeUnknown("what?")])
def test_a_progress_that_cannot_be_read(lead: Lead, error: Exception) -> None:
    """The batch is committed all the same."""

    def fail() -> StreamProgress | None:
        raise error

    attempt = Attempt(lead)
    reporting(attempt, fail).commit(0, attempt.write(0))
    assert report(lead).progress is None
    assert report(lead).batch == 0


def test_what_an_idle_query_reports_is_passed_over() -> None:
    """It names the batch that it waits for, and has no rows."""
    reports = BatchReports(lambda: StreamProgress(8, rows=0), lambda: 5.0)
    before = BatchReport(7, 4.0, StreamProgress(6, rows=3))
    assert reports.of(8, before) == BatchReport(8, 5.0, StreamProgress(6, rows=3))


def test_each_try_of_a_commit_writes_the_same(lead: Lead, memory: FaultyMemory) -> None:
    """Or a commit that has taken effect unseen would be taken for one of another attempt."""
    times = iter(range(100))
    reports = BatchReports(lambda: StreamProgress(next(times)), lambda: float(next(times)))
    assert reports.of(50, None) is reports.of(50, None)

    attempt = Attempt(lead)
    asked: list[int] = []

    def progress() -> StreamProgress | None:
        asked.append(0)
        return None

    committer, files = reporting(attempt, progress), attempt.write(0)
    memory.fault(keys.HEADS, OutcomeUnknown, kind=Update, after=False, times=1)
    with pytest.raises(OutcomeUnknown):
        committer.commit(0, files)
    committer.commit(0, files)
    assert len(asked) == 1


def test_it_is_small() -> None:
    """A record grows by a few hundred bytes, whatever the numbers are."""
    bare = StreamPlan("job", "sums", 1, 7, 3, 2)
    full = StreamPlan("job", "sums", 1, 7, 3, 2, report=BatchReport(2**63 - 1, 1e18, FULL))
    assert len(encode(full)) - len(encode(bare)) < 700
