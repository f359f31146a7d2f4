"""JobCleanup: one idempotent unit, from any point at which it was cut off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tenacity

from jrs.contract.errors import Fenced, InvalidInput, NoSuchResult, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Fence
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    JobStatus,
    ResultState,
    StageRecord,
)
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.policy import CleanupPolicy
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.job_folders import JobStorage
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from tests.recovery.support import (
    CLUSTER,
    Faulty,
    FaultyMemory,
    Leader,
    Thing,
    put,
    result,
    spec,
    spoil,
)
from tests.support import FakeClock, until


class CutOff(BaseException):
    """The death of the process: nothing catches it."""


class World:
    """An ended job that has left one of everything behind, next to another that runs."""

    def __init__(self, backend: Faulty, root: Path) -> None:
        self.backend = backend
        self.root = root
        self.storage = JobStorage(root, CLUSTER)
        self.store = JobResultStore(backend)
        for job_id in ("job", "other"):
            put(backend, keys.JOBS + job_id, spec(job_id))
            put(backend, keys.ATTEMPTS + job_id, AttemptRecord(job_id))
            put(backend, keys.CANCEL + job_id, CancelRequest(job_id))
            for name in ("s1", "s2"):
                put(backend, keys.stage(job_id, name), StageRecord(job_id, name, 1, 1, 1, 0.0, 0.0))
            self.storage.take_over(job_id, 1)
            (self.storage.staging(job_id, 1, "s3", 1) / "part").write_text("half")
            for place in ("out/s1", "tmp/s2", "logs"):
                folder = self.storage.folder(job_id) / place
                folder.mkdir(parents=True)
                (folder / "file").write_text("x")
        self.store.create_dirty(result("job", "kept"), None)

    def cleanup(self, *things: Thing) -> JobCleanup:
        resources = [*things, *default_resources(self.backend, self.storage)]
        return JobCleanup(self.backend, resources)

    def state(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the whole map and all files."""
        records = {record.key: record.value for record in self.backend.scan("")}
        files = sorted(
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if ".trash" not in path.parts
        )
        return records, files


@pytest.fixture
def world(faulty: Faulty, root: Path) -> World:
    return World(faulty, root)


def assert_only_the_job_is_gone(world: World) -> None:
    records, files = world.state()

    (indexed,) = (key for key in records if key.startswith(keys.ENDED))
    # What users asked for stays in its history, until the result is expired.
    left = {key for key in records if "/job" in key and not key.startswith(("history/", "feed/"))}
    assert left == {"results/job", indexed}
    assert {key for key in records if "/other" in key} == {
        "attempts/other",
        "cancel/other",
        "jobs/other",
        "stages/other/s1",
        "stages/other/s2",
    }
    assert [path for path in files if path.startswith("test/job/")] == [
        "test/job/logs",
        "test/job/logs/file",
        "test/job/out",
        "test/job/out/s1",
        "test/job/out/s1/file",
    ]
    assert len([path for path in files if path.startswith("test/other/")]) == 11
    assert world.store.wait("job").payload == "kept"


def test_everything_of_the_job_goes_but_its_result_and_its_output(world: World) -> None:
    """J7, U6: one pass removes records, staging and temporary output of this job and no other, and
    marks the result clean. The logs stay."""
    journal = world.cleanup().run("job", None)

    assert journal.problems == {}
    assert world.store.has_clean("job")
    assert_only_the_job_is_gone(world)


def test_a_cleanup_reads_nothing_of_other_jobs(world: World) -> None:
    """What it costs does not grow with the queue."""
    world.backend.reads.clear()
    world.cleanup().run("job", None)

    assert [key for key in world.backend.reads if "other" in key] == []


def test_a_second_run_changes_nothing(world: World) -> None:
    """Cleaning up twice ends in the state of cleaning up once."""
    world.cleanup().run("job", None)
    once = world.state()
    world.cleanup().run("job", None)

    assert world.state() == once


def test_two_masters_at_once_end_in_the_same_state(
    open_faulty: Callable[[], Faulty], root: Path
) -> None:
    """Two masters that clean up after one job at the same time both succeed, and leave what one
    alone would have left."""
    world, other = World(open_faulty(), root), open_faulty()
    second = JobCleanup(other, default_resources(other, world.storage))
    start = threading.Barrier(2)

    def clean(cleanup: JobCleanup) -> CleanupJournal:
        start.wait()
        return cleanup.run("job", None)

    with ThreadPoolExecutor(2) as pool:
        journals = list(pool.map(clean, [world.cleanup(), second]))
    for journal in journals:
        if journal.problems:  # A folder that vanished under one of them: the next pass is clean.
            world.cleanup().run("job", None)

    assert world.store.has_clean("job")
    assert_only_the_job_is_gone(world)


