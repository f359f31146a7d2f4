"""What a job needs of a Spark cluster, as far as it needs no Spark to tell."""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import socket
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import attrs
import pytest
import tenacity

from jrs.contract.errors import JobHeld, Unavailable
from jrs.records.attempts import SparkApplication
from jrs.recovery.files import permissions
from jrs.recovery.processes import left_on_cluster
from jrs.recovery.spark import cluster
from jrs.recovery.spark.defaults import CLUSTER, DEFAULTS, LOCAL
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory
from tests.support import BOUND


@pytest.fixture
def lead(memory: FaultyMemory, tmp_path: Path) -> Lead:
    return Lead(memory, tmp_path / "jobs")


def test_c10_the_user_interface_is_on_for_clusters() -> None:
    """C10: at any free port there; off for local executors, whose hosts run many jobs."""
    assert LOCAL["spark.ui.enabled"] == "false"
    assert CLUSTER["spark.ui.port"] == "0"
    assert not {"spark.ui.enabled"} & (CLUSTER.keys() | DEFAULTS.keys())


def test_c6_the_module_that_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: a module's file, or its whole package; nothing that is installed or sent by value."""
    (tmp_path / "lone.py").write_text("def main(job): ...\n")
    (tmp_path / "whole" / "part").mkdir(parents=True)
    for name in ("__init__.py", "part/__init__.py", "part/jobs.py", "words.txt"):
        (tmp_path / "whole" / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("lone", "whole.part.jobs"):
        importlib.import_module(name)
    sent = tmp_path / "sent"

    assert cluster.module_to_send("lone:main", sent) == tmp_path / "lone.py"
    for entry in ("whole:main", "whole.part:main", "whole.part.jobs:main"):
        archive = cluster.module_to_send(entry, sent)
        assert archive == sent / "whole.zip"
        names = sorted(name for name in zipfile.ZipFile(archive).namelist())
        assert names == [
            "whole/__init__.py",
            "whole/part/__init__.py",
            "whole/part/jobs.py",
            "whole/words.txt",
        ]
    importlib.import_module("jrs.recovery.spark.doctor")
    jrs_itself = "jrs.recovery.spark.doctor:check"
    for entry in (
        jrs_itself,
        "json:loads",
        "attrs:evolve",
        f"{tmp_path}/lone.py:main",
        "none.such:main",
    ):
        assert cluster.module_to_send(entry, sent) is None


@pytest.mark.parametrize(
    ("names", "held"),
    [(["report.txt"], False), (["report.txt", "table/"], True), (["_SUCCESS"], True)],
    ids=["files of the driver", "a folder", "written by Spark"],
)
def test_c9_output_that_executors_do_not_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], held: bool
) -> None:
    """C9: folders, and what Spark says it has written, may lack what is on other hosts."""
    looks = {"worker-1": "", "worker-2": "FileNotFoundError: No such file or directory"}
    found = [cluster.Executor(host, "1001", problem) for host, problem in looks.items()]
    context = SimpleNamespace(master="spark://s:7077")
    pyspark = SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=context))
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    monkeypatch.setattr(cluster, "look", lambda *_: found)
    attempt: Any = SimpleNamespace(job_id="job", until_stored=lambda call: call())
    for name in names:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()

    if held:
        with pytest.raises(JobHeld, match="an executor on worker-2, as user 1001: FileNotFound"):
            cluster.check_output(attempt, tmp_path)
    del found[1]
    cluster.check_output(attempt, tmp_path)
    found.append(cluster.Executor("worker-2", "1001", "never asked"))
    context.master = "local[2]"
    cluster.check_output(attempt, tmp_path)


def test_c9_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that starts meanwhile is not said to have died."""

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))

    storage = SimpleNamespace(epoch_folder=lambda job_id, epoch: tmp_path)
    attempt: Any = SimpleNamespace(job_id="job", epoch=1, storage=storage)
    monkeypatch.setattr(permissions, "make", full)
    context: Any = None
    with pytest.raises(Unavailable, match="No space left"):
        cluster.look(attempt, context)


def test_c9_executors_that_cannot_be_asked_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of Spark in jrs's own look is none of the job, if it passes."""

    def collect() -> None:
        raise RuntimeError(f"Job aborted: java.io.IOException: {os.strerror(errno.ENOSPC)}")

    context: Any = Cluster(0)
    found = SimpleNamespace(collect=collect)
    monkeypatch.setattr(Cluster, "mapPartitions", lambda self, function: found)
    with pytest.raises(Unavailable, match="cannot be asked now: IOException: No space left"):
        cluster.ask(context, iter)


@attrs.frozen
class Cluster:
    """Two executors, of which the second has an error, at the first so many looks."""

    number: int
    times: int = 1
    looks: list[str] = attrs.field(factory=list)
    master = "spark://s:7077"
    defaultParallelism = 2

    def parallelize(self, numbers: range, tasks: int) -> Cluster:
        return self

    def mapPartitions(self, function: Callable[[list[int]], Iterator[Any]]) -> SimpleNamespace:
        return SimpleNamespace(collect=lambda: [*function([]), *self.second(function)])

    def second(self, function: Callable[[list[int]], Iterator[Any]]) -> Iterator[Any]:
        def fail(path: str) -> None:
            raise OSError(self.number, os.strerror(self.number), path)

        self.looks.append("a look")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(socket, "gethostname", lambda: "worker-2")
            if len(self.looks) <= self.times:
                patched.setattr(os, "mkdir", fail)
            yield from function([])


