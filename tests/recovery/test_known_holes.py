"""The known holes of the system that jrs is modelled on: each one shown to be closed.

Every test says how it fails if the fix is taken out. All run on the memory and the file backend.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tenacity

from jrs.contract.errors import (
    DuplicateJob,
    Fenced,
    InvalidInput,
    JrsError,
    OutcomeUnknown,
    ResultExists,
    Unavailable,
)
from jrs.contract.operations import Create, Delete
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import (
    AttemptRecord,
    CleanupJournal,
    JobResult,
    JobStatus,
    ResultState,
    StageRecord,
)
from jrs.records.policies import RestartPolicy
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.runners import AttemptExit, OnEnd, RunningAttempt
from jrs.recovery.attempt.runners.thread import ThreadRunner
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.policy import CleanupPolicy
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader.restart_plan import EndCount
from jrs.recovery.rules.events import Event
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from tests.recovery.support import DirectedRunner, Faulty, Leader, Thing, put, result, spec, spoil
from tests.support import until

Open = Callable[[], Faulty]


class ListeningRunner(ThreadRunner):
    """The thread runner, with a listener that learns of an attempt's end before the leader."""

    def __init__(self, listener: Callable[[], None]) -> None:
        super().__init__()
        self._listener = listener

    def start(
        self, context: AttemptContext, function: Callable[..., object] | None, on_end: OnEnd
    ) -> RunningAttempt:
        def told(ended: AttemptExit) -> None:
            self._listener()
            on_end(ended)

        return super().start(context, function, told)


# -- H1 to H7 -----------------------------------------------------------------------------------


def test_h1_the_dirty_result_is_durable_before_anybody_is_told_and_anything_is_cleaned(
    faulty: Faulty, root: Path
) -> None:
    """J5: listeners, reports of the end and every cleaning see the dirty result in the store.

    Taken out (the result recorded after telling or cleaning), `seen` holds a False.
    """
    seen: list[bool] = []

    def look() -> None:
        seen.append(JobResultStore(faulty).has_dirty("job"))

    def report(event: Event) -> None:
        if "clean up" in event.message:
            look()

    thing, first = Thing(), Thing("first", prioritised=True)
    thing.on_clean = first.on_clean = lambda job_id: look()
    runner = ListeningRunner(look)
    with Leader(faulty, root, runner=runner, resources=[first, thing], report=report) as leader:
        JobCatalog(faulty).submit(spec("job", "driver:job"))
        leader.dispatcher.provide("job", lambda job: "done")
        leader.until_clean("job")

    assert len(seen) >= 4
    assert all(seen)


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
@pytest.mark.parametrize("dies", ["of-itself", "on-request"])
def test_h2_nothing_is_cleaned_while_the_dirty_result_is_not_known_to_be_durable(
    faulty: Faulty, root: Path, error: type[JrsError], dies: str
) -> None:
    """A failed or unknown dirty write is tried again, visibly, and until it holds no resource
    of the job is touched.

    Taken out (cleanup after the end of the attempt, whatever became of the write), the resource
    is called while the fault lasts.
    """
    thing = Thing()
    failing = faulty.fault(keys.RESULTS, error)
    with Leader(faulty, root, resources=[thing]) as leader:
        catalog = JobCatalog(faulty)
        catalog.submit(spec("job", restart=RestartPolicy(attempts=1)))
        attempt = leader.runner.of("job")
        if dies == "of-itself":
            attempt.die()
        else:
            catalog.cancel("job")
        leader.until_said("error", "job", error.__name__)
        until(lambda: failing.happened >= 2, "the write is tried again")

        assert thing.calls == []
        assert leader.store.get("job") is None

        faulty.faults.clear()
        leader.until_clean("job")

        assert thing.calls == ["job"]


