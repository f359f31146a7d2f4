"""Attempts whose storage has objects: nothing counts but what a record names."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest
import tenacity
from obstore.exceptions import GenericError

from jrs.contract.errors import (
    Conflict,
    Fenced,
    InvalidInput,
    JobHeld,
    OutcomeUnknown,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Create, Delete, Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.heads import StreamHead
from jrs.records.model import StageRecord
from jrs.recovery.attempt import stage_outputs
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.plan_keeper import PlanKeeper
from jrs.recovery.checkpoint_format import checkpoint
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.files import copied_from
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.storage import packed_copies as copies_of_files
from jrs.store import heads
from tests.recovery.attempt.objects_attempt import (
    Stream,
    begin,
    copies,
    head,
    manifest,
    rows,
)
from tests.recovery.attempt.stream_attempt import PART
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import put
from tests.recovery.storage.support import Store, objects
from tests.recovery.support import CLUSTER, FaultyMemory
from tests.support import in_long_form

# -- streams -----------------------------------------------------------------------------------


def test_batches_are_committed(lead: Lead) -> None:
    stream = begin(lead)
    for _ in range(5):
        stream.batch()

    assert rows(lead) == {batch: f"rows {batch}" for batch in range(5)}
    assert not lead.folder.joinpath("out").exists() or not any(stream.out.iterdir())
    assert list(stream.staging.iterdir()) == []


@pytest.mark.parametrize("noted", [True, False])
def test_a9_another_host_resumes(lead: Lead, noted: bool) -> None:
    """A9: what the head names is all that a query needs, wherever Spark had come to: the plan of
    the head's batch, and the state before it."""
    stream = begin(lead)
    for _ in range(4):
        stream.batch()
    stream.batch(noted=noted)
    before = (stream.query.ck / "offsets/4").read_bytes()
    stream.lose_host()
    again = stream.next(2)

    at = position(again.query.ck)
    assert (at.committed, at.planned) == (3, 4)
    assert checkpoint.select(again.query.ck).batch == 3
    assert (again.query.ck / "offsets/4").read_bytes() == before
    again.batch()  # Its sink has it: for the state alone.
    again.batch()
    assert rows(lead) == {batch: f"rows {batch}" for batch in range(6)}


def test_a9_the_same_host_resumes_at_once(lead: Lead, store: Store) -> None:
    """What is on this host continues from what counts: nothing is fetched, no batch repeated."""
    stream = begin(lead)
    for _ in range(3):
        stream.batch()
    fetched = store.calls["get_ranges"]
    again = stream.next(2)

    assert store.calls["get_ranges"] == fetched
    assert position(again.query.ck).committed == 2
    again.batch()
    assert rows(lead).keys() == {0, 1, 2, 3}


def test_a9_a_copy_of_long_ago_is_not_believed(lead: Lead, tmp_path: Path) -> None:
    """Host a has run the job, then host b: what is on a is of an earlier batch."""
    stream = begin(lead)
    stream.batch()
    shutil.copytree(lead.folder, tmp_path / "host a", symlinks=True)
    again = stream.next(2)
    for _ in range(3):
        again.batch()
    again.lose_host()
    shutil.copytree(tmp_path / "host a", lead.folder, symlinks=True)
    third = again.next(3)

    assert position(third.query.ck).planned == 3
    third.batch()
    third.batch()
    assert rows(lead) == {batch: f"rows {batch}" for batch in range(5)}