@pytest.mark.parametrize("after", range(6))
def test_a_cleanup_cut_off_after_any_resource_is_finished_by_the_next(
    faulty: Faulty, root: Path, after: int
) -> None:
    """J7: killed right after any one of its resources, a cleanup is taken up by a new leader and
    ends in the state of one that was not disturbed."""
    world = World(faulty, root)
    resources = default_resources(faulty, world.storage)
    cleaned = resources[after].clean_fenced

    def then_die(job_id: str, fence: Fence | None) -> None:
        cleaned(job_id, fence)
        raise CutOff

    resources[after].clean_fenced = then_die
    with pytest.raises(CutOff):
        JobCleanup(faulty, resources).run("job", None)

    assert world.store.has_dirty("job")

    world.cleanup().run("job", None)

    assert world.store.has_clean("job")
    assert_only_the_job_is_gone(world)


def test_each_resource_is_tried_again_on_its_own(world: World) -> None:
    """A pass takes up only what an earlier one has not done: a resource that succeeded is not
    cleaned again because another one failed."""
    good, bad = Thing("good"), Thing("bad")
    bad.broken = OSError("/srv/bad is busy")
    first = world.cleanup(good, bad).run("job", None)
    second = world.cleanup(good, bad).run("job", None)

    assert (first.tries, second.tries) == (1, 2)
    assert first.problems == second.problems == {"bad": "OSError: /srv/bad is busy"}
    assert good.calls == ["job"]
    assert bad.calls == ["job", "job"]
    assert world.backend.get(keys.CANCEL + "job") is None
    assert world.backend.get(keys.JOBS + "job") is not None  # It goes last.

    bad.broken = None
    world.cleanup(good, bad).run("job", None)

    assert world.store.has_clean("job")
    assert world.backend.get(keys.JOBS + "job") is None
    assert world.backend.get(keys.CLEANUP + "job") is None


def test_nothing_is_deleted_under_a_process_that_does_not_end(world: World) -> None:
    """While a prioritised resource fails, all others are left alone."""
    before = world.state()
    stuck = Thing("stuck", prioritised=True)
    stuck.broken = Unavailable("process 7 does not die")
    journal = world.cleanup(stuck).run("job", None)
    after = world.state()
    journalled = after[0].pop(keys.CLEANUP + "job")

    assert set(journal.problems) == {"stuck"}
    assert decode(CleanupJournal, journalled, "journal") == journal
    assert after == before


def test_exhausted_then_retried_by_an_operator(world: World) -> None:
    """The last try leaves a journal that says so; `retry` sets it back, and says whether there was
    anything to retry."""
    bad = Thing("bad")
    bad.broken = OSError("no")
    cleanup = world.cleanup(bad)

    assert not cleanup.retry("job")
    assert cleanup.run("job", None, is_last=lambda tries: True).exhausted
    assert world.store.has_dirty("job")
    assert cleanup.retry("job")

    view = JobCatalog(world.backend).view("job")

    assert view.cleanup is not None
    assert (view.cleanup.exhausted, view.cleanup.tries) == (False, 0)
    assert view.cleanup.problems == {"bad": "OSError: no"}


def test_retry_begins_again_where_the_journal_cannot_be_read(world: World) -> None:
    """An unreadable journal is thrown away by `retry`, since every step may be repeated."""
    spoil(world.backend, keys.CLEANUP + "job")

    assert world.cleanup().retry("job")

    world.cleanup().run("job", None)

    assert_only_the_job_is_gone(world)


def test_force_marks_clean_and_says_what_is_left(world: World) -> None:
    """`force` ends a cleanup that cannot be finished and returns everything that stays."""
    bad = Thing("bad")
    bad.broken = OSError("no")
    cleanup = world.cleanup(bad)
    cleanup.run("job", None, is_last=lambda tries: True)
    left = cleanup.force("job")

    assert left == {"bad": ["/the/bad/of/job"], "jobs records": ["jobs/job"]}
    assert world.store.has_clean("job")
    assert world.backend.get(keys.CLEANUP + "job") is None


