"""Watches: over restarts and lost sessions, whatever the size of what is watched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.protocol.states import Callback

from jrs.backends.zookeeper import watch as watching
from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.backends.zookeeper.protocol import codec
from jrs.contract.errors import Unavailable
from jrs.contract.operations import Create, Delete, Update
from jrs.contract.watch import Watch
from jrs.testing.contract import lead, present
from jrs.testing.servers import Proxy, ZooKeeperServer
from tests.support import BOUND, until

Open = Callable[..., ZooKeeperBackend]


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fires here has been told, and is not the poll behind it."""
    monkeypatch.setattr(watching, "POLL", 1000.0)


def is_set(watch: Any) -> bool:
    """Return whether a watch will hear of the next change: all of its watches are set."""
    hub = watch._hub
    with hub._mutex:
        paths = hub._paths(watch.prefix)
        return all(path in hub._spots and hub._spots[path].armed for path in paths)


def handled(backend: ZooKeeperBackend) -> None:
    """Wait until the handle has handled all events that it has received."""
    done = threading.Event()
    backend._connection._handler.dispatch_callback(Callback("watch", done.set, ()))
    assert done.wait(BOUND)


def told(backend: ZooKeeperBackend) -> None:
    """Wait until the handle has heard of all that was committed before."""
    backend.get("none")  # A server sends its events before the answer.
    handled(backend)


def quiet(backend: ZooKeeperBackend, watch: Watch) -> int:
    """Wait until the watch is set and has nothing more to tell; return how often it fired."""
    hints = 0

    def fires() -> bool:
        nonlocal hints
        fired = watch.wait(0.01)
        hints += fired
        return fired

    while True:
        told(backend)
        until(lambda: not fires() and is_set(watch), "the watch is set")
        for _ in range(2):  # A change may be read first.
            told(backend)
        if is_set(watch) and not fires():
            return hints


def watches_set(backend: ZooKeeperBackend) -> Callable[[], int]:
    """Count the watches that the handle sets from now on."""
    connection = backend._connection
    submit = connection.submit
    seen: list[Any] = []

    def counted(*requests: Any) -> None:
        seen.extend(request for request in requests if request.type == codec.EXISTS)
        submit(*requests)

    connection.submit = counted
    return lambda: len(seen)


@pytest.mark.parametrize("prefix", ["", "w", "w/", "w/k", "w/key", "wx"])
def test_what_fires(handle: Open, prefix: str) -> None:
    """A watch fires for the keys of its prefix, of a directory that was not there before, too."""
    backend, other = handle(), handle()
    with backend.watch(prefix) as watch:
        quiet(backend, watch)
        for key in ("w/key-1", "wx/key", "wxyz", "w/key-2"):
            other.commit(Create(key, b""))
            if key.startswith(prefix):
                assert watch.wait(BOUND), key
            quiet(backend, watch)
        other.commit(Delete("wxyz"))
        if "wxyz".startswith(prefix):
            assert watch.wait(BOUND)


def test_other_directories_do_not_fire(handle: Open) -> None:
    """A watch of one directory sleeps through the changes of all others."""
    backend, other = handle(), handle()
    other.commit(Create("w/k", b""), Create("v/k", b""))
    with backend.watch("w/") as watch:
        quiet(backend, watch)
        other.commit(Create("v/l", b""))
        with lead(other):
            told(backend)
            assert is_set(watch)
            assert not watch.wait(0.0)


def test_the_epoch_fires(handle: Open) -> None:
    """Another epoch is a change like any other to a watch of everything."""
    backend, other = handle(), handle()
    with backend.watch("") as watch:
        quiet(backend, watch)
        with lead(other):
            assert watch.wait(BOUND)


def test_many_watches_cost_one(handle: Open) -> None:
    """However many wait, and however large the directory is: one watch is set for each change."""
    backend, other = handle(), handle()
    other.commit(*(Create(f"w/{number}", b"") for number in range(128)))
    watches = [backend.watch("w/") for _ in range(50)]
    for watch in watches:
        assert watch.wait(BOUND)
    quiet(backend, watches[0])
    for watch in watches:
        watch.wait(0)
    count = watches_set(backend)
    woken: list[bool] = []
    threads = [
        threading.Thread(target=lambda watch=watch: woken.append(watch.wait(BOUND)))
        for watch in watches
    ]
    for thread in threads:
        thread.start()
    other.commit(Create("w/new", b""))
    for thread in threads:
        thread.join()
    quiet(backend, watches[0])

    assert woken == [True] * 50
    assert count() <= 2
    for watch in watches:
        watch.close()


