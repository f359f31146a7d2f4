"""Watches and elections."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Delete, Update
from jrs.contract.watch import Watch
from jrs.testing.contract.fixtures import BOUND, Hang, Opener, contents, lead, present


def named(watch: Watch, *keys: str) -> set[str]:
    """Wait until the watch has named all of the keys, or reports that any key may have changed;
    return the named keys."""
    deadline = Deadline.after(BOUND)
    heard: set[str] = set()
    while not deadline.expired:
        names = watch.changes(deadline.remaining())
        if names is None:
            return heard
        heard |= names
        if all({key, f"{key.partition('/')[0]}/"} & heard for key in keys):
            return heard
    raise AssertionError(f"{keys} were not named, only {heard}")


class WatchContract:
    """Level-triggered hints."""

    def test_a_new_watch_fires_at_once(self, backend: Backend) -> None:
        """A reader misses no change from before the watch began."""
        with backend.watch("w/") as watch:
            assert watch.wait(BOUND)

    def test_a_change_fires(self, backend: Backend, other: Backend) -> None:
        """Creation, update and deletion by any client wake the watch."""
        with backend.watch("w/") as watch:
            assert watch.wait(BOUND)
            for client in (backend, other):
                client.commit(Create("w/k", b"1"))
                assert watch.wait(BOUND)
                client.commit(Update("w/k", b"2", present(client, "w/k").version))
                assert watch.wait(BOUND)
                client.commit(Delete("w/k"))
                assert watch.wait(BOUND)

    def test_changes_are_named(self, backend: Backend, other: Backend) -> None:
        """B5: a watch names each key that any client creates, updates or deletes, or a prefix of
        it, or reports that any key may have changed. A new watch reports that first."""
        with backend.watch("") as watch:
            assert watch.changes(BOUND) is None
            for client in (backend, other):
                client.commit(Create("w/k", b"1"), Create("v/k", b"1"))
                named(watch, "w/k", "v/k")
                client.commit(Update("w/k", b"2", present(client, "w/k").version))
                named(watch, "w/k")
                client.commit(Delete("w/k"), Delete("v/k"))
                named(watch, "w/k", "v/k")

    def test_names_are_of_the_watched_prefix(self, backend: Backend) -> None:
        """B5: a watch names only keys in the directory of its prefix, and finally no key at all."""
        with backend.watch("w/") as watch:
            assert watch.changes(BOUND) is None
            backend.commit(Create("v/k", b"1"))
            backend.commit(Create("w/k", b"1"))
            heard = named(watch, "w/k")
            while names := watch.changes(0.01):
                heard |= names

            assert all(name.startswith("w/") for name in heard)

    def test_a_quiet_watch_gives_up(self, backend: Backend) -> None:
        """A wait without any change finally returns False."""
        with backend.watch("w/") as watch:
            while watch.wait(0.01):
                pass

    def test_a_sleeper_is_woken(self, backend: Backend, other: Backend) -> None:
        """A commit of another client wakes a waiting thread."""
        woken = threading.Event()
        ready = threading.Event()

        def sleep() -> None:
            with backend.watch("w/") as watch:
                while backend.get("w/k") is None:
                    ready.set()
                    watch.wait(BOUND)
                woken.set()

        thread = threading.Thread(target=sleep)
        thread.start()
        assert ready.wait(BOUND)
        other.commit(Create("w/k", b""))
        assert woken.wait(BOUND)
        thread.join(BOUND)

    def test_no_last_change_is_missed(self, backend: Backend, other: Backend) -> None:
        """A client that reads again after each hint always ends with the newest state."""
        last = 200

        def write() -> None:
            other.commit(Create("w/n", b"0"))
            for number in range(1, last + 1):
                other.commit(Update("w/n", b"%d" % number, present(other, "w/n").version))

        thread = threading.Thread(target=write)
        with backend.watch("w/") as watch:
            thread.start()
            seen = -1
            while seen < last:
                assert watch.wait(BOUND), f"no hint after {seen}"
                record = backend.get("w/n")
                seen = int(record.value) if record else -1
        thread.join(BOUND)

    def test_closing_twice_and_many_watches(self, backend: Backend) -> None:
        """Watches are independent of each other, and closing one twice is harmless."""
        watches = [backend.watch("w/") for _ in range(20)]
        for watch in watches[::2]:
            watch.close()
            watch.close()
        backend.commit(Create("w/k", b""))

        assert all(watch.wait(BOUND) for watch in watches[1::2])
        for watch in watches:
            watch.close()

    def test_iterating(self, backend: Backend, other: Backend) -> None:
        """A watch is an iterator of hints."""
        with backend.watch("w/") as watch:
            for count, _ in enumerate(watch):
                if count == 3:
                    break
                other.commit(Create(f"w/{count}", b""))


class ElectionContract:
    """`campaign`: elections give liveness, and the epoch gives safety."""

    def test_epochs_only_grow(self, backend: Backend, other: Backend) -> None:
        """The epoch of each leadership is greater than all earlier epochs."""
        epochs = []
        for number in range(6):
            with lead((backend, other)[number % 2], f"c{number}") as leadership:
                epochs.append(leadership.epoch)
                assert not leadership.lost.is_set()
                assert leadership.epoch == leadership.fence.epoch

        assert sorted(set(epochs)) == epochs

    def test_one_leader_at_a_time(self, handles: Opener, backend: Backend, cluster: str) -> None:
        """Of many candidates one leads at a time, and each candidate leads once."""
        leading: list[int] = []
        overlaps: list[int] = []
        epochs: list[int] = []

        def candidate(number: int) -> None:
            with lead(handles(cluster), f"c{number}") as leadership:
                leading.append(number)
                overlaps.append(len(leading))
                epochs.append(leadership.epoch)
                backend.commit(Create(f"turn/{number}", b""), fence=leadership.fence)
                leading.remove(number)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(candidate, range(8)))

        assert overlaps == [1] * 8
        assert sorted(set(epochs)) == epochs
        assert len(contents(backend, "turn/")) == 8

    def test_a_second_campaign_waits_for_resignation(
        self, backend: Backend, other: Backend
    ) -> None:
        """Once the leader resigns, a candidate leads, and the old leader's fence is refused."""
        first = lead(backend, ttl=backend.capabilities.max_ttl)
        won: list[Leadership] = []
        thread = threading.Thread(target=lambda: won.append(lead(other, "next")))
        thread.start()
        backend.commit(Create("k", b""), fence=first.fence)
        assert not won
        first.resign()
        thread.join(BOUND)

        assert first.lost.is_set()
        assert won[0].epoch > first.epoch
        with pytest.raises(Fenced):
            backend.commit(Create("l", b""), fence=first.fence)
        other.commit(Create("l", b""), fence=won[0].fence)
        won[0].resign()

    def test_resigning_twice(self, backend: Backend, other: Backend) -> None:
        """Resigning twice does not affect the next leader."""
        first = lead(backend)
        first.resign()
        first.resign()
        with lead(other) as second:
            first.resign()
            assert not second.lost.is_set()
            other.commit(Create("k", b""), fence=second.fence)

    def test_a_stop_ends_the_campaign(self, backend: Backend, other: Backend) -> None:
        """A campaign returns None once its stop event is set, before or during the wait."""
        stop = threading.Event()
        stop.set()
        ttl = backend.capabilities.max_ttl
        assert backend.campaign("never", ttl=ttl, stop=stop) is None

        stop = threading.Event()
        with lead(backend) as leadership, ThreadPoolExecutor(1) as pool:
            ended = pool.submit(other.campaign, "waits", ttl=ttl, stop=stop)
            assert not ended.done()
            stop.set()
            assert ended.result(BOUND) is None
            assert not leadership.lost.is_set()
            backend.commit(Create("k", b""), fence=leadership.fence)

    def test_a_hung_leader_is_replaced(self, backend: Backend, hang: Hang) -> None:
        """A hanging leader is replaced after its ttl, and from then on its fence is refused."""
        ttl = max(1.0, backend.capabilities.min_ttl)
        old = hang(backend, ttl)
        with lead(backend, ttl=ttl) as leadership:
            assert leadership.epoch > old.epoch
            with pytest.raises(Fenced):
                backend.commit(Create("k", b""), fence=old)
            backend.commit(Create("k", b""), fence=leadership.fence)

    def test_a_healthy_leader_outlives_its_ttl(self, backend: Backend, other: Backend) -> None:
        """A healthy leader keeps leading for many ttls while a candidate waits."""
        ttl = max(1.0, backend.capabilities.min_ttl)
        # A machine that is busy with something else may stop this process for a whole ttl.
        assert any(self._outlives(backend, other, times * ttl) for times in (1, 2, 4))

    def _outlives(self, backend: Backend, other: Backend, ttl: float) -> bool:
        """Return whether a leadership outlasts three ttls."""
        stop = threading.Event()
        with lead(backend, ttl=ttl) as leadership, ThreadPoolExecutor(1) as pool:
            ended = pool.submit(other.campaign, "waits", ttl=ttl, stop=stop)
            leadership.lost.wait(3 * ttl)
            led = ended.done()
            stop.set()
            successor = ended.result(BOUND)
            lost = leadership.lost.is_set()
        if successor is not None:
            successor.resign()
        assert lost or (not led and successor is None)
        return not lost
