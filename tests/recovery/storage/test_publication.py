"""Publishing in objects at a place of the user's own: once, whole, and never over anything."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from obstore.exceptions import GenericError

from jrs.contract.errors import Fenced, InvalidInput, JobHeld, WrongState
from jrs.contract.operations import Delete
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobSpec, JobStatus, Json, StageRecord
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.job import Job, Stage
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.object_garbage import ObjectGarbage
from jrs.recovery.cleanup.publications import Publications
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.inspect.fsck import left_over
from jrs.recovery.inspect.output_files import output_files
from jrs.recovery.rules.resource import GivenUp
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.recovery.snapshots.from_stage import without_stage
from jrs.recovery.storage import publication
from jrs.recovery.storage.objects import Objects
from jrs.recovery.storage.publication import is_there
from jrs.store import attempt_fence
from jrs.store.result_store import JobResultStore
from tests.clouds import SCHEMES
from tests.recovery.attempt.objects_attempt import begin, lead_on
from tests.recovery.lead import Lead
from tests.recovery.storage.support import Calls, Store, objects
from tests.recovery.support import FaultyMemory, result

WRITES = ("put", "copy", "delete")


@pytest.fixture
def store(cloud: Store) -> Store:
    return cloud


@pytest.fixture
def bucket(cloud: Store) -> Objects:
    return objects(cloud).bucket()


@pytest.fixture
def place(cloud: Store) -> str:
    """A place in the bucket, next to the prefix of the storage."""
    return f"{cloud.url.partition('?')[0]}-warehouse"


def job_of(lead: Lead, attempt: int = 1) -> Job:
    return AttemptRun(lead.context(attempt)).job


def first(stage: Stage) -> Json:
    (stage.output / "day=1").mkdir()
    (stage.output / "day=1" / "part").write_text("first")
    (stage.output / "empty").write_text("")
    return 1


def second(stage: Stage) -> Json:
    (stage.output / "part").write_text("second")
    return 2


FIRST = {"day=1/part": b"first", "empty": b""}


def one(job: Job, target: str) -> Any:
    return job.publish(target, job.stage("first", first))


def read(bucket: Objects, url: str) -> dict[str, bytes] | None:
    """Return what is published at a URL, as a reader without jrs does; None if nothing is."""
    pointer = bucket.get(url.removeprefix(f"{bucket.url}/"))
    if pointer is None:
        return None
    found = {}
    for file in json.loads(pointer)["files"]:
        content = bucket.get(file["url"].removeprefix(f"{bucket.url}/"))
        assert content is not None
        assert (len(content), hashlib.sha256(content).hexdigest()) == (
            file["size"], file["sha256"],
        )  # fmt: skip
        found[file["name"]] = content
    return found


def below(bucket: Objects, place: str) -> list[str]:
    """Return the names of what is below a place."""
    prefix = place.removeprefix(f"{bucket.url}/")
    return sorted(found.name.removeprefix(f"{prefix}/") for found in bucket.under(prefix))


def record_of(lead: Lead, name: str = "publish") -> StageRecord:
    stored = lead.backend.get(keys.stage("job", name))
    assert stored is not None
    return decode(StageRecord, stored.value, stored.key)


def test_one_stage(lead: Lead, bucket: Objects, place: str) -> None:
    """A pointer that says all, and the files next to it, in a folder that has no others."""
    done = one(job_of(lead), f"{place}/table")

    assert done.result() == {"files": 2, "bytes": 5}
    assert read(bucket, f"{place}/table") == FIRST
    pointer = json.loads(bucket.get(f"{place}/table".removeprefix(f"{bucket.url}/")) or b"")
    assert (pointer["format"], pointer["job"], pointer["stage"]) == (1, "job", "publish")
    folder = pointer["folder"].removeprefix(f"{place}/")
    assert below(bucket, place) == ["table", f"{folder}/day=1/part", f"{folder}/empty"]
    assert record_of(lead).is_published
    with pytest.raises(WrongState, match=f"{place}/table is no folder"):
        done.output.exists()
    with pytest.raises(WrongState, match=f"is at {place}/table"):
        output_files(lead.backend, lead.storage, "job", "publish", "")


def test_several_stages_and_a_stream(lead: Lead, bucket: Objects, place: str) -> None:
    stream = begin(lead)
    for _ in range(3):
        stream.batch()
    attempt = AttemptRun(stream.context)
    stages = [attempt.job.stage("first", first, temporary=True), attempt.job.stage("two", second)]
    attempt._handles["sums"] = attempt._handles["two"]  # Its query needs Spark.
    attempt.job.publish(f"{place}/table", *stages, "sums")

    found = read(bucket, f"{place}/table")
    assert found is not None
    rows = {name.rpartition("/")[0]: found[name] for name in found if name.startswith("sums/")}
    assert rows == {f"sums/batch={batch}": f"rows {batch}".encode() for batch in range(3)}
    others = {name: found[name] for name in found if not name.startswith("sums/")}
    assert others == {"first/day=1/part": b"first", "first/empty": b"", "two/part": b"second"}


NO_NAMES = {
    "a control character": ("a\nb", "has a control character"),
    "no text": (os.fsdecode(b"\xff"), "is no text in UTF-8"),
    "too long": ("/".join(["x" * 200] * 5), r"is too long: 1,\d\d\d bytes"),
}
"""Paths of files that no object can have, and what is said of them."""


def writes(path: str) -> Callable[[Stage], Json]:
    def function(stage: Stage) -> Json:
        (stage.output / path).parent.mkdir(parents=True, exist_ok=True)
        (stage.output / path).write_text("1")
        return 1

    return function


@pytest.mark.parametrize("how", NO_NAMES)
def test_a_file_that_no_object_can_have(lead: Lead, place: str, how: str) -> None:
    """It is refused before anything is recorded that could never be completed."""
    path, says = NO_NAMES[how]
    job = job_of(lead)
    stage = job.stage("first", writes(path))
    with pytest.raises(InvalidInput, match=says) as raised:
        job.publish(f"{place}/table", stage)

    assert "\n" not in str(raised.value)
    assert lead.backend.get(keys.stage("job", "publish")) is None


def test_a_place_whose_name_is_too_long(lead: Lead, place: str) -> None:
    assert "its name is too long: 1," in refused(lead, f"{place}/{'y/' * 600}table")


@pytest.mark.parametrize("how", ["a control character", "no text"])
def test_such_a_file_that_an_older_version_recorded(
    lead: Lead, bucket: Objects, place: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt does not wait for what cannot be, and the job can be canceled: its cleanup
    continues without what it publishes."""
    monkeypatch.setattr(publication, "check_files", lambda target, paths: None)
    job = job_of(lead)
    stage = job.stage("first", writes(NO_NAMES[how][0]))
    with pytest.raises(InvalidInput, match="no object can have this name") as raised:
        job.publish(f"{place}/table", stage)
    assert lead.storage.objects is not None
    with pytest.raises(GivenUp, match=f"{place}/table is not published: .*can have this name"):
        Publications(lead.backend, lead.storage.objects).clean("job")

    assert "\n" not in str(raised.value)
    assert read(bucket, f"{place}/table") is None


