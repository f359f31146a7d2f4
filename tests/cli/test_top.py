"""``jrs top``, ``serve`` and ``open``, as commands."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from jrs import Client, MasterInfo, StreamProgress, connect
from jrs.client import plain
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.codec import encode
from jrs.records.heads import BatchReport, StreamHead
from jrs.records.history import HistoryKind
from jrs.records.model import (
    AttemptRecord,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    StageRecord,
    StageSummary,
    StopMode,
    StopRecord,
    StopState,
    StreamRecord,
)
from jrs.store.historian import Historian
from jrs.store.masters import Registry
from jrs.testing.contract import lead
from jrs.testing.servers import EtcdServer
from tests.cli.conftest import Jrs
from tests.support import until

INTERRUPTIBLE = """
import signal, sys
from jrs.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""
"""The command, also where the tests run as a background job, which ignores Ctrl-C."""
PROGRESS = StreamProgress(11, 1795679281.0, 1200, 120.04, 1263.1, 0.95, None, 1532, 7, 3, 1800)


def test_top(jrs_here: Jrs) -> None:
    """Where it is no terminal, the overview is printed once: what waits, and why."""
    jrs_here("submit", "waits", "jobs_here:add")
    said = jrs_here("top")
    assert said.returncode == 0
    assert "no master has ever led" in said.stdout
    assert "waiting: 1" in said.stdout
    assert "held: 0" in said.stdout
    found = json.loads(jrs_here("top", "--json").stdout)
    assert [one["job_id"] for one in found["waiting"]] == ["waits"]
    assert found["cluster"]["leader"] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--listen", "8080"), "not an address"),
        (("--listen", "0.0.0.0:0"), "can be reached by others"),
        (("--listen", "127.0.0.1:0", "--tls-cert", "x"), "both --tls-cert and --tls-key"),
        (("--listen", "127.0.0.1:0", "--token-file", "none"), "No such file"),
    ],
)
def test_what_cannot_be_served(jrs_here: Jrs, options: tuple[str, ...], says: str) -> None:
    """Each is refused in one line, before anything listens."""
    jrs_here("submit", "job", "jobs_here:add")
    said = jrs_here("serve", *options)
    assert said.returncode == 2
    assert says in said.stderr


def test_a_default_place_that_others_can_change(jrs_here: Jrs, home: Path) -> None:
    """No socket is made where another user could put one in its place; what to do is said."""
    jrs_here("submit", "job", "jobs_here:add")
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    (home / "link").symlink_to(home)
    for folder, says in (("open", "by others"), ("link", "by others"), ("none/x", "No such")):
        said = jrs_here("serve", RUNTIME_DIRECTORY=str(home / folder))
        assert (said.returncode, said.stderr.count("\n")) == (2, 1)
        assert says in said.stderr
        assert "--listen unix:/path" in said.stderr


def test_what_cannot_be_opened(jrs_here: Jrs, home: Path) -> None:
    tokens = home / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text("operate 0123456789abcdef\n")
    said = jrs_here("open", "http://127.0.0.1:1", "--token-file", "tokens")
    assert said.returncode == 2
    assert "does not answer as jrs serve does" in said.stderr
    assert "0123456789abcdef" not in said.stderr


def test_a_running_application(url: str, jrs_here: Jrs) -> None:
    """It runs, for both `jrs top` and `jrs list`, which says for how long."""
    with connect(url) as client, lead(client.backend) as leadership:
        client.raise_cluster_format()
        info = MasterInfo("m1", "h", 1, time.time(), 0.0, leading=leadership.epoch)
        Registry(client.backend).put(info)
        began = time.time() - 7200.0
        main = ApplicationRecord("app", "d:main", started_at=began, epoch=leadership.epoch)
        client.backend.overwrite(keys.APPLICATIONS + "app", encode(main))

        assert "running: 1" in jrs_here("top", "--once").stdout
        assert re.search(r"app +RUNNING .* 2 ?h", jrs_here("list").stdout)


# -- one job ---------------------------------------------------------------------------------------


@pytest.fixture
def live(url: str) -> Iterator[Client]:
    """A job with a finished stage and a stream, whose leader is gone."""
    now = time.time()
    with connect(url) as client:
        client.submit_spec(JobSpec("live", "m:f"))
        records = {
            keys.ATTEMPTS + "live": AttemptRecord("live", 3, 4, "m2", now - 30, host="host-b"),
            keys.stage("live", "ingest"): StageRecord("live", "ingest", None, 2, 3, 20.0, now - 35),
            keys.stream("live", "sums"): StreamRecord("live", "sums", False, "p", "4.3", now - 25),
            keys.head("live", "sums"): StreamHead(
                "live", "sums", 1, 12, report=BatchReport(12, now - 3, PROGRESS)
            ),
        }
        for key, record in records.items():
            client.backend.overwrite(key, encode(record))
        attempt = Historian(client.backend, "m2", 4, 3)
        for stage in ("ingest", "load"):
            kind, said = HistoryKind.STAGE_BEGUN, f"stage {stage} was begun"
            with attempt.recorded("live", kind, said, about={"stage": stage}) as event:
                client.backend.commit(*event)
        yield client