def test_what_is_left_of_an_unknown_resource_is_named(world: World) -> None:
    """A command that does not know the masters' own resources still names them from the journal."""
    bad = Thing("bad")
    bad.broken = OSError("the server\nsays no")
    world.cleanup(bad).run("job", None)

    assert world.cleanup().left("job")["bad"] == ["OSError: the server says no"]
    assert "bad" in world.cleanup().force("job")


def test_what_a_cleanup_asks_of_the_backend(memory: FaultyMemory, root: Path) -> None:
    """A job that has left nothing but its records takes few requests, and one commit: servers are
    far away, and there are many jobs."""
    put(memory, keys.JOBS + "job", spec("job"))
    put(memory, keys.ATTEMPTS + "job", AttemptRecord("job", attempt=1))
    JobResultStore(memory).create_dirty(result("job"), None)
    asked: list[str] = []
    for step in ("get", "get_many", "scan", "commit"):
        original = getattr(memory, step)

        def counted(*args: Any, step: str = step, original: Any = original, **more: Any) -> Any:
            asked.append(step)
            return original(*args, **more)

        setattr(memory, step, counted)
    storage = JobStorage(root, CLUSTER)
    JobCleanup(memory, default_resources(memory, storage)).run("job", None)

    assert JobResultStore(memory).has_clean("job")
    assert asked.count("commit") == 1
    assert len(asked) <= 18


def test_what_an_older_version_has_removed_stays_known(world: World) -> None:
    """A journal of a version that removed records one kind after the other says that the removal
    has begun, until the job is clean: nothing is kept of a state that is not whole."""
    put(world.backend, keys.CLEANUP + "job", CleanupJournal("job", done=("stages records",)))
    busy = Thing("busy", prioritised=True)
    busy.broken = OSError("busy")

    journal = world.cleanup(busy).run("job", None)

    assert "stages records" in journal.done


@pytest.mark.parametrize("thing", [5, object(), Thing("")], ids=["number", "object", "nameless"])
def test_what_is_no_resource_is_refused(memory: FaultyMemory, thing: Any) -> None:
    """Only a `Resource` with a name can be cleaned up after."""
    with pytest.raises(InvalidInput, match="not a resource"):
        JobCleanup(memory, [thing])


def test_force_of_a_job_without_a_result_is_refused(memory: FaultyMemory) -> None:
    """There is nothing to force about a job that has no result."""
    with pytest.raises(NoSuchResult):
        JobCleanup(memory, []).force("nobody")


def test_describe_names_everything_and_removes_nothing(world: World) -> None:
    """`describe` lists what a pass would remove, by resource, with paths, and changes nothing."""
    before = world.state()
    said = world.cleanup().describe("job")
    folder = world.storage.folder("job")

    assert world.state() == before
    assert said["staging"] == [str(folder / "e1"), str(folder / "tmp")]
    assert said["recovery records"][:2] == ["stages/job/s1", "stages/job/s2"]
    assert said["jobs records"] == ["jobs/job"]
    assert said["processes"] == []


# -- deletion is confined -----------------------------------------------------------------------


def test_a_link_in_the_jobs_folder_is_removed_and_not_followed(
    world: World, tmp_path: Path
) -> None:
    """Links in staging, and in place of it, lead cleanup nowhere: what they point at stays."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep")
    folder = world.storage.folder("job")
    (folder / "e1" / "s3.1" / "link").symlink_to(outside)
    (folder / "e7").symlink_to(outside)
    world.cleanup().run("job", None)

    assert (outside / "precious").read_text() == "keep"
    assert_only_the_job_is_gone(world)


@pytest.mark.parametrize("to", ["outside", "another-job"])
def test_a_job_folder_replaced_by_a_link_is_refused(world: World, tmp_path: Path, to: str) -> None:
    """If the job's folder has become a link, out of the storage or to another job's, nothing
    behind it is deleted, the result stays dirty and the journal names the path."""
    target = tmp_path / "outside" if to == "outside" else world.storage.folder("other")
    for place in ("e1", "tmp", "logs"):
        (target / place).mkdir(parents=True, exist_ok=True)
        (target / place / "precious").write_text("keep")
    folder = world.storage.folder("job")
    folder.rename(tmp_path / "moved")
    folder.symlink_to(target)
    journal = world.cleanup().run("job", None)

    assert str(folder) in journal.problems["staging"]
    assert world.store.has_dirty("job")
    for place in ("e1", "tmp", "logs"):
        assert (target / place / "precious").read_text() == "keep"


def test_a_trash_that_leads_elsewhere_is_not_used(world: World, tmp_path: Path) -> None:
    """With a link in the place of the trash, nothing is moved through it and it is not emptied."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep")
    (world.storage.root / ".trash").symlink_to(outside)
    journal = world.cleanup().run("job", None)
    world.storage.empty_trash()

    assert "staging" in journal.problems
    assert [path.name for path in outside.iterdir()] == ["precious"]