def test_h2_an_attempt_that_cannot_record_its_result_keeps_trying(
    faulty: Faulty, root: Path
) -> None:
    """The attempt's own dirty write is repeated until it holds; nothing is cleaned before.

    Taken out (the write not repeated, or its failure swallowed), the job is run twice or its
    resource cleaned without a result.
    """
    calls: list[int] = []
    thing = Thing()
    failing = faulty.fault(keys.RESULTS, Unavailable)
    with Leader(faulty, root, runner=ThreadRunner(), resources=[thing]) as leader:
        JobCatalog(faulty).submit(spec("job", "driver:job"))
        leader.dispatcher.provide("job", lambda job: calls.append(1))
        until(lambda: failing.happened >= 3, "the write is tried again")

        assert thing.calls == []

        faulty.faults.clear()
        leader.until_clean("job")

    assert calls == [1]


def test_h2_an_unknown_outcome_that_happened_is_read_back(faulty: Faulty, root: Path) -> None:
    """J10: a dirty write that was applied though its answer was lost counts: the job is cleaned up
    and not run again.

    Taken out (unknown taken for failed), the job fails with ResultExists or runs twice.
    """
    faulty.fault(keys.RESULTS, OutcomeUnknown, after=True, times=1)
    with Leader(faulty, root) as leader:
        JobCatalog(faulty).submit(spec("job"))
        leader.runner.of("job").finish(7)
        leader.until_clean("job")

        assert len(leader.runner.started) == 1
        assert leader.store.wait("job").payload == 7


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown])
def test_h3_a_failure_to_mark_clean_is_visible_and_tried_again(
    faulty: Faulty, root: Path, error: type[JrsError]
) -> None:
    """While marking clean fails the result stays dirty, each failure is reported, and the job
    ends clean once it works.

    Taken out (the failure only logged), the job is never clean.
    """
    failing = faulty.fault(keys.DIRTY, error, kind=Delete)
    with Leader(faulty, root) as leader:
        JobCatalog(faulty).submit(spec("job"))
        leader.runner.of("job").finish()
        leader.until_said("error", "job", error.__name__)
        until(lambda: failing.happened >= 2, "marking clean is tried again")

        assert leader.store.has_dirty("job")

        faulty.faults.clear()
        leader.until_clean("job")


def test_h4_a_failed_prioritised_resource_is_not_masked_by_a_later_pass(
    faulty: Faulty, root: Path
) -> None:
    """As long as the prioritised resource fails, nothing behind it is cleaned and the result stays
    dirty, however many passes there are; not even a success of an earlier pass replaces it.

    Taken out (a journalled or forgotten resource skipped), a pass cleans the rest and marks clean.
    """
    first, thing = Thing("first", prioritised=True), Thing()
    store = JobResultStore(faulty)
    store.create_dirty(result("job"), None)
    cleanup = JobCleanup(faulty, [first, thing])
    first.broken = OSError("stuck")
    passes = [cleanup.run("job", None) for _ in range(3)]

    assert [set(journal.problems) for journal in passes] == [{"first"}] * 3
    assert thing.calls == []

    first.broken, thing.broken = None, OSError("stuck, too")
    assert cleanup.run("job", None).done == ("first",)

    first.broken, thing.broken = OSError("back again"), None
    journal = cleanup.run("job", None)

    assert set(journal.problems) == {"first"}
    assert thing.calls == ["job"]
    assert store.has_dirty("job")


def test_h5_a_recovered_cleanup_does_not_publish_over_the_result(
    open_faulty: Open, root: Path
) -> None:
    """The record of a result is the same, byte for byte and version for version, after a second
    leader has finished its cleanup.

    Taken out (the new leader writes a record of its own), value or version differ.
    """
    first, second = open_faulty(), open_faulty()
    thing = Thing()
    thing.broken = OSError("not today")
    with Leader(first, root, resources=[thing]) as leader:
        JobCatalog(first).submit(spec("job"))
        leader.runner.of("job").finish({"rows": 12})
        leader.until_said("cleanup", "job")
    before = first.get(keys.RESULTS + "job")
    thing.broken = None
    with Leader(second, root, resources=[thing]) as leader:
        leader.until_clean("job")

        assert leader.runner.started == []
    assert second.get(keys.RESULTS + "job") == before
    assert JobResultStore(second).wait("job").payload == {"rows": 12}