def refused(lead: Lead, target: str, attempt: int = 1) -> str:
    with pytest.raises(InvalidInput) as raised:
        one(job_of(lead, attempt), target)
    assert "\n" not in str(raised.value)
    assert lead.backend.get(keys.stage("job", "publish")) is None
    return str(raised.value)


def test_places_that_are_refused(lead: Lead, bucket: Objects, place: str, tmp_path: Path) -> None:
    """Each in one line, and nothing is changed."""
    own = objects_of(lead).url
    where = "it has to be in the bucket of the storage"
    assert where in refused(lead, "s3://other/table")
    assert where in refused(lead, "http://bucket/table")
    assert where in refused(lead, f"{bucket.url.replace('://', '://user:secret@')}/table")
    assert "a place has no options" in refused(lead, f"{place}/table?endpoint=x")
    for wrong in (bucket.url, f"{place}/table/", f"{place}//table", f"{place}/../table"):
        assert "it is not of the form" in refused(lead, wrong)
    assert "it is not of the form" in refused(lead, f"{place}/ta\tble")
    for wrong in (own, f"{own}/job/data/table", own.rpartition("/")[0]):
        assert "jobs keep their own files there" in refused(lead, wrong)
    assert "the storage has objects; name a URL" in refused(lead, str(tmp_path / "table"))
    bucket.put(f"{place}/there".removeprefix(f"{bucket.url}/"), b"the user's own")
    bucket.put(f"{place}/above/there".removeprefix(f"{bucket.url}/"), b"the user's own")
    assert "something is there already" in refused(lead, f"{place}/there")
    assert "something is there already" in refused(lead, f"{place}/above")
    silent = job_of(lead, 2)
    with pytest.raises(InvalidInput, match="'silent' has no output to publish"):
        silent.publish(f"{place}/table", silent.stage("silent", lambda stage: None))
    assert below(bucket, place) == ["above/there", "there"]