def test_what_a_crash_left_in_the_trash_is_deleted(world: World, tmp_path: Path) -> None:
    """Folders, files and links in the trash are all removed, the links without being followed."""
    precious = tmp_path / "precious"
    precious.write_text("keep")
    trash = world.storage.root / ".trash"
    (trash / "folder" / "deep").mkdir(parents=True)
    (trash / "file").write_text("x")
    (trash / "link").symlink_to(precious)
    world.storage.empty_trash()

    assert list(trash.iterdir()) == []
    assert precious.read_text() == "keep"


# -- fences and unknown outcomes ----------------------------------------------------------------


def test_the_fence_is_checked_between_the_steps(
    open_faulty: Callable[[], Faulty], root: Path
) -> None:
    """A leader that is replaced in the middle of a cleanup does not begin another step."""
    backend = open_faulty()
    world = World(backend, root)
    leadership = backend.campaign("old", ttl=10.0, stop=threading.Event())
    assert leadership is not None
    first = Thing("first", prioritised=True)
    second, third = Thing("second", prioritised=True), Thing("third")

    def replaced(job_id: str) -> None:
        leadership.resign()
        successor = open_faulty().campaign("new", ttl=10.0, stop=threading.Event())
        assert successor is not None
        successor.resign()

    first.on_clean = replaced
    before = world.state()
    with pytest.raises(Fenced):
        world.cleanup(first, second, third).run("job", leadership.fence)
    after = world.state()
    for state in (before, after):
        state[0].pop(keys.EPOCH)

    assert first.calls == ["job"]
    assert second.calls == third.calls == []
    assert after == before


@pytest.mark.parametrize("after", [False, True], ids=["not-applied", "applied"])
def test_a_journal_whose_fate_is_unknown_costs_nothing_but_time(world: World, after: bool) -> None:
    """An unknown outcome of the journal's write is no error: the next pass continues."""
    bad = Thing("bad")
    bad.broken = OSError("no")
    world.backend.fault(keys.CLEANUP, OutcomeUnknown, times=1, after=after)
    world.cleanup(bad).run("job", None)
    bad.broken = None
    world.cleanup(bad).run("job", None)

    assert_only_the_job_is_gone(world)


def test_two_resources_of_one_name_are_refused(memory: FaultyMemory) -> None:
    """The journal goes by names, so a second resource of a name is refused at once."""
    with pytest.raises(InvalidInput, match="thing"):
        JobCleanup(memory, [Thing(), Thing()])


# -- the policy, and what the leader makes of it ------------------------------------------------


def test_the_policy_speaks_tenacity() -> None:
    """Delays and the last try are those of tenacity's own objects, combined as tenacity does."""
    policy = CleanupPolicy(
        wait=tenacity.wait_fixed(3) + tenacity.wait_incrementing(1, 2),
        stop=tenacity.stop_after_attempt(4) | tenacity.stop_after_attempt(9),
    )

    assert [policy.delay(tries) for tries in (1, 2, 3)] == [4, 6, 8]
    assert [policy.is_last(tries) for tries in (3, 4, 5)] == [False, True, True]


def test_the_default_policy_backs_off_from_a_second_to_an_hour() -> None:
    """Tries double from 1 s to 1 h and never stop."""
    policy = CleanupPolicy()

    assert [policy.delay(tries) for tries in (1, 2, 3, 12, 13, 10_000)] == [
        1, 2, 4, 2048, 3600, 3600,
    ]  # fmt: skip
    assert not policy.is_last(10**6)