def test_a_stream_of_changes_is_few_hints(handle: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch of a busy directory fires again and again, and changes in between are one hint."""
    backend, other = handle(), handle()
    other.commit(Create("w/n", b""))
    stop = threading.Event()

    def change() -> None:
        other.commit(Update("w/n", b"", present(other, "w/n").version))

    def write() -> None:
        while not stop.is_set():
            change()

    thread = threading.Thread(target=write)
    with backend.watch("w/") as watch:
        thread.start()
        for _ in range(20):
            assert watch.wait(BOUND)
        stop.set()
        thread.join()
        quiet(backend, watch)

        count = watches_set(backend)
        with monkeypatch.context() as patch:
            patch.setattr(watching, "_PAUSE", 3600.0)
            for _ in range(20):
                change()
                told(backend)
                assert not watch.wait(0.0)
            assert count() == 0
        assert quiet(backend, watch) == 1
        assert count() == 1


def test_nobody_waits_nothing_is_asked(handle: Open) -> None:
    """A watch that nobody waits for costs nothing while others write."""
    backend, other = handle(), handle()
    other.commit(Create("w/n", b"0"))
    with backend.watch("w/") as watch:
        quiet(backend, watch)
        count = watches_set(backend)
        for number in range(20):
            other.commit(Create(f"w/{number}", b""))
        assert count() == 0
        assert watch.wait(BOUND)


def test_over_a_restart(handle: Open, zookeeper_server: ZooKeeperServer) -> None:
    """A watch continues where its server was killed and started again."""
    backend, other = handle(), handle()
    other.commit(Create("w/0", b""))
    with backend.watch("w/") as watch:
        quiet(backend, watch)
        zookeeper_server.kill()
        zookeeper_server.start()
        other.get("w/0")
        other.commit(Create("w/1", b""))
        assert watch.wait(BOUND)
        quiet(backend, watch)
        other.commit(Create("w/2", b""))
        assert watch.wait(BOUND)


def test_a_change_while_the_watch_was_cut_off(handle: Open, through: Open, proxy: Proxy) -> None:
    """What happened meanwhile is a hint as soon as there is a connection again; nothing is not."""
    backend, other = through(), handle()
    other.commit(Create("w/0", b""))
    with backend.watch("w/") as watch:
        quiet(backend, watch)
        proxy.cut()
        until(lambda: not is_set(watch), "the loss of the watch")
        handled(backend)
        assert not watch.wait(0.0)
        other.commit(Create("w/1", b""))
        proxy.restore()
        assert watch.wait(BOUND)
        quiet(backend, watch)
        proxy.cut()
        until(lambda: not is_set(watch), "the loss of the watch")
        proxy.restore()
        assert quiet(backend, watch) == 0


def test_the_poll(handle: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch fires now and then although nothing was heard of, in case a hint was lost."""
    monkeypatch.setattr(watching, "POLL", 0.1)
    with handle().watch("w/") as watch:
        for _ in range(6):  # Fewer are because the watch is new.
            assert watch.wait(BOUND)


def test_closing_the_handle_wakes(handle: Open) -> None:
    """Closing a handle wakes its waiters at once, with an error."""
    backend = handle()
    watch = backend.watch("w/")
    assert watch.wait(BOUND)
    errors: list[Exception] = []
    waits = threading.Event()
    assert isinstance(watch, watching.ZooKeeperWatch)
    sleep = watch._bell.wait

    def sleeps(timeout: float | None = None) -> bool:
        waits.set()
        return sleep(timeout)

    watch._bell.wait = sleeps

    def wait() -> None:
        try:
            while True:
                watch.wait(3600.0)
        except Unavailable as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(BOUND)
    backend.close()
    thread.join(BOUND)

    assert not thread.is_alive()
    assert len(errors) == 1
    with pytest.raises(Unavailable):
        backend.watch("w/")
    watch.close()
