"""Stages: run once in the life of a job, published in one step, and only by the leader."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import attrs
import pytest

from jrs.contract.errors import Fenced, InvalidInput, JobHeld, OutcomeUnknown, TooLarge, Unavailable
from jrs.contract.runtime import Runtime
from jrs.records import keys
from jrs.records.history import HistoryKind
from jrs.records.model import JobResult, JobStatus, StageRecord, StopMode
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.job import Job, Stage
from jrs.recovery.attempt.run import run_attempt
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.job_folders import JobStorage
from jrs.store import history, history_checks
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from tests.recovery import jobs
from tests.recovery.attempt import die_at
from tests.recovery.lead import Lead
from tests.recovery.support import CLUSTER, Faulty, FaultyMemory, put, spec, spoil
from tests.support import until

HERE = Path(__file__).parents[3]


@pytest.fixture
def lead(faulty: Faulty, root: Path) -> Lead:
    return Lead(faulty, root)


def writes(text: str, result: object = None) -> Callable[[Stage], object]:
    def function(stage: Stage) -> object:
        (stage.output / "data").write_text(text)
        return result

    return function


def never(stage: Stage) -> None:
    raise AssertionError("this stage has finished and must not run again")


# -- once ---------------------------------------------------------------------------------------


def test_a_stage_hands_back_what_its_function_returned_and_wrote(lead: Lead) -> None:
    """A finished stage has its result as JSON gives it back, its published output, and says that
    it was not skipped."""
    stage = lead.job().stage("s", writes("x", {"rows": (1, 2)}))

    assert stage.result() == {"rows": [1, 2]}
    assert (stage.output / "data").read_text() == "x"
    assert stage.output == lead.folder / "out" / "s"
    assert not stage.skipped


def test_a_finished_stage_is_skipped_by_the_next_attempt(lead: Lead) -> None:
    """On recovery the function is not called: recorded result and output are handed back."""
    lead.job(1).stage("s", writes("x", 7))
    stage = lead.job(2).stage("s", never)

    assert stage.result() == 7
    assert (stage.output / "data").read_text() == "x"
    assert stage.skipped


def test_the_history_has_each_begin_of_a_stage(lead: Lead) -> None:
    """So a stage that runs is seen. One that is skipped was not begun."""

    def begun() -> list[tuple[str, int, object]]:
        return [
            (one.text, one.attempt, one.about)
            for one in history.read(lead.backend, "job")
            if one.known_kind is HistoryKind.STAGE_BEGUN
        ]

    def fails(stage: Stage) -> None:
        until(begun, "the begin is recorded")
        raise ValueError("as the test needs")

    with pytest.raises(ValueError, match="as the test"):
        lead.job(1).stage("s", fails)
    lead.job(2).stage("s", writes("x", 7))
    lead.job(3).stage("s", never)

    until(lambda: len(begun()) == 2, "both begins are recorded")
    assert begun() == [("stage s was begun", number, {"stage": "s"}) for number in (1, 2)]
    assert list(history_checks.problems(lead.backend, "job")) == []


def test_a_finished_stage_is_skipped_by_the_next_leader(
    open_faulty: Callable[[], Faulty], root: Path
) -> None:
    """The record outlives the leader, and the result tells which attempt and epoch ran it."""
    first = Lead(open_faulty(), root)
    first.job(1).stage("s", writes("x", 7))
    first.leadership.resign()
    second = Lead(open_faulty(), root)

    def function(job: Job) -> int:
        job.stage("s", never)
        return job.stage("t", lambda stage: 8).result() + job.stage("s2", lambda stage: 1).result()

    result = run_attempt(second.context(2), function)

    assert result.payload == 9
    assert [(s.name, s.attempt, s.epoch) for s in result.stages] == [
        ("s", 1, 1), ("t", 2, 2), ("s2", 2, 2),
    ]  # fmt: skip
    assert result.stages_skipped == 1


def test_a_stage_that_raised_leaves_nothing_and_runs_again(lead: Lead) -> None:
    """What a failed stage wrote is not visible, and its next try begins with an empty folder."""

    def half(stage: Stage) -> None:
        (stage.output / "part").write_text("half")
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        lead.job(1).stage("s", half)

    assert lead.published() == {}
    assert lead.backend.get(keys.stage("job", "s")) is None

    lead.job(1).stage("s", lambda stage: [path.name for path in stage.output.iterdir()])
    stage = lead.job(2).stage("s", never)

    assert stage.result() == []


def test_a_stage_without_output_publishes_none(lead: Lead) -> None:
    """A stage that writes no file has a result and no folder."""
    stage = lead.job().stage("s", lambda stage: 1)

    assert not stage.output.exists()
    assert lead.job(2).stage("s", never).result() == 1


def test_whole_trees_and_odd_files_are_published(lead: Lead) -> None:
    """Folders, links (dangling, too) and a named pipe in the output neither hang nor fail it."""

    def function(stage: Stage) -> None:
        (stage.output / "deep" / "er").mkdir(parents=True)
        (stage.output / "deep" / "er" / "file").write_text("x")
        (stage.output / "link").symlink_to("nowhere")
        os.mkfifo(stage.output / "pipe")

    stage = lead.job().stage("s", function)

    assert (stage.output / "deep" / "er" / "file").read_text() == "x"
    assert (stage.output / "link").is_symlink()


# -- what a stage refuses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [{1, 2}, float("nan"), b"", print, {1: 2}],
    ids=["set", "nan", "bytes", "function", "key"],
)
def test_a_stage_result_that_is_not_json_is_refused(lead: Lead, value: object) -> None:
    """Nothing of such a stage is recorded or published."""
    with pytest.raises(InvalidInput, match="result of stage 's'"):
        lead.job().stage("s", writes("x", value))

    assert lead.published() == {}
    assert lead.backend.get(keys.stage("job", "s")) is None


def test_a_file_that_a_stage_leaves_open(lead: Lead) -> None:
    """What it has not written out yet would be missing in the output. One that is open for reading
    is whole."""
    kept, job = list[TextIO](), lead.job()

    def leave_open(stage: Stage) -> None:
        kept.append((stage.output / "data.csv").open("w"))
        kept[-1].write("1,2\n")

    def read_again(stage: Stage) -> None:
        leave_open(stage)
        kept.pop().close()
        kept.append((stage.output / "data.csv").open())

    with pytest.raises(InvalidInput, match=r"/s\.1/data\.csv is still open for writing"):
        job.stage("s", leave_open)
    assert lead.backend.get(keys.stage("job", "s")) is None
    kept.pop().close()

    output = job.stage("s", read_again).output
    kept.pop().close()
    assert (output / "data.csv").read_text() == "1,2\n"


def test_a_stage_result_over_the_limit_is_refused(lead: Lead) -> None:
    """Over 256 KiB of JSON is TooLarge, and the message says what to do."""
    with pytest.raises(TooLarge, match="give its location instead"):
        lead.job().stage("s", lambda stage: "x" * (256 * 1024))


def test_two_stages_of_one_name_are_refused(lead: Lead) -> None:
    """The name is what tells stages apart on recovery, so a second use is an error at once."""
    running = lead.job()
    running.stage("s", lambda stage: 1)
    with pytest.raises(InvalidInput, match=r"two stages .* named 's'"):
        running.stage("s", lambda stage: 2)


def test_a_stage_that_has_raised_begins_again(lead: Lead) -> None:
    """In the same attempt, as a retry around it does: with its own error before, without what it
    had written, and once only from then on."""
    running, left = lead.job(), ["first"]

    def fails_once(stage: Stage) -> list[str]:
        found = [path.name for path in stage.output.iterdir()]
        (stage.output / "data").write_text(str(left))
        if left:
            (stage.output / left[0]).write_text("x")
            raise ConnectionError(left.pop())
        return found

    with pytest.raises(ConnectionError, match="first"):
        running.stage("s", fails_once)
    assert running.stage("s", fails_once).result() == []
    with pytest.raises(InvalidInput, match=r"two stages .* named 's'"):
        running.stage("s", never)

    assert lead.published() == {"out/s/data": "[]"}
    assert list(history_checks.problems(lead.backend, "job")) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", ".s", "a b", "x" * 129, 7, None], ids=repr)
def test_a_bad_stage_name_is_refused(lead: Lead, name: Any) -> None:
    """A name that could lead out of the job's folder, or is none, never becomes a path."""
    with pytest.raises(InvalidInput, match="not a stage name"):
        lead.job().stage(name, never)