def test_h6_losing_the_leadership_changes_no_result(open_faulty: Open, root: Path) -> None:
    """J10: a job that has finished stays FINISHED, and is not run again, when its leader is
    replaced before it has noticed.

    Taken out (a leader that is stopped writes how it leaves the job), the result changes or the
    new leader starts the job.
    """
    first, second = open_faulty(), open_faulty()
    thing = Thing()
    thing.broken = OSError("keeps it dirty")
    old = Leader(first, root, resources=[thing])
    with old:
        JobCatalog(first).submit(spec("job"))
        old.runner.of("job").record("kept")
        before = JobResultStore(second).get("job")
        old.leadership.lost.set()
    thing.broken = None
    with Leader(second, root, resources=[thing]) as new:
        new.until_clean("job")

        assert new.runner.started == []
    after = JobResultStore(second).get("job")

    assert before is not None
    assert after is not None
    assert after.result == before.result
    assert after.result is not None
    assert after.result.status is JobStatus.FINISHED


@pytest.mark.parametrize("status", [JobStatus.CREATED, JobStatus.RUNNING, JobStatus.SUSPENDED])
def test_h6_no_result_can_say_that_a_job_may_continue(status: JobStatus) -> None:
    """A result with a status that is not globally terminal cannot even be made.

    Taken out (the validator), the store would hold a SUSPENDED result.
    """
    with pytest.raises(InvalidInput, match="FINISHED, FAILED or CANCELED"):
        JobResult("job", status)


def test_h6_a_stopped_leader_leaves_a_running_job_without_a_result(
    open_faulty: Open, root: Path
) -> None:
    """A job whose leader stops has no result of any kind, and the next leader recovers it.

    Taken out (the end of the attempt recorded as the job's), the second leader skips it.
    """
    first, second = open_faulty(), open_faulty()
    with Leader(first, root) as leader:
        JobCatalog(first).submit(spec("job", restart=RestartPolicy(attempts=1)))
        leader.runner.of("job")

    assert JobResultStore(second).get("job") is None

    with Leader(second, root) as leader:
        leader.runner.of("job").finish("at last")
        leader.until_clean("job")

        assert leader.store.wait("job").payload == "at last"


def test_h7_results_are_read_from_the_store_by_any_client(open_faulty: Open, root: Path) -> None:
    """J4: another handle that never led reads, lists and waits for the result, payload included.

    Taken out (results kept in the leader's memory), the other handle finds none.
    """
    with Leader(open_faulty(), root) as leader:
        JobCatalog(leader.backend).submit(spec("job"))
        leader.runner.of("job").finish([1, 2])
        leader.until_clean("job")
    reader = JobResultStore(open_faulty())

    assert reader.wait("job", 0).payload == [1, 2]
    assert [entry.job_id for entry in reader.list(status=JobStatus.FINISHED)] == ["job"]