PASSING = [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO, errno.ESTALE]
LASTING = [errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS]


@pytest.mark.parametrize("number", [*PASSING, *LASTING])
def test_c9_an_executor_whose_error_passes(
    lead: Lead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It holds no job, and throws no finished output away: it is asked again. One that lacks the
    folder, or may not write there, holds the job."""
    monkeypatch.setattr(tenacity.wait_exponential, "__call__", lambda *_: 0.0)
    attempt, context = lead.context(), Cluster(number)
    pyspark = SimpleNamespace(SparkContext=SimpleNamespace(_active_spark_context=context))
    monkeypatch.setitem(sys.modules, "pyspark", pyspark)
    (tmp_path / "table/day=1").mkdir(parents=True)

    if number in PASSING:
        cluster.check_output(attempt, tmp_path / "table")
        assert len(context.looks) == 2
    else:
        with pytest.raises(JobHeld, match=f"worker-2, .*: {os.strerror(number)}"):
            cluster.check_output(attempt, tmp_path / "table")


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EACCES])
def test_c9_what_executors_made_is_removed(
    lead: Lead, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The driver may not: a problem of the workers' umask. It cannot now: nothing is known."""

    def refuse(folder: Path) -> None:
        raise OSError(number, os.strerror(number), str(folder))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    context: Any = Cluster(0, times=0)
    if number == errno.ESTALE:
        with pytest.raises(Unavailable, match="cannot be removed"):
            cluster.look(lead.context(), context)
    else:
        found = cluster.look(lead.context(), context)
        assert ["umask" in one.problem for one in found] == [True, True]


PAGE = """<form action="app/kill/" method="POST">
  <input type="hidden" name="id" value="app-1"/><input type="hidden" name="terminate" value="true"/>
  <input type="hidden" name="csrfToken" value="t0ken"/></form>"""


@attrs.define
class Page:
    """A page of a cluster's master with one application."""

    port: int = 0
    text: str = PAGE
    answers: threading.Event = attrs.field(factory=threading.Event)
    """It answers only while this is set."""
    sent: list[dict[str, list[str]]] = attrs.field(factory=list)
    failures: list[int] = attrs.field(factory=list)
    """The statuses of its next answers."""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.setattr(left_on_cluster, "_TIMEOUT", BOUND)  # This host may be busy.
    monkeypatch.setattr(left_on_cluster, "_ALL", BOUND)
    page = Page()
    page.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.answers.wait()
            if page.failures:
                self.send_error(page.failures.pop())
            elif self.path == "/json/":
                self.answer(b'{"activeapps": [{"id": "app-1", "state": "RUNNING"}]}')
            else:
                self.answer(page.text.encode())

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            page.sent.append(parse_qs(text))
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="page")
        thread.start()
        page.port = server.server_address[1]
        yield page
        server.shutdown()
        thread.join()


def test_c4_an_application_is_ended_by_the_form_of_its_page(page: Page) -> None:
    """C4: with the form's token; one that the cluster does not run is none of its business."""

    def end(name: str, master: str) -> str:
        return left_on_cluster.end(SparkApplication(name, master), ui_port=page.port)

    assert end("app-2", "spark://127.0.0.1:7077") == ""
    assert page.sent == []
    # The first of several masters is dead.
    masters = "spark://127.0.0.2:7077,127.0.0.1:7077"
    assert end("app-1", masters) == f"had {masters} end its application app-1"
    assert page.sent == [{"id": ["app-1"], "terminate": ["true"], "csrfToken": ["t0ken"]}]
    assert end("app-1", "yarn") == ""


def test_c4_a_page_that_fails_for_a_moment(page: Page) -> None:
    """C4: the cluster would start executors for a driver that is cut off again and again."""
    page.failures = [503, 500]
    application = SparkApplication("app-1", "spark://127.0.0.1:7077")

    said = left_on_cluster.end(application, ui_port=page.port)

    assert said == "had spark://127.0.0.1:7077 end its application app-1"
    assert len(page.sent) == 1


def test_c4_a_cluster_that_lets_nobody_end_an_application(page: Page) -> None:
    """C4: without spark.ui.killEnabled the page has no form. Nothing else would say why the next
    driver waits for cores."""
    page.text = '<a href="app/?appId=app-1">app-1</a>'

    def end(name: str) -> str:
        application = SparkApplication(name, "spark://127.0.0.1:7077")
        return left_on_cluster.end(application, ui_port=page.port)

    said = "spark://127.0.0.1:7077 was not asked to end app-1: its page has no form for that"
    assert end("app-1").startswith(said)
    assert end("app-2") == ""
    assert page.sent == []


def test_c4_a_page_that_hangs(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: the start of the job waits for the page, but not for each of its tries and masters."""
    monkeypatch.setattr(left_on_cluster, "_ALL", 0.1)
    page.answers.clear()
    masters = "spark://127.0.0.1:7077,127.0.0.1:7078"

    said = left_on_cluster.end(SparkApplication("app-1", masters), ui_port=page.port)
    page.answers.set()

    assert said == f"{masters} was not asked to end app-1: no answer in 0.1 s"


def test_c4_a_cluster_that_cannot_be_asked() -> None:
    """C4: it is said, and nothing depends on it."""
    said = left_on_cluster.end(SparkApplication("app-1", "spark://127.0.0.1:7077"), ui_port=1)

    assert said.startswith("spark://127.0.0.1:7077 was not asked to end app-1: ")
