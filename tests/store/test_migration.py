"""Moving a cluster to another backend: every record arrives, and nothing acknowledged is lost."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.backends.file.backend import FileBackend
from jrs.client.client import Client
from jrs.contract.backend import Backend
from jrs.contract.errors import (
    ClusterMoved,
    CorruptRecord,
    Fenced,
    InvalidInput,
    NotFound,
    TooLarge,
    WrongState,
)
from jrs.contract.formats import NEWEST_FORMAT, OLDEST_FORMAT
from jrs.contract.operations import Check, Create, Delete, Op
from jrs.records import codec, keys
from jrs.records.codec import encode
from jrs.records.history import HistoryKind
from jrs.records.model import EpochRecord, FormatRecord, JobResult, JobSpec, JobStatus
from jrs.recovery.inspect.fsck import fsck
from jrs.store import feed, history, history_checks, migration, result_index
from jrs.store.cluster_format import format_of
from jrs.store.copying import LEFT_BEHIND, REWRITTEN, moves
from jrs.store.historian import Historian
from jrs.store.jobs import JobCatalog
from jrs.store.masters import newest_epoch
from jrs.store.migration import Migration
from jrs.store.opening import open_backend, open_closed
from jrs.store.result_store import JobResultStore
from jrs.store.steering import Steering
from jrs.testing.contract import lead
from tests.support import until

Opener = Callable[[str], Backend]


class Places:
    """Backends of one cluster by the kind of each: ``file``, ``other`` (a second folder), ``etcd``
    and ``zookeeper``."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path, stack: ExitStack) -> None:
        self._request = request
        self._folder = folder
        self._stack = stack
        self.cluster = f"moved-{uuid.uuid4().hex[:8]}"

    def url(self, kind: str) -> str:
        if kind in ("file", "other", "third", "fourth"):
            return (self._folder / kind).as_uri()
        url: str = self._request.getfixturevalue(f"{kind}_server").url()
        return url

    def open(self, kind: str) -> Backend:
        """Open a backend as every process but the migration does."""
        return self._stack.enter_context(open_backend(self.url(kind), cluster=self.cluster))

    def raw(self, kind: str) -> Backend:
        """Open a backend whether the cluster is closed or not."""
        url = self.url(kind)
        return self._stack.enter_context(open_closed(url, cluster=self.cluster, create=True))

    def migration(self, source: str, target: str) -> Migration:
        return Migration(self.raw(source), self.raw(target), by="me@here")


@pytest.fixture
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(request, tmp_path, stack)


def fill(backend: Backend, jobs: int = 3) -> None:
    """Have a leader write results, and clients jobs; then pause the cluster."""
    results = JobResultStore(backend)
    catalog = JobCatalog(backend)
    with lead(backend) as leadership:
        for number in range(jobs):
            result = JobResult(f"ended-{number}", JobStatus.FINISHED, {"n": number})
            results.create_dirty(result, leadership.fence)
            results.mark_clean(f"ended-{number}", leadership.fence)
    for number in range(jobs):
        catalog.submit(JobSpec(f"waits-{number}", "json:dumps"))
    Steering(backend).pause("me@here", "it moves")


def moved(backend: Backend) -> dict[str, bytes]:
    """Return what moves, without the records that are rewritten, and those of histories, which are
    folded on the way."""
    return {
        record.key: record.value
        for record in backend.scan("")
        if moves(record.key)
        and record.key not in REWRITTEN
        and not record.key.startswith(keys.TOLD)
    }


def epoch(backend: Backend) -> int:
    newest = newest_epoch(backend)
    return 0 if newest is None else newest.epoch