def test_a_host_that_has_restarted_believes_none_of_its_copies(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """They are not synced: after a power cut a file may be there, and be empty."""
    stream = begin(lead)
    stream.batch()
    stream.batch()
    monkeypatch.setattr(copied_from, "boot_id", lambda: "another boot")
    fetched = store.calls["get_ranges"]
    stream.next(2)

    assert store.calls["get_ranges"] > fetched


def test_a2_an_attempt_that_was_shut_out(lead: Lead) -> None:
    """A2: it may upload for as long as it likes; no reader and no successor sees any of it."""
    stream = begin(lead)
    stream.batch()
    again = stream.next(2)
    again.batch()
    before = head(lead)
    stream.committer.commit(1, [])  # That batch counts already: there is nothing to do.
    stream.staging.mkdir(parents=True, exist_ok=True)
    (stream.staging / f"{PART}9.parquet").write_text("a zombie's")
    with pytest.raises((Fenced, JobHeld)):
        stream.committer.commit(2, [f"{PART}9.parquet"])

    assert head(lead) == before
    assert rows(lead) == {0: "rows 0", 1: "rows 1"}


def test_a2_an_attempt_that_uploads_while_its_successor_runs(lead: Lead, tmp_path: Path) -> None:
    """A2: whatever it uploads, and however often it tries to move the head to that, while its
    successor runs: each row that a reader sees is the successor's. In the long form it does that
    for a minute."""
    stream = begin(lead)
    stream.batch()
    again = stream.next(2)
    over, done = threading.Event(), Counter[str]()
    output = tmp_path / "zombie"
    output.mkdir()
    (output / "part").write_text("a zombie's")

    def upload() -> None:
        while not over.is_set():
            stored = stream.context.uploads.put_output("sums", output)
            found = heads.stored(lead.backend, "job", "sums")
            assert found is not None
            newest, record = found
            moved = attrs.evolve(newest, batch=newest.batch + 1, manifest=stored)
            try:
                stream.context.commit(Update(record.key, encode(moved), record.version))
                done["committed"] += 1
            except (Fenced, Conflict) as error:
                done[type(error).__name__] += 1

    zombie = threading.Thread(target=upload, name="zombie")
    zombie.start()
    try:
        until = time.monotonic() + in_long_form(60, 0)
        while again.batch() < 30 or not done["Fenced"] or time.monotonic() < until:
            expected = {batch: f"rows {batch}" for batch in range(head(lead).batch + 1)}
            assert rows(lead) == expected
    finally:
        over.set()
        zombie.join()
    assert rows(lead) == {batch: f"rows {batch}" for batch in range(head(lead).batch + 1)}
    assert not done["committed"]


def test_a_store_that_refuses_some_rows_of_each_try(lead: Lead, store: Store) -> None:
    """A try writes only what no earlier one has, so that a batch of many files is committed at
    last. The next batch has other files, whatever their names are."""
    stream = begin(lead)
    names = [f"{PART}{number}.parquet" for number in range(10)]
    asked, written = Counter[str](), Counter[str]()

    def refuse(method: str, arguments: tuple[Any, ...]) -> None:
        if method != "put" or "/rows/" not in arguments[0]:
            return
        name = arguments[0].rpartition("-")[2]
        asked[name] += 1
        if name.endswith(("3.parquet", "7.parquet")) and asked[name] < 3:
            raise GenericError("Server returned non-2xx status code: 503 Slow Down: <Error/>")
        written[name] += 1

    store.refuse = refuse
    for batch in range(2):
        stream.plan()
        for name in names:
            (stream.staging / name).write_text(f"{batch} {name}")
        with pytest.raises(Unavailable, match="503"):
            stream.committer.commit(batch, names)
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Unavailable), stop=tenacity.stop_after_attempt(9)
        ):
            with attempt:
                stream.committer.commit(batch, names)
        stream.query.commit()
        assert sorted(written.values()) == [1] * len(names)
        assert len(manifest(lead).files) == len(names)
        asked.clear()
        written.clear()


