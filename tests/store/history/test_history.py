"""The history of jobs on every backend: in the commit, in order, without conflicts, checked."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.errors import (
    Conflict,
    Fenced,
    NotFound,
    OutcomeUnknown,
    ResultIsDirty,
    WrongState,
)
from jrs.contract.masks import hide
from jrs.contract.operations import Create, Delete, Fence, Op, Record, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import HistoryEvent, HistoryFold, HistoryKind
from jrs.records.model import JobResult, JobSpec, JobStatus, Json, StopMode
from jrs.records.signing import SpecKey
from jrs.recovery.inspect.history import recorded_entries, wrong_decisions
from jrs.recovery.rules.decision import RULES, Facts, Spec
from jrs.store import expiry, history, history_checks
from jrs.store.historian import Historian, Why, because
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops
from jrs.testing.contract import contents, lead

OTHER = HistoryKind.OTHER


@pytest.fixture
def fence(backend: Backend) -> Iterator[Fence]:
    with lead(backend) as leadership:
        yield leadership.fence


def tell(historian: Historian, text: str, *ops: Op) -> None:
    with historian.recorded("job", OTHER, text) as event:
        historian.backend.commit(*ops, *event)


def texts(backend: Backend) -> list[str]:
    return [event.text for event in history.read(backend, "job")]


def problems(backend: Backend) -> list[str]:
    return list(history_checks.problems(backend, "job"))


def events(backend: Backend) -> dict[str, HistoryEvent]:
    """Return the events that are not folded, by their keys."""
    found = backend.scan(keys.history("job"))
    return {
        record.key: decode(HistoryEvent, record.value, record.key)
        for record in found
        if record.key != keys.history_fold("job")
    }


def test_an_event_is_stored_with_its_commit_or_not_at_all(backend: Backend) -> None:
    """A commit that is refused leaves no event, and no gap in the chain of its writer."""
    mine = Historian(backend, "me@here", now=lambda: 5.0)
    tell(mine, "one", Create("a", b""))
    with pytest.raises(Conflict):
        tell(mine, "never", Create("a", b""))
    tell(mine, "two", Create("b", b""))

    assert texts(backend) == ["one", "two"]
    assert [(one.by, one.at, one.epoch) for one in history.read(backend, "job")] == [
        ("me@here", 5.0, 0),
        ("me@here", 5.0, 0),
    ]
    assert sorted(one.id.partition(".")[2] for one in events(backend).values()) == [
        "000000",
        "000001",
    ]
    assert problems(backend) == []


@pytest.mark.parametrize("open_handle", ["memory"], indirect=True)
def test_what_is_behind_an_event_is_complete_or_not_there(
    backend: Backend, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A death is kept while the routine behind it is dropped: who has read up to the death is told,
    and one who has read further gets all that followed, at any time."""
    monkeypatch.setattr(history, "MOST_KEPT", 16)
    historian = Historian(backend, "m", fence.epoch)
    ids: list[str] = []
    complete = 0

    def behind(id: str) -> list[str] | None:
        try:
            return [one.id for one in recorded_entries(backend, "job", id)]
        except NotFound:
            return None

    for number in range(150):
        kind = HistoryKind.SNAPSHOT if number % 50 else HistoryKind.DIED
        with historian.recorded("job", kind, str(number)) as event:
            backend.commit(*event, fence=fence)
        history.fold_if_many(backend, "job", fence)
        ids.append(history.read(backend, "job")[-1].id)
        if number % 10 == 9:
            answers = [behind(id) for id in ids]
            assert answers[-1] == []
            for at, found in enumerate(answers, 1):
                assert found in (None, ids[at:])
                complete += found is not None
    assert complete > 150
    assert texts(backend)[0] == "0"
    assert behind(ids[0]) is None
    assert behind("x.000000") is None


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_leaves_no_gap(backend: Backend, happened: bool) -> None:
    """The next event of that process begins a chain, whether the commit happened or not."""
    mine = Historian(backend, "me@here")
    tell(mine, "before")
    with (
        pytest.raises(OutcomeUnknown),
        mine.recorded("job", OTHER, "unknown") as event,
    ):
        if happened:
            backend.commit(*event)
        raise OutcomeUnknown("cut off")
    tell(mine, "after")

    assert texts(backend) == ["before", *(["unknown"] if happened else []), "after"]
    assert problems(backend) == []


