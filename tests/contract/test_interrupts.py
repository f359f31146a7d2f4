"""A signal handler that raises in the middle of a commit: the handle works afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jrs.testing.servers import EtcdServer, ZooKeeperServer

SCRIPT = r"""
import json, random, signal, sys, threading
from jrs.contract.operations import Create
from jrs.store.opening import open_backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Conflict, JrsError, OutcomeUnknown, Unavailable

url, interrupts, longest = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
chance = random.Random(int(sys.argv[4]))
BOUND = 60.0


class Interrupted(BaseException):
    pass


armed = False


def handler(number, frame):
    global armed
    if armed:
        armed = False
        raise Interrupted


signal.signal(signal.SIGALRM, handler)
backend = open_backend(url)
futures, others, over = [], [], threading.Event()


def settled(key):
    # Until the outcome is known: an interrupt can cost others a try, never the handle.
    end = Deadline.after(BOUND)
    while True:
        try:
            backend.commit(Create(key, b""), deadline=end)
            return
        except Conflict:
            return
        except (Unavailable, OutcomeUnknown):
            if end.expired:
                raise


def neighbour():
    number = 0
    while not over.is_set():
        number += 1
        settled(f"n/{number}")
        others.append(number)


thread = threading.Thread(target=neighbour)
thread.start()
hit = number = 0
acknowledged, tried = [], []
while hit < interrupts:
    number += 1
    key = f"k/{number}"
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, longest))
            armed = True
            kind = number % 4
            if kind == 0:
                futures.append(backend.commit_async(Create(key, b"")))
            elif kind == 1:
                backend.get("k/1")
            elif kind == 2:
                for record in backend.scan("k/", limit=3):
                    pass
            else:
                tried.append(key)
                backend.commit(Create(key, b""), deadline=Deadline.after(BOUND))
                acknowledged.append(key)
        finally:
            armed = False
    except JrsError:
        pass
    except Interrupted:
        hit += 1
        if hit % 10 == 0:
            settled(f"after/{hit}")
            assert backend.get(f"after/{hit}") is not None
signal.setitimer(signal.ITIMER_REAL, 0)
over.set()
thread.join(BOUND)
assert not thread.is_alive(), "the other thread waits"
for future in futures:
    error = future.exception(BOUND)
    assert error is None or isinstance(error, JrsError), error
settled("last")
missing = [key for key in acknowledged if backend.get(key) is None]
# The order and the state are those of a handle that was never interrupted.
mine = [(r.key, r.version) for r in backend.scan("")]
with open_backend(url) as fresh:
    same = mine == [(r.key, r.version) for r in fresh.scan("")]
backend.close()
print(json.dumps([hit, missing, same, bool(others)]))
"""


def interrupted(url: str, interrupts: int, longest: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, url, str(interrupts), str(longest), "1"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    assert json.loads(done.stdout) == [interrupts, [], True, True]


COUNTS = [60, pytest.param(1000, marks=pytest.mark.soak)]


@pytest.mark.parametrize("count", COUNTS)
def test_on_file(tmp_path: Path, count: int) -> None:
    """D6: interrupts between any two instructions wedge no handle on a folder."""
    interrupted(tmp_path.as_uri(), count, 2e-3)


@pytest.mark.parametrize("count", COUNTS)
def test_on_etcd(etcd_server: EtcdServer, count: int) -> None:
    """D6: nor one on etcd."""
    interrupted(etcd_server.url(), count, 4e-3)


@pytest.mark.parametrize("count", [600, *COUNTS[1:]])  # With fewer, none may hit what was wrong.
def test_on_zookeeper(zookeeper_server: ZooKeeperServer, count: int) -> None:
    """D6: nor one on ZooKeeper."""
    interrupted(zookeeper_server.url(), count, 4e-3)
