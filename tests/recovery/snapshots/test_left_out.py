"""Restoring snapshots without output: only where the output is as it was then."""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import Any

import attrs
import pytest

from jrs.contract.errors import InvalidInput
from jrs.records.snapshots import SnapshotFormat
from jrs.recovery.snapshots import SnapshotCatalog, left_out
from tests.recovery.snapshots.fabricate import FakeJob, file_sink, jrs_sink, tree

SINKS = [(file_sink, ""), (file_sink, "day"), (jrs_sink, "")]


def publish(job: FakeJob, batches: int, sink: Any = jrs_sink, inside: str = "") -> None:
    """Have the output of the stream end before the batch `batches`."""
    shutil.rmtree(job.out("hourly"), ignore_errors=True)
    sink(job.out("hourly") / inside, batches)


def without_output(catalog: SnapshotCatalog) -> Any:
    return catalog.create("job", output=False)


@pytest.mark.parametrize(("sink", "inside"), SINKS)
def test_output_that_another_restore_took_back(
    catalog: SnapshotCatalog, job: FakeJob, sink: Any, inside: str
) -> None:
    """The rows in between would be in no batch that is ever published; nor does a leader take such
    a snapshot by itself."""
    publish(job, 5, sink, inside)
    early = catalog.create("job", format=SnapshotFormat.FULL)
    job.query.run(4)
    publish(job, 9, sink, inside)
    late = without_output(catalog)
    assert catalog.restore(late)
    assert catalog.newest_usable("job").record == late
    catalog.restore(early)
    before = tree(job.storage.folder("job"))

    with pytest.raises(InvalidInput, match=r"batch 8, the newest in .*hourly.* then, is missing"):
        catalog.restore(late)
    found = catalog.newest_usable("job")
    assert (found.record, [record for record, _ in found.skipped]) == (early, [late])
    assert tree(job.storage.folder("job")) == before


@pytest.mark.parametrize("left", [0, 2])
def test_one_of_two_tables(catalog: SnapshotCatalog, job: FakeJob, left: int) -> None:
    """A stage may write several, each with a log of its own."""
    publish(job, 5, file_sink, "a")
    file_sink(job.out("hourly") / "b", 5)
    record = without_output(catalog)
    assert catalog.restore(record)
    shutil.rmtree(job.out("hourly") / "b")
    file_sink(job.out("hourly") / "b", left)

    with pytest.raises(InvalidInput, match=r"batch 4, the newest in .*hourly/b then, is missing"):
        catalog.restore(record)


@pytest.mark.parametrize("lost", ["the output of the stream", "the output of a finished stage"])
def test_output_that_was_removed(catalog: SnapshotCatalog, job: FakeJob, lost: str) -> None:
    """A user who has removed it says so with an empty folder in its place."""
    publish(job, 5)
    record = without_output(catalog)
    stage = "hourly" if lost == "the output of the stream" else "typed"
    place = job.out(stage) / ("batch=4" if stage == "hourly" else "")
    shutil.rmtree(job.out(stage))

    with pytest.raises(InvalidInput, match=f"removed it yourself, create the folder {place}"):
        catalog.restore(record)
    place.mkdir(parents=True)
    assert catalog.restore(record)


def test_a_log_where_no_batch_counts(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A batch stage may run a query, or copy a table with its log; a stream may have published
    nothing yet."""
    file_sink(job.out("typed") / "copy", 3)
    publish(job, 0)
    (job.out("hourly") / "_spark_metadata").mkdir(parents=True)
    record = without_output(catalog)

    assert catalog.manifest("job", 1).left_out == {"out/hourly": -1, "out/typed": -1}
    assert catalog.restore(record)
    shutil.rmtree(job.out("typed"))
    with pytest.raises(InvalidInput, match=r"create the folder .*/out/typed$"):
        catalog.restore(record)


def test_batches_of_jrs_next_to_a_log(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """The stream has written by a sink of Spark before."""
    publish(job, 4)
    file_sink(job.out("hourly"), 2)
    record = without_output(catalog)

    assert catalog.restore(record)
    for part in (job.out("hourly") / "batch=3").iterdir():
        part.unlink()
    with pytest.raises(InvalidInput, match="batch 3, the newest in"):
        catalog.restore(record)


def test_a_log_without_its_batch(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """No folder can stand for a batch of a file sink: what its log does not name does not count."""
    record = without_output(catalog)
    publish(job, 3, file_sink)
    (job.out("hourly") / "batch=4").mkdir()

    with pytest.raises(InvalidInput, match=r"restore one with output$"):
        catalog.restore(record)


def test_older_batches_that_were_removed(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Users remove old rows, before the snapshot and after it; and batches without rows publish
    nothing."""
    publish(job, 4)
    job.query.run(3)
    shutil.rmtree(job.out("hourly") / "batch=0")
    record = without_output(catalog)
    assert catalog.manifest("job", 1).left_out == {"out/hourly": 3, "out/typed": -1}
    for batch in (1, 2):
        shutil.rmtree(job.out("hourly") / f"batch={batch}")
    assert catalog.restore(record)
    (rows,) = (job.out("hourly") / "batch=3").iterdir()
    rows.unlink()
    assert catalog.restore(record)


def test_output_that_was_gone_already(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Only what was there has to be there."""
    shutil.rmtree(job.out("hourly"))
    shutil.rmtree(job.out("typed"))
    record = without_output(catalog)

    assert catalog.restore(record)


def test_output_that_is_not_in_its_place_yet(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """A restore removes the epoch's folder, and it with that."""
    os.rename(job.out("typed"), job.epoch / "typed.1")
    record = without_output(catalog)

    with pytest.raises(InvalidInput, match="/out/typed is missing now"):
        catalog.restore(record)
    os.rename(job.epoch / "typed.1", job.out("typed"))
    assert catalog.restore(record)


def test_a_batch_that_is_published_meanwhile(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """It is none of the snapshot's; a restore is refused while it is there."""
    publish(job, 6)
    record = without_output(catalog)

    assert catalog.manifest("job", 1).left_out == {"out/hourly": 4, "out/typed": -1}
    with pytest.raises(InvalidInput, match="at batch 5, ahead of batch 4"):
        catalog.restore(record)


def test_a_snapshot_of_an_older_version(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """It does not say what was there: only an output that is ahead is known to be another one."""
    without_output(catalog)
    older = attrs.evolve(catalog.manifest("job", 1), left_out=None)
    check = partial(left_out.check, job.storage, older)

    publish(job, 3)
    check()
    publish(job, 6)
    with pytest.raises(InvalidInput, match="at batch 5, ahead of batch 4"):
        check()


def test_an_exported_snapshot_names_no_other_folder(catalog: SnapshotCatalog, job: FakeJob) -> None:
    """Anyone may have written it."""
    without_output(catalog)
    found = catalog.manifest("job", 1)

    for path in ("out/../../x", "streams/hourly", "out"):
        with pytest.raises(InvalidInput):
            attrs.evolve(found, left_out={path: 1}).check()