@pytest.mark.parametrize("applied", [True, False])
def test_a3_a_commit_whose_outcome_is_unknown(
    lead: Lead, memory: FaultyMemory, applied: bool
) -> None:
    """A3: it is read back by its manifest, or repeated with the same one."""
    stream = begin(lead)
    stream.batch()
    stream.plan()
    (stream.staging / f"{PART}1.parquet").write_text("rows 1")
    memory.fault(keys.HEADS, OutcomeUnknown, kind=Update, after=applied, times=1)
    if not applied:
        with pytest.raises(OutcomeUnknown):
            stream.committer.commit(1, [f"{PART}1.parquet"])
    stream.committer.commit(1, [f"{PART}1.parquet"])

    assert rows(lead) == {0: "rows 0", 1: "rows 1"}


def test_a_batch_that_was_planned_again_with_other_input(lead: Lead) -> None:
    stream = begin(lead)
    stream.batch()
    stream.batch(noted=False)
    stream.lose_host()
    again = stream.next(2)
    put(again.query.ck / "offsets/1", 'v1\n{"batchWatermarkMs":0}\n777')
    with pytest.raises(JobHeld, match="planned again with other input"):
        again.batch()


def test_batches_without_rows(lead: Lead) -> None:
    """A5: each moves the head; one that is repeated, and has rows then, has them."""
    stream = begin(lead)
    stream.batch()
    stream.plan()
    stream.committer.commit(1, [])
    assert head(lead).batch == 1
    stream.committer.commit(1, [])
    stream.batch()

    assert rows(lead) == {0: "rows 0", 1: "rows 1"}


def test_a5_a_rescale_moves_the_head(lead: Lead) -> None:
    """A5: its batch is complete, and no sink has seen it."""
    stream = begin(lead)
    stream.batch()
    stream.query.run()
    offset = (stream.query.ck / "offsets/0").read_text()
    put(stream.query.ck / "offsets/1", offset)  # The same input: it only spreads the state.
    stream.committer.skip(1)
    assert head(lead).batch == 1
    stream.lose_host()
    again = stream.next(2)

    assert position(again.query.ck).committed == 1
    again.batch()
    assert rows(lead) == {0: "rows 0", 2: "rows 2"}