def test_a_damaged_stage_record_is_no_excuse_to_run_it_again(lead: Lead) -> None:
    """A stage whose record cannot be read holds the job, which says so, and is not run twice."""
    spoil(lead.backend, keys.stage("job", "s"))
    with pytest.raises(JobHeld, match="stages/job/s"):
        run_attempt(lead.context(), lambda job: job.stage("s", never).result())

    stop = JobStops(lead.backend).get("job")
    assert stop is not None
    assert stop.mode is StopMode.HOLD
    assert JobResultStore(lead.backend).get("job") is None


# -- crashes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", die_at.STEPS)
def test_a_crash_at_any_step_of_a_stage_is_recovered_from(tmp_path: Path, step: str) -> None:
    """A process killed -9 at any step of its second stage is followed by a leader that runs only
    what was not recorded, and ends with the same result and each output exactly once."""
    url, root, calls = (tmp_path / "store").as_uri(), tmp_path / "jobs", str(tmp_path / "calls")
    doomed = subprocess.run(
        [sys.executable, "-m", "tests.recovery.attempt.die_at", url, str(root), calls, step],
        cwd=HERE, capture_output=True, text=True,
    )  # fmt: skip

    assert doomed.returncode == -signal.SIGKILL, doomed.stderr

    with open_backend(url, cluster=CLUSTER) as backend:
        lead = Lead(backend, root)
        recorded = backend.get(keys.stage("job", "second")) is not None
        result = run_attempt(lead.context(2, calls=calls), jobs.two_stages)

        assert lead.leadership.epoch == 2
        assert result.payload == {
            "rows": 3, "skipped": [True, recorded], "text": "first second",
        }  # fmt: skip
        assert recorded == (step in ("between record and rename", "after the rename"))
        assert Path(f"{calls}.first").read_text() == "1\n"
        assert Path(f"{calls}.second").read_text() == ("1\n" if recorded else "1\n2\n")
        assert lead.published() == {
            "out/second/data": "first second", "tmp/first/data": "first",
        }  # fmt: skip

        JobCleanup(backend, default_resources(backend, lead.storage)).run("job", None)

        assert lead.published() == {"out/second/data": "first second"}
        assert sorted(path.name for path in lead.folder.iterdir()) == ["out"]
        assert JobResultStore(backend).has_clean("job")


