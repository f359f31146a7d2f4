"""Closing: no thread, no noise and no session is left, however a handle ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jrs.backends.zookeeper.backend import ZooKeeperBackend
from jrs.contract.errors import JrsError
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.testing.contract import contents, lead
from jrs.testing.servers import Proxy, ZooKeeperServer
from tests.support import BOUND, until

Open = Callable[..., ZooKeeperBackend]


def ours() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "zookeeper" in thread.name}


def test_no_thread_is_left(zookeeper_server: ZooKeeperServer, cluster: str) -> None:
    """A handle that did everything there is to do leaves no thread when it is closed."""
    before = ours()
    with open_backend(zookeeper_server.url(), cluster=cluster) as backend:
        with backend.watch("") as watch, lead(backend) as leadership:
            backend.commit(Create("k", b""), fence=leadership.fence)
            backend.commit_async(Create("l", b"")).result(BOUND)
            assert watch.wait(BOUND)
            assert len(ours()) > len(before)

    until(lambda: ours() <= before, "its threads end")


def test_no_thread_is_left_where_opening_failed(theirs: str, cluster: str) -> None:
    """Nor does a handle that could not be opened."""
    before = ours()
    for url, options in ((f"{theirs}/none", {}), (theirs, {"create": False})):
        with pytest.raises(JrsError):
            open_backend(url, cluster=cluster, **options)

    until(lambda: ours() <= before, "its threads end")


def test_closing_while_others_use_it(handle: Open) -> None:
    """Callers of a handle that is closed get their answer or a typed error, and all of them end."""
    backend, witness = handle(), handle()
    done: list[str] = []
    errors: list[BaseException] = []

    def work(number: int) -> None:
        count = 0
        try:
            while True:
                count += 1
                key = f"k/{number}-{count}"
                backend.commit(Create(key, b""))
                done.append(key)
                backend.get(key)
                list(backend.scan("k/", limit=3))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    until(lambda: len(done) > 30, "all of them use it")
    backend.close()
    for thread in threads:
        thread.join(BOUND)
        assert not thread.is_alive()

    assert all(isinstance(error, JrsError) for error in errors)
    assert set(done) <= contents(witness).keys()


def test_closing_while_there_is_no_connection(through: Open, proxy: Proxy) -> None:
    """A handle that tries to reconnect stops that at once, however long it would pause."""
    backend = through()
    protocol = backend._connection._protocol
    attempt, tried = protocol._connect_attempt, threading.Event()

    def with_a_long_pause(*place: Any) -> Any:
        place[-1]._cur_delay = 3600.0
        tried.set()
        return attempt(*place)

    protocol._connect_attempt = with_a_long_pause
    proxy.cut()
    assert tried.wait(BOUND)
    backend.close()


def test_a_canceled_future(through: Open, proxy: Proxy) -> None:
    """A future that its caller canceled harms nobody; the commit is done or not."""
    backend = through()
    proxy.freeze()  # Nothing is answered, so a future can be canceled before it is done.
    futures = [backend.commit_async(Create(f"k/{number}", b"")) for number in range(50)]
    assert all(future.cancel() for future in futures[::2])
    proxy.thaw()
    for future in futures[1::2]:
        assert future.result(BOUND) is None

    assert {f"k/{number}" for number in range(1, 50, 2)} <= contents(backend).keys()


@pytest.mark.parametrize("how", ["closed", "left open", "interrupted", "server gone"])
def test_a_process_ends_in_silence(
    zookeeper_server: ZooKeeperServer, cluster: str, how: str
) -> None:
    """Nothing is printed when a process ends, whatever it leaves behind or runs into."""
    code = f"""
import itertools, os, signal, sys, threading, time
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
backend = open_backend(sys.argv[1], cluster=sys.argv[2])
how = {how!r}
watch = backend.watch("")
backend.commit(Create("k", b""))
watch.wait(1)
if how == "closed":
    backend.close()
elif how == "interrupted":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs may ignore it.
    busy = threading.Event()
    def interrupt():
        busy.wait()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        for number in itertools.count():
            backend.get("k")
            if number == 5:
                busy.set()
    except KeyboardInterrupt:
        backend.close()
elif how == "server gone":
    print("ready", flush=True)
    sys.stdin.readline()
    while backend._connection.connected:
        time.sleep(0.01)
    backend.close()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, zookeeper_server.url(), cluster],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if how == "server gone":
        assert process.stdout is not None
        process.stdout.readline()
        zookeeper_server.kill()
    output, errors = process.communicate(b"\n", timeout=60)

    assert (process.returncode, output, errors) == (0, b"", b"")