def test_h7_results_outlive_every_process(tmp_path: Path) -> None:
    """J3: a process that starts after all others have ended reads the result from the folder.

    Taken out (results not durable), it prints nothing.
    """
    url = (tmp_path / "store").as_uri()
    write = "s.create_dirty(JobResult('job', JobStatus.FINISHED, payload='kept'), None)"
    read = "print(s.wait('job', 0).payload)"
    said = [
        subprocess.run(
            [
                sys.executable,
                "-c",
                "from jrs import *; from jrs import open_backend as o, JobResultStore, JobResult, "
                f"JobStatus; b = o({url!r}); s = JobResultStore(b); {what}; b.close()",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for what in (write, read)
    ]

    assert said == ["", "kept\n"]


# -- the others ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "was"),
    [
        (keys.RESULTS, "ended"),
        (keys.JOBS, "submitted"),
        (keys.CLEANUP, "ended"),
        (keys.DIRTY, "submitted"),
    ],
    ids=["result", "spec", "journal", "marker-without-result"],
)
def test_one_unreadable_record_holds_its_own_job_and_no_other(
    faulty: Faulty, root: Path, prefix: str, was: str
) -> None:
    """With a record of the first job unreadable, that job is held and said to be, while the jobs
    after it are run and cleaned up; nothing of the held one is started or removed.

    Taken out (the error let through the loop), the jobs after it never end.
    """
    thing = Thing()
    catalog = JobCatalog(faulty)
    catalog.submit(spec("a-bad"))
    catalog.submit(spec("b-good"))
    put(faulty, keys.RESULTS + "c-dirty", result("c-dirty"))
    faulty.commit(Create(keys.DIRTY + "c-dirty", b""))
    if was == "ended":
        JobResultStore(faulty).create_dirty(result("a-bad"), None)
    spoil(faulty, prefix + "a-bad")
    with Leader(faulty, root, resources=[thing]) as leader:
        leader.runner.of("b-good").finish()
        leader.until_clean("b-good", "c-dirty")
        leader.until_said("decision", "a-bad", "hold")

        assert {one.job_id for one in leader.runner.started} == {"b-good"}
        assert sorted(thing.calls) == ["b-good", "c-dirty"]
        assert faulty.get(keys.JOBS + "a-bad") is not None


def test_an_unreadable_stage_record_holds_its_job(faulty: Faulty, root: Path) -> None:
    """A job with a finished stage whose record cannot be read is held, not run from a guess.

    Taken out (the stages not looked at), the job is started and fails, or runs the stage again.
    """
    catalog = JobCatalog(faulty)
    catalog.submit(spec("a-bad"))
    catalog.submit(spec("b-good"))
    faulty.commit(Create(keys.stage("a-bad", "one"), b"garbage"))
    with Leader(faulty, root) as leader:
        leader.runner.of("b-good").finish()
        leader.until_clean("b-good")
        leader.until_said("decision", "a-bad", "hold")

        assert {one.job_id for one in leader.runner.started} == {"b-good"}


@pytest.mark.parametrize("ending", ["clean", "expired"])
def test_a_spec_next_to_a_clean_result_is_swept_and_never_started(
    faulty: Faulty, root: Path, ending: str
) -> None:
    """A spec next to a clean result, or its tombstone, starts nothing and is removed.

    Taken out (recovery of whatever has a spec), the job is started again.
    """
    store = JobResultStore(faulty)
    store.create_dirty(result("job", "first"), None)
    store.mark_clean("job", None)
    if ending == "expired":
        store.delete("job")
    put(faulty, keys.JOBS + "job", spec("job"))
    with Leader(faulty, root) as leader:
        until(lambda: faulty.get(keys.JOBS + "job") is None, "the spec is swept")

        assert leader.runner.started == []
        assert leader.said("decision", "job", "skip")


def test_expiry_opens_no_window_for_a_second_run(faulty: Faulty, root: Path) -> None:
    """J2: after its result was deleted a job can be submitted by nobody and recorded by nobody.

    Taken out (no tombstone, or one that is not checked), the submission is accepted.
    """
    store = JobResultStore(faulty)
    store.create_dirty(result("job", finished_at=1.0), None)
    store.mark_clean("job", None)
    store.expire(older_than=0)

    with pytest.raises(DuplicateJob) as refused:
        JobCatalog(faulty).submit(spec("job"))
    with pytest.raises(ResultExists) as exists:
        store.create_dirty(result("job", "again"), None)

    assert refused.value.state == exists.value.state == "expired"
    assert faulty.get(keys.JOBS + "job") is None


@pytest.mark.parametrize("state", ["submitted", "dirty", "clean", "expired"])
def test_a_submission_that_loses_a_race_is_refused_by_the_store(
    open_faulty: Open, state: str
) -> None:
    """A job id that is taken after `submit` has looked, and before it commits, is refused by the
    commit itself: spec, result and tombstone are conditions of it.

    Taken out (a look only, then a write), the spec is stored next to the result or over another.
    """
    backend, other = open_faulty(), open_faulty()
    commit = backend._commit

    def too_late(*args: Any, **how: Any) -> None:
        store = JobResultStore(other)
        if state == "submitted":
            JobCatalog(other).submit(spec("job", "the:first"))
        else:
            store.create_dirty(result("job"), None)
        if state in ("clean", "expired"):
            store.mark_clean("job", None)
        if state == "expired":
            store.delete("job")
        commit(*args, **how)

    backend._commit = too_late
    with pytest.raises(DuplicateJob) as refused:
        JobCatalog(backend).submit(spec("job", "the:second"))

    assert refused.value.state == state
    stored = JobCatalog(other).view("job").spec
    assert (stored.entry_point if stored else None) == (
        "the:first" if state == "submitted" else None
    )


def test_creating_a_result_is_atomic_under_races(open_faulty: Open) -> None:
    """J5: of two leaders' threads that record different results at once, exactly one wins, and the
    other learns that one exists.

    Taken out (check, then act), both calls return or the winner's result is overwritten.
    """
    stores = [JobResultStore(open_faulty()) for _ in range(2)]
    for number in range(40):
        job_id, start = f"job-{number}", threading.Barrier(2)

        def record(who: int, job_id: str = job_id, start: threading.Barrier = start) -> str | None:
            start.wait()
            try:
                stores[who].create_dirty(result(job_id, who), None)
                return None
            except ResultExists as exists:
                return exists.state

        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(record, range(2)))

        assert sorted(outcomes, key=str) == sorted([None, "dirty"], key=str)
        assert stores[0].wait(job_id).payload == outcomes.index(None)


