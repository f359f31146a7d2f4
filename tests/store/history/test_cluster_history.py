"""The history of the cluster itself, on every backend: elections, and how leaderships ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Fence, Update
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.history import ClusterHistory, HistoryKind
from jrs.recovery.inspect.fsck import fsck
from jrs.store import cluster_history, feed
from jrs.store.cluster_history import MOST_KEPT, LeadershipHistorian
from jrs.store.historian import because
from jrs.store.masters import Registration, Registry
from jrs.store.steering import Steering
from jrs.testing.contract import lead
from tests.support import until


def historian(backend: Backend, fence: Fence, name: str) -> LeadershipHistorian:
    about = {"host": "h1", "pid": 7, "ttl": 15.0}
    return LeadershipHistorian(backend, fence, name, about, now=lambda: 5.0)


def end(one: LeadershipHistorian, why: str, *, lost: bool = False) -> None:
    one.ended(lost=lost, why=why, deadline=Deadline.after(10.0))


def told(backend: Backend) -> list[tuple[str, str, int, str]]:
    return [(one.kind, one.by, one.epoch, one.text) for one in cluster_history.read(backend)]


def stored(backend: Backend) -> tuple[ClusterHistory, int]:
    record = backend.get(keys.CLUSTER_HISTORY)
    assert record is not None
    return decode(ClusterHistory, record.value, record.key), record.version


def test_elections_and_ends(backend: Backend, open_handle: Callable[[], Backend]) -> None:
    """A leader that resigned has said so; of one that has not, its successor says that it lost."""
    assert told(backend) == []
    with lead(backend) as first:
        one = historian(backend, first.fence, "m1")
        one.elected()
        end(one, "it was stopped")
    with lead(backend) as second:
        assert historian(backend, second.fence, "m2").elected() == []
    other = open_handle()
    with lead(other) as third:
        assert historian(other, third.fence, "m3").elected() == [0.0]
        assert told(backend) == [
            ("elected", "m1", 1, "elected on h1, pid 7, ttl 15 s"),
            ("resigned", "m1", 1, "resigned: it was stopped"),
            ("elected", "m2", 2, "elected on h1, pid 7, ttl 15 s"),
            ("lost", "m2", 2, "lost its leadership: it ended or hung, and m3 was elected"),
            ("elected", "m3", 3, "elected on h1, pid 7, ttl 15 s"),
        ]
    assert {one.job_id for one in cluster_history.read(backend)} == {""}
    assert [one.facts for one in cluster_history.read(backend)] == 5 * [
        {"host": "h1", "pid": 7, "ttl": 15.0}
    ]
    assert list(cluster_history.problems(backend)) == []


def test_a_replaced_leader_records_nothing(backend: Backend) -> None:
    with lead(backend) as first:
        zombie = historian(backend, first.fence, "m1")
    with lead(backend):
        zombie.elected()
        end(zombie, "its lease ended", lost=True)
        assert told(backend) == []


def test_a_leader_that_lost_its_lease_says_so_while_it_has_no_successor(backend: Backend) -> None:
    with lead(backend) as first:
        one = historian(backend, first.fence, "m1")
        one.elected()
    end(one, "its lease ended", lost=True)
    with lead(backend) as second:
        later = attrs.evolve(historian(backend, second.fence, "m2"), now=lambda: 65.0)
        assert later.elected() == [60.0]

    assert [(kind, by) for kind, by, _, _ in told(backend)] == [
        ("elected", "m1"),
        ("lost", "m1"),
        ("elected", "m2"),
    ]
    assert told(backend)[1][3] == "lost its leadership: its lease ended"


def test_what_an_operator_does_to_the_cluster(backend: Backend) -> None:
    """It is recorded in the commit that does it; what changes nothing leaves no event."""
    steering = Steering(backend, now=lambda: 5.0)
    with lead(backend) as leadership:
        historian(backend, leadership.fence, "m1").elected()
        with registered(backend, leadership), because("rack 2 moves"):
            steering.pause("ann@laptop", "maintenance")
            steering.pause("ben@laptop", "again")
            assert steering.unpause("ann@laptop")
            assert not steering.unpause("ann@laptop")
            for _ in range(2):
                steering.request_switchover("m2", "ann@laptop", "")
    with lead(backend) as leadership:
        historian(backend, leadership.fence, "m2").elected()
        assert told(backend)[1:-1] == [
            ("paused", "ann@laptop", 0, "paused the cluster: maintenance: rack 2 moves"),
            ("unpaused", "ann@laptop", 0, "ended the pause of the cluster: rack 2 moves"),
            ("switchover", "ann@laptop", 0, "requested a switchover to m2: rack 2 moves"),
            ("lost", "m1", 1, "lost its leadership: it ended or hung, and m2 was elected"),
        ]
    assert list(cluster_history.problems(backend)) == []
    assert [one.event.text for one in feed.read(backend).events] == [
        one.text for one in cluster_history.read(backend)
    ]


@contextmanager
def registered(backend: Backend, leadership: Leadership) -> Iterator[None]:
    """Two masters, of which one leads."""
    registry = Registry(backend, now=lambda: 5.0)
    with ExitStack() as stack:
        for name in ("m1", "m2"):
            one = stack.enter_context(closing(Registration(registry, name, max_attempts=1)))
            if name == "m1":
                one.leading(leadership.epoch)
        # Heartbeats are written by threads of their own.
        until(
            lambda: [one.leading for one in registry.running()] == [leadership.epoch, None],
            "both run",
        )
        yield


def test_an_event_at_the_same_moment_is_no_conflict(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause, its end, an election and its end each find that another event came first."""
    read, steering = cluster_history._stored, Steering(backend)
    first: list[Callable[[], object]] = []

    def after_another(backend: Backend, deadline: Deadline | None) -> object:
        found = read(backend, deadline)
        if first:
            first.pop()()
        return found

    monkeypatch.setattr(cluster_history, "_stored", after_another)
    with lead(backend) as leadership:
        one = historian(backend, leadership.fence, "m1")
        first.append(lambda: steering.pause("ann", "why"))
        one.elected()
        first.append(lambda: end(one, "it was stopped"))
        assert steering.unpause("ann")
        first.append(one.elected)
        steering.pause("ben", "why not")
        first.append(lambda: steering.unpause("ben"))
        assert not steering.unpause("ann")

        assert [kind for kind, *_ in told(backend)] == [
            *("paused", "elected", "resigned", "unpaused"),
            *("elected", "paused", "unpaused"),
        ]
    assert list(cluster_history.problems(backend)) == []


