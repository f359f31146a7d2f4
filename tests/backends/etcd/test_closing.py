"""A handle that was closed leaves no thread, no process and nothing on stderr."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from jrs.backends.etcd.watch import EtcdWatch
from jrs.contract.errors import JrsError, Unavailable
from jrs.contract.operations import Create
from jrs.contract.watch import Watch
from jrs.testing.servers import EtcdServer
from tests.backends.etcd.support import lead, no_thread_is_left, opened, threads_of_ours
from tests.support import BOUND, until

USES_ALL = """
import sys, threading
from jrs.contract.operations import Create
from jrs.store.opening import open_backend

backend = open_backend(sys.argv[1], cluster=sys.argv[2])
watch = backend.watch("")
backend.commit_async(Create("k", b"v")).result()
leadership = backend.campaign("a", ttl=60, stop=threading.Event())
assert watch.wait(60)
if "tidy" in sys.argv:
    leadership.resign()
    watch.close()
    backend.close()
    backend.close()
    print([t.name for t in threading.enumerate() if t.name.startswith("jrs-")])
elif "close" in sys.argv:
    backend.close()
print("done")
"""


@pytest.mark.parametrize("how", ["tidy", "close", "exit"])
def test_a_process_that_uses_everything_ends_without_a_word(
    etcd_server: EtcdServer, how: str
) -> None:
    """Also if it closes but half of it, or nothing. The client's own watch prints a traceback."""
    process = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", USES_ALL, etcd_server.url(), how, how],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
    )
    said = "[]\ndone\n" if how == "tidy" else "done\n"
    if how == "tidy":
        assert process.stderr == ""
    assert "Traceback" not in process.stderr
    assert (process.returncode, process.stdout) == (0, said)


def test_no_thread_is_left(etcd_server: EtcdServer) -> None:
    before = threading.enumerate()
    backend = opened(etcd_server.url())
    watch = backend.watch("")
    backend.commit_async(Create("k", b"v")).result(BOUND)
    leadership = lead(backend)
    assert threads_of_ours(before) != []
    leadership.resign()
    watch.close()
    watch.close()
    backend.close()
    backend.close()
    no_thread_is_left(before)


def test_a_watch_ends_with_its_handle(etcd_server: EtcdServer) -> None:
    """Its thread does; a waiting caller is woken, and its next call says so."""
    before = threading.enumerate()
    backend = opened(etcd_server.url())
    watch = backend.watch("")
    assert isinstance(watch, EtcdWatch)
    until(lambda: watch._stream is not None, "it listens")
    while watch.wait(0.5):
        pass
    backend.close()
    assert watch.wait(BOUND)
    no_thread_is_left(before)
    with pytest.raises(Unavailable, match="closed"):
        backend.get("k")
    watch.close()


@pytest.mark.parametrize("hurt", ["", "pause", "kill"])
def test_calls_under_way_are_told(etcd_server: EtcdServer, hurt: str) -> None:
    """With whatever is so: done, not done or unknown; none is left waiting."""
    before = threading.enumerate()
    backend = opened(etcd_server.url())
    backend.get("k")
    if hurt:
        backend.timeout = 1.0  # Closing waits as long for the commits that are queued.
        getattr(etcd_server, hurt)()
    ended: list[object] = []

    def call(action: Callable[[], object]) -> None:
        try:
            ended.append(action())
        except JrsError as error:
            ended.append(error)

    actions: list[Callable[[], object]] = [
        functools.partial(backend.commit, Create(f"k/{number}", b"v")) for number in range(4)
    ]
    actions += [functools.partial(backend.get, "k")] * 4
    threads = [threading.Thread(target=call, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    backend.close()
    for thread in threads:
        thread.join(BOUND)
    assert len(ended) == 8
    no_thread_is_left(before)
    for action in actions[3:5]:
        with pytest.raises(Unavailable, match="closed"):
            action()
    with pytest.raises(Unavailable, match="closed"):
        backend.commit_async(Create("l", b"v"))


def test_a_watch_is_closed_while_its_server_hangs(etcd_server: EtcdServer) -> None:
    before = threading.enumerate()
    backend = opened(etcd_server.url())
    watches: list[Watch] = [backend.watch("")]
    etcd_server.pause()
    watches.append(backend.watch("k"))
    for watch in watches:
        watch.close()
    assert not [name for name in threads_of_ours(before) if name == "jrs-etcd-watch"]
    backend.close()
    no_thread_is_left(before)
