"""A folder that cannot be listed for a moment is not an empty one, and a path is not missing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.storage_place import StoragePlace
from jrs.records.codec import decode
from jrs.records.heads import StreamHead
from jrs.records.model import StageRecord
from jrs.records.objects import OutputManifest, StoredObject
from jrs.recovery.attempt.collect_output import collect
from jrs.recovery.attempt.stage_outputs import OutputsInObjects
from jrs.recovery.attempt.uploads import Uploads
from jrs.recovery.files import batch_folders, closed_inputs, publish_at_path, safe_listing, transfer
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.inspect.stage_output import OutputInFolder
from jrs.recovery.snapshots.left_out import newest_batch
from tests.recovery.support import CLUSTER, fail_to_list

NAMED = StoredObject("job/data/e1.a1.x/s/out/0", 1, "0" * 64)
RECORD = StageRecord(
    "job", "s", 1, attempt=1, seconds=1.0, finished_at=1.0, epoch=1, published="s.1"
)
PART = f"part-{'0' * 32}.parquet"


@contextmanager
def failing(
    monkeypatch: pytest.MonkeyPatch, path: Path, number: int = errno.EMFILE
) -> Iterator[None]:
    with monkeypatch.context() as patch:
        fail_to_list(patch, path, number)
        yield


def days(folder: Path) -> Path:
    """Make an output of two partitions; return the one that will not be listed."""
    for day in (1, 2):
        (folder / f"day={day}").mkdir(parents=True)
        (folder / f"day={day}" / "rows.parquet").touch()
    return folder / "day=2"


# -- listing ------------------------------------------------------------------------------------


def test_a_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")

    assert [
        (str(at.relative_to(tmp_path)), *names) for at, *names in safe_listing.walk(tmp_path)
    ] == [
        (".", ["a"], ["link"]),
        ("a", ["day=1", "day=2"], []),
        ("a/day=1", [], ["rows.parquet"]),
        ("a/day=2", [], ["rows.parquet"]),
    ]
    assert list(safe_listing.walk(tmp_path / "none", missing_ok=True)) == []
    with pytest.raises(FileNotFoundError):
        list(safe_listing.walk(tmp_path / "none"))
    for missing_ok in (False, True):
        with failing(monkeypatch, tmp_path / "a"), pytest.raises(OSError, match="Too many open"):
            list(safe_listing.walk(tmp_path, missing_ok=missing_ok))


def test_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days(tmp_path / "a")

    assert safe_listing.names_in(tmp_path / "a") == ["day=1", "day=2"]
    assert safe_listing.names_in(tmp_path / "none") == []
    assert safe_listing.names_in(tmp_path / "a/day=1/rows.parquet") == []
    with failing(monkeypatch, tmp_path / "a"), pytest.raises(Unavailable, match="listing"):
        safe_listing.names_in(tmp_path / "a")


def test_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest of a stage names all of its rows, or none is written."""
    unlisted, stored = days(tmp_path), dict[str, Any]()
    objects = cast(Any, SimpleNamespace(put=stored.__setitem__))
    uploads = Uploads(objects, "job", 1, 1, "0" * 32)
    with failing(monkeypatch, unlisted), pytest.raises(OSError, match="Too many open files"):
        uploads.put_output("s", tmp_path)
    assert stored == {}
    manifest = decode(OutputManifest, stored[uploads.put_output("s", tmp_path).name], "")

    assert [one.path for one in manifest.files] == ["day=1/rows.parquet", "day=2/rows.parquet"]


def test_the_files_of_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unlisted = days(tmp_path)
    output = OutputInFolder(tmp_path)
    with failing(monkeypatch, unlisted), pytest.raises(Unavailable):
        output.files()
    with failing(monkeypatch, unlisted), pytest.raises(Unavailable):
        output.has_sink_log(anywhere=True)
    with failing(monkeypatch, tmp_path), pytest.raises(Unavailable):
        output.exists()

    assert len(output.files()) == 2


def test_the_batches_of_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that keeps the cursor would never see the batches that were passed over."""
    for batch in range(2):
        (tmp_path / f"batch={batch}").mkdir()
        (tmp_path / f"batch={batch}" / PART).touch()
    for unlisted in (tmp_path, tmp_path / "batch=1"):
        with failing(monkeypatch, unlisted), pytest.raises(Unavailable):
            OutputInFolder(tmp_path).rows(-1, 1)
        with failing(monkeypatch, unlisted), pytest.raises(Unavailable):
            list(batch_folders.published(tmp_path))

    assert OutputInFolder(tmp_path).newest(StreamHead("job", "s", 1, 1, plan="p")) == 1


def test_only_the_newest_batch_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of months has a million batches; each start of an attempt asks for the newest."""
    for batch in range(12):
        (tmp_path / f"batch={batch}").mkdir()
        (tmp_path / f"batch={batch}" / PART).touch()
    (tmp_path / "batch=99").mkdir()
    (tmp_path / "batch=99" / "a column of the job.txt").touch()
    listed: list[str] = []

    def listing(folder: Path) -> list[str]:
        listed.append(folder.name)
        return safe_listing.names_in(folder)

    monkeypatch.setattr(batch_folders, "names_in", listing)

    assert newest_batch(tmp_path) == 11
    assert listed == [tmp_path.name, "batch=99", "batch=11"]
    assert newest_batch(tmp_path / "none") == -1