@pytest.mark.parametrize("after", [True, False], ids=["applied", "not-applied"])
def test_a_record_whose_outcome_is_unknown_is_read_back(
    lead: Lead, faulty: Faulty, after: bool
) -> None:
    """A stage whose record's answer was lost finishes once, with its output, without a second
    call of its function."""
    calls: list[int] = []

    def function(stage: Stage) -> int:
        calls.append(1)
        (stage.output / "data").write_text("x")
        return 5

    faulty.fault(keys.STAGES, OutcomeUnknown, after=after, times=1)

    assert lead.job().stage("s", function).result() == 5
    assert calls == [1]
    assert lead.published() == {"out/s/data": "x"}


def test_a_record_that_cannot_be_written_publishes_nothing(lead: Lead, faulty: Faulty) -> None:
    """Without its durable record a stage is not finished: no output is visible."""
    faulty.fault(keys.STAGES, Unavailable)
    job = lead.job()
    faulty.before_commit(keys.STAGES, job._run.context.lost.set)  # It would wait for the backend.
    with pytest.raises(Unavailable):
        job.stage("s", writes("x"))

    assert lead.published() == {}


# -- zombies ------------------------------------------------------------------------------------


def replace_leader(open_faulty: Callable[[], Faulty], old: Lead, root: Path) -> Lead:
    """Let another leader take the job over, while `old` sleeps."""
    old.leadership.resign()
    new = Lead(open_faulty(), root)
    new.context(2)
    return new