@pytest.mark.parametrize("method", ["put"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_store_that_fails_for_a_while(lead: Lead, store: Store, method: str, times: int) -> None:
    """The commit may be repeated, whatever has been written."""
    stream = begin(lead)
    stream.batch()
    stream.plan()
    (stream.staging / f"{PART}1.parquet").write_text("rows 1")
    store.fail(times, method)
    tries = 0
    while True:
        tries += 1
        try:
            stream.committer.commit(1, [f"{PART}1.parquet"])
            break
        except Unavailable:
            assert head(lead).batch == 0

    assert tries > 1
    assert rows(lead) == {0: "rows 0", 1: "rows 1"}


def test_requests_of_a_batch(lead: Lead, store: Store) -> None:
    """At most 25 at 16 partitions: state is put together; the rows have an object a file."""
    stream = begin(lead)
    stream.query.partitions = 16
    stream.batch()
    stream.batch()
    for _ in range(6):
        before = sum(store.calls.values())
        stream.batch()
        assert sum(store.calls.values()) - before <= 3


@pytest.mark.parametrize("how", ["damage", "remove"])
@pytest.mark.parametrize("kind", ["/ck/", "/batch/"])
def test_an_object_of_the_checkpoint_that_was_changed(
    lead: Lead, store: Store, how: str, kind: str
) -> None:
    """The job is held, by a line that names the object; nothing is guessed."""
    stream = begin(lead)
    for _ in range(3):
        stream.batch()
    named = head(lead).manifest
    assert named is not None
    names = {named.name} if kind == "/batch/" else {one.object for one in manifest(lead).checkpoint}
    for name in names:
        getattr(store, how)(name)
    stream.lose_host()
    with pytest.raises(JobHeld, match=kind):
        stream.next(2)


def test_what_a_death_left_half_fetched(lead: Lead, store: Store) -> None:
    stream = begin(lead)
    stream.batch()
    stream.batch()
    stream.lose_host()
    store.fail(1, "get_ranges")
    with pytest.raises(Unavailable):
        stream.next(2)
    again = stream.next(2)

    assert position(again.query.ck).planned == 1
    assert [path.name for path in again.query.ck.parent.parent.iterdir()] == ["sums"]


def test_a_stream_that_has_committed_nothing_begins_again(lead: Lead) -> None:
    """What is on this host of it may be of any time."""
    stream = begin(lead)
    stream.plan()
    again = stream.next(2)

    assert position(again.query.ck).planned == -1
    again.batch()
    assert rows(lead) == {0: "rows 0"}


# -- functions of foreachBatch -------------------------------------------------------------------


def test_a6_a_function_is_called_again_with_the_same_input(lead: Lead) -> None:
    """A6: the plan, and the state before it, are in objects before the call."""
    begin(lead)
    stream = Stream(lead, uses_sink=False)
    keeper = PlanKeeper(stream.context, "sums", stream.query.ck)
    keeper.begin()
    lead.backend.get(keys.head("job", "sums"))
    stream.query.source = "file:///in"
    stream.query.start()
    for batch in range(3):
        stream.query.plan()
        keeper.keep(batch)
        if batch < 2:
            stream.query.commit()
    planned = (stream.query.ck / "offsets/2").read_text()
    lead.backend.commit(Delete(keys.head("job", "sums")))  # Such a stage has none.
    stream.lose_host()
    stream.next(2)
    folder = lead.storage.checkpoint("job", lead.leadership.epoch, "sums")

    assert (position(folder).committed, position(folder).planned) == (1, 2)
    assert (folder / "offsets/2").read_text() == planned
    assert (folder / "sources/0/2").is_file()


def test_a9_a_plan_that_cannot_be_committed(lead: Lead, memory: FaultyMemory, store: Store) -> None:
    """A9: however often it is tried, it is one plan: objects do not pile up, and the checkpoint on
    this host stays as good as what counts."""
    begin(lead)
    stream = Stream(lead, uses_sink=False)
    lead.backend.commit(Delete(keys.head("job", "sums")))  # Such a stage has none.
    keeper = PlanKeeper(stream.context, "sums", stream.query.ck)
    stream.query.source = "file:///in"
    stream.query.start()
    for batch in range(2):
        stream.query.plan()
        keeper.keep(batch)
        stream.query.commit()
    stream.query.plan()
    memory.fault(keys.PLANS, Unavailable, kind=Update, times=4)
    written = set()
    for _ in range(4):
        with pytest.raises(Unavailable):
            keeper.keep(2)
        written.add(frozenset(store.names()))

    assert len(written) == 1
    stream.next(2)
    ck = lead.storage.checkpoint("job", lead.leadership.epoch, "sums")
    assert position(ck).committed == 1


def test_a_stage_that_comes_back_from_a_function(lead: Lead) -> None:
    """Another host runs the function's newest batch again, as its state is not known there."""
    stream = begin(lead)
    stream.batch()
    function = Stream(lead, 2, uses_sink=False)
    keeper = PlanKeeper(function.context, "sums", function.query.ck)
    for batch in (1, 2):
        function.query.batch = batch - 1
        function.query.plan()
        keeper.keep(batch)
        function.query.commit()
    third = Stream(lead, 3, uses_sink=False)
    third.committer.begin(since=3)
    assert (head(lead).batch, rows(lead)) == (2, {0: "rows 0"})
    third.lose_host()
    last = third.next(4)

    assert (position(last.query.ck).committed, position(last.query.ck).planned) == (1, 2)
    last.batch("again")
    last.batch()
    assert rows(lead) == {0: "rows 0", 3: "rows 3"}


# -- batch stages --------------------------------------------------------------------------------


def run(lead: Lead, attempt: int = 1) -> AttemptRun:
    return AttemptRun(lead.context(attempt))


def write(stage: Any) -> int:
    (stage.output / "table").mkdir()
    (stage.output / "table" / "part-1").write_text("rows")
    (stage.output / "_SUCCESS").write_text("")
    return 1


def content(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def not_again(stage: object) -> int:
    raise AssertionError("it ran again")


WRITTEN = {"table/part-1": "rows", "_SUCCESS": ""}


def test_a_stage_is_kept(lead: Lead, store: Store) -> None:
    """Here it is a folder, without a request; elsewhere it is fetched when it is asked for."""
    done = run(lead).job.stage("ingest", write)
    assert content(done.output) == WRITTEN
    assert store.calls["get"] == store.calls["get_ranges"] == 0
    shutil.rmtree(lead.folder)
    again = run(lead, 2).job.stage("ingest", not_again)

    assert again.skipped
    assert again.result() == 1
    assert store.calls["get"] == store.calls["get_ranges"] == 0
    assert content(again.output) == WRITTEN
    assert again.output == again.output


def test_a_disk_that_is_full_behind_the_commit(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is kept in objects, so the stage has finished: the next attempt fetches a copy."""
    renames, full = os.rename, threading.Event()
    full.set()

    def rename(source: Any, target: Any) -> None:
        if full.is_set() and "/copies/" in str(target):
            raise OSError(errno.ENOSPC, "No space left on device")
        renames(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(Unavailable, match="No space left"):
        run(lead).job.stage("ingest", write)
    full.clear()

    assert content(run(lead, 2).job.stage("ingest", not_again).output) == WRITTEN


def test_a_disk_that_is_full_while_a_copy_is_fetched(
    lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt waits for room, and says so."""
    run(lead).job.stage("ingest", write)
    shutil.rmtree(lead.folder)
    again = run(lead, 2).job.stage("ingest", not_again)
    full = [OSError(errno.ENOSPC, "No space left on device")] * 2

    def fetch(*arguments: Any) -> None:
        if full:
            raise full.pop()
        copies_of_files.fetch(*arguments)

    monkeypatch.setattr(stage_outputs, "fetch", fetch)
    monkeypatch.setattr(tenacity, "sleep_using_event", lambda event: lambda seconds: None)
    assert content(again.output) == WRITTEN
    assert not full


def test_attempts_that_a_full_disk_ends_leave_one_copy(
    lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that an earlier attempt has not finished is removed before another one is made."""
    run(lead).job.stage("ingest", write)
    shutil.rmtree(lead.folder)

    def end(*arguments: Any) -> None:
        copies_of_files.fetch(*arguments)
        raise KeyboardInterrupt

    for attempt in (2, 3, 4):
        again = run(lead, attempt).job.stage("ingest", not_again)
        with monkeypatch.context() as patched:
            patched.setattr(stage_outputs, "fetch", end)
            with pytest.raises(KeyboardInterrupt):
                _ = again.output
        assert len(list(lead.storage.copies("job").iterdir())) == 1
    last = run(lead, 5).job.stage("ingest", not_again).output

    assert content(last) == WRITTEN
    assert list(lead.storage.copies("job").iterdir()) == [last]


def test_two_threads_fetch_one_output(lead: Lead, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both get it, and nothing is left of the slower one's copy."""
    run(lead).job.stage("ingest", write)
    shutil.rmtree(lead.folder)
    again = run(lead, 2).job.stage("ingest", not_again)
    both = threading.Barrier(2, timeout=60)

    def fetch(*arguments: Any) -> None:
        copies_of_files.fetch(*arguments)
        both.wait()

    monkeypatch.setattr(stage_outputs, "fetch", fetch)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: content(again.output), range(2))

    assert first == second == WRITTEN
    assert [path.name for path in again.output.parent.iterdir()] == [again.output.name]


def test_a_note_that_cannot_be_written(lead: Lead) -> None:
    """No batch fails without it. The next attempt fetches the checkpoint, and repeats the newest
    batch for its state (A9)."""
    stream = begin(lead)
    stream.batch()
    (stream.query.ck.parent / ".copied-from").mkdir()
    stream.batch()
    again = stream.next(2)

    assert [again.batch(), again.batch()] == [1, 2]
    assert rows(lead).keys() == {0, 1, 2}


def test_a_stage_without_output(lead: Lead, store: Store) -> None:
    done = run(lead).job.stage("count", lambda stage: 7)

    assert store.names() == []
    assert not done.output.exists()


def test_a_stage_that_died_in_its_upload(lead: Lead, store: Store) -> None:
    """It has not finished: what it wrote counts for nothing."""

    def refuse(method: str, arguments: tuple[Any, ...]) -> None:
        if method == "put" and "manifest" in arguments[0]:
            raise KeyboardInterrupt

    store.refuse = refuse
    with pytest.raises(KeyboardInterrupt):
        run(lead).job.stage("ingest", write)
    store.refuse = lambda *_: None

    assert lead.backend.get(keys.stage("job", "ingest")) is None
    assert content(run(lead, 2).job.stage("ingest", write).output) == WRITTEN


def test_a_wait_for_the_store_is_said(lead: Lead, store: Store) -> None:
    said: list[str] = []
    attempt = run(lead)
    object.__setattr__(attempt.context, "on_report", lambda report: said.append(str(report)))
    store.fail(1)
    attempt.job.stage("ingest", write)

    assert any("its attempt waits: PUT s3://bucket/prefix" in text for text in said)


def cannot_read_once(
    monkeypatch: pytest.MonkeyPatch, number: int, first: Callable[[], object] = list
) -> None:
    """Have the first file that is uploaded fail to be read; `first` is called before."""
    digest, failed = copies_of_files.sha256_of, list[object]()

    def fail(content: bytes | Path) -> str:
        if isinstance(content, Path) and not failed:
            failed.append(content)
            first()
            raise OSError(number, os.strerror(number), str(content))
        return digest(content)

    monkeypatch.setattr(copies_of_files, "sha256_of", fail)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EIO, Unavailable),
        (errno.ENOENT, FileNotFoundError),
        (errno.EACCES, PermissionError),
    ],
)
def test_an_output_that_cannot_be_read(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """Its attempt does not wait for it: the file may never come back."""
    cannot_read_once(monkeypatch, number)
    with pytest.raises(error, match=os.strerror(number)):
        run(lead).job.stage("ingest", write)

    assert content(run(lead, 2).job.stage("ingest", write).output) == WRITTEN


def test_an_output_that_a_newer_leader_has_taken(
    lead: Lead, memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = run(lead)

    def replace() -> None:
        lead.leadership.resign()
        Lead(memory, lead.storage.root.parent)

    cannot_read_once(monkeypatch, errno.ENOENT, replace)
    with pytest.raises(Fenced):
        attempt.job.stage("ingest", write)


def test_a_replaced_attempt_stops_waiting(lead: Lead, store: Store, memory: FaultyMemory) -> None:
    attempt = run(lead)
    store.fail(1000)
    lead.leadership.resign()
    other = Lead(memory, lead.storage.root.parent)
    assert other.leadership.epoch > attempt.context.epoch
    with pytest.raises(Fenced):
        attempt.job.stage("ingest", write)


@pytest.mark.parametrize("how", ["damage", "remove"])
def test_an_output_that_was_changed(lead: Lead, store: Store, how: str) -> None:
    run(lead).job.stage("ingest", write)
    getattr(store, how)(next(name for name in store.names() if "part-1" in name))
    shutil.rmtree(lead.folder)
    done = run(lead, 2).job.stage("ingest", write)
    with pytest.raises(JobHeld, match="a manifest name"):
        done.output.exists()


def refused(call: Callable[[], object], kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        call()


def test_what_objects_cannot_do(lead: Lead, tmp_path: Path) -> None:
    job = run(lead).job
    done = job.stage("ingest", write)
    refused(lambda: job.publish(tmp_path / "out", done), InvalidInput, "storage has objects")

    def linked(stage: Any) -> None:
        (stage.output / "link").symlink_to("/etc/passwd")

    refused(lambda: job.stage("linked", linked), InvalidInput, "is a link")


def test_the_output_of_a_stream(lead: Lead) -> None:
    """It is a folder once the stream has finished: as on a disk, with a folder for each batch."""
    stream = begin(lead)
    for _ in range(3):
        stream.batch()
    attempt = AttemptRun(stream.context)
    refused(attempt.stream_output("sums"), WrongState, "has not finished")
    marks: Any = attrs.evolve(
        _finished("sums"), attempt=stream.context.attempt, epoch=stream.context.epoch
    )
    attempt.commit_stages([marks])
    folder = attempt.stream_output("sums")()

    found = {str(Path(name).parent): text for name, text in content(folder).items()}
    assert found == {f"batch={batch}": f"rows {batch}" for batch in range(3)}


def _finished(name: str) -> Any:
    return StageRecord("job", name, None, 1, 1, 0.0, 0.0)


def test_a_closed_input_is_the_same_on_every_host(lead: Lead, tmp_path: Path) -> None:
    """Files that have come since are not part of it, and those that are gone are missed."""
    source = tmp_path / "in"
    put(source / "a.json", "1")
    put(source / "below/b.json", "2")
    first = Path(run(lead).close_input("sums", source))
    put(source / "c.json", "3")
    shutil.rmtree(lead.folder)
    second = Path(run(lead, 2).close_input("sums", source))

    assert first == second
    assert content(second) == {"a.json": "1", "below/b.json": "2"}
    third = Path(run(lead, 3).close_input("sums", source))
    assert os.path.samefile(second, third)


def test_a_closed_input_of_an_earlier_life(lead: Lead, tmp_path: Path) -> None:
    source = put(tmp_path / "in/a.json", "1").parent
    folder = Path(run(lead).close_input("sums", source))
    (folder / "b.json").symlink_to("/nowhere")
    again = Path(run(lead, 2).close_input("sums", source))

    assert content(again) == {"a.json": "1"}
    refused(
        lambda: run(lead, 3).close_input("sums", tmp_path / "missing"), InvalidInput, "not a folder"
    )


def test_nothing_is_written_outside_of_the_attempts_place(lead: Lead, store: Store) -> None:
    """A1: `<job>/data/<epoch>.<attempt>.<nonce>/`, which nobody else uses."""
    stream = begin(lead)
    stream.batch()
    again = stream.next(2)
    again.batch()
    places = {"/".join(name.split("/")[:3]) for name in store.names()}

    assert len(places) == 2
    assert all(place.startswith(f"job/data/e{lead.leadership.epoch}.a") for place in places)
    assert objects(store).folders() == ["job"]


def test_a_job_that_was_begun_in_folders_is_held(lead: Lead, tmp_path: Path) -> None:
    """And the other way round: its output is not taken for missing."""
    begin(lead)
    old = _finished("ingest")
    lead.backend.commit(
        Create(keys.stage("job", "ingest"), encode(attrs.evolve(old, published="ingest.1")))
    )
    done = run(lead).job.stage("ingest", not_again)
    refused(lambda: done.output, JobHeld, "has its output in a folder")
    (record,) = lead.backend.scan(keys.heads("job"))
    moved = StreamHead("job", "sums", 1, 4, "plan", "batch=4.ff")
    lead.backend.commit(Update(record.key, encode(moved), record.version))
    refused(lambda: copies(lead).bring("job"), JobHeld, "has committed batch 4 to a folder")

    job = run(lead).job
    job.stage("kept", write)
    lead.storage = JobStorage(tmp_path / "folders", CLUSTER)
    refused(lambda: run(lead).job.stage("kept", write), JobHeld, "has its output in objects")
