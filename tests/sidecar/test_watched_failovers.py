"""Leaders and servers of the API are killed in turn while many clients follow the history and
Prometheus scrapes: each client gets each event once and in order, and at most one master leads."""

from __future__ import annotations

import http.client
import itertools
import json
import queue
import socket
import statistics
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs import JobSpec, connect
from jrs.contract.clock import Deadline
from jrs.testing.masters import LoggedProcess, Masters
from jrs.testing.servers import EtcdServer
from jrs.testing.servers.errors import ServerMissing
from jrs.testing.servers.fixtures import missing
from tests.recovery.support import job
from tests.sidecar.conftest import _PORTS, READ, write_tokens
from tests.support import BOUND, in_long_form, until

SECONDS = in_long_form(300, 15)
CLIENTS = in_long_form(100, 10)
EVERY = 10.0
"""Seconds between two strikes."""
TTL = 3.0
NEWEST = "count(jrs_leader == 1 and on (instance) jrs_epoch == on () group_left max(jrs_epoch))"
"""A query: how many masters lead in the newest epoch."""


@attrs.define
class Follower:
    """A client that follows the history of everything, at whichever server answers."""

    ports: Sequence[int]
    first: int
    over: threading.Event
    cursors: list[str] = attrs.field(factory=list)
    late: list[float] = attrs.field(factory=list)
    """Seconds from each commit to its arrival, while it was connected."""
    connections: int = 0

    def run(self) -> None:
        for port in itertools.islice(itertools.cycle(self.ports), self.first, None):
            if self.over.is_set():
                return
            try:
                self._follow(port)
            except (OSError, http.client.HTTPException):
                self.over.wait(0.1)

    def _follow(self, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND)
        headers = {"Authorization": f"Bearer {READ}"}
        if self.cursors:
            headers["Last-Event-ID"] = self.cursors[-1]
        try:
            connection.request("GET", "/v1/history/events", headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ConnectionError(f"{answer.status}: {answer.read()!r}")
            self.connections += 1
            since = time.time()
            for cursor, at in _entries(answer, self.over):
                self.cursors.append(cursor)
                if at > since:
                    self.late.append(time.time() - at)
        finally:
            connection.close()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def _entries(
    answer: http.client.HTTPResponse, over: threading.Event
) -> Iterator[tuple[str, float]]:
    """Yield the cursor of each whole event, and when it was recorded."""
    name = data = ""
    while not over.is_set():
        line = answer.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the server is gone")
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            data = text.removeprefix("data: ")
        elif not text and name == "history":
            found = json.loads(data)
            yield found["cursor"], found["at"]
            name = ""
        elif not text and name == "problem":
            raise ConnectionError(data)


def prometheus(stack: ExitStack, folder: Path, targets: Sequence[int]) -> Callable[[str], Any]:
    """Run Prometheus, which scrapes each second; return what asks it for the value of a query."""
    (folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{
            "job_name": "jrs",
            "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}],
        }],
    }))  # fmt: skip
    port = _PORTS.take()
    command = [
        "prometheus", f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    try:
        process = LoggedProcess("prometheus", command, {}, piped=False)
    except FileNotFoundError:
        missing(ServerMissing("no 'prometheus' on the PATH: apt-get install prometheus"))
    stack.callback(process.close)

    def ask(query: str) -> list[float]:
        where = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
        try:
            with urllib.request.urlopen(where, timeout=BOUND) as answer:
                found = json.load(answer)["data"]["result"]
        except OSError:
            return []
        return [float(one["value"][1]) for one in found]

    return ask


@pytest.mark.timeout(SECONDS + 240)
def test_followers_and_scrapes_over_failovers(etcd_server: EtcdServer, tmp_path: Path) -> None:
    """The long form, of five minutes with 100 clients, by JRS_SOAK=1."""
    url, cluster = etcd_server.url(), uuid.uuid4().hex[:8]
    probes, apis = [_PORTS.take() for _ in range(3)], [_PORTS.take() for _ in range(3)]
    tokens = write_tokens(tmp_path / "tokens", f"read {READ}\n")
    serve = [sys.executable, "-m", "jrs", "--backend", url, "--cluster", cluster, "serve"]
    serve += ["--token-file", str(tokens), "--storage", str(tmp_path)]
    with ExitStack() as stack:
        masters = stack.enter_context(Masters(url, cluster=cluster, storage=tmp_path, ttl=TTL))
        servers: dict[int, LoggedProcess] = {}

        def host(number: int) -> None:
            """Start, or start again, a master and a server of the API."""
            listen = ["--listen", f"127.0.0.1:{probes[number]}"]
            masters.start(f"m{number}-{len(masters.all)}", options=listen)
            address = f"127.0.0.1:{apis[number]}"
            servers[number] = LoggedProcess("serve", [*serve, "--listen", address], {}, piped=False)
            stack.callback(servers[number].close)

        for number in range(3):
            host(number)
        ask = prometheus(stack, tmp_path, probes)
        masters.leader()
        # Else all clients may gather at the first server, and none has to leave one that is killed.
        until(lambda: all(map(_listens, apis)), "each server listens")
        client = stack.enter_context(connect(url, cluster=cluster))
        over = threading.Event()
        followers = [Follower(apis, number, over) for number in range(CLIENTS)]
        threads = [
            threading.Thread(target=one.run, name=f"follower-{number}")
            for number, one in enumerate(followers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            stack.callback(thread.join, BOUND)
        stack.callback(over.set)
        until(lambda: all(one.connections for one in followers), "all are connected")

        submitted = queue.SimpleQueue[str]()
        window, strike, kills = Deadline.after(SECONDS), Deadline.after(EVERY / 2), 0
        for count in itertools.count():
            client.submit_spec(JobSpec(f"job-{count}", job("add"), {"a": count, "b": 1}))
            submitted.put(f"job-{count}")
            if strike.expired:
                strike, kills = Deadline.after(EVERY), kills + 1
                leader = masters.leader()
                number = int(leader.name[1])
                leader.kill()
                servers[number].kill()
                host(number)
            if window.expired:
                break
            over.wait(0.5)
        while not submitted.empty():
            client.job(submitted.get()).result(timeout=BOUND)
        masters.leader()

        def all_events() -> list[str]:
            cursor, found = "", list[str]()
            while True:
                page = client.history_after(cursor)
                found += [entry.cursor for entry in page.entries]
                if not page.more:
                    return found
                cursor = page.cursor

        def have_all() -> bool:
            newest = client.history_cursor()
            return all(one.cursors and one.cursors[-1] == newest for one in followers)

        until(have_all, "each has the newest event")
        # Cleanups and masters add events still: what each has is taken before what there is.
        followed = [list(one.cursors) for one in followers]
        expected = all_events()
        for cursors in followed:
            start = expected.index(cursors[0])
            assert cursors == expected[start : start + len(cursors)]
            assert len(cursors) >= count

        assert kills >= 1
        assert sum(one.connections for one in followers) > CLIENTS
        late = sorted(itertools.chain.from_iterable(one.late for one in followers))
        print(
            f"{kills} kills, {count + 1} jobs, {CLIENTS} followers, {len(expected)} events, "
            f"{sum(one.connections for one in followers)} connections; from commit to client: "
            f"median {1e3 * statistics.median(late):.0f} ms, "
            f"p99 {1e3 * late[int(0.99 * len(late))]:.0f} ms"
        )

        until(lambda: ask("count_over_time(sum(jrs_leader)[10m:1s])"), "it has scraped")
        assert ask(f"max_over_time({NEWEST}[10m:1s])") == [1.0]
        # What Prometheus has of a leader that was killed may be a scrape old.
        assert ask("max_over_time(min_over_time(sum(jrs_leader)[3s:1s])[10m:1s])") == [1.0]