def test_top_of_a_job(live: Client, jrs_here: Jrs) -> None:
    """It says what runs where, how far it is, what happened last, and what can be done."""
    said = jrs_here("top", "live", "--once")
    assert said.returncode == 0
    told = " ".join(said.stdout.split())
    assert told.startswith("live RUNNING now waiting: no master has ever led")
    assert "attempt 3 " in told
    assert "on host-b, by m2 in epoch 4" in told
    assert ", for 3" not in told
    assert "ingest finished " in told
    assert "attempt 2, 20.0 s, skipped by the last attempt" in told
    assert "load not finished, begun " in told
    assert "sums not finished, begun " in told
    assert "batch 11: 1,200 rows in 0.95 s; 120/s in, 1,263/s processed" in told
    assert "behind its sources: 1,532 records in a partition, 7 files" in told
    assert "snapshots 0" in told
    assert "jrs suspend live" in told
    assert "newest events" in told
    assert "submitted" in told.partition("newest events")[2]


def test_top_of_a_job_for_programs(live: Client, jrs_here: Jrs) -> None:
    """It has the same, as the API and the other commands have it."""
    found = json.loads(jrs_here("top", "live", "--json").stdout)
    shown = json.loads(jrs_here("show", "live", "--json").stdout)
    explained = json.loads(jrs_here("explain", "live", "--json").stdout)
    history = json.loads(jrs_here("history", "live", "--json").stdout)

    assert found["job"]["status"] == "RUNNING"
    assert found["explanation"] == explained
    assert found["streams"] == shown["streams"]
    assert found["history"] == history
    assert (found["attempt"]["attempt"], found["attempt"]["epoch"]) == (3, 4)
    assert [(one["name"], one["state"], one["seconds"]) for one in found["stages"]] == [
        ("ingest", "finished", 20.0), ("load", "not finished", None),
        ("sums", "not finished", None),
    ]  # fmt: skip
    assert found["steps"][0]["command"] == "jrs master"
    assert found["snapshots"] == 0


def test_top_of_a_job_that_drains(live: Client, jrs_here: Jrs) -> None:
    """It has the step of each stream, and offers no second stop, which would be refused."""
    assert "jrs suspend live" in jrs_here("top", "live").stdout
    drain = StopRecord("live", StopMode.DRAIN, stages={"sums": "flushing"})
    live.backend.overwrite(keys.STOPS + "live", encode(drain))
    said = jrs_here("top", "live").stdout
    assert re.search(r"sums +not finished, begun .*; flushing", said)
    assert "jrs suspend live" not in said
    assert "jrs cancel live" in said


def test_top_shows_the_newest_events(live: Client, jrs_here: Jrs) -> None:
    """Ten of them, with the newest first for people and last for programs."""
    job = live.submit_spec(JobSpec("waits", "m:f"))
    for number in range(8):
        job.suspend(reason=f"reason {number}")
        done = StopRecord("waits", StopMode.SUSPEND, StopState.DONE)  # No leader does it here.
        live.backend.overwrite(keys.STOPS + "waits", encode(done))
        job.resume()
    history = job.history()
    assert len(history) > 10
    found = json.loads(jrs_here("top", "waits", "--json").stdout)
    assert found["history"] == plain.of_history(history[-10:])
    told = jrs_here("top", "waits").stdout
    assert "reason 1" not in told
    assert told.index("reason 7") < told.index("reason 6")


def test_top_of_an_ended_job(url: str, jrs_here: Jrs) -> None:
    """It says why it failed, when it ended, and how to run it again."""
    failure = Failure("exception", "no disk")
    with connect(url) as client:
        stages = (StageSummary("one", 1, 3, 0.5, 4.0), StageSummary("two", 0, 0, 2.0, 3.0))
        client.results.create_dirty(
            JobResult("bad", JobStatus.FAILED, None, failure, stages=stages, finished_at=9.0,
                      spec=JobSpec("bad", "m:f")), None
        )  # fmt: skip
    told = " ".join(jrs_here("top", "bad").stdout.split())
    assert told.startswith("bad FAILED dirty why no disk ended 1970-01-01 00:00:09")
    assert "one finished 1970-01-01 00:00:04, attempt 1, 0.5 s" in told
    assert "two taken over, 2.0 s" in told
    assert "jrs retry bad" in told


