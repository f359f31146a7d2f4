"""The property matrix of the formats, as it is documented and as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.records.snapshot_formats import PROPERTIES, matrix
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.snapshots import SnapshotCatalog, folders
from tests.recovery.snapshots.fabricate import FakeJob

DOCS = Path(__file__).parents[3] / "docs" / "snapshots.md"


def test_the_matrix_in_the_docs() -> None:
    """U11: the page has the table of the code, with every format and every property (N5, N9)."""
    table = "\n".join(matrix())

    assert set(PROPERTIES) == set(SnapshotFormat)
    assert table in DOCS.read_text(), f"docs/snapshots.md must have:\n{table}"


@pytest.mark.parametrize("how", ["link", "full", "cas"])
def test_incremental_as_documented(catalog: SnapshotCatalog, job: FakeJob, how: str) -> None:
    """A second snapshot of the same state is free exactly where the matrix says so (N9, R1)."""
    catalog.create("job", format=SnapshotFormat(how))

    new = catalog.create("job", format=SnapshotFormat(how)).new_bytes

    assert PROPERTIES[SnapshotFormat(how)].incremental.startswith("yes") is (new == 0)


@pytest.mark.parametrize("how", ["link", "full", "cas"])
def test_space_as_documented(catalog: SnapshotCatalog, job: FakeJob, how: str) -> None:
    """Only links take none (R1): every file of the checkpoint has the inode of the job's own."""
    catalog.create("job", format=SnapshotFormat(how))
    linked = {path.stat().st_ino for path in job.query.ck.rglob("*") if path.is_file()}
    folder = folders.snapshot(catalog.storage, "job", 1) / "files" / "streams"
    own = {path.stat().st_ino for path in folder.rglob("*") if path.is_file()}

    assert PROPERTIES[SnapshotFormat(how)].space.startswith("none") is bool(own & linked)