@pytest.mark.parametrize("stop", [tenacity.stop_after_delay(9), tenacity.stop_before_delay(9)])
def test_a_policy_that_goes_by_elapsed_time_is_refused(stop: tenacity.stop.stop_base) -> None:
    """A stop that needs to know when the first try was is refused when the policy is made, not in
    the middle of a cleanup."""
    with pytest.raises(InvalidInput, match="number of tries"):
        CleanupPolicy(stop=stop)


def test_the_leader_follows_the_policys_schedule(memory: FaultyMemory, root: Path) -> None:
    """A failed pass is repeated when the policy's delay has passed on the leader's clock, not
    before; given up after the last try; and taken up again when an operator asks."""
    clock = FakeClock()
    thing = Thing()
    thing.broken = OSError("no")
    policy = CleanupPolicy(
        wait=tenacity.wait_exponential(multiplier=100), stop=tenacity.stop_after_attempt(3)
    )
    with Leader(memory, root, resources=[thing], policy=policy, clock=clock) as leader:

        def looked_at() -> None:
            """Return after a look at the job with the clock as it is now."""
            for _ in range(2):
                memory.reads.clear()
                leader.look()
                until(lambda: keys.CLEANUP + "job" in memory.reads, "it is looked at")

        leader.store.create_dirty(result("job"), leader.fence)
        for tries, delay in ((1, 100), (2, 200)):
            leader.until_said("cleanup", "job", f"(again in {delay} s)")

            looked_at()
            clock.now += delay - 1
            looked_at()

            assert len(thing.calls) == tries

            clock.now += 1
            leader.look()
        leader.until_said("cleanup", "job", "given up")
        looked_at()
        clock.now += 1e9
        looked_at()

        assert len(thing.calls) == 3
        assert leader.store.has_dirty("job")

        thing.broken = None
        leader.cleanup.retry("job")
        leader.look()
        leader.until_clean("job")


def test_an_operators_retry_does_not_wait_for_the_schedule(
    memory: FaultyMemory, root: Path
) -> None:
    """`retry` of a cleanup that backs off for an hour is followed at once."""
    clock = FakeClock()
    thing = Thing()
    thing.broken = OSError("no")
    policy = CleanupPolicy(wait=tenacity.wait_fixed(3600))
    with Leader(memory, root, resources=[thing], policy=policy, clock=clock) as leader:
        leader.store.create_dirty(result("job"), leader.fence)
        leader.until_said("cleanup", "job", "again in 3600 s")
        thing.broken = None
        leader.cleanup.retry("job")
        leader.until_clean("job")


def test_a_new_leader_continues_from_the_journal(
    open_faulty: Callable[[], Faulty], root: Path
) -> None:
    """B16: what the old leader has done is not done again, tries are counted on, and what was
    given up is tried once more, then stays given up, visibly."""
    good, bad = Thing("good"), Thing("bad")
    bad.broken = OSError("no")
    policy = CleanupPolicy(wait=tenacity.wait_none(), stop=tenacity.stop_after_attempt(2))
    with Leader(open_faulty(), root, resources=[good, bad], policy=policy) as old:
        old.store.create_dirty(result("job"), old.fence)
        old.until_said("cleanup", "job", "given up")
    backend = open_faulty()
    with Leader(backend, root, resources=[good, bad], policy=policy) as new:
        new.until_said("cleanup", "job", "given up")
        for _ in range(2):
            backend.reads.clear()
            new.look()
            until(lambda: keys.CLEANUP + "job" in backend.reads, "it is looked at")

        assert good.calls == ["job"]
        assert bad.calls == ["job", "job", "job"]

        bad.broken = None
        new.cleanup.retry("job")
        new.until_clean("job")

    assert good.calls == ["job"]


def test_a_stuck_cleanup_keeps_no_other_job_from_running(memory: FaultyMemory, root: Path) -> None:
    """While the cleanups of many jobs hang, other jobs are started."""
    proceed = threading.Event()
    thing = Thing()
    thing.on_clean = lambda job_id: proceed.wait(60)
    with Leader(memory, root, resources=[thing]) as leader:
        for number in range(12):
            leader.store.create_dirty(result(f"stuck-{number}"), leader.fence)
        until(lambda: len(thing.calls) >= 12, "all of them hang")
        JobCatalog(memory).submit(spec("job"))
        leader.runner.of("job")
        proceed.set()