def test_top_of_an_unknown_job(live: Client, jrs_here: Jrs) -> None:
    """It is refused in one line, as by `jrs show`."""
    for options in ([], ["--once"], ["--json"]):
        said, shown = jrs_here("top", "lives", *options), jrs_here("show", "lives")
        assert (said.returncode, said.stderr, said.stdout) == (shown.returncode, shown.stderr, "")
        assert "lives" in said.stderr
        assert len(said.stderr.splitlines()) == 1


class Top:
    """``jrs top`` on a terminal of its own."""

    def __init__(self, url: str, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self._seen = bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, "--backend", url, "top", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"},
        )  # fmt: skip
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def screen(self) -> str:
        """Return what is on the screen, in one line: it is drawn from its first line each time."""
        self._read()
        drawn = self._seen.rpartition(b"\x1b[H")[2].decode(errors="replace")
        return " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).split())

    def lines(self) -> list[str]:
        """Return everything that was printed."""
        self._read()
        return self._seen.decode().splitlines()

    def _read(self) -> None:
        with suppress(OSError):  # The program has ended, and with it its terminal.
            while select.select([self._ours], [], [], 0.1)[0]:
                self._seen.extend(os.read(self._ours, 65536))

    def until_shown(self, what: str, *texts: str) -> str:
        """Wait for texts that are on the screen together; return the screen."""
        shown: str = until(
            lambda: (now := self.screen()) and all(text in now for text in texts) and now, what
        )
        return shown

    def until_read(self, what: str, text: str) -> None:
        """Wait for a text in what has just been read."""
        until(lambda: "cannot be read" not in (now := self.screen()) and text in now, what)

    def end(self) -> int:
        """Press Ctrl-C; return the exit code once the terminal is as it was."""
        self.process.send_signal(signal.SIGINT)

        def is_restored() -> bool:
            self._read()
            return b"\x1b[?1049l" in self._seen

        until(is_restored, "the terminal is as it was")
        return self.process.wait(60)


def test_top_is_live(live: Client, url: str) -> None:
    """On a terminal it shows what changes, and ends with Ctrl-C."""
    with Top(url, "live", "--every", "1h") as top:
        top.until_shown("the first look", "batch 12, committed")
        live.backend.overwrite(keys.head("live", "sums"), encode(StreamHead("live", "sums", 1, 13)))
        top.until_shown("the change", "batch 13, committed")
        assert top.end() == 0


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
@pytest.mark.parametrize("job", [[], ["live"]], ids=["cluster", "job"])
def test_top_outlives_its_server(request: pytest.FixtureRequest, kind: str, job: list[str]) -> None:
    """While the server hangs, or is dead, the last picture stays below a line that says since when
    and why; once the server is back the line is gone, and what has changed is shown."""
    server = request.getfixturevalue(f"start_{kind}")()
    url = f"{server.url()}?timeout=2"
    with connect(url) as client:
        client.submit_spec(JobSpec("live", "m:f"))
    with Top(url, *job, "--every", "1h") as top:
        top.until_read("the first look", "no master has ever led")
        server.pause()
        failed, picture = "cannot be read since 20", "no master has ever led"
        shown = top.until_shown("the server hangs", failed, picture)
        assert re.search(r"UTC, and is tried again: \S", shown)
        server.resume()
        top.until_read("the server answers", "no master has ever led")
        server.kill()
        top.until_shown("the server is dead", failed, picture)
        server.start()
        top.until_read("the server is back", "no master has ever led")
        with connect(url) as now:
            now.job("live").cancel()
            now.submit_spec(JobSpec("later", "m:f"))
        top.until_read("what has changed", "a cancel was requested" if job else "later")
        server.pause()
        top.until_shown("the server hangs", "cannot be read since 20")
        assert top.end() == 0
        server.resume()


@pytest.mark.parametrize("options", [[], ["--once"], ["--json"]])
def test_top_of_a_server_that_is_away(
    start_etcd: Callable[..., EtcdServer], options: list[str]
) -> None:
    """Where not even the first look succeeds, it ends with one line."""
    server = start_etcd()
    url = f"{server.url()}?timeout=2"
    with connect(url):
        server.kill()
    with Top(url, *options) as top:
        assert top.process.wait(60) == 2
        (said,) = top.lines()
    assert said.startswith("jrs: etcd://")
    assert "no server listens" in said
