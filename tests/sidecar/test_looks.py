"""What a person sees of the pages at a glance: that it is true, short, and can be read."""

from __future__ import annotations

import re
import time

import pytest

from jrs import Client, JobResult, JobStatus
from jrs.client.job_overview import job_overview
from jrs.client.overview import overview
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.attempts import AttemptSummary
from jrs.records.codec import encode
from jrs.records.model import (
    AttemptRecord,
    CleanupJournal,
    Failure,
    JobSpec,
    MasterInfo,
    StreamRecord,
)
from jrs.records.obstacles import Obstacle
from jrs.records.stored import Stored
from jrs.sidecar.pages import STATIC
from jrs.sidecar.timeline import timeline
from jrs.store.masters import Registry
from jrs.testing.contract import lead
from tests.sidecar.conftest import Served

JAVA = "Py4JJavaError: calling o45.save failed.\n:" + "\n\tat a.b.C(D.java)" * 300
_ON = (
    *(("ink", ground) for ground in ("ground", "raised", "band", "amber-soft")),
    *(("soft", ground) for ground in ("ground", "raised", "band", "band-odd")),
    *((name, ground) for name in ("blue", "red") for ground in ("ground", "raised")),
    *((name, f"{name}-soft") for name in ("blue", "green", "amber", "red")),
    *(("raised", name) for name in ("blue", "green", "red")),
    *(("amber", "raised"), ("ground", "blue")),
)
"""Each colour of a text, and what it is on."""


def put(client: Client, key: str, record: Stored) -> None:
    client.backend.commit(Create(key, encode(record)))


def failed(client: Client, job_id: str, message: str, detail: str = "") -> None:
    """Commit a failure, and what its cleanup has left."""
    failure = Failure("exception", message, detail)
    result = JobResult(job_id, JobStatus.FAILED, None, failure, finished_at=time.time())
    client.results.create_dirty(result, None)
    put(client, keys.CLEANUP + job_id, CleanupJournal(job_id, problems={"files": "no space"}))


def html(served: Served, path: str) -> str:
    answer = served.get(path, Accept="text/html")
    assert answer.status == 200
    return answer.text


def lead_of(text: str) -> str:
    """Return what a job's page says first."""
    return re.sub("<[^>]*>", "", text.partition('class="lead">')[2].partition("</p>")[0])


