"""The source of a restore: of several restores from a snapshot, none loses it to a claim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.errors import NoSuchSnapshot, SnapshotInUse, UnsupportedVersion
from jrs.contract.operations import Create, Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobStatus
from jrs.records.snapshots import RestoreRecord, SnapshotFormat, SnapshotRecord
from jrs.recovery.snapshots import SnapshotCatalog, reserve_and_swap, restore, retry, sources
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.snapshots.test_deleting import begin
from tests.recovery.snapshots.test_retry import end
from tests.recovery.support import FaultyMemory, Leader


@contextmanager
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Have restores begin as in a version that does not look for others."""
    with monkeypatch.context() as patch:
        patch.setattr(sources, "_check_others", lambda *_, **how: None)
        yield patch


def two_claims(
    catalog: SnapshotCatalog, monkeypatch: pytest.MonkeyPatch, record: SnapshotRecord
) -> None:
    with older(monkeypatch) as patch:
        begin(catalog, patch, record, as_job="a", claim=True)
        begin(catalog, patch, record, as_job="b", claim=True)


def newer(memory: FaultyMemory, job_id: str) -> None:
    """Begin a restore as a version of jrs that this one cannot read."""
    value = encode(RestoreRecord(job_id, "1", "unrelated", 0.0, False, False))
    memory.commit(Create(keys.RESTORES + job_id, value.replace(b"restore/1", b"restore/9")))


def never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_build", lambda *_: pytest.fail("built before it was refused"))


# -- of two claims -------------------------------------------------------------------------------


def test_the_first_of_two_claims_wins(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_claims(catalog, monkeypatch, catalog.create("job"))

    assert catalog.finish_restore("a").job_id == "a"
    with pytest.raises(NoSuchSnapshot):
        catalog.finish_restore("b")
    assert catalog.list("job") == []
    assert memory.get(keys.RESTORES + "b") is not None


@pytest.mark.parametrize("how", [SnapshotFormat.FULL, SnapshotFormat.LINK])
def test_two_claims_that_are_finished_at_once(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch,
    how: SnapshotFormat,
) -> None:  # fmt: skip
    """Both have the files of the snapshot. The second one finds no entry, and is not completed:
    two jobs would write into the same files."""
    two_claims(catalog, monkeypatch, catalog.create("job", format=how))
    commit = reserve_and_swap.commit

    def slow(*args: Any) -> None:
        monkeypatch.setattr(reserve_and_swap, "commit", commit)
        assert catalog.finish_restore("b").job_id == "b"
        commit(*args)

    monkeypatch.setattr(reserve_and_swap, "commit", slow)
    with pytest.raises(NoSuchSnapshot, match=r"used up or deleted.*jrs cancel a$"):
        catalog.finish_restore("a")

    assert catalog.pending_restore("b") is None
    assert catalog.pending_restore("a") is not None


def test_a_claim_leaves_another_snapshot_of_the_number(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version has deleted it, and taken another one."""
    record, commit = catalog.create("job"), reserve_and_swap.commit
    other = attrs.evolve(record, created_at=record.created_at + 1.0)

    def slow(*args: Any) -> None:
        stored = memory.get(keys.snapshot("job", record.number))
        assert stored is not None
        memory.commit(Update(stored.key, encode(other), stored.version))
        commit(*args)

    monkeypatch.setattr(reserve_and_swap, "commit", slow)
    with pytest.raises(NoSuchSnapshot, match="used up or deleted"):
        catalog.restore(record, as_job="copy", claim=True)
    assert catalog.list("job") == [other]


# -- of a claim and another restore --------------------------------------------------------------


@pytest.mark.parametrize("claim", [False, True])
def test_it_is_refused_before_anything_is_built(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch, claim: bool
) -> None:
    record = catalog.create("job")
    begin(catalog, monkeypatch, record, as_job="copy", claim=not claim)
    never_built(monkeypatch)
    with pytest.raises(SnapshotInUse, match="the source of a restore of job 'copy'"):
        catalog.restore(record, claim=claim)


def test_a_retry_does_not_wait_for_a_claim(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits only for a process that does the same retry."""
    end(job, JobStatus.FAILED)
    (kept,) = catalog.list("job")
    begin(catalog, monkeypatch, kept, as_job="copy", claim=True)
    never_built(monkeypatch)
    monkeypatch.setattr(catalog, "sleep", lambda _: pytest.fail("waits"))
    with pytest.raises(SnapshotInUse, match="the source of a restore of job 'copy'"):
        retry.retry(catalog, "job", retry.RetryRequest())


def test_a_leader_says_why_it_does_not_finish_a_claim(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two restores that an older version has begun. It tries again once the other is complete."""
    record = catalog.create("job")
    with older(monkeypatch) as patch:
        begin(catalog, patch, record, as_job="a", claim=True)
        begin(catalog, patch, record, as_job="b")
    leader = Leader(memory, tmp_path / "jobs")
    finish = leader.dispatcher._actions.finish_restore

    with monkeypatch.context() as patch:
        never_built(patch)
        with pytest.raises(SnapshotInUse, match="the source of a restore of job 'b'"):
            finish("a")
    finish("b")
    finish("a")
    assert catalog.list("job") == []


def test_a_claim_looks_again_before_it_uses_its_source_up(
    catalog: SnapshotCatalog, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that cannot read the claim begins a restore meanwhile: both are completed."""
    record, swap = catalog.create("job"), reserve_and_swap.swap

    def slow(*args: Any) -> Any:
        monkeypatch.setattr(reserve_and_swap, "swap", swap)
        with older(monkeypatch) as patch:
            begin(catalog, patch, record, as_job="copy")
        return swap(*args)

    monkeypatch.setattr(reserve_and_swap, "swap", slow)
    with pytest.raises(SnapshotInUse, match="the source of a restore of job 'copy'") as caught:
        catalog.restore(record, claim=True)
    assert "job 'job' is held until you repeat the restore: " in str(caught.value)

    assert catalog.finish_restore("copy").number == record.number
    assert catalog.finish_restore("job").number == record.number
    assert catalog.list("job") == []


def test_a_claim_of_a_snapshot_that_is_moved_meanwhile(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go from both places."""
    record, commit, far = catalog.create("job"), reserve_and_swap.commit, tmp_path / "far"

    def slow(*args: Any) -> Any:
        with pytest.raises(SnapshotInUse):  # The restore reads the old place.
            catalog.move("job", record.number, far)
        return commit(*args)

    monkeypatch.setattr(reserve_and_swap, "commit", slow)
    catalog.restore(record, as_job="copy", claim=True)

    assert catalog.list("job") == []
    for place in (far, tmp_path / "jobs"):
        assert not list(place.rglob("manifest.json"))


def test_a_restore_of_a_newer_version(
    catalog: SnapshotCatalog, job: FakeJob, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a claim needs to know its source; and it hides no claim that can be read."""
    record = catalog.create("job")
    newer(memory, "a")
    assert catalog.restore(record, as_job="copy").job_id == "copy"
    with pytest.raises(UnsupportedVersion):
        catalog.restore(record, claim=True)
    assert catalog.pending_restore("job") is None

    with older(monkeypatch) as patch:
        begin(catalog, patch, record, as_job="claimed", claim=True)
    with pytest.raises(SnapshotInUse, match="the source of a restore of job 'claimed'"):
        catalog.restore(record)
