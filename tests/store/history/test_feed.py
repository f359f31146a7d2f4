"""The feed of the history on every backend: each event of all jobs once and in order, by cursor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Fenced, InvalidInput, NotFound
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.history import HistoryEvent, HistoryKind
from jrs.records.model import JobSpec
from jrs.store import expiry, feed, history, history_checks
from jrs.store.cluster_history import LeadershipHistorian
from jrs.store.historian import Historian
from jrs.store.jobs import JobCatalog
from jrs.testing.contract import lead
from tests.support import hold

OTHER = HistoryKind.OTHER


def tell(backend: Backend, job_id: str, text: str) -> None:
    with Historian(backend, "me@here").recorded(job_id, OTHER, text) as event:
        backend.commit(*event)


def texts(page: feed.FeedPage) -> list[tuple[str, str]]:
    return [(one.event.job_id, one.event.text) for one in page.events]


def test_events_of_all_jobs_and_of_the_cluster_in_one_order(backend: Backend) -> None:
    """A page ends anywhere; its cursor, and that of each event, continue behind it."""
    assert feed.read(backend) == feed.FeedPage((), "")
    tell(backend, "a", "1")
    tell(backend, "b", "2")
    with lead(backend) as leadership:
        about = {"host": "h", "pid": 1, "ttl": 15.0}
        LeadershipHistorian(backend, leadership.fence, "m1", about).elected()
    tell(backend, "a", "3")
    expected = [("a", "1"), ("b", "2"), ("", "elected on h, pid 1, ttl 15 s"), ("a", "3")]

    whole = feed.read(backend)
    assert texts(whole) == expected
    assert not whole.more
    for at, one in enumerate(whole.events, 1):
        assert texts(feed.read(backend, one.cursor)) == expected[at:]
    assert feed.read(backend, whole.cursor) == feed.FeedPage((), whole.cursor)
    assert feed.newest(backend) == whole.cursor

    first = feed.read(backend, limit=3)
    assert (texts(first), first.more) == (expected[:3], True)
    rest = feed.read(backend, first.cursor, limit=3)
    assert (texts(rest), rest.more) == (expected[3:], False)


def test_a_refused_commit_has_no_place(backend: Backend) -> None:
    catalog = JobCatalog(backend)
    catalog.submit(JobSpec("job", "m:f"))
    with pytest.raises(Exception, match="job"):
        catalog.submit(JobSpec("job", "m:g"))

    assert texts(feed.read(backend)) == [("job", "submitted")]


def test_events_that_are_folded_meanwhile(backend: Backend) -> None:
    """Also the event that was committed with the fold, before and after the next fold."""
    for number in range(5):
        tell(backend, "job", str(number))
    begun = feed.read(backend, limit=2)
    with lead(backend) as leadership:
        fence = leadership.fence
        ops = Historian(backend, "m1", fence.epoch).folding("job", fence, HistoryKind.CLEAN, "end")
        backend.commit(*ops, fence=fence)
        rest = [("job", text) for text in ("2", "3", "4", "end")]
        assert texts(feed.read(backend, begun.cursor)) == rest
        tell(backend, "job", "late")
        history.fold(backend, "job", fence)
        assert texts(feed.read(backend, begun.cursor)) == [*rest, ("job", "late")]
    assert list(history_checks.problems(backend, "job")) == []


def test_an_event_that_is_gone_is_left_out(backend: Backend) -> None:
    """As after its job's result was expired: the cursor passes it."""
    tell(backend, "gone", "1")
    tell(backend, "kept", "2")
    tell(backend, "gone", "3")
    backend.commit(*expiry.history_removal(backend, "gone"))

    page = feed.read(backend)
    assert texts(page) == [("kept", "2")]
    assert page.cursor == feed.newest(backend)
    assert feed.read(backend, page.cursor).events == ()


def test_a_record_that_cannot_be_read_is_left_out(backend: Backend) -> None:
    tell(backend, "job", "1")
    event = HistoryEvent("job", "x.000000", "other", 1.0)
    backend.commit(Create(keys.history_event("job", event.id), b"{"), history.place(event))
    tell(backend, "job", "2")

    assert texts(feed.read(backend)) == [("job", "1"), ("job", "2")]


def test_records_of_an_older_version_have_no_place(backend: Backend) -> None:
    """It records its events without one: they are in the history of the job alone."""
    event = HistoryEvent("job", "x.000000", "other", 1.0, text="old")
    backend.commit(Create(keys.history_event("job", event.id), encode(event)))
    tell(backend, "job", "new")

    assert texts(feed.read(backend)) == [("job", "new")]
    assert [one.text for one in history.read(backend, "job")] == ["old", "new"]


