"""Which files of a stage's output count, and which are new since an earlier look."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs import (
    Client,
    HistoryChanged,
    InvalidInput,
    NotFound,
    OutputFiles,
    ResultExpired,
    Unavailable,
    WrongState,
)
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Create, Delete, Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.heads import StreamHead
from jrs.records.model import JobResult, JobSpec, JobStatus, StageRecord
from jrs.records.stages import TAKEN_OVER
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files import batch_folders, safe_listing
from jrs.recovery.files.job_folders import JobStorage
from jrs.store import heads
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead, present
from tests.recovery.support import FaultyMemory


@attrs.frozen
class Output:
    """The output of a job that runs, as its attempts and its leader leave it."""

    backend: FaultyMemory
    storage: JobStorage

    def files(self, stage: str = "words", since: str = "") -> OutputFiles:
        return Client(self.backend, storage=self.storage.root.parent).job("job").files(stage, since)

    def names(self, stage: str = "words", since: str = "") -> list[str]:
        out = self.out(stage)
        return [path.relative_to(out).as_posix() for path in self.files(stage, since).paths]

    def out(self, stage: str) -> Path:
        return self.storage.published("job", stage, temporary=False)

    def write(self, stage: str, name: str) -> None:
        path = self.out(stage) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def batch(self, batch: int, *, folder: str = "", publish: bool = True) -> None:
        """Commit a batch with one file, and publish it."""
        key = keys.head("job", "words")
        found = heads.stored(self.backend, "job", "words")
        generation = 1 if found is None else found[0].generation
        head = encode(StreamHead("job", "words", generation, batch, "plan", folder))
        self.backend.commit(
            Create(key, head) if found is None else Update(key, head, found[1].version)
        )
        if publish:
            self.write("words", f"batch={batch}/part-{batch:032x}.parquet")

    def restore(self, batch: int) -> None:
        """Take the job back to a batch, as a restore does."""
        self.backend.commit(*heads.restored_ops(self.backend, "job", {"words": batch}))
        for number in list(batch_folders.published(self.out("words"))):
            if number > batch:
                (self.out("words") / f"batch={number}").rename(
                    self.storage.root / f"taken-back-{number}-{os.urandom(4).hex()}"
                )

    def finish(self, stage: str, attempt: int = 1, **fields: Any) -> None:
        record = StageRecord("job", stage, None, attempt, 7, 1.0, 1.0, published=stage, **fields)
        stored = self.backend.get(keys.stage("job", stage))
        if stored is not None:
            self.backend.commit(Delete(stored.key))
        self.backend.commit(Create(keys.stage("job", stage), encode(record)))

    def end(self, *stages: StageRecord) -> None:
        """End the job, and clean up after it."""
        store = JobResultStore(self.backend)
        with lead(self.backend) as leadership:
            result = JobResult(
                "job", JobStatus.FINISHED, None, None, 1, leadership.epoch, 1.0, 2.0,
                stages=tuple(stage.summary() for stage in stages),
            )  # fmt: skip
            store.create_dirty(result, leadership.fence)
            cleanup = JobCleanup(self.backend, default_resources(self.backend, self.storage))
            assert cleanup.run("job", leadership.fence).problems == {}


@pytest.fixture
def output(memory: FaultyMemory, tmp_path: Path) -> Output:
    JobCatalog(memory).submit(JobSpec("job", "m:f"))
    storage = JobStorage(tmp_path / "files", memory.cluster)
    storage.make()
    return Output(memory, storage)


def test_each_batch_is_returned_once(output: Output) -> None:
    """A reader that passes the cursor on gets the files of each batch once, in order."""
    assert output.files() == OutputFiles((), "")
    for batch in range(9, 12):
        output.batch(batch)
    first = output.files()
    output.batch(12)
    output.batch(13, publish=False)  # Without rows, and perhaps planned again with some.
    second = output.files(since=first.cursor)

    assert [path.parent.name for path in first.paths] == ["batch=9", "batch=10", "batch=11"]
    assert [path.parent.name for path in second.paths] == ["batch=12"]
    assert second.cursor == "g1.b12"
    output.write("words", f"batch=13/part-{13:032x}.parquet")
    assert output.names(since="g1.b12") == [f"batch=13/part-{13:032x}.parquet"]
    assert output.files(since="g1.b13") == OutputFiles((), "g1.b13")


def test_what_a_reader_with_a_cursor_lists(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the folders of new batches: a stream of months has published a million of them."""
    for batch in range(20):
        output.batch(batch)
    cursor = output.files().cursor
    listed: list[str] = []

    def listing(folder: Path) -> list[str]:
        listed.append(folder.name)
        return safe_listing.names_in(folder)

    monkeypatch.setattr(batch_folders, "names_in", listing)

    assert output.files(since=cursor) == OutputFiles((), cursor)
    assert set(listed) == {"batch=19"}
    output.batch(20)
    output.batch(21)
    listed.clear()
    new = [f"batch={batch}/part-{batch:032x}.parquet" for batch in (20, 21)]
    assert output.names(since=cursor) == new
    assert set(listed) == {"batch=20", "batch=21"}
    output.batch(9999)  # Those in between had no rows.
    listed.clear()
    assert output.names(since=cursor) == [*new, f"batch=9999/part-{9999:032x}.parquet"]
    assert sorted(set(listed)) == ["batch=20", "batch=21", "batch=9999", "words"]


