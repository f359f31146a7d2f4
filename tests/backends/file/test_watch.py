"""Watches of one handle: how they share the looks for the commits of other processes."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.watch import FileWatch, Watches
from jrs.contract.operations import Create
from tests.support import BOUND, until


def test_one_of_many_waiters_polls_and_another_one_takes_over() -> None:
    """Each of them once polled by itself: 200 waiters kept a processor busy."""
    watches, polled = Watches(), Counter[str]()

    def refresh() -> None:
        polled[threading.current_thread().name] += 1

    found = {name: FileWatch(watches, f"{name}/", refresh) for name in "abcdefgh"}
    for watch in found.values():
        assert watch.changes(0) is None  # All of them are new.
    threads = {
        name: threading.Thread(target=watch.changes, args=(BOUND,), name=name)
        for name, watch in found.items()
    }
    for thread in threads.values():
        thread.start()
    left = set(found)
    while left:
        polled.clear()
        until(lambda: polled.total() >= 3, "one of them polls")
        (poller,) = polled
        watches.notice(f"{poller}/key")
        threads[poller].join(BOUND)
        assert not threads[poller].is_alive()
        left.remove(poller)


def test_a_waiter_that_fails_leaves_the_polling_to_another_one() -> None:
    watches, failing, polls = Watches(), threading.Event(), threading.Event()

    def fails() -> None:
        failing.wait(BOUND)
        raise OSError("the disk")

    first, second = FileWatch(watches, "", fails), FileWatch(watches, "", polls.set)
    assert first.wait(0)
    assert second.wait(0)
    errors: list[OSError] = []

    def wait() -> None:
        try:
            first.wait(BOUND)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=wait), threading.Thread(target=second.wait, args=(BOUND,))]
    threads[0].start()
    until(lambda: watches._poller is first, "the first one polls")
    threads[1].start()
    until(lambda: second in watches._waiting, "the second one waits")
    assert not polls.is_set()

    failing.set()

    assert polls.wait(BOUND)
    second.notice("key")
    for thread in threads:
        thread.join(BOUND)
    assert len(errors) == 1


def test_a_poller_that_is_in_a_signal_handler_is_replaced() -> None:
    """It is the thread that waits, so nothing that the handler waits for may depend on it."""
    watches, polls = Watches(), threading.Event()
    inner = FileWatch(watches, "", polls.set)
    assert inner.changes(0) is None

    def change() -> None:
        until(polls.is_set, "the inner one polls")
        inner.notice("key")

    other = threading.Thread(target=change)

    def refresh() -> None:
        other.start()
        assert inner.changes(BOUND) == frozenset({"key"})  # As a signal handler may wait.
        raise KeyboardInterrupt

    outer = FileWatch(watches, "", refresh)
    assert outer.changes(0) is None
    with pytest.raises(KeyboardInterrupt):
        outer.wait(BOUND)
    other.join(BOUND)


def test_waiters_of_one_handle_notice_the_commits_of_another(tmp_path: Path) -> None:
    with closing(FileBackend(tmp_path)) as here, closing(FileBackend(tmp_path)) as there:
        watches = [here.watch(f"jobs/{number}") for number in range(20)]
        for watch in watches:
            assert watch.changes(0) is None
        noticed: list[frozenset[str] | None] = []
        threads = [
            threading.Thread(target=lambda watch=watch: noticed.append(watch.changes(BOUND)))
            for watch in watches
        ]
        for thread in threads:
            thread.start()
        for number in range(20):
            there.commit(Create(f"jobs/{number}", b"x"))
        for thread in threads:
            thread.join(BOUND)
            assert not thread.is_alive()
        assert len(noticed) == 20
        assert all(noticed)
        for watch in watches:
            watch.close()