def test_the_oldest_places_are_swept(backend: Backend) -> None:
    """A cursor among the kept ones is good, any other one is refused."""
    for number in range(150):
        tell(backend, f"job-{number}", str(number))
    cursors = [one.cursor for one in feed.read(backend).events]
    with lead(backend) as leadership:
        assert feed.sweep(backend, leadership.fence, keep=10) == 140
        assert feed.sweep(backend, leadership.fence, keep=10) == 0

        assert [text for _, text in texts(feed.read(backend))] == [str(n) for n in range(140, 150)]
        assert [text for _, text in texts(feed.read(backend, cursors[-2]))] == ["149"]
        for cursor in (cursors[0], cursors[139], "1~job~x.000000"):
            with pytest.raises(NotFound, match="not kept any more"):
                feed.read(backend, cursor)
        assert feed.read(backend, cursors[140]).events
        tell(backend, "job", "more")
        old = leadership.fence
    with lead(backend), pytest.raises(Fenced):
        feed.sweep(backend, old, keep=1)


def test_a_place_that_damage_holds(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays, and each other one of its commit goes."""
    for number in range(150):
        tell(backend, f"job-{number}", str(number))
    places = [one.key for one in backend.created_since(keys.FEED, 0)]
    with lead(backend) as leadership, monkeypatch.context() as damaged:
        hold(damaged, backend, places[7], places[100])
        assert feed.sweep(backend, leadership.fence, keep=10) == 138
        left = [one.key for one in backend.created_since(keys.FEED, 0)]

    assert left == [places[7], places[100], *places[-10:]]


def test_a_damaged_line_of_a_place(tmp_path: Path) -> None:
    """The feed is swept and read without it, also once it would be the oldest place."""
    with FileBackend(tmp_path) as backend:
        for number in range(150):
            tell(backend, f"job-{number}", str(number))
        places = backend.created_since(keys.FEED, 0)
        lost = feed.read(backend, limit=8).cursor
        backend.compact()
        (run,) = backend.replica.folder.glob("*.run")
    data = bytearray(run.read_bytes())
    data[data.rfind(b"\n", 0, data.index(f"\t{places[7].key}\t".encode())) + 1] ^= 1
    run.write_bytes(data)

    with FileBackend(tmp_path) as backend, lead(backend) as leadership:
        with pytest.raises(CorruptRecord):
            backend.get(places[7].key)
        assert feed.sweep(backend, leadership.fence, keep=10) == 139
        assert [text for _, text in texts(feed.read(backend))] == [str(n) for n in range(140, 150)]
        with pytest.raises(NotFound, match="not kept any more"):
            feed.read(backend, lost)


@pytest.mark.parametrize("cursor", ["x", "1", "0~a~b", "1~a~b~c", "1~a/b~c", "-1~a~b", "1~é~b"])
def test_what_is_no_cursor_is_refused(backend: Backend, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="no cursor"):
        feed.read(backend, cursor)


def test_a_follower_gets_each_event_once_while_many_write(
    open_handle: Callable[[], Backend],
) -> None:
    """Eight threads of two handles write, and a leader folds and sweeps at the same time."""
    one, two, reader, leader = (open_handle() for _ in range(4))
    writers, each = 8, 15

    def write(writer: int) -> None:
        for number in range(each):
            tell((one, two)[writer % 2], f"job-{writer % 4}", f"{writer}-{number}")

    seen: list[str] = []
    with lead(leader) as leadership, ThreadPoolExecutor(writers) as pool:
        writing = [pool.submit(write, writer) for writer in range(writers)]
        cursor, done = "", False
        while not done:
            done = all(each.done() for each in writing)  # First: then one more look sees all.
            page = feed.read(reader, cursor, limit=7)
            done = done and not page.more
            cursor = page.cursor
            seen += [text for _, text in texts(page)]
            history.fold(leader, "job-1", leadership.fence, leave=3)
            feed.sweep(leader, leadership.fence, keep=writers * each)
        for one_of_them in writing:
            one_of_them.result()

    assert sorted(seen) == sorted(f"{w}-{n}" for w in range(writers) for n in range(each))
    for writer in range(writers):
        own = [text for text in seen if text.startswith(f"{writer}-")]
        assert own == [f"{writer}-{number}" for number in range(each)]


def test_compaction_keeps_the_order(tmp_path: Path) -> None:
    """A cursor of an older segment of the file backend, and one of a base, are good."""
    with FileBackend(tmp_path) as backend:
        for number in range(5):
            tell(backend, "job", f"{number}")
        old = feed.read(backend, limit=2).cursor
        backend.compact()
        tell(backend, "job", "5")
        backend.compact()
        tell(backend, "job", "6")

        expected = [("job", str(number)) for number in range(7)]
        assert texts(feed.read(backend)) == expected
        assert texts(feed.read(backend, old)) == expected[2:]
    with FileBackend(tmp_path) as backend:
        assert texts(feed.read(backend, old)) == expected[2:]