@pytest.mark.parametrize("wrote", [True, False], ids=["with-output", "without-output"])
def test_a_zombie_can_neither_publish_nor_record(
    open_faulty: Callable[[], Faulty], root: Path, wrote: bool
) -> None:
    """A stage that was running when its leader was replaced raises Fenced when it ends, and
    nothing of it is recorded or visible, then or after the new leader's attempt."""
    old = Lead(open_faulty(), root)
    successors: list[Lead] = []

    def sleeps(stage: Stage) -> str:
        if wrote:
            (stage.output / "data").write_text("of the zombie")
        successors.append(replace_leader(open_faulty, old, root))
        return "of the zombie"

    with pytest.raises(Fenced):
        old.job().stage("s", sleeps)
    new = successors[0]

    assert new.published() == {}
    assert new.backend.get(keys.stage("job", "s")) is None

    new.job(2).stage("s", writes("of the leader", "good"))

    assert new.published() == {"out/s/data": "of the leader"}
    assert new.job(3).stage("s", never).result() == "good"


def test_a_zombie_that_has_recorded_cannot_publish_over_its_successor(
    open_faulty: Callable[[], Faulty], root: Path
) -> None:
    """Between its record and its rename a leader is replaced: the successor publishes that very
    output, and the zombie's own rename finds nothing to do or no folder."""
    old = Lead(open_faulty(), root)
    running = old.job()
    publish = old.storage.publish

    def sleeps(record: StageRecord, epoch: int) -> None:
        new = replace_leader(open_faulty, old, root)
        assert new.job(2).stage("s", never).result() == 1
        publish(record, epoch)

    old.storage.publish = sleeps
    running.stage("s", writes("recorded", 1))

    assert old.published() == {"out/s/data": "recorded"}


def test_a_zombie_cannot_begin_another_stage(open_faulty: Callable[[], Faulty], root: Path) -> None:
    """The function of a further stage is not even called; `check` and the attempt's own result
    are refused, too."""
    old = Lead(open_faulty(), root)
    running = old.job()
    running.stage("one", lambda stage: 1)
    context = old.context()
    new = replace_leader(open_faulty, old, root)
    with pytest.raises(Fenced):
        running.stage("two", never)
    with pytest.raises(Fenced):
        running.check()
    with pytest.raises(Fenced):
        run_attempt(context, never)

    assert JobResultStore(new.backend).get("job") is None


def test_a_result_of_a_zombie_is_refused_at_the_very_end(
    open_faulty: Callable[[], Faulty], root: Path
) -> None:
    """A function that returns after its leader was replaced leaves no result, whether it returned
    or raised."""
    for outcome in ("returns", "raises"):
        old = Lead(open_faulty(), root)
        context = old.context()

        def sleeps(job: Job, old: Lead = old, outcome: str = outcome) -> str:
            replace_leader(open_faulty, old, root).leadership.resign()
            if outcome == "raises":
                raise ValueError("in the zombie")
            return "of the zombie"

        with pytest.raises(Fenced):
            run_attempt(context, sleeps)

        assert JobResultStore(old.backend).get("job") is None