def test_a_result_made_clean_by_an_operator_meanwhile_leaves_no_journal(
    memory: FaultyMemory, root: Path
) -> None:
    """When an operator forces the result clean during a pass that fails, the pass leaves no
    journal behind."""
    thing = Thing()
    thing.broken = OSError("no")
    world = World(memory, root)
    cleanup = world.cleanup(thing)
    thing.on_clean = lambda job_id: cleanup.force(job_id)
    cleanup.run("job", None)

    stored = world.store.get("job")
    assert stored is not None
    assert stored.state is ResultState.CLEAN
    assert memory.get(keys.CLEANUP + "job") is None


def test_a_result_without_anything_left_behind_is_just_marked_clean(memory: FaultyMemory) -> None:
    """A job of which nothing exists but its dirty result is marked clean."""
    store = JobResultStore(memory)
    store.create_dirty(result("job"), None)
    memory.commit(Create("unrelated/job", b""))
    JobCleanup(memory, []).run("job", None)

    assert store.has_clean("job")
    assert memory.get("unrelated/job") is not None


def test_a_dirty_result_next_to_an_unreadable_spec_is_cleaned(faulty: Faulty, root: Path) -> None:
    """B14: cleanup treats a spec that cannot be read as absent, so the result becomes clean."""
    JobCatalog(faulty).submit(spec("job"))
    spoil(faulty, keys.JOBS + "job")
    with Leader(faulty, root) as leader:
        leader.store.create_dirty(result("job"), leader.fence)
        leader.until_clean("job")

        assert not leader.said("cleanup", "job")
        assert faulty.get(keys.JOBS + "job") is None


def test_a_job_whose_spec_cannot_be_read_is_canceled_on_request(faulty: Faulty, root: Path) -> None:
    """B14: a cancel wins over a spec that cannot be read: the job ends CANCELED, and clean."""
    catalog = JobCatalog(faulty)
    catalog.submit(spec("job"))
    spoil(faulty, keys.JOBS + "job")
    with Leader(faulty, root) as leader:
        leader.until_said("held", "job", "jobs/job")
        catalog.cancel("job", "no way out")
        leader.until_clean("job")
        entry = leader.store.get("job")

        assert entry is not None
        assert entry.result is not None
        assert entry.result.status is JobStatus.CANCELED
        assert leader.runner.started == []


@pytest.mark.parametrize("wrong", [{"wait": "x"}, {"stop": 3}, {"timeout": "x"}, {"timeout": 0}])
def test_a_policy_of_something_else_is_refused(wrong: dict[str, Any]) -> None:
    """U19: a value that is no object of tenacity is refused in words."""
    with pytest.raises(InvalidInput, match="cleanup"):
        CleanupPolicy(**wrong)


def test_a_resource_that_is_last(world: World) -> None:
    """It goes once all others are gone: they may need it."""
    gone = list[str]()
    schema, table = Thing("schema"), Thing("table")
    schema.on_clean = lambda job_id: gone.append("schema")
    table.on_clean = lambda job_id: gone.append("table")
    schema.last = 1  # type: ignore[assignment]  # As any value that is true.

    world.cleanup(schema, table).run("job", None)

    assert gone == ["table", "schema"]


def test_a_job_that_is_forced_clean_during_a_pass(world: World) -> None:
    """Its records go all the same: `force` removes none."""
    table = Thing("table")
    table.on_clean = JobCleanup(world.backend, []).force

    world.cleanup(table).run("job", None)

    assert_only_the_job_is_gone(world)


def test_what_begins_late_is_under_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass gives a prioritised resource up while the backend is slow in the moment before its
    removal: until that has begun and ended, the result stays dirty."""
    answers, asked, begun = threading.Event(), threading.Event(), list[bool]()
    check = world.backend.check_current
    first, second = Thing("first", prioritised=True), Thing("second", prioritised=True)
    second.on_clean = lambda job_id: begun.append(world.store.has_dirty(job_id))

    def slow(fence: Fence | None, what: str) -> None:
        if first.calls and not asked.is_set():
            asked.set()
            assert answers.wait(20.0)
        check(fence, what)

    monkeypatch.setattr(world.backend, "check_current", slow)
    cleanup = world.cleanup(first, second)
    assert "second" in cleanup.run("job", None, timeout=0.2).problems
    assert asked.wait(20.0)
    assert "second" in cleanup.run("job", None, timeout=20.0).problems
    answers.set()
    until(lambda: begun, "the second one has begun")
    assert begun == [True]
