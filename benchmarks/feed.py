"""How soon many followers of the sidecar's history hear of an event after its commit.

    python benchmarks/feed.py [--followers N] [--rate N] [--seconds N] [--kind KIND] [--json]

One master with its probes, and one server of the API. All followers are in one process of their
own, which waits for all of them at once and looks only for the number of an event, so that it takes
little of the processor. Events are recorded one by one, as jobs that begin and end do it.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from measure import print_plain

from backends import SERVERS
from jrs.contract.clock import Deadline
from jrs.records.history import HistoryKind
from jrs.store.historian import Historian
from jrs.store.opening import open_backend
from jrs.testing.processes import children, pss

CLUSTER = "feed"
_REQUEST = b"GET /v1/history/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
_NUMBER = re.compile(rb"number (\d+) of the benchmark")
_BOUND = 60.0
"""Seconds for which anything is awaited."""
_REST = 5.0
"""Seconds until both have started what they need."""


def follow(place: str, followers: int, events: int) -> dict[str, list[float]]:
    """Return when each follower heard of each event, by its number, in seconds of this host.

    Says on stdout when all are connected, which is when all have the event 0.
    """
    heard: dict[str, list[float]] = {str(number): [] for number in range(events)}
    left, connected, over = followers * events, False, Deadline.after(_BOUND)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(followers):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(place)
            connection.sendall(_REQUEST)
            selector.register(connection, selectors.EVENT_READ, bytearray())
        while left and not over.expired:
            for key, _ in selector.select(1.0):
                assert isinstance(key.fileobj, socket.socket)
                data = key.fileobj.recv(1 << 20)
                at, end = time.monotonic(), 0
                key.data.extend(data)
                for found in _NUMBER.finditer(key.data):
                    heard[found[1].decode()].append(at)
                    left, end = left - 1, found.end()
                del key.data[:end]
            if not connected and len(heard["0"]) == followers:
                connected = True
                print("connected", flush=True)
    return heard


def trial(url: str, folder: Path, followers: int, rate: float, seconds: float) -> dict[str, float]:
    """Return the milliseconds from a commit to each client, and what the processes took."""
    events, place = int(rate * seconds) + 1, folder / "api"
    with ExitStack() as stack:
        backend = stack.enter_context(open_backend(url, cluster=CLUSTER))
        historian = Historian(backend, "benchmark", 1)
        committed: list[float] = []

        def tell(number: int) -> None:
            text = f"number {number} of the benchmark"
            with historian.recorded(f"job-{number % 50}", HistoryKind.OTHER, text) as event:
                backend.commit(*event)
            committed.append(time.monotonic())

        tell(0)
        master = _started(stack, ["-m", "jrs", "--backend", url, "--cluster", CLUSTER, "master",
                                  "--storage", str(folder / "jobs"),
                                  "--listen", f"unix:{folder / 'probes'}"])  # fmt: skip
        server = _started(stack, ["-m", "jrs", "--backend", url, "--cluster", CLUSTER, "serve",
                                  "--listen", f"unix:{place}"])  # fmt: skip
        over = Deadline.after(_BOUND)
        while not (place.exists() and (folder / "probes").exists()) and not over.expired:
            time.sleep(0.05)
        time.sleep(_REST)
        at_rest = _memory(master) + _memory(server)
        client = _started(stack, [__file__, "--follow", str(place), str(followers), str(events)])
        assert client.stdout is not None
        assert client.stdout.readline() == "connected\n"
        used = _used(server)
        pace = threading.Event()
        for number in range(1, events):
            pace.wait(1 / rate)
            tell(number)
        heard = json.loads(client.stdout.readline())
        took = _used(server) - used
        with_all = _memory(master) + _memory(server)
        waited = sorted(
            1e3 * (at - committed[number])
            for number in range(1, events)
            for at in heard[str(number)]
        )
        if len(waited) < followers * (events - 1):
            raise RuntimeError(f"{followers * (events - 1) - len(waited)} events were not heard")
        return {
            "commit to client, p50, ms": statistics.median(waited),
            "commit to client, p99, ms": waited[len(waited) * 99 // 100],
            "longest, ms": waited[-1],
            "the server's processor, ms an event": 1e3 * took / (events - 1),
            "memory of master and server at rest, MB": at_rest,
            "memory of both with the followers, MB": with_all,
        }


def _started(stack: ExitStack, arguments: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _used(process: subprocess.Popen[str]) -> float:
    """Return the seconds of processor that a process has taken."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _memory(process: subprocess.Popen[str]) -> float:
    """Return the PSS of a process and of its children, in MB."""
    return sum(map(pss, (process.pid, *children(process.pid)))) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=100)
    parser.add_argument("--rate", type=float, default=10.0, help="Events a second.")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kind", choices=["file", *SERVERS], default="file")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--follow", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.follow:
        place, followers, events = given.follow
        print(json.dumps(follow(place, int(followers), int(events))), flush=True)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jrs-feed-")))
        if given.kind == "file":
            url = (folder / "store").as_uri()
        else:
            url = stack.enter_context(SERVERS[given.kind]()).url()
        figures = trial(url, folder, given.followers, given.rate, given.seconds)
    print_plain(figures, digits=1, as_json=given.json)


if __name__ == "__main__":
    main()