def test_an_older_epoch_cannot_take_the_folder_back(memory: FaultyMemory, root: Path) -> None:
    """Once a newer epoch has the job's folder, taking it over with an older one is Fenced, and
    nobody can make the older one's folder again, as Spark would."""
    storage = JobStorage(root, CLUSTER)
    storage.take_over("job", 5)
    with pytest.raises(Fenced, match="epoch 4 was replaced"):
        storage.take_over("job", 4)

    assert storage.take_over("job", 5) == storage.folder("job") / "e5"
    assert storage.take_over("job", 9) == storage.folder("job") / "e9"
    assert [path.name for path in storage.folder("job").iterdir() if path.is_dir()] == ["e9"]
    with pytest.raises(NotADirectoryError):
        (storage.folder("job") / "e5" / "streams").mkdir(parents=True)


def test_taking_over_keeps_what_was_recorded_and_not_yet_published(lead: Lead) -> None:
    """Staging moves along with the newest epoch's folder; older folders are thrown away."""
    for epoch in (1, 3):
        (lead.folder / f"e{epoch}" / "s.1").mkdir(parents=True)
        (lead.folder / f"e{epoch}" / "s.1" / "data").write_text(str(epoch))
    moved = lead.storage.take_over("job", 7)

    assert (moved / "s.1" / "data").read_text() == "3"
    assert [path.name for path in lead.folder.iterdir() if path.is_dir()] == ["e7"]