def test_what_is_made_durable(storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = storage.staging("job", 1, "s", 1)
    unlisted = days(staging)
    with failing(monkeypatch, unlisted), pytest.raises(Unavailable, match="synced"):
        storage.make_durable(staging)
    with failing(monkeypatch, unlisted), pytest.raises(OSError, match="Too many open files"):
        transfer.sync_folders(staging)

    assert storage.make_durable(staging)


def test_staging_at_a_take_over(storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the older attempt has staged is removed, or the folder is not taken over."""
    staged = storage.stream("job", 1, "s") / "staging" / PART
    staged.touch()
    streams = storage.folder("job") / ".e1.withdrawn" / "streams"
    with failing(monkeypatch, streams), pytest.raises(Unavailable):
        storage.take_over("job", 2, staged=(), link_checkpoint=transfer.link_tree)
    folder = storage.take_over("job", 2, staged=(), link_checkpoint=transfer.link_tree)

    assert not (folder / "streams/s/staging").exists()


def test_closed_inputs_and_publishing(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unlisted = days(tmp_path / "a")
    with failing(monkeypatch, unlisted), pytest.raises(Unavailable):
        closed_inputs.links_in(tmp_path / "a")
    staging = storage.staging("job", 1, "all", 1)
    with failing(monkeypatch, unlisted), pytest.raises(Unavailable):
        collect([("s", tmp_path / "a")], staging)


# -- testing a path -----------------------------------------------------------------------------


def test_what_a_path_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, loop = tmp_path / "file", tmp_path / "loop"
    file.touch()
    loop.symlink_to(loop)

    assert [safe_listing.is_folder(path) for path in (tmp_path, file, file / "x")] == [
        True,
        False,
        False,
    ]
    assert [safe_listing.is_file(path) for path in (tmp_path, file, loop)] == [False, True, False]
    assert [safe_listing.exists(path) for path in (file, loop, tmp_path / "x")] == [
        True,
        False,
        False,
    ]
    assert not safe_listing.exists(tmp_path / ("x" * 300))
    for ask in (safe_listing.is_folder, safe_listing.is_file, safe_listing.exists):
        with failing(monkeypatch, file, errno.ESTALE), pytest.raises(Unavailable, match="Stale"):
            ask(file)


def test_publishing_a_stage(storage: JobStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is the commit: the job is tried again, and is neither failed nor shut out."""
    staged = storage.staging("job", 1, "s", 1)
    target = storage.published("job", "s", temporary=False)
    with failing(monkeypatch, staged, errno.EIO), pytest.raises(Unavailable):
        storage.publish(RECORD, 1)
    with failing(monkeypatch, target, errno.ESTALE), pytest.raises(Unavailable):
        storage.publish(RECORD, 1)
    storage.publish(RECORD, 1)

    assert target.is_dir()


def test_publishing_at_a_path(
    storage: JobStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "mine" / "table"
    record = attrs.evolve(RECORD, target=str(target))
    staged = storage.staging("job", 1, "s", 1)
    target.parent.mkdir()
    with failing(monkeypatch, target.parent, errno.ESTALE), pytest.raises(Unavailable):
        publish_at_path.check(target, storage)
    with (
        failing(monkeypatch, target.parent, errno.EACCES),
        pytest.raises(InvalidInput, match="no permission to look at"),
    ):
        publish_at_path.check(target, storage)
    with failing(monkeypatch, staged, errno.ESTALE), pytest.raises(Unavailable):
        publish_at_path.publish(storage, record, 1)
    with pytest.raises(InvalidInput, match="there is no folder"):
        publish_at_path.check(target / "below", storage)
    publish_at_path.publish(storage, record, 1)

    assert target.is_dir()


def test_output_in_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    storage = JobStorage(StoragePlace(tmp_path), CLUSTER)
    outputs = OutputsInObjects(
        cast(Any, SimpleNamespace(storage=storage, job_id="job", epoch=1, attempt=1))
    )
    record = attrs.evolve(RECORD, manifest=NAMED)
    staged, copy = storage.folder("job") / "e1" / "s.1", storage.copies("job") / f"s.{'0' * 16}"
    with failing(monkeypatch, copy, errno.EIO), pytest.raises(Unavailable):
        outputs.folder(record)
    with failing(monkeypatch, staged, errno.EIO), pytest.raises(Unavailable):
        outputs.publish(record)