@pytest.mark.parametrize(
    "way",
    [
        ("file", "other"),
        ("file", "etcd"),
        ("etcd", "file"),
        ("file", "zookeeper"),
        ("zookeeper", "etcd"),
        ("etcd", "zookeeper"),
    ],
    ids="-".join,
)
def test_every_record_arrives(places: Places, way: tuple[str, str]) -> None:
    """What the target holds is what the source held; its epoch is not smaller; a leader there gets
    a greater one than any before; and the source names the target to all who come."""
    source, target = way
    here = places.open(source)
    fill(here)
    before = moved(here)

    contents = places.migration(source, target).carry_out()

    there = places.open(target)
    assert moved(there) == before
    assert contents.by_kind["folds"] == 3
    assert contents.records == len(before) + 1 + 3
    assert contents.by_kind["results"] == 3
    assert JobResultStore(there).wait("ended-1", 10).payload == {"n": 1}
    assert epoch(there) >= epoch(places.raw(source)) > 1
    with lead(there) as leadership:
        assert leadership.epoch > epoch(places.raw(source))
        JobResultStore(there).create_dirty(
            JobResult("waits-0", JobStatus.FINISHED, 1), leadership.fence
        )
    with pytest.raises(ClusterMoved) as told:
        places.open(source)
    assert told.value.url == there.url
    assert there.url in str(told.value)


def test_there_and_back(places: Places) -> None:
    """A cluster returns to where it was moved from, with what was written and deleted meanwhile."""
    fill(places.open("file"))
    places.migration("file", "etcd").carry_out()
    there = places.open("etcd")
    JobCatalog(there).submit(JobSpec("later", "json:dumps"))
    there.commit(Delete(keys.JOBS + "waits-0"))
    expected = moved(there)

    places.migration("etcd", "file").carry_out()

    assert moved(places.open("file")) == expected
    with pytest.raises(ClusterMoved):
        places.open("etcd")
    places.migration("file", "etcd").carry_out()
    assert moved(places.open("etcd")) == expected