def test_a_folder_that_no_head_names_does_not_count(output: Output) -> None:
    """A batch that a driver publishes that was shut out is not returned."""
    output.batch(0)
    output.write("words", f"batch=1/part-{1:032x}.parquet")

    assert output.names() == [f"batch=0/part-{0:032x}.parquet"]
    assert output.files().cursor == "g1.b0"


@pytest.mark.parametrize("name", [".DS_Store", "_SUCCESS", "notes.txt", "_temporary/0/half"])
def test_what_others_put_into_the_folder_of_a_batch(output: Output, name: str) -> None:
    """The rows of the batch are returned all the same, and nothing else."""
    for batch in range(3):
        output.batch(batch)
    output.write("words", f"batch=1/{name}")

    assert output.names() == [f"batch={batch}/part-{batch:032x}.parquet" for batch in range(3)]


def test_a_committed_batch_that_is_not_published_yet_comes_later(output: Output) -> None:
    """The cursor stays before a batch whose rows the next attempt publishes."""
    output.batch(0)
    output.batch(1, folder="batch=1.ab", publish=False)
    early = output.files()
    output.write("words", f"batch=1/part-{1:032x}.parquet")

    assert early.cursor == "g1.b0"
    assert output.names(since=early.cursor) == [f"batch=1/part-{1:032x}.parquet"]