def test_every_write_of_a_deposed_leader_is_refused(open_faulty: Open, root: Path) -> None:
    """Result, clean mark, finished stage, attempt, counted death and journal of a leader that was
    replaced are refused by the store, and the map is as if it had not tried.

    Taken out (a write without the fence), that call returns and the map differs.
    """
    backend = open_faulty()
    old = Leader(backend, root)
    JobCatalog(backend).submit(spec("job"))
    stored = JobCatalog(backend).view("job").spec
    assert stored is not None
    JobResultStore(backend).create_dirty(result("done"), old.fence)
    old.leadership.resign()
    new = Leader(open_faulty(), root, candidate="new")
    before = {record.key: record for record in backend.scan("")}
    actions = old.dispatcher._actions
    broken = Thing()
    broken.broken = OSError("so that a journal is to be written")
    context = AttemptContext(
        spec("job"), 1, old.fence, backend, JobStorage(root, "test"), first_started_at=0.0
    )
    tries: dict[str, Callable[[], object]] = {
        "result": lambda: old.store.create_dirty(result("job"), old.fence),
        "clean": lambda: old.store.mark_clean("done", old.fence),
        "stage": lambda: AttemptRun(context).job.stage("s", lambda stage: 1),
        "stage record": lambda: AttemptRun(context).commit_stages([_stage_record()]),
        "attempt": lambda: actions.start(stored, None, lambda begun, ended: None),
        "death": lambda: old.dispatcher._records.count_death(
            spec("job"), AttemptExit("it died"), EndCount(), ran=1.0
        ),
        "failed": lambda: actions.fail(spec("job")),
        "canceled": lambda: actions.cancel("job"),
        "swept spec": lambda: actions.sweep_spec("job"),
        "cleanup": lambda: JobCleanup(backend, [broken]).run("done", old.fence),
        "journal": lambda: JobCleanup(backend, [])._write(CleanupJournal("done"), None, old.fence),
    }
    returned = []
    for name, attempt in tries.items():
        try:
            attempt()
        except Fenced:
            continue
        returned.append(name)

    assert returned == []
    assert {record.key: record for record in backend.scan("")} == before
    assert broken.calls == []
    new.leadership.resign()
    old.stop()
    new.stop()


def _stage_record() -> StageRecord:
    return StageRecord("job", "s", 1, attempt=1, epoch=1, seconds=0.0, finished_at=0.0)


def test_recovery_reads_no_clean_result(faulty: Faulty, root: Path) -> None:
    """What a new leader reads is in proportion to what is to be done, not to what ever ran.

    Taken out (results listed at recovery), the reads contain clean results.
    """
    store = JobResultStore(faulty)
    for number in range(200):
        store.create_dirty(result(f"old-{number}"), None)
        store.mark_clean(f"old-{number}", None)
    for number in range(3):
        store.create_dirty(result(f"dirty-{number}"), None)
    JobCatalog(faulty).submit(spec("new"))
    faulty.reads.clear()
    with Leader(faulty, root) as leader:
        leader.until_clean("dirty-0", "dirty-1", "dirty-2")
        leader.runner.of("new")

    assert [key for key in faulty.reads if "old-" in key] == []