def test_the_newest_events_are_kept(backend: Backend) -> None:
    with lead(backend) as leadership:
        one = historian(backend, leadership.fence, "m1")
        for number in range(MOST_KEPT):
            one.elected()
            end(one, str(number))

    history, _ = stored(backend)
    assert (len(history.events), history.dropped) == (MOST_KEPT, MOST_KEPT)
    assert history.events[-1].text == f"resigned: {MOST_KEPT - 1}"
    assert list(cluster_history.problems(backend)) == []


@pytest.mark.parametrize("given", ["its own", "that of the thread"])
def test_long_reasons_stop_no_operator(backend: Backend, given: str) -> None:
    """The oldest events go before the record is too large, and a reason leaves room for others."""
    steering, long = Steering(backend), "why " * 5000
    for number in range(100):
        with because(long if given == "that of the thread" else ""):
            steering.pause(f"ann {number}", long if given == "its own" else "")
        assert steering.unpause(f"ann {number}")

    history, _ = stored(backend)
    record = backend.get(keys.CLUSTER_HISTORY)
    assert record is not None
    assert len(record.value) <= cluster_history.MOST_BYTES
    assert len(history.events) + history.dropped == 200
    assert 50 < len(history.events) < MOST_KEPT
    *_, paused, unpaused = history.events
    assert (paused.by, unpaused.by) == ("ann 99", "ann 99")
    assert paused.text.startswith("paused the cluster: [")
    assert paused.text.endswith("why why ")
    assert list(cluster_history.problems(backend)) == []
    events = feed.read(backend).events[-len(history.events) :]
    assert tuple(one.event for one in events) == history.events