# -- afterwards ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rename", "fsync"])
def test_a_disk_that_fails_behind_the_commit(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A stage that has finished is no failure of the job: the next attempt publishes its output."""
    real = getattr(os, method)

    def failing(*arguments: Any) -> None:
        if lead.backend.get(keys.stage("job", "s")):
            raise OSError(errno.EIO, "Input/output error")
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, method, failing)
        with pytest.raises(Unavailable, match=r"out/s cannot be published: .*Input/output error"):
            lead.job().stage("s", writes("x"))
    stage = lead.job(2).stage("s", never)

    assert stage.skipped
    assert lead.published() == {"out/s/data": "x"}


def test_attempts_that_a_full_disk_ends_leave_the_output_of_one(
    lead: Lead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They follow one another under one leader, and would fill the disk that ends them. The staging
    of a stage whose name only begins like theirs is left alone: it may have a record."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = lead.storage.take_over("job", lead.leadership.epoch)
    for other in ("load.1.1", "load.x", "reload.1"):
        (folder / other).mkdir()
    for attempt in (1, 2, 10):
        job = lead.job(attempt)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(Unavailable, match="No space left"):
                job.stage("load", writes("x"))

        left = {path.name for path in folder.iterdir()}
        assert left == {f"load.{attempt}", "load.1.1", "load.x", "reload.1"}


def test_a_function_that_changes_its_arguments(lead: Lead) -> None:
    """The result says what was submitted, and a further attempt gets that."""
    context = lead.context(rows=[1])

    def function(job: Job, rows: list[int]) -> list[int]:
        rows.append(2)
        return rows

    result = run_attempt(context, function)

    assert result.payload == [1, 2]
    assert result.spec is not None
    assert result.spec.arguments == context.spec.arguments == {"rows": [1]}


def test_temporary_output_and_staging_go_with_the_job_and_output_stays(lead: Lead) -> None:
    """When the job is cleaned up, output stays where it is and everything else is removed."""

    def function(job: Job) -> str:
        job.stage("keep", writes("kept"))
        job.stage("drop", writes("dropped"), temporary=True)
        lead.storage.staging("job", 1, "dead", 1).joinpath("part").write_text("half")
        return "done"

    run_attempt(lead.context(), function)

    assert lead.published() == {"out/keep/data": "kept", "tmp/drop/data": "dropped"}

    JobCleanup(lead.backend, default_resources(lead.backend, lead.storage)).run("job", None)

    assert lead.published() == {"out/keep/data": "kept"}
    assert [path.name for path in lead.folder.iterdir()] == ["out"]
    assert list(lead.backend.scan(keys.STAGES)) == []


def test_a_job_without_output_leaves_no_folder(lead: Lead) -> None:
    """After the cleanup of a job that published nothing, nothing is left of it on disk."""
    run_attempt(lead.context(), lambda job: job.stage("s", lambda stage: 1).result())
    JobCleanup(lead.backend, default_resources(lead.backend, lead.storage)).run("job", None)

    assert not lead.folder.exists()


def test_stages_are_summed_up_in_the_jobs_result(lead: Lead) -> None:
    """The result names each stage in its order with the attempt that ran it, also of a job that
    failed after it."""

    def function(job: Job) -> None:
        job.stage("b", lambda stage: 1)
        job.stage("a", lambda stage: 2)
        raise ValueError("after two stages")

    result: JobResult = run_attempt(lead.context(), function)

    assert result.status is JobStatus.FAILED
    assert [(stage.name, stage.attempt) for stage in result.stages] == [("b", 1), ("a", 1)]


def test_a_stage_of_another_job_is_not_taken_for_ones_own(lead: Lead) -> None:
    """Records go by job and stage: a stage of the same name of another job is no reason to skip."""
    other = lead.job().stage("s", lambda stage: "mine")
    put(lead.backend, keys.JOBS + "job-2", spec("job-2"))
    lead.storage.take_over("job-2", 1)
    context = AttemptContext(
        spec("job-2"), 1, lead.leadership.fence, lead.backend, lead.storage, 0.0
    )

    assert other.result() == "mine"
    assert AttemptRun(context).job.stage("s", lambda stage: "theirs").result() == "theirs"


# -- other code ----------------------------------------------------------------------------------


def at_time(context: AttemptContext, now: Callable[[], float]) -> AttemptContext:
    return attrs.evolve(context, runtime=Runtime(now=now))


@pytest.mark.parametrize("now", [lambda: 0.0, lambda: 1e9], ids=["behind", "ahead"])
def test_new_work_before_a_finished_stage(lead: Lead, now: Callable[[], float]) -> None:
    """S2: a finished batch stage is not handed back as what came after work that is new, whatever
    the clock of the next attempt's host says; with the code that it ran with, it is."""
    first = AttemptRun(at_time(lead.context(1), lambda: 1000.0)).job
    first.stage("totals", writes("old", "old"))

    second = AttemptRun(at_time(lead.context(2), now)).job
    dedup = second.stage("dedup", writes("new"))
    with pytest.raises(
        JobHeld, match=r"'totals' .* now comes after 'dedup', which finished later: "
    ):
        second.stage("totals", never, after=[dedup])

    assert lead.job(3).stage("totals", never).result() == "old"


def test_an_order_that_was_kept(lead: Lead) -> None:
    """S2: a stage that had finished before may be named, though the code did not name it then."""
    first = lead.job(1)
    first.stage("dedup", writes("x"))
    first.stage("totals", writes("y", 7))

    second = lead.job(2)
    dedup = second.stage("dedup", never)
    assert second.stage("totals", never, after=[dedup]).result() == 7
    with pytest.raises(JobHeld, match=r"'dedup' .* now comes after 'totals', which finished later"):
        third = lead.job(3)
        third.stage("dedup", never, after=[third.stage("totals", never)])


def test_publishing_what_is_new(lead: Lead, tmp_path: Path) -> None:
    """S2: the same of a place of the user's own: what was published there is not taken for the
    output of another stage."""
    first = lead.job(1)
    first.publish(tmp_path / "table", first.stage("a", writes("a")))

    second = lead.job(2)
    second.stage("a", never)
    with pytest.raises(JobHeld, match=r"'publish' .* now comes after 'b', which finished later"):
        second.publish(tmp_path / "table", second.stage("b", writes("b")))
