"""The socket over which Spark's processes ask the attempt to commit a batch."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jrs.contract.errors import CorruptRecord, Fenced, JobHeld, OutcomeUnknown, Unavailable
from jrs.contract.runtime import RUNTIME
from jrs.recovery.processes import marks
from jrs.recovery.spark import sink_server
from jrs.recovery.spark.commits import Commits
from jrs.recovery.spark.sink import _Writer
from jrs.recovery.spark.sink_server import SinkServer
from tests.support import refuse_threads, until

ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as attempt, open(sys.argv[3], "wb", 0) as answer:
    attempt.connect("\\0" + sys.argv[1][1:])
    try:
        attempt.sendall(sys.argv[2].encode() + b"\\n")
        for said in attempt.makefile("rb"):
            answer.write(said)
    except ConnectionError:
        pass
open(sys.argv[4], "wb").write(b"nothing more")
"""
REQUEST = '{"stage": "sums", "run": "", "batch": 3, "files": []}'
WAIT = b'{"wait": "the batch is being committed"}\n'
ORPHAN = """
import os, subprocess, sys, time
alone = f"import os, time\\nwhile os.getppid() == {os.getpid()}: time.sleep(0.001)\\n"
subprocess.Popen([sys.executable, "-c", alone + sys.argv[1], *sys.argv[2:]], start_new_session=True)
"""


class Sink:
    """A stage's commits: what was asked for, and what happens then."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, Sequence[str]]] = []
        self.errors: list[BaseException] = []
        self.failures: list[BaseException] = []
        self.go = threading.Event()
        self.go.set()
        self.server = SinkServer(RUNTIME, Commits(self.failures.append, print))
        self.server.add("sums", self)

    def commit(self, batch: int, files: Sequence[str], run: str = "") -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.go.wait()
        self.committed.append((batch, files))

    def connect(self) -> socket.socket:
        asking = socket.socket(socket.AF_UNIX)
        asking.connect("\0" + self.server.address[1:])
        return asking

    def ask(self, line: str) -> bytes:
        with self.connect() as asking:
            asking.sendall(line.encode() + b"\n")
            return asking.makefile("rb").readlines()[-1]

    def error(self, **request: object) -> object:
        return json.loads(self.ask(json.dumps({"run": "", **request})))["error"]

    def writer(self) -> _Writer:
        """Return what commits in a process of Spark's."""
        return _Writer(Path("/nowhere"), "sums", "", self.server.address)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    monkeypatch.setattr(sink_server, "_WORD", 0.01)  # Before its thread reads it.
    sink = Sink()
    yield sink
    sink.go.set()
    sink.server.close()
    sink.server.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("jrs-sink")]


def test_a_batch_is_committed(sink: Sink) -> None:
    assert sink.error(stage="sums", batch=3, files=["a", "b"]) is None
    assert sink.committed == [(3, ["a", "b"])]


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", '{"stage": "sums"}', '{"stage": "other", "run": "", "batch": 1, "files": []}'],
)
def test_bad_requests(sink: Sink, line: str) -> None:
    """An error is the answer, and the next request is served."""
    assert json.loads(sink.ask(line))["error"]
    assert (sink.committed, sink.failures) == ([], [])
    assert sink.error(stage="sums", batch=3, files=[]) is None


def test_a_process_that_says_nothing(sink: Sink) -> None:
    """It keeps none of the others waiting."""
    with sink.connect(), sink.connect() as second:
        second.sendall(b'{"stage": ')
        assert sink.error(stage="sums", batch=3, files=[]) is None


@pytest.mark.parametrize(
    "error", [Fenced("was replaced"), JobHeld("is held"), CorruptRecord("heads/job/sums")]
)
def test_errors_that_end_the_attempt(sink: Sink, error: Exception) -> None:
    sink.errors = [error]
    assert sink.error(stage="sums", batch=3, files=[]) == str(error)
    assert sink.failures == [error]


def test_errors_of_a_batch(sink: Sink) -> None:
    """They are Spark's to deal with, which runs the batch again."""
    sink.errors = [OSError(28, "No space left on device", "/jobs")]
    said = sink.error(stage="sums", batch=3, files=[])
    assert said == "OSError: [Errno 28] No space left on device: '/jobs'"
    assert sink.failures == []


def test_a_backend_that_is_away(sink: Sink) -> None:
    """The commit waits for it: a query does not die of an outage that its master survives."""
    sink.errors = [Unavailable("away"), OutcomeUnknown("lost"), Unavailable("away")]
    assert sink.error(stage="sums", batch=3, files=[]) is None
    assert sink.committed == [(3, [])]


def test_the_sink_hears_that_its_commit_continues(sink: Sink) -> None:
    """However long a commit takes, also one that uploads rows and waits for nobody, the query
    lives: its patience is for the attempt alone."""
    sink.go.clear()
    with sink.connect() as asking, asking.makefile("rb") as answers:
        asking.sendall(REQUEST.encode() + b"\n")
        said = [json.loads(answers.readline()) for _ in range(3)]
        sink.go.set()
        *said[3:], last = map(json.loads, answers)
    assert said == [{"wait": "the batch is being committed"}] * len(said)
    assert last == {"error": None}