def test_listing_the_dirty_reads_no_clean_result(faulty: Faulty) -> None:
    """Three dirty results among many clean ones are listed by reading those three.

    Taken out (all results filtered), the reads contain clean ones.
    """
    store = JobResultStore(faulty)
    for number in range(100):
        store.create_dirty(result(f"old-{number}"), None)
        store.mark_clean(f"old-{number}", None)
    for number in range(3):
        store.create_dirty(result(f"dirty-{number}"), None)
    faulty.reads.clear()

    assert [entry.job_id for entry in store.dirty()] == ["dirty-0", "dirty-1", "dirty-2"]
    assert [key for key in faulty.reads if "old-" in key] == []


def test_a_stale_result_suppresses_no_run_in_silence(faulty: Faulty) -> None:
    """Submitting an id that has a result is refused, and the refusal says the state of that one.

    Taken out (a duplicate ignored), the call returns as if the job would run.
    """
    store, catalog = JobResultStore(faulty), JobCatalog(faulty)
    store.create_dirty(result("job"), None)
    with pytest.raises(DuplicateJob) as dirty:
        catalog.submit(spec("job"))
    store.mark_clean("job", None)
    with pytest.raises(DuplicateJob) as clean:
        catalog.submit(spec("job"))

    assert (dirty.value.state, clean.value.state) == ("dirty", "clean")


def test_a_damaged_result_is_recognised_by_its_checksum(faulty: Faulty) -> None:
    """A result in which one character changed is reported as damaged and not handed out.

    Taken out (no checksum), the changed payload is returned.
    """
    store = JobResultStore(faulty)
    put(faulty, keys.RESULTS + "job", result("job", "right"))
    whole = encode(result("job", "right"))
    spoil(faulty, keys.RESULTS + "job", whole.replace(b"right", b"wrong"))
    entry = store.get("job")

    assert entry is not None
    assert entry.result is None
    assert "checksum" in str(entry.problem)


def test_old_results_expire(faulty: Faulty) -> None:
    """J3: clean results older than asked for are expired but for the newest kept; dirty ones stay.

    Taken out (no expiry), the list below holds all of them.
    """
    store = JobResultStore(faulty, now=lambda: 1000.0)
    for number in range(5):
        store.create_dirty(result(f"job-{number}", finished_at=float(number)), None)
        if number:
            store.mark_clean(f"job-{number}", None)

    assert store.expire(older_than=100, keep=2) == ["job-1", "job-2"]
    assert [entry.job_id for entry in store.list()] == ["job-0", "job-3", "job-4"]
    assert [entry.job_id for entry in store.list(state=ResultState.EXPIRED)] == ["job-1", "job-2"]


def test_exhausted_cleanup_leaves_the_result_dirty_and_named(faulty: Faulty, root: Path) -> None:
    """A cleanup that is given up leaves its result dirty, and the journal says what is left.

    Taken out (given up means forgotten), the result is clean or the journal empty.
    """
    thing = Thing()
    thing.broken = OSError("/mnt/lost is not there")
    policy = CleanupPolicy(wait=tenacity.wait_none(), stop=tenacity.stop_after_attempt(2))
    with Leader(faulty, root, resources=[thing], policy=policy) as leader:
        JobCatalog(faulty).submit(spec("job"))
        leader.runner.of("job").finish()
        leader.until_said("cleanup", "job", "given up")
    view = JobCatalog(faulty).view("job")

    assert leader.store.has_dirty("job")
    assert view.cleanup is not None
    assert view.cleanup.exhausted
    assert "/mnt/lost" in view.cleanup.problems["thing"]


def test_an_unreadable_attempt_record_keeps_no_job_from_running(faulty: Faulty, root: Path) -> None:
    """The record of attempts only counts: a job whose own is unreadable is started all the same.

    Taken out (its error let through), the job is never started.
    """
    JobCatalog(faulty).submit(spec("job"))
    put(faulty, keys.ATTEMPTS + "job", AttemptRecord("job", attempt=4))
    spoil(faulty, keys.ATTEMPTS + "job")
    with Leader(faulty, root, runner=DirectedRunner()) as leader:
        leader.runner.of("job").finish()
        leader.until_clean("job")