def objects_of(lead: Lead) -> Objects:
    assert lead.storage.objects is not None
    return lead.storage.objects


def test_a_url_where_the_storage_is_a_folder(memory: FaultyMemory, tmp_path: Path) -> None:
    folders = Lead(memory, tmp_path / "work")
    with pytest.raises(InvalidInput, match="the storage is a folder; name an absolute path"):
        one(folders.job(), "s3://bucket/table")


def test_no_permission_there(lead: Lead, cloud: Store, bucket: Objects, place: str) -> None:
    """Found before anything runs, also where only deleting is not permitted."""
    for forbidden in ("put", "delete"):

        def refuse(method: str, arguments: Any, forbidden: str = forbidden) -> None:
            first = arguments[0] if isinstance(arguments[0], str) else "".join(arguments[0])
            if method == forbidden and "-warehouse" in first:
                raise GenericError("status code: 403 Forbidden: <Code>AccessDenied</Code>")

        cloud.refuse = refuse
        why = refused(lead, f"{place}/table", 1)
        assert f"nothing can be published at {place}/table: {forbidden.upper()} " in why
        assert "permit this user to read, write, list and delete there" in why


def test_a_server_that_ignores_conditions(
    lead: Lead, cloud: Store, bucket: Objects, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a gateway that overwrites what it was told not to."""

    class Ignoring(Calls):
        def put(self, *arguments: Any, mode: str = "", **options: Any) -> Any:
            return self._store.put(*arguments, **options)

    opened = cloud.open
    monkeypatch.setattr(cloud, "open", lambda *args: Ignoring(cloud, opened(*args)._store))
    lead.storage.objects = objects(cloud)

    assert "its server ignores that an object must not exist yet" in refused(lead, f"{place}/table")
    assert below(bucket, place) == []
    assert not any(name.startswith(".storage") for name in cloud.names())


def late(cloud: Store, act: Callable[[], None]) -> None:
    """Do something when the first file of a publication is copied, or its pointer is written."""

    def refuse(method: str, arguments: Any) -> None:
        if method == "put" and str(arguments[0]).endswith("/table"):
            cloud.refuse = lambda *_: None
            act()

    cloud.refuse = refuse


def test_taken_in_this_moment(lead: Lead, cloud: Store, bucket: Objects, place: str) -> None:
    """What another user has put there stays. When it was moved away, the job can be resumed."""
    name = f"{place}/table".removeprefix(f"{bucket.url}/")
    late(cloud, lambda: bucket.put(name, b"the user's own"))
    with pytest.raises(JobHeld, match="something else was put there meanwhile; move it away"):
        one(job_of(lead), f"{place}/table")
    assert below(bucket, place) == ["table"]
    assert bucket.get(name) == b"the user's own"
    with pytest.raises(JobHeld):
        one(job_of(lead, 2), f"{place}/table")
    with pytest.raises(GivenUp, match=r"is not published: .*something else was put there"):
        Publications(lead.backend, objects(cloud)).clean("job")
    assert below(bucket, place) == ["table"]

    bucket.delete([name])
    one(job_of(lead, 3), f"{place}/table")
    assert read(bucket, f"{place}/table") == FIRST


def test_a_store_that_fails_while_it_is_copied(
    lead: Lead, cloud: Store, bucket: Objects, place: str
) -> None:
    """A repeat copies what is missing, and nothing again."""
    refused, begun, copied = iter(range(1)), itertools.count(1), Counter[str]()

    def refuse(method: str, arguments: tuple[Any, ...]) -> None:
        if method != "copy":
            return
        if next(begun) >= 30 and next(refused, None) is not None:
            raise GenericError("Server returned non-2xx status code: 503 Slow Down: <Error/>")
        copied[arguments[1]] += 1

    def many(stage: Stage) -> None:
        for number in range(40):
            (stage.output / f"f{number}").write_text(f"{number}")

    cloud.refuse = refuse
    job = job_of(lead)
    job.publish(f"{place}/table", job.stage("many", many))

    assert read(bucket, f"{place}/table") == {f"f{n}": f"{n}".encode() for n in range(40)}
    assert (len(copied), set(copied.values()), next(begun)) == (40, {1}, 42)


def test_written_by_two(lead: Lead, cloud: Store, bucket: Objects, place: str) -> None:
    """What completes a publication writes the same: an attempt finds it written, and is done."""
    again = Publications(lead.backend, objects(cloud))
    late(cloud, lambda: again.clean("job"))
    one(job_of(lead), f"{place}/table")

    assert read(bucket, f"{place}/table") == FIRST
    assert len(below(bucket, place)) == 3


def test_an_attempt_that_was_shut_out(
    lead: Lead, cloud: Store, bucket: Objects, place: str
) -> None:
    """It writes no pointer; its successor does."""
    job = job_of(lead)
    done = job.stage("first", first)

    others: list[Lead] = []
    turn = threading.Lock()

    def shut_out(method: str, arguments: Any) -> None:
        if method not in ("copy", "get_range"):
            return
        with turn:  # Files are copied by several threads.
            if not others:
                lead.leadership.resign()
                assert isinstance(lead.backend, FaultyMemory)
                others.append(lead_on(lead.backend, lead.storage.root, cloud))

    cloud.refuse = shut_out
    with pytest.raises(Fenced):
        job.publish(f"{place}/table", done)
    assert read(bucket, f"{place}/table") is None
    one(job_of(others[0], 2), f"{place}/table")
    assert read(bucket, f"{place}/table") == FIRST


def test_what_was_published_is_the_users(lead: Lead, bucket: Objects, place: str) -> None:
    """Taken away, it does not come back with the next attempt; and one name has one place."""
    one(job_of(lead), f"{place}/table")
    bucket.delete(f"{place}/{name}".removeprefix(f"{bucket.url}/") for name in below(bucket, place))

    assert one(job_of(lead, 2), f"{place}/table").result() == {"files": 2, "bytes": 5}
    assert below(bucket, place) == []
    with pytest.raises(JobHeld, match=r"now names .*/other: use another stage name"):
        one(job_of(lead, 3), f"{place}/other")


def test_it_outlives_the_job(lead: Lead, cloud: Store, bucket: Objects, place: str) -> None:
    """Neither the job's cleanup, nor its expiry, nor `jrs gc` touches it: it has its own copies."""
    job = job_of(lead)
    job.publish(f"{place}/table", job.stage("first", first, temporary=True))
    JobResultStore(lead.backend).create_dirty(result("job"), lead.leadership.fence)
    JobCleanup(lead.backend, default_resources(lead.backend, lead.storage)).run("job", None)

    # Of the job nothing is left that has these bytes.
    assert [name for name in cloud.names() if "part" in name] == []
    garbage = ObjectGarbage(lead.backend, objects(cloud))
    garbage.sweep_unnamed("job", 4e9, ended=True, dry_run=False)
    assert read(bucket, f"{place}/table") == FIRST


def test_snapshots(lead: Lead, cloud: Store, bucket: Objects, place: str) -> None:
    """A4: a restore names what was published, and asks; nothing is published twice, by whatever
    job; and no stage runs again that would have to publish over something."""
    catalog = SnapshotCatalog(lead.backend, lead.storage, sleep=lambda seconds: None)
    job_of(lead).stage("first", first)
    before = catalog.create("job")
    one(job_of(lead, 2), f"{place}/table")
    after = catalog.create("job")
    fence = lead.leadership.fence
    attempt_fence.shut_out(lead.backend, "job", fence)
    how: dict[str, Any] = {"fence": fence, "is_stopped": lambda job_id: True}
    with pytest.raises(WrongState, match=f"{place}/table was published"):
        catalog.restore(before, **how)
    catalog.restore(before, accept_published=True, **how)
    there = below(bucket, place)
    bucket.delete([f"{place}/table".removeprefix(f"{bucket.url}/")])
    one(job_of(lead, 3), f"{place}/table")
    catalog.restore(after, accept_published=True, **how)
    one(job_of(lead, 4), f"{place}/table")
    assert below(bucket, place) == there[1:]

    assert catalog.fork("job", "other").job_id == "other"
    context = attrs.evolve(lead.context(5), spec=JobSpec("other", "m:f"))
    one(AttemptRun(context).job, f"{place}/table")
    Publications(lead.backend, objects(cloud)).clean("other")
    assert below(bucket, place) == there[1:]


def test_a_stage_that_would_be_published_again(lead: Lead, bucket: Objects, place: str) -> None:
    """A retry from an earlier stage is refused while its table is there."""
    done = one(job_of(lead), f"{place}/table")
    catalog = SnapshotCatalog(lead.backend, lead.storage, sleep=lambda seconds: None)
    found = catalog.manifest("job", catalog.create("job").number)
    again = partial(without_stage, found, "first", partial(is_there, objects_of(lead)))
    with pytest.raises(InvalidInput, match=f"would publish at {place}/table again, which exists"):
        again()
    bucket.delete([f"{place}/table".removeprefix(f"{bucket.url}/")])

    assert done.name not in [key.partition("/")[2] for key in again().records]


class Died(BaseException):
    """The process died here."""


@pytest.mark.parametrize("cloud", SCHEMES[::2], indirect=True)
@pytest.mark.parametrize("then", ["the next attempt", "a cancel"])
def test_death_at_every_step(
    lead: Lead,
    cloud: Store,
    bucket: Objects,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
) -> None:
    """Before each write to the store, and before and after each commit: all of it is published, or
    nothing is; and that is all once the record was committed."""
    left = [-1]

    def step() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Died

    commit = lead.backend.commit

    def counted(*ops: Any, **options: Any) -> Any:
        step()
        found = commit(*ops, **options)
        step()
        return found

    monkeypatch.setattr(lead.backend, "commit", counted)
    cloud.refuse = lambda method, _: step() if method in WRITES else None
    last, died = 0, True
    while died:
        last += 1
        name, target = f"publish-{last}", f"{place}-{last}/table"
        job = job_of(lead, 2 * last)
        done = job.stage("first", first)
        left[0] = last
        try:
            job.publish(target, done, name=name)
            died = False
        except Died:
            pass
        left[0] = -1
        is_recorded = lead.backend.get(keys.stage("job", name)) is not None
        assert read(bucket, target) in (None, FIRST)
        if then == "the next attempt":
            again = job_of(lead, 2 * last + 1)
            again.publish(target, again.stage("first", first), name=name)
            is_recorded = True
        else:
            Publications(lead.backend, objects(cloud)).clean_fenced("job", lead.leadership.fence)
            assert list(Publications(lead.backend, objects(cloud)).describe("job")) == []
        assert read(bucket, target) == (FIRST if is_recorded else None)
        files = [one for one in below(bucket, f"{place}-{last}") if not one.endswith(".probe")]
        assert len(files) == (3 if is_recorded else 0)
    assert last > 8


def test_what_was_not_completed_is_named(
    lead: Lead, cloud: Store, bucket: Objects, place: str
) -> None:
    """By `jrs fsck`, if an operator has marked a job clean; and the cleanup completes it."""

    def die() -> None:
        raise Died

    late(cloud, die)
    with pytest.raises(Died):
        one(job_of(lead), f"{place}/table")
    JobResultStore(lead.backend).create_dirty(
        result("job", status=JobStatus.CANCELED), lead.leadership.fence
    )
    JobResultStore(lead.backend).mark_clean("job", lead.leadership.fence)
    lead.backend.commit(Delete(keys.JOBS + "job"))
    named = [line for line in left_over(lead.backend, lead.storage) if "published" in line]
    assert named == [f"{place}/table: half published by job 'job', which has ended"]