def test_a_commit_may_take_longer_than_the_patience_of_its_sink(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each word renews it, and the answer is the last line."""
    said, send = list[object](), sink_server._send

    def counted(connection: socket.socket, answer: dict[str, str | None]) -> None:
        said.append(answer)
        if len(said) == 5:
            sink.go.set()
        send(connection, answer)

    monkeypatch.setattr(sink_server, "_send", counted)
    sink.go.clear()
    sink.writer().commit([], 4)

    assert sink.committed == [(4, [])]
    assert said[-1] == {"error": None}


def test_a_commit_is_tried_more_and_more_seldom() -> None:
    """A store that refuses requests because there are too many is not flooded with them."""
    pauses, errors = list[float](), [Unavailable("503 Slow Down")] * 7
    commits = Commits(print, print)
    commits._closed = cast("Any", SimpleNamespace(wait=pauses.append))

    def commit() -> None:
        if errors:
            raise errors.pop()

    commits.carry_out(commit)

    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_a_sink_whose_attempt_is_gone(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the attempt has said of a wait before, the batch fails with it."""

    def goes(connection: socket.socket, answer: object) -> None:
        connection.sendall(b'{"wait": "away"}\n')

    monkeypatch.setattr(sink_server, "_send", goes)
    with pytest.raises(RuntimeError, match="batch 3 was not committed: the attempt does not"):
        sink.writer().commit([], 3)


def test_a_sink_that_has_gone_while_its_commit_waits(sink: Sink) -> None:
    """The commit is carried out nevertheless: it may have taken effect before."""
    sink.go.clear()
    with sink.connect() as asking:
        asking.sendall(REQUEST.encode() + b"\n")
        asking.recv(1)
    sink.go.set()
    until(lambda: sink.committed, "it is committed")

    assert sink.failures == []


def test_no_thread_for_a_request(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is answered as soon as there is one."""
    refused = refuse_threads(monkeypatch, "jrs-sink-", 3)
    assert sink.error(stage="sums", batch=3, files=[]) is None
    assert sink.committed == [(3, [])]
    assert len(refused) == 3


def test_no_thread_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(Unavailable, match="can't start new thread"):
        SinkServer(RUNTIME, Commits(print, print))


def test_closing_ends_a_wait(sink: Sink) -> None:
    sink.errors = [Unavailable("away")] * 1000
    answers: list[object] = []
    asking = threading.Thread(
        target=lambda: answers.append(sink.error(stage="sums", batch=3, files=[]))
    )
    asking.start()
    until(lambda: len(sink.errors) < 999, "the commit was tried")
    sink.server.close()
    asking.join(30)
    assert answers == ["the attempt has ended"]


@pytest.mark.parametrize("program", [[], [sys.executable, "-c", ORPHAN]], ids=["child", "orphan"])
def test_only_descendants_are_served(sink: Sink, tmp_path: Path, program: list[str]) -> None:
    """Another process of this user gets no answer, even if it knows the address."""
    answer, over = tmp_path / "answer", tmp_path / "over"
    start: Callable[..., object] = subprocess.run
    ask = [ASK, sink.server.address, REQUEST, answer, over]
    start([*program, *ask] if program else [sys.executable, "-c", *ask], check=True)
    until(over.exists, "the connection was closed")

    said = answer.read_bytes().replace(WAIT, b"")
    assert said == (b"" if program else b'{"error": null}\n')
    assert sink.committed == ([] if program else [(3, [])])


@pytest.mark.parametrize("times", [3, 10**9])
def test_it_is_unknown_who_asks(sink: Sink, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """A process that has no descriptor left to look with turns no commit of its own sink away: it
    looks again until it is closed, and the sink hears that it waits."""
    looks, real = list[int](), marks.parent

    def parent(pid: int) -> int | None:
        looks.append(pid)
        if len(looks) <= times or not sink.go.is_set():
            raise Unavailable("/proc cannot be read (Too many open files)")
        return real(pid)

    monkeypatch.setattr(marks, "parent", parent)
    sink.go.clear()
    asked = [sys.executable, "-c", ASK, sink.server.address, REQUEST, "/dev/stdout", os.devnull]
    with subprocess.Popen(asked, stdout=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == WAIT
        sink.go.set()
        if times > 3:
            sink.server.close()
        said = list(asking.stdout)

    assert [line for line in said if line != WAIT] == [b'{"error": null}\n'] * (times == 3)

    assert len(sink.committed) == (times == 3)


@pytest.mark.parametrize("by_submit", [False, True])
def test_the_jvm_that_started_the_driver(monkeypatch: pytest.MonkeyPatch, by_submit: bool) -> None:
    """spark-submit starts the driver's Python, and Spark's workers next to it."""
    if by_submit:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    else:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert sink_server._descends(os.getpid())
    assert sink_server._descends(os.getppid()) == by_submit
