"""Exported snapshots that were tampered with: nothing is written outside of the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.errors import DamagedSnapshot
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import StageRecord
from jrs.records.snapshots import Manifest, SnapshotFile
from jrs.recovery.snapshots import SnapshotCatalog
from tests.recovery.snapshots.fabricate import FakeJob, tree


def tampered(exported: Path, **changes: Any) -> None:
    """Rewrite the manifest of an exported snapshot, checksum included."""
    path = exported / "manifest.json"
    manifest = decode(Manifest, path.read_bytes(), str(path))
    path.write_bytes(encode(attrs.evolve(manifest, **changes)))


@pytest.mark.parametrize("names", [("in/a", "in/a/b"), ("in/a/b", "in/a"), ("in/a", "in/a/b/c")])
def test_nested_links(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, names: tuple[str, str]
) -> None:
    """X2: a link below another link would be made wherever that one leads to."""
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    catalog.create("job")
    catalog.export("job", 1, tmp_path / "copy")
    tampered(tmp_path / "copy", links={name: str(outside) for name in names})

    with pytest.raises(DamagedSnapshot, match=r"'in/a/b.*' is below 'in/a', which is not a folder"):
        catalog.restore(tmp_path / "copy", as_job="new")

    assert sorted(outside.rglob("*")) == [outside / "b"]
    assert catalog.backend.get(keys.JOBS + "new") is None


@pytest.mark.parametrize("place", ["in/a/b", "snapshots/1/manifest.json", "logs/x", "epoch/x"])
def test_files_elsewhere(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, place: str
) -> None:
    """X2: a snapshot has files of checkpoints and of output, and nothing else of a job's folder."""
    catalog.create("job")
    catalog.export("job", 1, tmp_path / "copy")
    files = tmp_path / "copy" / "files"
    (files / place).parent.mkdir(parents=True, exist_ok=True)
    (files / "out/typed/table.parquet").rename(files / place)
    path = tmp_path / "copy" / "manifest.json"
    listed = decode(Manifest, path.read_bytes(), str(path)).files
    moved = tuple(_moved(each, place) for each in listed)
    tampered(tmp_path / "copy", files=moved)

    with pytest.raises(DamagedSnapshot, match=f"the path '{place}' is not below"):
        catalog.restore(tmp_path / "copy", as_job="new")

    assert tree(job.storage.root / "new") == {}


def _moved(file: SnapshotFile, place: str) -> SnapshotFile:
    return attrs.evolve(file, path=place) if file.path == "out/typed/table.parquet" else file


@pytest.mark.parametrize("change", [{"name": "../../other"}, {"published": "../../other/out"}])
def test_stages_of_others(
    catalog: SnapshotCatalog, job: FakeJob, tmp_path: Path, change: dict[str, Any]
) -> None:
    """X2: a stage's record names folders, too; those of the job alone are accepted."""
    catalog.create("job")
    catalog.export("job", 1, tmp_path / "copy")
    path = tmp_path / "copy" / "manifest.json"
    records = decode(Manifest, path.read_bytes(), str(path)).records
    stage = decode(StageRecord, records["stages/typed"].encode(), "typed")
    changed = encode(attrs.evolve(stage, **change)).decode()
    tampered(tmp_path / "copy", records={**records, "stages/typed": changed})

    with pytest.raises(DamagedSnapshot, match="names another folder than its own"):
        catalog.restore(tmp_path / "copy", as_job="new")

    assert catalog.backend.get(keys.JOBS + "new") is None