def test_a_record_that_has_grown_too_large(backend: Backend) -> None:
    """An older version has filled it: the next event makes room, whatever it is."""
    steering = Steering(backend)
    steering.pause("ann", "first")
    history, version = stored(backend)
    (first,) = history.events
    full, room = [first], backend.capabilities.max_value - 1000
    while room > 17_000:
        text = "x" * 16_000
        full.append(attrs.evolve(first, previous=full[-1].digest(), text=text))
        room -= len(encode(full[-1]))
    older = encode(attrs.evolve(history, events=tuple(full)))
    backend.commit(Update(keys.CLUSTER_HISTORY, older, version))

    assert steering.unpause("ann")
    history, _ = stored(backend)
    assert history.events[-1].kind == "unpaused"
    assert history.dropped + len(history.events) == len(full) + 1
    assert list(cluster_history.problems(backend)) == []
    record = backend.get(keys.CLUSTER_HISTORY)
    assert record is not None
    assert len(record.value) <= cluster_history.MOST_BYTES


@pytest.mark.parametrize("missing", [True, False])
def test_a_missing_or_changed_event_is_named(backend: Backend, missing: bool) -> None:
    with lead(backend) as leadership:
        one = historian(backend, leadership.fence, "m1")
        one.elected()
        end(one, "it was stopped")
        one.elected()
    history, version = stored(backend)
    first, second, last = history.events
    events = (first, last) if missing else (first, attrs.evolve(second, by="m2"), last)
    value = encode(attrs.evolve(history, events=events))
    backend.commit(Update(keys.CLUSTER_HISTORY, value, version))

    said = f"cluster/history: the event before {last.id} is missing, or was changed"
    assert list(cluster_history.problems(backend)) == [said]
    assert fsck(backend, None).damaged == (said,)


def test_a_record_that_cannot_be_read_stops_no_election(backend: Backend) -> None:
    """It stays as it is, and fsck names it."""
    backend.commit(Create(keys.CLUSTER_HISTORY, b"{"))
    with lead(backend) as leadership:
        historian(backend, leadership.fence, "m1").elected()

    with pytest.raises(CorruptRecord):
        cluster_history.read(backend)
    (damaged,) = fsck(backend, None).damaged
    assert damaged.startswith("cluster/history")


def test_what_a_leader_expires_is_one_event(backend: Backend) -> None:
    """A pass each hour displaces no election, pause or switchover."""
    with lead(backend) as first:
        historian(backend, first.fence, "m1").elected()
        for number in range(3):
            gone = [f"job-{number}", f"other-{number}"]
            list(cluster_history.recording_expired(backend, gone, lambda: 1e9, first.fence))

    kinds = [one[0] for one in told(backend)]
    last = cluster_history.read(backend)[-1]
    assert kinds == ["elected", "expired"]
    assert "job-2, other-2 and 4 more, since 2001-09-09" in last.text
    assert list(cluster_history.problems(backend)) == []


def test_the_last_election_stays(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is recorded behind it: the next leader tells that it has ended."""
    monkeypatch.setattr(cluster_history, "MOST_KEPT", 3)
    with lead(backend) as first:
        historian(backend, first.fence, "m1").elected()
    for number in range(5):
        cluster_history.record(backend, HistoryKind.UPKEEP, f"upkeep {number}")

    assert [one[0] for one in told(backend)] == ["elected", "upkeep", "upkeep", "upkeep"]
    assert list(cluster_history.problems(backend)) == []

    with lead(backend) as second:
        historian(backend, second.fence, "m2").elected()
    assert [one[:2] for one in told(backend)][-2:] == [("lost", "m1"), ("elected", "m2")]