def light(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    digits = colour.removeprefix("#")
    digits = "".join(one * 2 for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_texts_have_contrast() -> None:
    """At least 4.5:1, in light and dark; all colours of the time line are among them."""
    style = (STATIC / "jrs.css").read_text()
    shades = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(shades) == 2
    for shade in shades:
        colours = {name: light(value) for name, value in re.findall(r"--([\w-]+): (#\w+)", shade)}
        for text, ground in _ON:
            darker, lighter = sorted((colours[text], colours[ground]))
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)
    bars = re.findall(r"\.timeline \.bar\.\w+ \{ fill: var\(--([\w-]+)\)", style)
    assert {*bars} <= {"blue", "green", "red", "soft", "amber-soft"}


def test_nothing_runs_while_no_master_leads(client: Client, served: Served) -> None:
    """Neither the badge, nor the time line, nor a stage says so; the bar says in words how its
    attempt ended."""
    client.submit_spec(JobSpec("job", "m:f"))
    now = time.time()
    put(client, keys.stream("job", "sums"), StreamRecord("job", "sums", False, "p", "4.3", now))
    with lead(client.backend) as leadership:
        info = MasterInfo("m1", "h", 1, now, 0.0, leading=leadership.epoch)
        Registry(client.backend).put(info)
        record = AttemptRecord("job", 1, leadership.epoch, "m1", now - 60, host="h")
        put(client, keys.ATTEMPTS + "job", record)
        led = html(served, "/jobs/job")
        running = job_overview(client, "job")
        Registry(client.backend).remove(info.name)
        alone = html(served, "/jobs/job")
        found = job_overview(client, "job")

    assert [one.state for one in (*running.stages, *found.stages)] == ["running", "not finished"]
    assert running.runs
    assert 'class="status running">running<' in led
    assert 'class="bar running"' in led
    assert ">1 running<" in led
    assert not found.runs
    assert 'class="status waiting">waiting<' in alone
    assert 'class="bar lost"' in alone
    assert ">1 end not recorded<" in alone
    assert lead_of(alone).split()[:3] == ["waiting", "no", "master"]


def test_an_application_that_runs_has_a_time_line(client: Client, served: Served) -> None:
    """Its main is an attempt."""
    put(client, keys.APPLICATIONS + "app", ApplicationRecord(
        "app", "d:main", started_at=5.0, master="m1", host="h", pid=1, epoch=1, begun_at=5.0
    ))  # fmt: skip
    text = html(served, "/jobs/app")
    assert "It was not started yet" not in text
    assert "attempt 1, epoch 1, by m1" in text


def test_a_failure_is_short_in_lists_and_whole_on_its_page(client: Client, served: Served) -> None:
    """Its beginning, in one line; a page has its lines, and tabs as spaces."""
    failed(client, "job", JAVA)
    for path in ("/", "/jobs"):
        text = html(served, path)
        assert "Py4JJavaError: calling o45.save failed. : at a.b.C(D.java) at" in text
        assert text.count("a.b.C") < 40
    text = html(served, "/jobs/job")
    assert text.count("\n    at a.b.C(D.java)") == 300
    assert "Py4JJavaError" in lead_of(text)
    assert len(lead_of(text)) < 400


def test_a_failed_job_says_why_it_failed(client: Client, served: Served) -> None:
    """What its cleanup has left is said where that is listed."""
    failed(client, "job", "ValueError: no flights")
    found = overview(client)
    assert [one.reason for one in found.failed] == ["ValueError: no flights"]
    assert [one.reason for one in found.dirty] == ["left: files: no space"]
    text = html(served, "/jobs/job")
    assert re.match(r"failed\s+not cleaned up\s+ended .*: ValueError: no flights", lead_of(text))
    assert text.count("left: files: no space") == 1


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_long_ids_are_whole(client: Client, served: Served, path: str) -> None:
    """They are folded; short ones are not."""
    for job_id in ("a-1", "b" * 128):
        client.submit("m:f", id=job_id)
    text = html(served, path)
    assert f'class="long">{"b" * 128}</a>' in text
    assert '<a href="/jobs/a-1">a-1</a>' in text


def test_what_to_do_about_a_job_that_no_master_can_start(client: Client, served: Served) -> None:
    """To resume it would change nothing: it starts by itself."""
    client.submit_spec(JobSpec("job", "m:f"))
    with lead(client.backend) as leadership:
        Registry(client.backend).put(MasterInfo("m1", "h", 1, 1.0, 0.0, leading=leadership.epoch))
        lacks = (Obstacle("m1", "h", "no module named 'm'", 1, 1.0),)
        record = AttemptRecord("job", 1, leadership.epoch, "m1", 1.0, obstacles=lacks)
        put(client, keys.ATTEMPTS + "job", record)
        page, front = html(served, "/jobs/job"), html(served, "/")
    assert "once one can, it starts by itself" in page
    assert 'id="held"' in front
    assert "jrs resume" not in page + front


def test_a_time_line_names_its_days(client: Client) -> None:
    """Its first moment has its date, and a later one where it is of another day. What took a
    moment is drawn next to what took weeks."""
    start, day = 1_700_000_000.0, 86400.0
    attempts = (
        AttemptSummary(1, 1, "m1", "h", 7, start, start + 20 * day, "its master died"),
        AttemptSummary(2, 2, "m2", "h", 7, start + 20 * day, start + 20 * day + 0.004, "finished"),
    )
    for job_id, some, end in (("weeks", attempts, 20 * day + 1), ("moment", attempts[:1], 60.0)):
        result = JobResult(
            job_id, JobStatus.FINISHED, attempts=some, started_at=start, finished_at=start + end
        )
        client.results.create_dirty(result, None)
    drawn = timeline(job_overview(client, "weeks"))
    ticks = re.findall(r'class="tick"[^>]*>([^<]+)', drawn)
    assert ticks == ["2023-11-14 22:13:20", "2023-11-24 22:13:20", "2023-12-04 22:13:20"]
    assert len(re.findall('class="bar', drawn)) == 2
    assert ">1 died<" in drawn
    assert ">epoch 1 · m1<" in drawn
    assert ">epoch 2" not in drawn  # There is no room for it.


def test_values_are_written_in_their_letters(client: Client, served: Served) -> None:
    """Arguments and results; no mark among them changes the direction of what follows."""
    spec = JobSpec("job", "m:f", {"team": "צוות\u202e"})
    client.results.create_dirty(
        JobResult("job", JobStatus.FINISHED, {"city": "Zürich\u202e"}, spec=spec), None
    )
    text = html(served, "/jobs/job")
    assert "Zürich" in text
    assert "צוות" in text
    assert "\u202e" not in text