@pytest.mark.parametrize("begun", [False, True])
def test_batches_that_are_committed_during_a_look(
    output: Output, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """The cursor never passes a batch whose files were not returned."""
    if begun:
        output.batch(0)
    view, committed = JobCatalog.view, list[int]()

    def during(catalog: JobCatalog, job_id: str) -> Any:
        for batch in (1, 2) if not committed else ():
            output.batch(batch)
            committed.append(batch)
        return view(catalog, job_id)

    monkeypatch.setattr(JobCatalog, "view", during)
    found = output.files()
    more = output.files(since=found.cursor)

    names = [path.parent.name for path in (*found.paths, *more.paths)]
    assert names == [f"batch={batch}" for batch in range(0 if begun else 1, 3)]
    assert more.cursor == "g1.b2"


def test_a_stream_that_begins_during_a_look(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for one that no head counts."""
    published, begun = batch_folders.published, list[int]()

    def during(out: Path) -> Iterator[int]:
        if not begun:
            begun.append(1)
            output.batch(0)
        return published(out)

    monkeypatch.setattr(batch_folders, "published", during)

    assert output.names() == [f"batch=0/part-{0:032x}.parquet"]


@pytest.mark.parametrize("ended", [False, True])
def test_a4_a_restore_is_told(output: Output, ended: bool) -> None:
    """A4: a reader whose batches were taken back is told, also when the job has ended since."""
    for batch in range(4):
        output.batch(batch)
    cursor = output.files().cursor
    output.restore(1)
    output.batch(2)
    if ended:
        output.end()

    with pytest.raises(HistoryChanged, match=r"'words' of job 'job' was restored .* since g1\.b3"):
        output.files(since=cursor)
    again = output.files()
    assert [path.parent.name for path in again.paths] == ["batch=0", "batch=1", "batch=2"]
    assert again.cursor == "g2.b2"


def test_a_restore_while_it_is_read(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is returned of a listing during which batches were taken back."""
    for batch in range(4):
        output.batch(batch)
    numbered = batch_folders.numbered
    restored: list[int] = []

    def then_restore(out: Path) -> list[int]:
        found = numbered(out)
        if not restored:
            restored.append(1)
            output.restore(1)
        return found

    monkeypatch.setattr(batch_folders, "numbered", then_restore)
    found = output.files()

    assert [path.parent.name for path in found.paths] == ["batch=0", "batch=1"]
    assert found.cursor == "g2.b1"


def test_while_a_restore_is_under_way(output: Output, memory: FaultyMemory) -> None:
    """The output is taken away before the head moves: nothing is returned, and no cursor."""
    output.batch(0)
    output.write("ingest", "one.csv")
    output.finish("ingest")
    memory.commit(Create(keys.RESTORES + "job", b"under way"))

    for stage in ("words", "ingest"):
        with pytest.raises(WrongState, match="job 'job' is being restored; wait for that"):
            output.files(stage)


def test_a_restore_that_is_given_up(output: Output, memory: FaultyMemory) -> None:
    """A job that is canceled during its restore may have lost batches: a reader is told."""
    output.batch(0)
    cursor = output.files().cursor
    memory.commit(Create(keys.RESTORES + "job", b"under way"))
    output.end()

    with pytest.raises(HistoryChanged):
        output.files(since=cursor)
    assert output.files().cursor == "g2.b0"


def test_a_fork_that_has_not_begun(output: Output) -> None:
    """Its output is there, and no head says yet which batches count."""
    output.write("words", f"batch=0/part-{0:032x}.parquet")

    with pytest.raises(WrongState, match="job 'job' has not been started since it was made"):
        output.files()


def test_a_stream_that_was_taken_over(output: Output) -> None:
    """A stream that another job has finished is an output like any other."""
    output.write("words", f"batch=0/part-{0:032x}.parquet")
    output.finish("words", attempt=TAKEN_OVER)
    found = output.files()
    output.end(StageRecord("job", "words", None, TAKEN_OVER, 7, 1.0, 1.0))

    assert [path.parent.name for path in found.paths] == ["batch=0"]
    assert output.files(since=found.cursor) == OutputFiles((), found.cursor)


def test_an_output_that_never_rests(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look ends, however often the output changes."""
    output.batch(0)
    numbered = batch_folders.numbered

    def then_restore(out: Path) -> list[int]:
        output.backend.commit(*heads.restored_ops(output.backend, "job", {"words": 0}))
        return numbered(out)

    monkeypatch.setattr(batch_folders, "numbered", then_restore)

    with pytest.raises(Unavailable, match="changed at each of 100 looks"):
        output.files()


def test_the_job_ends_between_two_looks(output: Output) -> None:
    """A cursor of a running job serves for the rest of the output after the job's end."""
    output.batch(0)
    cursor = output.files().cursor
    output.batch(1)
    output.end()

    assert output.names(since=cursor) == [f"batch=1/part-{1:032x}.parquet"]
    assert output.files(since=cursor).cursor == "g1.b1"
    assert output.files(since="g1.b1") == OutputFiles((), "g1.b1")


@pytest.mark.parametrize("since", ["", "g1.b0"])
def test_output_that_was_removed_is_told_from_none(output: Output, since: str) -> None:
    """Of a stage that had output, a reader is told that it is missing. One that wrote nothing has
    no files, as before, and so has one of which an older version recorded no more."""
    output.batch(0)
    stages = [
        StageRecord("job", "words", None, 1, 7, 1.0, 1.0, has_rows=True),
        StageRecord("job", "ingest", None, 1, 7, 1.0, 1.0, published="ingest.1"),
        StageRecord("job", "idle", None, 1, 7, 1.0, 1.0),
        StageRecord("job", "passing", None, 1, 7, 1.0, 1.0, published="p.1", temporary=True),
        StageRecord("job", "there", None, 1, 7, 1.0, 1.0, published="t.1", target="/table"),
    ]
    output.write("ingest", "one.csv")
    output.end(*stages)
    assert len(output.files("words").paths) == len(output.files("ingest").paths) == 1
    read = output.files("ingest")
    shutil.rmtree(output.out("words").parent)

    with pytest.raises(
        NotFound,
        match=r"the output of stage .words. .* which has ended, is missing from /.*/out/words",
    ):
        output.files(since=since)
    with pytest.raises(NotFound, match=r"the output of stage .ingest. .* is missing"):
        output.files("ingest")
    assert output.files("ingest", read.cursor) == OutputFiles((), read.cursor)
    for stage in ("idle", "passing", "there"):
        assert output.files(stage) == OutputFiles((), "e7.a1")


def test_a_batch_stage(output: Output) -> None:
    """All files count once the stage has finished, but for those that Spark hides."""
    for name in ("a/one.parquet", "two.csv", "_SUCCESS", ".two.csv.crc", "_log/three", "a/.hidden"):
        output.write("ingest", name)
    output.write("ingest", "_year=2026/three.csv")
    early = output.files("ingest")
    output.finish("ingest")

    assert early == OutputFiles((), "")
    assert output.names("ingest") == ["_year=2026/three.csv", "a/one.parquet", "two.csv"]
    cursor = output.files("ingest").cursor
    assert output.files("ingest", since=cursor) == OutputFiles((), cursor)
    output.end(StageRecord("job", "ingest", None, 1, 7, 1.0, 1.0))
    assert output.files("ingest", since=cursor) == OutputFiles((), cursor)


def test_a_batch_stage_that_ran_again(output: Output) -> None:
    """After a restore to a moment before a stage, its output is another one."""
    output.write("ingest", "one.csv")
    output.finish("ingest")
    cursor = output.files("ingest").cursor
    output.finish("ingest", attempt=2)

    with pytest.raises(HistoryChanged, match=r"'ingest' of job 'job' ran again since e7\.a1"):
        output.files("ingest", since=cursor)


def test_a_stage_that_is_recorded_and_not_published(output: Output) -> None:
    """The record comes first: until the output is there, nothing is returned, and no cursor."""
    output.finish("ingest")
    assert output.files("ingest") == OutputFiles((), "")
    output.write("ingest", "one.csv")

    assert output.names("ingest") == ["one.csv"]


@pytest.mark.parametrize("field", [{"temporary": True}, {"target": "/warehouse/ingest"}])
def test_output_that_is_elsewhere(output: Output, field: dict[str, Any]) -> None:
    """It is said where it is, instead of that there is none."""
    output.finish("ingest", **field)

    with pytest.raises(WrongState, match=r"is temporary, for later|is at /warehouse/ingest"):
        output.files("ingest")


def test_an_expired_job(output: Output, memory: FaultyMemory) -> None:
    """With the result it is forgotten what a cursor stands for; the output is still there."""
    output.batch(0)
    output.restore(0)
    cursor = output.files().cursor
    output.end()
    JobResultStore(memory).expire(0.0)

    with pytest.raises(ResultExpired, match=r"was expired, and with it what g2\.b0 stands for"):
        output.files(since=cursor)
    assert output.names() == [f"batch=0/part-{0:032x}.parquet"]
    assert output.files().cursor == ""


def test_the_cursor_of_a_stream_for_a_batch_stage_that_has_ended(output: Output) -> None:
    """It is no cursor of this stage, also after the job's end."""
    output.write("ingest", "one.csv")
    output.finish("ingest")
    output.end(StageRecord("job", "ingest", None, 1, 7, 1.0, 1.0))

    with pytest.raises(HistoryChanged):
        output.files("ingest", since="g1.b1")


def test_a_stage_that_never_was(output: Output) -> None:
    """While the job runs a stage may still begin; afterwards, a wrong name is told."""
    assert output.files("wrods") == OutputFiles((), "")
    output.end()

    with pytest.raises(NotFound, match="has ended, and no stage 'wrods' of it has output"):
        output.files("wrods")


@pytest.mark.parametrize(
    "since", ["x", "g0.b1", "g1.b", "g1.b-2", "g1.b1 ", "e1", "\x1b[2J", "g" * 999, None, 3]
)
def test_no_cursor(output: Output, since: Any) -> None:
    """What is no cursor is refused, in one line."""
    with pytest.raises(InvalidInput, match="is not a cursor") as caught:
        output.files(since=since)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_cursor_of_another_kind_of_stage(output: Output) -> None:
    """The cursor of a stream says nothing of a batch stage, and the other way round."""
    output.batch(0)
    output.write("ingest", "one.csv")
    output.finish("ingest")

    with pytest.raises(HistoryChanged):
        output.files("words", since="e7.a1")
    with pytest.raises(HistoryChanged):
        output.files("ingest", since="g2.b1")


def test_a_sink_of_sparks(output: Output) -> None:
    """Only Spark reads the log of its sinks."""
    output.write("words", "_spark_metadata/0")
    output.write("ingest", "table/_spark_metadata/0")
    output.finish("ingest")

    for stage in ("words", "ingest"):
        with pytest.raises(WrongState, match=r"read them with spark\.read"):
            output.files(stage)


def test_before_streams_had_heads(output: Output, memory: FaultyMemory) -> None:
    """In an older cluster publishing is the commit; no restore could be told."""
    memory.marked_format = heads.SINCE_FORMAT - 1
    output.write("words", f"batch=0/part-{0:032x}.parquet")

    assert output.names() == [f"batch=0/part-{0:032x}.parquet"]
    with pytest.raises(WrongState, match="needs its format 6"):
        output.files(since="g1.b0")


def test_a_damaged_head(output: Output, memory: FaultyMemory) -> None:
    """What counts cannot be told: nothing is returned."""
    output.batch(0)
    record = present(memory, keys.head("job", "words"))
    memory.commit(Update(record.key, b"{", record.version))

    with pytest.raises(CorruptRecord):
        output.files()


def test_a_damaged_head_of_a_job_that_has_ended(output: Output, memory: FaultyMemory) -> None:
    """Once the job is cleaned up, what it has published counts, and cursors are good."""
    output.batch(0)
    cursor = output.files().cursor
    record = present(memory, keys.head("job", "words"))
    memory.commit(Update(record.key, b"{", record.version))
    output.end()

    assert output.files(since=cursor).paths == ()


def test_a_damaged_generation(output: Output, memory: FaultyMemory) -> None:
    """It is not known, so no cursor is of it."""
    output.batch(0)
    cursor = output.files().cursor
    memory.commit(Create(keys.GENERATIONS + "job", b"{"))
    output.end()

    with pytest.raises(HistoryChanged):
        output.files(since=cursor)


def test_the_generation_is_kept_with_the_result(output: Output, memory: FaultyMemory) -> None:
    """It outlives the heads, and expires with the result."""
    output.batch(0)
    output.restore(0)
    output.end()

    assert heads.stored(memory, "job", "words") is None
    assert heads.generation_of(memory, "job") == 2
    assert JobResultStore(memory).expire(0.0) == ["job"]
    assert memory.get(keys.GENERATIONS + "job") is None


def test_of_most_jobs_no_generation_is_kept(output: Output, memory: FaultyMemory) -> None:
    """A job that was not restored leaves nothing but its result."""
    output.batch(0)
    output.end()

    assert memory.get(keys.GENERATIONS + "job") is None
