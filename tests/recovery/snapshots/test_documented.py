"""The property matrix of the formats, as it is documented and as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.snapshots import SnapshotCatalog
from tests.recovery.snapshots.fabricate import FakeJob

DOCS = Path(__file__).parents[3] / "docs" / "snapshots.md"


def matrix() -> dict[str, dict[str, str]]:
    """Return the documented properties of each format."""
    rows = [
        [cell.strip(" `*") for cell in line.strip("|").split("|")]
        for line in DOCS.read_text().splitlines()
        if line.startswith("|")
    ]
    head = next(row for row in rows if "incremental" in row)
    rows = rows[rows.index(head) : rows.index(head) + 7]
    return {row[0].split("`")[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}


@pytest.mark.parametrize("how", SnapshotFormat, ids=lambda how: how.value)
def test_every_format_is_in_the_matrix(how: SnapshotFormat) -> None:
    """With every property, and what it says of recovery is what restore does (N5, N9)."""
    documented = matrix()[how.value]

    assert len(documented) == 8
    assert all(documented.values())
    assert documented["recovery"].startswith("yes") is how.is_restorable


@pytest.mark.parametrize("how", ["link", "full", "cas"])
def test_incremental_as_documented(catalog: SnapshotCatalog, job: FakeJob, how: str) -> None:
    """A second snapshot of the same state is free exactly where the matrix says so (N9, R1)."""
    catalog.create("job", format=SnapshotFormat(how))

    new = catalog.create("job", format=SnapshotFormat(how)).new_bytes

    assert matrix()[how]["incremental"].startswith("yes") is (new == 0)