@pytest.mark.parametrize("raised", [False, True])
def test_into_an_older_folder_and_back(places: Places, tmp_path: Path, raised: bool) -> None:
    """What arrives there is of the newest format throughout, whatever the folder's marker says,
    and also if the empty cluster there was raised before."""
    fill(places.open("file"))
    before = moved(places.open("file"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "jrs.json").write_text('{"format": "jrs", "version": 2}')
    if raised:
        with Client(places.open("other")) as client:
            client.raise_cluster_format()

    places.migration("file", "other").carry_out()

    there = places.open("other")
    assert there.marked_format == OLDEST_FORMAT
    assert format_of(there) == NEWEST_FORMAT
    assert result_index.is_complete(there)
    assert not fsck(there, None).left_over
    assert moved(there) == before
    places.migration("other", "third").carry_out()
    assert moved(places.open("third")) == before
    places.migration("third", "other").carry_out()
    assert result_index.is_complete(places.open("other"))
    with FileBackend(tmp_path / "other", "neighbour") as neighbour:
        assert format_of(neighbour) == OLDEST_FORMAT


@pytest.mark.parametrize("version", [NEWEST_FORMAT + 1, None])
def test_a_target_whose_format_is_not_known(places: Places, version: int | None) -> None:
    """It is refused before anything is written."""
    fill(places.open("file"))
    target = places.raw("other")
    value = b"no record" if version is None else encode(FormatRecord(version))
    target.commit(Create(keys.FORMAT, value))

    with pytest.raises(CorruptRecord):
        places.migration("file", "other").carry_out()

    assert [record.key for record in target.scan("")] == [keys.FORMAT]
    assert places.raw("file").get(keys.MIGRATION) is None


@pytest.mark.parametrize("kind", ["file", "etcd", "zookeeper"])
def test_a_cursor_from_before_is_refused_where_it_returns(places: Places, kind: str) -> None:
    """It would miss what happened elsewhere. A run that crashed is repeated."""
    here = places.open(kind)
    fill(here)
    here.commit(Create(keys.MASTERS + "gone", b""), Create(keys.DOCTOR + "gone", b""))
    cursor = feed.newest(here)
    assert feed.read(here, cursor).events == ()
    places.migration(kind, "other").carry_out()
    JobCatalog(places.open("other")).submit(JobSpec("elsewhere", "json:dumps"))
    close_only(places, "other", kind)
    places.migration("other", kind).carry_out()

    there = places.open(kind)
    with pytest.raises(NotFound):
        feed.read(there, cursor)
    assert [record.key for record in there.scan("") if record.key.startswith(LEFT_BEHIND)] == []
    JobCatalog(there).submit(JobSpec("later", "json:dumps"))
    with pytest.raises(NotFound):
        feed.read(there, cursor)


def test_it_is_done_once(places: Places) -> None:
    """A migration that is complete changes nothing any more, and the source names its target."""
    fill(places.open("file"))
    places.migration("file", "other").carry_out()
    there = places.open("other")
    Steering(there).unpause("operator")
    JobCatalog(there).submit(JobSpec("later", "json:dumps"))

    again = places.migration("file", "other")
    assert again.check()
    again.carry_out()
    assert there.get(keys.JOBS + "later") is not None
    assert there.get(keys.PAUSE) is None

    with pytest.raises(ClusterMoved, match="other"):
        places.migration("file", "third").carry_out()


def test_processes_that_stay_are_told(places: Places) -> None:
    """A handle from before the move can neither read on, write, nor lead."""
    here = places.open("file")
    fill(here)
    places.migration("file", "other").carry_out()

    with pytest.raises(ClusterMoved):
        JobCatalog(here).submit(JobSpec("late", "json:dumps"))
    with pytest.raises(ClusterMoved):
        JobCatalog(here).cancel("waits-1")
    with pytest.raises(ClusterMoved):
        here.commit_async(Create("some/key", b"")).result(10)
    with pytest.raises(ClusterMoved):
        here.campaign("late", ttl=5.0, stop=threading.Event())
    with pytest.raises(ClusterMoved):
        JobResultStore(here).wait("waits-1", 60)
    with pytest.raises(ClusterMoved):
        list(here.scan(""))


@pytest.mark.parametrize("kind", ["file", "etcd", "zookeeper"])
def test_a_candidate_that_waits_is_told(places: Places, kind: str) -> None:
    """A master that waits for its turn while the cluster is moved never leads."""
    here = places.open(kind)
    fill(here)
    candidate = places.open(kind)
    outcome: list[object] = []

    def campaign() -> None:
        try:
            outcome.append(candidate.campaign("waits", ttl=5.0, stop=threading.Event()))
        except ClusterMoved as told:
            outcome.append(told)

    waiting = threading.Thread(target=campaign)
    real = Migration._close

    def close(self: Migration, *args: object) -> None:
        waiting.start()
        real(self, *args)  # type: ignore[arg-type]  # Handed on as they came.

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_close", close)
        places.migration(kind, "other").carry_out()
    waiting.join(60)

    assert [type(each) for each in outcome] == [ClusterMoved]


@pytest.mark.parametrize("kind", ["file", "etcd", "zookeeper"])
def test_what_clients_submit_meanwhile_arrives(places: Places, kind: str) -> None:
    """Clients submit throughout: what was acknowledged is at the target, and the first that was
    not was told where the cluster is."""
    here = places.open(kind)
    fill(here)
    client = JobCatalog(places.open(kind))
    acknowledged: list[str] = []
    told: list[ClusterMoved] = []

    def submit() -> None:
        for number in range(100_000):
            try:
                client.submit(JobSpec(f"meanwhile-{number}", "json:dumps"))
            except ClusterMoved as error:
                told.append(error)
                return
            acknowledged.append(f"meanwhile-{number}")

    submitting = threading.Thread(target=submit)
    submitting.start()
    until(lambda: len(acknowledged) >= 5, "some are acknowledged")
    places.migration(kind, "other").carry_out()
    submitting.join(60)

    there = places.open("other")
    assert len(told) == 1
    assert {record.key for record in there.scan(keys.JOBS + "meanwhile-")} == {
        keys.JOBS + job for job in acknowledged
    }


def test_no_leader_writes_meanwhile(places: Places) -> None:
    """A leader that was replaced by the migration is fenced, before the source is closed."""
    here = places.open("file")
    fill(here)
    slept = lead(here)
    slept.resign()
    real = Migration._close

    def close(self: Migration, *args: object) -> None:
        with pytest.raises(Fenced):
            here.commit(Create("late", b""), fence=slept.fence)
        real(self, *args)  # type: ignore[arg-type]  # Handed on as they came.

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_close", close)
        places.migration("file", "other").carry_out()


def test_a_run_that_was_overtaken_changes_nothing(places: Places) -> None:
    """Of two runs of a migration the older one cannot write the copy any more."""
    fill(places.open("file"))
    first = places.migration("file", "other")
    real = Migration._copy

    def copy(self: Migration, held: Check) -> int:
        if self is first:
            patch.setattr(Migration, "_copy", real)
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(Migration, "_lead", lambda self: lead(self._source))
                slept = places.raw("file").get(keys.EPOCH)
                assert slept is not None
                second = places.migration("file", "other")
                second._hold_copy(second._state())
            places.raw("file").commit(Delete(keys.JOBS + "waits-0"))
        return real(self, held)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_copy", copy)
        with pytest.raises(WrongState, match="another process writes"):
            first.carry_out()
    with pytest.raises(WrongState, match="not complete"):
        places.open("other")

    places.migration("file", "other").carry_out()
    assert moved(places.open("other")) == moved(places.raw("file"))


def close_only(places: Places, source: str, target: str) -> None:
    """Begin a migration, and crash once the source is closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_open_target", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            places.migration(source, target).carry_out()


def test_it_is_abandoned(places: Places) -> None:
    """A migration that is not complete is given up: the source is open, and no run that sleeps
    opens the copy. The same migration may begin again; that of another cluster may not use it."""
    here = places.open("file")
    fill(here)
    assert not places.migration("file", "third").abandon()
    close_only(places, "file", "other")
    sleeps = places.migration("file", "other")
    state = sleeps._state()
    held = sleeps._hold_copy(state)
    assert places.migration("file", "other").abandon()
    assert not places.migration("file", "other").abandon()

    JobCatalog(here).submit(JobSpec("open", "json:dumps"))
    with pytest.raises(WrongState, match="another process writes"):
        sleeps._open_target(state, held)
    with pytest.raises(WrongState, match="not complete"):
        places.open("other")
    fill(places.open("third"))
    with pytest.raises(WrongState, match="was abandoned: remove it, or name an empty target"):
        places.migration("third", "other").carry_out()
    assert places.migration("file", "other").check() is False
    places.migration("file", "other").carry_out()
    with pytest.raises(WrongState, match="another process writes"):
        sleeps._open_target(state, held)
    assert moved(places.open("other"))[keys.JOBS + "open"]


def test_abandoning_is_repeated(places: Places) -> None:
    """A crash between its two steps leaves both closed, and repeating it opens the source."""
    fill(places.open("file"))
    close_only(places, "file", "other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileBackend, "commit", dies_at_a_delete)
        with pytest.raises(ZeroDivisionError):
            places.migration("file", "other").abandon()
    with pytest.raises(WrongState, match="was being abandoned"):
        places.migration("file", "other").carry_out()
    assert places.migration("file", "other").abandon()
    places.open("file")


def dies_at_a_delete(self: FileBackend, *ops: Op, **options: Any) -> None:
    if any(isinstance(op, Delete) for op in ops):
        raise ZeroDivisionError
    Backend.commit(self, *ops, **options)


def test_what_is_complete_is_not_abandoned(places: Places) -> None:
    fill(places.open("file"))
    places.migration("file", "other").carry_out()
    with pytest.raises(WrongState, match="exchange --from and --to"):
        places.migration("file", "other").abandon()


def test_a_lost_copy_is_named_and_said_to_be_lost(places: Places) -> None:
    """Nobody can be at a server that has lost the copy altogether. But of a wrong target, too, jrs
    only sees that it holds nothing; and the cluster may live where it was moved to."""
    fill(places.open("file"))
    places.migration("file", "other").carry_out()
    for lost in (False, True):
        with pytest.raises(WrongState, match=f"left for {places.url('other')}"):
            places.migration("file", "third").abandon(copy_lost=lost)
    copy = places.raw("other")
    for record in copy.scan(""):
        copy.commit(Delete(record.key))
    with pytest.raises(WrongState, match="--copy-lost"):
        places.migration("file", "other").abandon()
    with pytest.raises(ClusterMoved):
        places.open("file")
    assert places.migration("file", "other").abandon(copy_lost=True)
    places.open("file")


# -- what is refused ---------------------------------------------------------------------------


def test_not_paused(places: Places) -> None:
    here = places.open("file")
    fill(here)
    Steering(here).unpause("operator")
    with pytest.raises(WrongState, match="not paused"):
        places.migration("file", "other").carry_out()
    assert list(places.raw("other").scan("")) == []


def test_unpaused_meanwhile(places: Places) -> None:
    """A pause that ends while records are copied ends the migration, and the source stays open."""
    here = places.open("file")
    fill(here)
    real = Migration._close

    def close(self: Migration, *args: object) -> None:
        Steering(here).unpause("operator")
        real(self, *args)  # type: ignore[arg-type]  # Handed on as they came.

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_close", close)
        with pytest.raises(WrongState, match="not paused any more"):
            places.migration("file", "other").carry_out()
    JobCatalog(places.open("file")).submit(JobSpec("open", "json:dumps"))

    Steering(here).pause("me@here", "")
    places.migration("file", "other").carry_out()
    assert places.open("other").get(keys.JOBS + "open") is not None


def test_a_leader_is_alive(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that no registry names, as of a program with a campaign of its own, is noticed."""
    monkeypatch.setattr(migration, "_PATIENCE", 0.5)
    here = places.open("file")
    fill(here)
    with lead(here), pytest.raises(WrongState, match="a master leads"):
        places.migration("file", "other").carry_out()
    assert list(places.raw("other").scan("")) == []


def test_the_target_is_not_empty(places: Places) -> None:
    fill(places.open("file"))
    there = places.open("other")
    JobCatalog(there).submit(JobSpec("mine", "json:dumps"))
    with pytest.raises(WrongState, match="not empty: it holds 'history/mine/"):
        places.migration("file", "other").carry_out()
    JobCatalog(there).submit(JobSpec("more", "json:dumps"))


def test_the_target_is_another_ones_copy(places: Places) -> None:
    """A copy that was begun from another source is not taken for one's own."""
    fill(places.open("file"))
    fill(places.open("third"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_close", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            places.migration("file", "other").carry_out()
    with pytest.raises(WrongState, match="another migration has begun"):
        places.migration("third", "other").carry_out()
    with pytest.raises(WrongState, match="not complete"):
        places.migration("other", "third").carry_out()


def test_the_same_backend_twice(places: Places) -> None:
    fill(places.open("file"))
    with pytest.raises(InvalidInput, match="the same backend"):
        places.migration("file", "file").carry_out()


def small(backend: Backend, most: int) -> Backend:
    backend.capabilities = attrs.evolve(backend.capabilities, max_value=most)
    return backend


def test_a_value_is_too_large(places: Places) -> None:
    """A record that the target cannot take is named before anything is written."""
    here = places.open("etcd")
    fill(here)
    here.commit(Create("big/one", b"x" * 600_000))

    with pytest.raises(TooLarge, match="'big/one' has 600,000 bytes"):
        places.migration("etcd", "file").carry_out()

    assert list(places.raw("file").scan("")) == []
    assert here.get(keys.MIGRATION) is None


def test_a_value_gets_too_large(places: Places) -> None:
    """A record that was written while others were copied, and that the target cannot take, opens
    the source again: nothing is lost."""
    here = places.open("file")
    fill(here)
    real = Migration._close

    def close(self: Migration, *args: object) -> None:
        here.commit(Create("big/one", b"x" * 5000))
        real(self, *args)  # type: ignore[arg-type]  # Handed on as they came.

    source, target = places.raw("file"), small(places.raw("other"), 4000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_close", close)
        with pytest.raises(TooLarge, match="big/one"):
            Migration(source, target, by="me").carry_out()

    JobCatalog(here).submit(JobSpec("open", "json:dumps"))
    here.commit(Delete("big/one"))
    Migration(source, target, by="me").carry_out()
    assert places.open("other").get(keys.JOBS + "open") is not None


def test_it_was_closed_when_a_value_was_too_large(places: Places) -> None:
    """A crash between the two is no dead end: the next run opens the source again."""
    here = places.open("file")
    fill(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Migration, "_open_target", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            places.migration("file", "other").carry_out()
    source, target = places.raw("file"), small(places.raw("other"), 500)
    with pytest.raises(TooLarge):
        Migration(source, target, by="me").carry_out()
    JobCatalog(places.open("file")).submit(JobSpec("open", "json:dumps"))


# -- what is stored ----------------------------------------------------------------------------


def test_no_record_holds_a_version_of_a_backend() -> None:
    """Every field of a stored type that is named like a version is known here: one that held a
    version of the backend would have to be among `REWRITTEN`."""
    named = {
        f"{kind.__name__}.{field.name}"
        for kind in codec._TYPES
        for field in attrs.fields(kind)
        if any(part in field.name for part in ("version", "revision", "zxid", "offset"))
    }
    assert named == {"FormatRecord.version"}
    assert set(REWRITTEN) == {keys.EPOCH}


def test_no_secret_is_stored(places: Places, request: pytest.FixtureRequest) -> None:
    """A URL with a password leaves no password in either backend, and no process is told it."""
    server = request.getfixturevalue("zookeeper_server")
    url = server.url().replace("://", "://name:hunter2@")
    # Who creates the root of a server owns it, and other tests use this one without a password.
    open_closed(server.url(), cluster=f"{places.cluster}-first", create=True).close()
    fill(places.open("file"))
    with open_closed(url, cluster=places.cluster, create=True) as target:
        Migration(places.raw("file"), target, by="me").carry_out()
        stored = [*target.scan(""), *places.raw("file").scan("")]
    assert len(stored) > 10
    assert not any(b"hunter2" in record.value for record in stored)
    with pytest.raises(ClusterMoved) as told:
        places.open("file")
    assert told.value.url == server.url()
    assert "hunter2" not in str(told.value)


def test_the_epoch_has_no_lock_of_the_old_backend(places: Places) -> None:
    """The epoch's record names no lock of the source: a master of the target leads at once."""
    fill(places.open("file"))
    places.migration("file", "other").carry_out()
    there = places.open("other")
    record = there.get(keys.EPOCH)
    assert record is not None
    newest = codec.decode(EpochRecord, record.value, record.key)
    assert newest.token == f"{newest.epoch}-migrated"
    with lead(there) as leadership:
        assert leadership.epoch == newest.epoch + 1


@pytest.mark.parametrize("target", ["other", "etcd", "zookeeper"])
def test_the_history_keeps_its_order(places: Places, target: str) -> None:
    """The versions of the records, by which it is ordered, are the target's own."""
    source = places.open("file")
    fill(source)
    for number in range(40):
        with Historian(source, f"p{number}").recorded(
            "waits-0", HistoryKind.OTHER, str(number), repeatable=True
        ) as event:
            source.commit(*event)
    before = history.read(source, "waits-0")
    source.close()

    places.migration("file", target).carry_out()
    there = places.open(target)
    with Historian(there, "me").recorded("waits-0", HistoryKind.OTHER, "later") as event:
        there.commit(*event)

    *moved, last = history.read(there, "waits-0")
    assert tuple(moved) == before
    assert [one.text for one in moved[1:]] == [str(number) for number in range(40)]
    assert last.text == "later"
    assert list(history_checks.problems(there, "waits-0")) == []