def test_events_of_all_processes_are_in_the_order_of_their_commits(
    open_handle: Callable[[], Backend],
) -> None:
    handles = [open_handle() for _ in range(3)]
    for number in range(12):
        tell(Historian(handles[number * 7 % 3], f"p{number % 3}"), str(number))

    for handle in handles:
        assert texts(handle) == [str(number) for number in range(12)]
        assert problems(handle) == []


def test_no_commit_fails_because_of_the_history(open_handle: Callable[[], Backend]) -> None:
    """Eight writers of one job, each with two threads: no conflict, and no event is lost."""
    handles = [open_handle() for _ in range(8)]

    def write(number: int) -> None:
        mine = Historian(handles[number % 8], f"p{number}")
        for each in range(5):
            tell(mine, f"{number}.{each}", Create(f"k{number}/{each}", b""))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(16)))

    found = texts(handles[0])
    assert sorted(found) == sorted(f"{number}.{each}" for number in range(16) for each in range(5))
    for number in range(16):
        own = [text for text in found if text.startswith(f"{number}.")]
        assert own == [f"{number}.{each}" for each in range(5)]
    assert problems(handles[0]) == []


def test_folding_keeps_the_order_and_bounds_the_records(backend: Backend, fence: Fence) -> None:
    """However many events: few records, the newest events, and the number of those dropped."""
    mine, most = Historian(backend, "me@here"), history.MOST_KEPT
    for number in range(3):
        for each in range(most // 2):
            tell(mine, f"{number * (most // 2) + each}")
        history.fold(backend, "job", fence, leave=4)
        assert {one.text for one in events(backend).values()} == {*texts(backend)[-4:]}
    tell(mine, "last")

    told = most // 2 * 3
    newest = [str(n) for n in range(told - 4 - most, told)] + ["last"]
    assert texts(backend)[-len(newest) :] == newest
    assert len(texts(backend)) <= len(newest) + history.MOST_OLDER
    assert len(events(backend)) == 4 + 1
    stored = backend.get(keys.history_fold("job"))
    assert stored is not None
    assert decode(HistoryFold, stored.value, stored.key).dropped == told - 4 - most
    assert problems(backend) == []


def test_many_events_are_folded_together(
    backend: Backend, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fold is not written for each event more, and once each time."""
    versions, original, commits = set(), backend._commit, list[tuple[Op, ...]]()

    def commit(ops: tuple[Op, ...], *more: Any) -> None:
        commits.append(ops)
        original(ops, *more)

    monkeypatch.setattr(backend, "_commit", commit)
    for number in range(200):
        tell(Historian(backend, "w", 1), str(number))
        history.fold_if_many(backend, "job", fence)
        stored = backend.get(keys.history_fold("job"))
        versions.add(stored and stored.version)
        assert len(events(backend)) <= history.MANY

    assert len(versions - {None}) <= 200 / history.AT_ONCE
    assert len(commits) == 200 + len(versions - {None})
    assert texts(backend) == [str(number) for number in range(200)]


def test_a_fold_of_very_many_events(backend: Backend, fence: Fence) -> None:
    """Each commit folds as many as it takes."""
    for number in range(280):
        tell(Historian(backend, "w", 1), str(number))
    history.fold_if_many(backend, "job", fence)

    assert len(events(backend)) == history.MANY + 1 - history.AT_ONCE
    assert texts(backend) == [str(number) for number in range(280)]


@pytest.mark.parametrize("folded", [0, 7, 30])
@pytest.mark.parametrize(("before", "kept"), [(0, 40), (1, 40), (11, 30), (25, 16), (99, 1)])
def test_old_events_are_dropped(
    backend: Backend, fence: Fence, folded: int, before: int, kept: int
) -> None:
    """Wherever they are stored; the newest one stays, and what is left is in order and whole."""
    for at in range(1, 41):
        tell(Historian(backend, f"w{at % 3}", now=partial(float, at)), str(at))
    if folded:
        history.fold(backend, "job", fence, leave=40 - folded)

    assert history.drop_older(backend, "job", fence, float(before)).count == 40 - kept
    since = 0.0 if kept == 1 else 41.0 - kept
    assert history.drop_older(backend, "job", fence, float(before)) == history.Dropped(0, since)
    assert texts(backend) == [str(at) for at in range(41 - kept, 41)]
    assert problems(backend) == []
    assert len(events(backend)) == min(kept, 40 - folded) - (kept == 1)


def test_a_clock_that_ran_ahead_keeps_what_follows(backend: Backend, fence: Fence) -> None:
    """Only the oldest events in the order of their commits are dropped: no hole is made."""
    for at in (1.0, 2.0, 50.0, 3.0, 4.0):
        tell(Historian(backend, "w", now=partial(float, at)), str(at))

    assert history.drop_older(backend, "job", fence, 10.0).count == 2
    assert texts(backend) == ["50.0", "3.0", "4.0"]


def test_old_events_of_a_folded_end_are_in_order(backend: Backend, fence: Fence) -> None:
    """An event that was committed with the fold stays before the later ones."""
    tell(Historian(backend, "w", now=lambda: 1.0), "old")
    last = Historian(backend, "w", 1, now=lambda: 20.0)
    backend.commit(*last.folding("job", fence, OTHER, "with the fold"), fence=fence)
    tell(Historian(backend, "w", now=lambda: 21.0), "later")

    assert history.drop_older(backend, "job", fence, 10.0).count == 1
    assert texts(backend) == ["with the fold", "later"]
    assert problems(backend) == []


def test_long_events_are_bounded_by_their_bytes(backend: Backend, fence: Fence) -> None:
    for number in range(100):
        tell(Historian(backend, "me@here"), f"{number} " + "x" * 3000)
    history.fold(backend, "job", fence)

    stored = backend.get(keys.history_fold("job"))
    assert stored is not None
    assert len(stored.value) < 128 * 1024
    assert texts(backend)[-1].startswith("99 ")


def stored_fold(backend: Backend) -> tuple[HistoryFold, int]:
    stored = backend.get(keys.history_fold("job"))
    assert stored is not None
    return decode(HistoryFold, stored.value, stored.key), len(stored.value)


def test_long_texts_of_old_events_are_shortened(backend: Backend, fence: Fence) -> None:
    """So that many more events fit; what follows them, and the seal, name them as before."""
    mine, long = Historian(backend, "m1", 1), "é" * 2000
    for number in range(260):
        tell(mine, f"FAILED: {number} {long}")
        if number % 20 == 0:
            history.fold(backend, "job", fence, leave=1)
            assert problems(backend) == []
    history.fold(backend, "job", fence, leave=4)

    fold, size = stored_fold(backend)
    assert size <= history.MOST_BYTES + history.OLDER_BYTES
    assert fold.dropped + len(fold.events) == 256
    assert len(fold.events) > 40  # Five times as many as with their whole texts.
    assert fold.events[-1].text == f"FAILED: 255 {long}"
    oldest, text = fold.events[0], f"FAILED: {fold.dropped} {long}"
    assert oldest.text == f"{text[:256]}… [{len(text) - 256} characters cut]"
    assert oldest.shortened() is oldest
    assert problems(backend) == []
    assert texts(backend)[-4:] == [f"FAILED: {number} {long}" for number in range(256, 260)]


def test_short_texts_of_old_events_stay(backend: Backend, fence: Fence) -> None:
    """Also next to long ones; and nothing is shortened before there is need."""
    mine, long = Historian(backend, "m1", 1), "x" * 1000
    for number in range(230):
        tell(mine, long if number % 4 == 0 else str(number))
        if number == 60:
            history.fold(backend, "job", fence)
            assert not any(event.whole for event in stored_fold(backend)[0].events)
    history.fold(backend, "job", fence)

    fold, size = stored_fold(backend)
    assert (fold.dropped, len(fold.events)) == (0, 230)
    assert size <= history.MOST_BYTES
    assert [one.text for one in fold.events if one.whole is None and one.text != long] == [
        str(number) for number in range(230) if number % 4
    ]
    cut = [event.whole is not None for event in fold.events[::4]]
    assert cut == sorted(cut, reverse=True)
    assert cut.count(True) > 0
    assert problems(backend) == []


def test_a_change_to_a_shortened_event_is_named(backend: Backend, fence: Fence) -> None:
    """To what is left of its text, and to the digests of the whole."""
    mine = Historian(backend, "m1", 1)
    for number in range(40):
        tell(mine, f"{number} {'x' * 8000}")
        history.fold(backend, "job", fence)
    fold, _ = stored_fold(backend)
    second = fold.events[1]
    assert second.whole is not None
    for changed in (
        attrs.evolve(second, text="another"),
        attrs.evolve(second, about={"host": "another"}),
        attrs.evolve(second, whole=None),
        attrs.evolve(second, whole=attrs.evolve(second.whole, digest="0" * 16)),
        attrs.evolve(second, whole=attrs.evolve(second.whole, full="0" * 16)),
    ):
        found = (fold.events[0], changed, *fold.events[2:])
        backend.overwrite(keys.history_fold("job"), encode(attrs.evolve(fold, events=found)))
        assert problems(backend) != []


def test_the_last_event_folds_all_in_its_own_commit(backend: Backend, fence: Fence) -> None:
    """Cleaning up costs no commit of its own for the history."""
    mine = Historian(backend, "m1", fence.epoch)
    for number in range(history.MANY + 1):
        tell(mine, str(number))
    ops = mine.folding("job", fence, HistoryKind.CLEAN, "clean")
    backend.commit(*ops, fence=fence)

    assert texts(backend) == [*(str(number) for number in range(history.MANY + 1)), "clean"]
    assert events(backend) == {}
    assert problems(backend) == []


def test_a_fold_that_cannot_be_read_is_not_overwritten(backend: Backend, fence: Fence) -> None:
    """A newer version may have written it. Events are added next to it."""
    backend.commit(Create(keys.history_fold("job"), b"garbage"))
    mine = Historian(backend, "m1", fence.epoch)
    tell(mine, "one")
    backend.commit(*mine.folding("job", fence, HistoryKind.CLEAN, "clean"), fence=fence)

    assert texts(backend) == ["one", "clean"]
    stored = backend.get(keys.history_fold("job"))
    assert stored is not None
    assert stored.value == b"garbage"
    assert len(problems(backend)) == 1


def test_an_event_needs_no_sync_and_no_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit is the one that is there anyway."""
    calls: list[str] = []

    def counting(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            calls.append(name)
            return real(*args, **options)

        return call

    with open_backend((tmp_path / "store").as_uri(), cluster="c") as backend:
        store, mine = JobResultStore(backend), Historian(backend, "me@here")
        # The first write of a handle also makes the names of its files durable.
        store.create_dirty(JobResult("first", JobStatus.FINISHED, finished_at=1.0), None)
        for name in ("fdatasync", "fsync"):
            monkeypatch.setattr(os, name, counting("sync", getattr(os, name)))
        for name in ("get", "get_many", "scan", "watch"):
            monkeypatch.setattr(type(backend), name, counting("read", getattr(backend, name)))
        used = []
        for number in range(20):
            result = JobResult(f"job-{number}", JobStatus.FINISHED, finished_at=1.0)
            calls.clear()
            if number % 2:
                store.create_dirty(result, None)
            else:
                with mine.recorded(result.job_id, HistoryKind.ENDED, repeatable=True) as event:
                    store.create_dirty(result, None, also=event)
            used.append(Counter(calls))
    assert used[0]["sync"] == 1
    assert all(one == used[0] for one in used)


def told(backend: Backend) -> list[str]:
    """Have five events told; return their keys in order."""
    mine = Historian(backend, "me@here")
    for number in range(5):
        tell(mine, str(number))
    return sorted(events(backend))


def test_a_flipped_event_is_named(backend: Backend) -> None:
    key = told(backend)[2]
    stored = backend.get(key)
    assert stored is not None
    backend.overwrite(key, stored.value.replace(b'"text":"2"', b'"text":"3"'))

    assert any(key in one and "damaged" in one for one in problems(backend))


def test_an_event_that_was_changed_with_its_checksum_is_named(backend: Backend) -> None:
    key = told(backend)[2]
    changed = attrs.evolve(events(backend)[key], by="somebody@else")
    backend.overwrite(key, encode(changed))

    (said,) = problems(backend)
    assert "was changed" in said


@pytest.mark.parametrize("which", [1, 2, 4])
@pytest.mark.parametrize("folded", [False, True])
def test_an_event_that_is_missing_is_named(
    backend: Backend, fence: Fence, folded: bool, which: int
) -> None:
    """Also the last one of its writer, by its place in the feed."""
    keys_of = told(backend)
    backend.commit(Delete(keys_of[which]))
    if folded and which < 4:
        history.fold(backend, "job", fence)

    (said,) = problems(backend)
    assert "is missing" in said


def test_an_event_of_its_own_chain_that_is_missing_is_named(backend: Backend) -> None:
    """As those whose commits may be repeated: no other event of their writers names them."""
    told(backend)
    before = set(events(backend))
    with Historian(backend, "m1", 1).recorded("job", OTHER, "own", repeatable=True) as event:
        backend.commit(*event)
    (own,) = set(events(backend)) - before
    assert problems(backend) == []
    backend.commit(Delete(own))

    (said,) = problems(backend)
    assert own in said.replace(": the event ", "")
    (found,) = history_checks.histories(backend)
    assert found.suspect


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("how", ["first", "last", "swapped", "removed", "about"])
def test_a_fold_that_was_changed_is_named(
    backend: Backend, fence: Fence, how: str, dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after it dropped its oldest events, and in what the next event has no digest of."""
    if dropped:
        monkeypatch.setattr(history, "MOST_KEPT", 7)
    for writer in range(3):  # Each with a chain of its own.
        mine = Historian(backend, f"m{writer}", 1)
        for number in range(3):
            with mine.recorded("job", OTHER, str(number), repeatable=True) as event:
                backend.commit(*event)
        history.fold(backend, "job", fence)
    assert problems(backend) == []
    stored = backend.get(keys.history_fold("job"))
    assert stored is not None
    fold = decode(HistoryFold, stored.value, stored.key)
    assert (fold.dropped, len(fold.events)) == ((2, 7) if dropped else (0, 9))
    found = list(fold.events)
    match how:
        case "first" | "last":
            at = 0 if how == "first" else -1
            found[at] = attrs.evolve(found[at], text="another")
        case "about":
            found[3] = attrs.evolve(found[3], about={"host": "another"})
        case "swapped":
            found[3], found[4] = found[4], found[3]
        case "removed":
            del found[3]
    backend.overwrite(stored.key, encode(attrs.evolve(fold, events=tuple(found))))

    assert problems(backend) != []
    tell(Historian(backend, "m9", 1), "later")
    history.fold(backend, "job", fence)
    assert problems(backend) != []


def test_a_fold_to_which_an_older_version_added(backend: Backend, fence: Fence) -> None:
    """It keeps the seal as it is: nothing is wrong, and the next fold seals what it added."""
    told(backend)
    history.fold(backend, "job", fence)
    for added in ("a", "b"):
        stored = backend.get(keys.history_fold("job"))
        assert stored is not None
        fold = decode(HistoryFold, stored.value, stored.key)
        more = HistoryEvent("job", f"0123456789a{added}.000000", "other", 1.0)
        older = attrs.evolve(fold, events=(*fold.events, more))
        if added == "b":
            older = attrs.evolve(older, events=older.events[2:], dropped=2)
        backend.overwrite(stored.key, encode(older))
        assert problems(backend) == []
        tell(Historian(backend, "m9", 1), added)
        history.fold(backend, "job", fence)
        assert problems(backend) == []
    stored = backend.get(keys.history_fold("job"))
    assert stored is not None
    fold = decode(HistoryFold, stored.value, stored.key)
    assert fold.seal is not None
    assert (fold.seal.dropped, fold.seal.events) == (2, 9)


def test_an_event_that_is_there_twice_is_named(backend: Backend) -> None:
    key = told(backend)[2]
    stored = backend.get(key)
    assert stored is not None
    backend.commit(Create(keys.history_event("job", "0123456789ab.000000"), stored.value))

    assert any("twice" in one for one in problems(backend))
    assert any("another one" in one for one in problems(backend))


def test_of_facts_that_are_too_large_much_is_kept(backend: Backend) -> None:
    """They are marked, so that no version judges the decision by what is left of them; folding and
    the checks take them as they are."""
    facts = Facts(spec=Spec.READABLE, cancel=True).to_plain()
    mine = Historian(backend, "m1", 1)
    for more in ({}, {"outcome": "x" * 5000}):
        why = Why("recover", RULES, {**facts, **more})
        with mine.recorded("job", OTHER, "", why=why) as event:
            backend.commit(*event)
    with lead(backend) as leadership:
        history.fold(backend, "job", leadership.fence)
    whole, cut = history.read(backend, "job")

    assert whole.facts == facts
    assert cut.facts == {**facts, "outcome": "x" * 1024 + "…", "cut": 1}
    (wrong,) = wrong_decisions("job", (whole, cut))
    assert whole.id in wrong
    assert problems(backend) == []


def test_a_kind_of_a_newer_version_is_read(backend: Backend) -> None:
    event = HistoryEvent("job", "0123456789ab.000000", "teleported", 1.0)
    backend.commit(Create(keys.history_event("job", event.id), encode(event)))

    (found,) = history.read(backend, "job")
    assert found.known_kind is HistoryKind.OTHER
    assert problems(backend) == []


@pytest.mark.parametrize("how", ["delete", "expire"])
@pytest.mark.parametrize("folded", [True, False])
def test_a_history_ends_with_the_result(
    backend: Backend, fence: Fence, how: str, folded: bool
) -> None:
    """Whatever was recorded after the fold."""
    store = JobResultStore(backend)
    mine = Historian(backend, "m1", fence.epoch)
    tell(mine, "one")
    store.create_dirty(JobResult("job", JobStatus.FINISHED, finished_at=1.0), fence)
    also = mine.folding("job", fence, HistoryKind.CLEAN, "clean") if folded else ()
    store.mark_clean("job", fence, also=also)
    tell(mine, "a snapshot was deleted")
    if how == "delete":
        store.delete("job")
    else:
        assert store.expire(0.0) == ["job"]

    assert list(history_checks.histories(backend)) == []


def test_many_results_are_expired_with_their_histories(backend: Backend, fence: Fence) -> None:
    """Their commits are under way together."""
    store = JobResultStore(backend)
    names = [f"job-{number:03}" for number in range(400)]
    results = [JobResult(name, JobStatus.FINISHED, finished_at=1.0) for name in names]
    sent = [store.create_dirty_async(result, fence) for result in results]
    sent += [
        backend.commit_async(Create(keys.history_fold(name), encode(HistoryFold(name))))
        for name in names
    ]
    for commit in sent:
        commit.result()
    for name in names:
        store.mark_clean(name, fence)

    assert store.expire(0.0) == names
    assert list(backend.scan(keys.RESULTS)) == []
    assert list(history_checks.histories(backend)) == []


def test_results_are_expired_without_the_events_of_other_jobs(
    backend: Backend, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader expires each result when it is due: 10,000 waiting jobs must not slow that. What
    was recorded meanwhile of a job of a later page goes with its result."""
    store = JobResultStore(backend)
    names = ["job", *(f"other-{number:02}" for number in range(40))]
    for name in names:
        store.create_dirty(JobResult(name, JobStatus.FINISHED, finished_at=1.0), fence)
        store.mark_clean(name, fence)
    tell(Historian(backend, "me"), "a snapshot was deleted")
    scanned, scan = list[tuple[str, int | None]](), backend.scan

    def noting(prefix: str, limit: int | None = None, **how: Any) -> Iterator[Record]:
        scanned.append((prefix, limit))
        return scan(prefix, limit=limit, **how)

    monkeypatch.setattr(backend, "scan", noting)
    monkeypatch.setattr(expiry, "_PAGE", 1)

    gone = store.expiring(0.0)
    assert next(gone) == "job"
    with Historian(backend, "me").recorded(names[-1], HistoryKind.SNAPSHOT) as event:
        backend.commit(*event)
    assert [*gone] == names[1:]
    assert (keys.HISTORY, None) not in scanned
    monkeypatch.undo()
    assert list(history_checks.histories(backend)) == []


def test_the_histories_of_neighbours_are_read_at_once(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies between them, each job has what it has, or None where that is too much."""
    ended = ["a", "a-b", "a.b", *(f"b{number}" for number in range(20)), "c", "z"]
    events = {"a": 2, "a-b": 1, "b1": 3, "b7": history.MANY + 1, "b9": 1, "z": 1}
    scans, scan = list[str](), backend.scan

    def noting(prefix: str, **how: Any) -> Iterator[Record]:
        scans.append(prefix)
        return scan(prefix, **how)

    def check(most: int) -> None:
        scans.clear()
        for wanted in (ended, ended[::-1]):
            removed = expiry.history_removals(backend, wanted)
            many = [name for name, ops in zip(wanted, removed, strict=True) if ops is None]
            found = {name: ops for name, ops in zip(wanted, removed, strict=True) if ops}
            assert many == [name for name in wanted if events.get(name, 0) > history.MANY]
            assert {name: len(ops) for name, ops in found.items()} == {
                name: number for name, number in events.items() if number <= history.MANY
            }
            for name, ops in found.items():
                assert all(op.key.startswith(keys.history(name)) for op in ops)
        assert len(scans) <= most

    def add(name: str, number: int) -> None:
        for event in range(number):
            backend.commit(Create(keys.history_event(name, f"{event:03}"), b""))

    monkeypatch.setattr(backend, "scan", noting)
    for name in [name for name in events if name != "b7"]:
        add(name, events[name])
    many = events.pop("b7")
    check(2)
    add("b7", many)
    events["b7"] = many
    check(2 * len(ended))
    add("b8-runs", 40)
    check(2 * len(ended))


@pytest.mark.parametrize("how", ["expire", "delete"])
def test_what_is_more_than_one_commit_takes_goes_with_the_result(
    backend: Backend, fence: Fence, how: str
) -> None:
    store = JobResultStore(backend)
    store.create_dirty(JobResult("job", JobStatus.FINISHED, finished_at=1.0), fence)
    store.mark_clean("job", fence)
    for number in range(history.MANY * 2 + 3):
        tell(Historian(backend, "me"), str(number))
    store.delete("job") if how == "delete" else store.expire(0.0)

    assert store.has_entry("job")
    assert list(backend.scan(keys.RESULTS)) == []
    assert list(history_checks.histories(backend)) == []


@pytest.mark.parametrize("refusal", [ResultIsDirty, WrongState, Fenced])
@pytest.mark.parametrize("events", [1, history.MANY * 2 + 3])
def test_a_result_that_is_not_deleted_keeps_its_history(
    backend: Backend, refusal: type[Exception], events: int
) -> None:
    store = JobResultStore(backend)
    application = "app" if refusal is WrongState else ""
    with lead(backend) as leadership:
        fence = leadership.fence
    lead(backend).resign()
    store.create_dirty(JobResult("job", JobStatus.FINISHED, application=application), None)
    if refusal is not ResultIsDirty:
        store.mark_clean("job", None)
    for number in range(events):
        tell(Historian(backend, "me"), str(number))
    before = history.read(backend, "job")
    with pytest.raises(refusal):
        store.delete("job", fence if refusal is Fenced else None)

    assert history.read(backend, "job") == before
    assert len(before) == events


def test_an_event_between_the_reading_and_the_commit_of_the_last_one(
    backend: Backend, fence: Fence
) -> None:
    """The last one, which is committed with the fold, is behind it; also once it is folded."""
    mine = Historian(backend, "m1", fence.epoch)
    tell(mine, "one")
    ops = mine.folding("job", fence, HistoryKind.CLEAN, "clean")
    tell(Historian(backend, "me"), "between")
    backend.commit(*ops, fence=fence)
    tell(Historian(backend, "me"), "later")

    for _ in range(2):
        assert texts(backend) == ["one", "between", "clean", "later"]
        assert problems(backend) == []
        history.fold(backend, "job", fence)
    assert events(backend) == {}


def test_what_is_masked_elsewhere_is_no_change(backend: Backend, fence: Fence) -> None:
    """A process that hides a value, and folds the events of one that does not, changes none."""
    tell(Historian(backend, "etl@host"), "by etl")
    before = history.read(backend, "job")
    release = hide(["etl@host"])
    try:
        history.fold(backend, "job", fence)
    finally:
        release()
    tell(Historian(backend, "etl@host"), "again")

    assert history.read(backend, "job")[0] == before[0]
    assert problems(backend) == []


def test_what_users_ask_for_is_recorded(backend: Backend, fence: Fence) -> None:
    """Who asked, and why; a request that is refused leaves no event."""
    jobs, stops = JobCatalog(backend), JobStops(backend)
    jobs.submit(JobSpec("job", "m:f", submitted_by="ann@laptop"))
    stops.request("job", StopMode.SUSPEND, reason="a release")
    with pytest.raises(Exception, match="suspend"):
        stops.request("job", StopMode.DRAIN)
    stop = stops.get("job")
    assert stop is not None
    jobs.cancel("job", "enough")

    found = history.read(backend, "job")
    assert [(one.kind, one.text) for one in found] == [
        ("submitted", "submitted"),
        ("stop", "a suspend was requested: a release"),
        ("cancel", "a cancel was requested: enough"),
    ]
    assert found[0].by == "ann@laptop"
    assert all("@" in one.by for one in found)


def test_a_reason_is_behind_what_a_user_does(backend: Backend, fence: Fence) -> None:
    """In the block alone; a leader in the same thread does nothing for that reason."""
    jobs, stops = JobCatalog(backend), JobStops(backend)
    with because("ticket 7\n"):
        jobs.submit(JobSpec("job", "m:f"))
        stops.request("job", StopMode.SUSPEND)
        with Historian(backend, "m1", epoch=1).recorded("job", HistoryKind.ATTEMPT, "begun") as ops:
            backend.commit(*ops, fence=fence)
    jobs.cancel("job", "enough")

    assert [(one.kind, one.text) for one in history.read(backend, "job")] == [
        ("submitted", "submitted: ticket 7\n"),
        ("stop", "a suspend was requested: ticket 7\n"),
        ("attempt", "begun"),
        ("cancel", "a cancel was requested: enough"),
    ]


def test_a_signature_is_recorded(backend: Backend) -> None:
    """Who made a job one that masters run."""
    JobCatalog(backend).submit(JobSpec("job", "m:f"))
    JobCatalog(backend, spec_key=SpecKey(b"k" * 32)).sign("job")

    assert [one.text for one in history.read(backend, "job")] == [
        "submitted",
        "its spec was signed",
    ]


def test_one_who_embeds_only_the_store_pays_nothing(backend: Backend, fence: Fence) -> None:
    """Results alone have no history."""
    store = JobResultStore(backend)
    store.create_dirty(JobResult("job", JobStatus.FINISHED), fence)
    store.mark_clean("job", fence)

    assert [key for key in contents(backend) if key.startswith(keys.TOLD)] == []


def test_routine_does_not_displace_what_matters(
    backend: Backend, fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Very many snapshots leave the death of the first day in the history, and the first
    snapshot that failed; nothing is wrong with it."""
    monkeypatch.setattr(history, "MOST_KEPT", 16)
    historian = Historian(backend, "m", fence.epoch)

    def happens(kind: HistoryKind, text: str, about: dict[str, Json] | None = None) -> None:
        with historian.recorded("job", kind, text, about=about) as event:
            backend.commit(*event, fence=fence)

    happens(HistoryKind.DIED, "attempt 1 died")
    happens(HistoryKind.SNAPSHOT, "a scheduled snapshot could not be taken", {"failures": 1})
    for number in range(150):
        happens(HistoryKind.SNAPSHOT, f"snapshot {number} was taken")
        history.fold_if_many(backend, "job", fence)

    told = texts(backend)
    assert told[:2] == ["attempt 1 died", "a scheduled snapshot could not be taken"]
    assert len(told) < 100
    assert told[-1] == "snapshot 149 was taken"
    assert problems(backend) == []

    key = keys.history_fold("job")
    stored = backend.get(key)
    assert stored is not None
    fold = decode(HistoryFold, stored.value, key)
    forged = attrs.evolve(fold, kept=(attrs.evolve(fold.kept[0], text="all was well"),))
    backend.commit(Update(key, encode(forged), stored.version))
    assert "one of the events that were kept was changed" in problems(backend)[0]
