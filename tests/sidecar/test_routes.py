"""The routes: each is one call of the client, with the JSON that the command line prints."""

from __future__ import annotations

import gc
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from jrs import Client, JobResult, JobStatus
from jrs.client import plain
from jrs.client.job import JobHandle
from jrs.client.job_overview import job_overview
from jrs.client.overview import overview
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CorruptRecord,
    DuplicateJob,
    Fenced,
    InvalidInput,
    JrsError,
    NoSuchJob,
    OutcomeUnknown,
    ResultExpired,
    TooLarge,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Create, Delete
from jrs.records import keys
from jrs.records.codec import encode, to_plain
from jrs.records.lineage import Lineage, LineageKind
from jrs.records.model import MAX_COPIED_ARGUMENTS, AttemptSummary, JobSpec
from jrs.records.stages import StageRecord, StageSummary
from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.health.metrics import CONTENT_TYPE, OPEN_METRICS, exposition
from jrs.sidecar import paging, routes
from jrs.sidecar.problems import problem_of
from jrs.sidecar.route_form import BadRequest, body_values
from jrs.sidecar.routes import ROUTES
from jrs.store.cluster_history import LeadershipHistorian
from jrs.testing.contract import lead
from jrs.testing.servers.fixtures import missing
from tests.sidecar.conftest import OPERATE, READ, Served, serving
from tests.support import until

JOB: dict[str, Any] = {"id": "nightly", "entry": "etl.jobs:nightly", "arguments": {"day": 1}}


def ended(client: Client, id: str) -> None:
    """Have a job that has ended and is cleaned up, without a master."""
    client.results.create_dirty(JobResult(id, JobStatus.FINISHED, 7, finished_at=5.0), None)
    client.results.mark_clean(id, None)


def test_submitting_is_idempotent(served: Served) -> None:
    """A new job is 201, the same one again 200, another one with its id 409; it is told who."""
    first = served.post("/v1/jobs", JOB)
    again = served.post("/v1/jobs", {**JOB, "priority": 0})
    other = served.post("/v1/jobs", {**JOB, "arguments": {"day": 2}})

    assert (first.status, again.status, other.status) == (201, 200, 409)
    assert other.json["type"] == "urn:jrs:duplicate-job"
    assert other.json["state"] == "submitted"
    assert first.json == again.json == plain.of_job(served.client.job("nightly"))
    assert first.json["spec"]["submitted_by"] == "ops"


@pytest.mark.parametrize("payload", [7, "x" * 250_000])
def test_a_submission_is_known_whatever_becomes_of_its_job(served: Served, payload: Any) -> None:
    """Its code was replaced, and its result keeps no such arguments; a very large one keeps hardly
    more than their digest."""
    asked = {**JOB, "arguments": {"x": "y" * MAX_COPIED_ARGUMENTS}, "priority": 3}
    client = served.client
    first = served.post("/v1/jobs", asked)
    served.post("/v1/jobs/nightly/upgrade", {"entry": "etl.jobs:other"})
    changed = served.post("/v1/jobs", asked)
    result = JobResult("nightly", JobStatus.FINISHED, payload,
                       stages=tuple(StageSummary("s" * 120, 1, 1, 1.0) for _ in range(1000)),
                       attempts=tuple(AttemptSummary(n, ended="e" * 4000) for n in range(100)),
                       spec=client.job("nightly").view().spec)  # fmt: skip
    client.results.create_dirty(result, None)
    client.results.mark_clean("nightly", None)
    client.backend.commit(Delete("jobs/nightly"))
    over = served.post("/v1/jobs", asked)
    others: list[dict[str, Any]] = [{"priority": 0}, {"arguments": {}}, {"entry": "etl.jobs:other"}]
    other = [served.post("/v1/jobs", {**asked, **one}).status for one in others]

    assert (first.status, changed.status, over.status) == (201, 200, 200)
    assert other == [409, 409, 409]
    spec = over.json["entry"]["result"]["spec"]
    assert (spec["priority"], spec["arguments"]) == (0 if len(str(payload)) > 1 else 3, {})


def test_a_submission_of_an_older_version_is_known(served: Served) -> None:
    """It has stored no digest: its spec is compared, as long as it is there."""
    client = served.client
    client.backend.commit(Create("jobs/nightly", encode(JobSpec("nightly", "etl.jobs:nightly"))))

    assert served.post("/v1/jobs", {**JOB, "arguments": {}}).status == 200
    assert served.post("/v1/jobs", JOB).status == 409


def test_a_job_without_a_digest_is_not_taken_for_a_submission(served: Served) -> None:
    """Its arguments, or perhaps more, were left out of its result, or it has the state of another
    job."""
    client = served.client
    for spec in (
        JobSpec("cut", "m:f", {"x": "y" * MAX_COPIED_ARGUMENTS}),
        JobSpec("bare", "m:f"),  # As if its priority had been left out.
        JobSpec("whole", "m:f", priority=5),
    ):
        client.results.create_dirty(JobResult(spec.job_id, JobStatus.FINISHED, 1, spec=spec), None)
        client.results.mark_clean(spec.job_id, None)
    fork = JobSpec("fork", "m:f", lineage=Lineage("nightly", LineageKind.FORK, 3))
    client.backend.commit(Create("jobs/fork", encode(fork)))

    for one in ("cut", "bare", "whole", "fork"):
        assert served.post("/v1/jobs", {"id": one, "entry": "m:f"}).status == 409
    assert served.post("/v1/jobs", {"id": "whole", "entry": "m:f", "priority": 5}).status == 200


def test_a_submission_is_part_of_its_callers_trace(served: Served) -> None:
    """The header of the W3C is recorded; a malformed one is ignored; it makes no other job."""
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    first = served.post("/v1/jobs", JOB, traceparent=header)
    again = served.post("/v1/jobs", JOB, traceparent=header.replace("4bf", "5bf"))
    other = served.post("/v1/jobs", {**JOB, "id": "other"}, traceparent="00-nonsense")

    assert (first.status, again.status, other.status) == (201, 200, 201)
    assert first.json["spec"]["traceparent"] == again.json["spec"]["traceparent"] == header
    assert other.json["spec"]["traceparent"] == ""


def test_all_of_a_spec_can_be_submitted(served: Served) -> None:
    """Each field arrives in the job's spec."""
    more = {
        "runner": "process", "restart": {"attempts": 5, "on_exception": True}, "partitions": 8,
        "snapshots": {"every": 60.0, "keep": 2}, "priority": 3, "slots": 2, "tags": ["team=a"],
        "timeout": {"job": 60.0}, "settings": {"conf": {"spark.x": "1"}, "env": {"TZ": "UTC"}},
        "on_result": {"run": "/bin/true"},
    }  # fmt: skip
    spec = served.post("/v1/jobs", {**JOB, **more}).json["spec"]

    assert (spec["priority"], spec["slots"], spec["partitions"]) == (3, 2, 8)
    assert spec["restart"]["attempts"] == 5
    assert spec["settings"]["conf"] == {"spark.x": "1"}
    assert spec["on_result"]["run"] == "/bin/true"
    assert spec["tags"] == ["team=a"]


def test_texts_without_a_form_for_the_system_are_refused(served: Served) -> None:
    """Half of a character has a form in JSON alone: no submission and no upgrade takes it."""
    half = "/jobs/\ud800.py:f"
    refused = served.post("/v1/jobs", {**JOB, "entry": half})
    served.post("/v1/jobs", JOB)
    kept = served.post("/v1/jobs/nightly/upgrade", {"entry": half})

    assert [one.status for one in (refused, kept)] == [422, 422]
    assert "the entry point has half of a character" in refused.json["detail"]
    assert served.get("/v1/jobs/nightly").json["spec"]["entry_point"] == JOB["entry"]


def test_reading(served: Served) -> None:
    """What is read is what the client returns, for both roles."""
    served.post("/v1/jobs", JOB)
    job = served.client.job("nightly")
    reads = {
        "": plain.of_job(job),
        "/explain": plain.of_explanation(job.explain()),
        "/history": {"history": plain.of_history(job.history())},
        "/stages": {"stages": [], "stopping": {}},
        "/snapshots": {"snapshots": []},
        "/overview": job_overview(served.client, "nightly").plain(),
    }
    for path, expected in reads.items():
        answer = served.get(f"/v1/jobs/nightly{path}", token=READ)
        found = {**answer.json, "at": expected["at"]} if "at" in expected else answer.json
        assert (answer.status, found) == (200, expected), path
    seen = overview(served.client).plain()
    assert {**served.get("/v1/overview", token=READ).json, "at": seen["at"]} == seen
    assert [one["job_id"] for one in seen["waiting"]] == ["nightly"]
    assert served.get("/v1/queue", token=READ).json == {"queue": list(served.client.queue())}
    with lead(served.client.backend) as leadership:
        about = {"host": "h", "pid": 1, "ttl": 5.0}
        LeadershipHistorian(served.client.backend, leadership.fence, "m1", about).elected()
    told = served.get("/v1/cluster/history", token=READ).json["history"]
    assert [(one["kind"], one["by"]) for one in told] == [("elected", "m1")]
    assert told == plain.of_history(served.client.history())
    cluster = served.get("/v1/cluster").json
    assert cluster["leader"] is None
    assert cluster["summary"] == str(served.client.leader())
    assert cluster["format"]["version"] == served.client.cluster_format().version


def test_results(served: Served) -> None:
    """A result is 200; of a job that runs 202; of an unknown one 404; an expired one 410."""
    served.post("/v1/jobs", JOB)
    ended(served.client, "done")
    ended(served.client, "old")
    assert served.post("/v1/jobs/old/expire").json == {"expired": ["old"]}

    assert served.get("/v1/jobs/done/result").json["payload"] == 7
    waiting = served.get("/v1/jobs/nightly/result")
    assert (waiting.status, waiting.json["status"]) == (202, "CREATED")
    assert served.get("/v1/jobs/none/result").status == 404
    old = served.get("/v1/jobs/old/result")
    assert (old.status, old.json["status"]) == (410, "FINISHED")


def test_a_long_poll_sees_a_commit(served: Served) -> None:
    """A poll that waits returns the result once it is there."""
    served.post("/v1/jobs", JOB)
    stream = served.events("/v1/jobs/nightly/events")
    stream.next()
    found: list[Any] = []
    poll = threading.Thread(
        target=lambda: found.append(served.get("/v1/jobs/nightly/result?wait=60"))
    )
    poll.start()
    served.client.results.create_dirty(JobResult("nightly", JobStatus.FINISHED, "new"), None)
    poll.join()
    stream.close()

    assert (found[0].status, found[0].json["payload"]) == (200, "new")


@contextmanager
def polled(served: Served, path: str) -> Iterator[list[Any]]:
    """Have a poll wait meanwhile; its answer is in the list afterwards."""
    found: list[Any] = []
    poll = threading.Thread(target=lambda: found.append(served.get(path)))
    poll.start()
    until(
        lambda: "jrs_api_readers 1.0" in served.get("/metrics", token=READ).text, "the poll waits"
    )
    yield found
    poll.join()


def test_long_polls_end_with_their_clients(
    client: Client, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many that are open refuse one more, and no stream; those whose clients have gone leave
    their places, and do no work."""
    after = Deadline.after
    monkeypatch.setattr(routes, "MOST_POLLS", 3)
    monkeypatch.setattr(Deadline, "after", lambda wait: after(100 * wait))  # None ends by itself.
    with serving(client, tmp_path) as served, ExitStack() as polls:
        served.post("/v1/jobs", JOB)
        path = "/v1/jobs/nightly/result?wait=60"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {READ}\r\n\r\n"

        def poll() -> None:
            asking = polls.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            asking.sendall(head.encode())

        def are_open(readers: int) -> bool:
            return f"jrs_api_readers {readers}.0" in served.get("/metrics").text

        for _ in range(3):
            poll()
        until(lambda: are_open(3), "all wait")
        refused = served.get(path)
        assert (refused.status, refused.json["title"]) == (
            503,
            "The server has too many requests that stay open; nothing was changed",
        )
        assert served.get(path.partition("?")[0]).status == 202
        closing.callback(served.events("/v1/events").close)
        polls.close()
        until(lambda: are_open(1), "the stream is left")
        poll()
        until(lambda: are_open(2), "a poll has a place again")


def test_waiting_for_a_stage_and_a_stop(served: Served) -> None:
    """202 while there is none, 200 as soon as there is, 409 if there never will be."""
    served.post("/v1/jobs", JOB)
    path = "/v1/jobs/nightly"
    assert served.get(f"{path}/stages/load?wait=0.01").status == 202
    stage = StageRecord("nightly", "load", None, 1, 1, 0.5, 10.0)
    with polled(served, f"{path}/stages/load?wait=60") as found:
        key = keys.stage("nightly", "load")
        served.client.backend.commit(Create(key, encode(stage)))
    assert (found[0].status, found[0].json) == (200, to_plain(stage.summary()))
    assert served.get(f"{path}/stages/load/files").json == {"files": [], "cursor": "e1.a1"}
    assert served.get(f"{path}/stop").status == 404
    served.post(f"{path}/suspend")
    waiting = served.get(f"{path}/stop")
    assert (waiting.status, waiting.json["stop"]["state"]) == (202, "requested")
    served.client.results.create_dirty(JobResult("nightly", JobStatus.CANCELED), None)

    assert served.get(f"{path}/stop").json == {"stop": None}
    assert served.get(f"{path}/stages/other").status == 409
    for unknown in ("stages/load", "stages/load/files", "stop", "overview", "explain-past"):
        assert served.get(f"/v1/jobs/none/{unknown}").status == 404, unknown
    nobody = served.get("/v1/cluster/leader?wait=0.01")
    assert (nobody.status, nobody.json) == (202, {"summary": str(served.client.leader())})


def test_the_history_from_an_entry_on(served: Served) -> None:
    """Each entry once; a poll waits for the next one; who has asked is the name of the token."""
    served.post("/v1/jobs", JOB)
    path = "/v1/jobs/nightly/history"
    (first,) = served.get(path).json["history"]
    assert served.get(f"{path}?after={first['id']}").json == {"history": []}
    with polled(served, f"{path}?after={first['id']}&wait=60") as found:
        served.post("/v1/jobs/nightly/suspend", {"reason": "night"})

    (second,) = found[0].json["history"]
    assert (second["kind"], second["text"]) == ("stop", "a suspend was requested: night")
    assert second["by"] == first["by"] == "ops"
    assert served.get(f"{path}?after=nothing.000000").status == 404


def test_verbs(served: Served) -> None:
    """Each verb is the client's call; repeated, it is the same; what it cannot do is refused."""
    served.post("/v1/jobs", JOB)
    path = "/v1/jobs/nightly"
    for _ in range(2):
        assert served.post(f"{path}/suspend", {"reason": "night", "grace": 5}).status == 200
    stop = served.client.job("nightly").view().stop
    assert stop is not None
    assert (stop.reason, stop.grace) == ("night", 5)
    assert served.post(f"{path}/drain").status == 409
    for _ in range(2):
        assert served.post(f"{path}/cancel", {"reason": "enough"}).json == {"requested": True}
    assert served.post(f"{path}/rescale", {"partitions": 0}).status == 422
    assert served.post(f"{path}/upgrade", {"entry": "etl.py:f"}).status == 422
    assert served.post(f"{path}/cleanup/retry").status == 404
    assert served.post("/v1/jobs/none/cancel").status == 404
    assert served.post(f"{path}/retry", {"as_id": "again"}).status == 409


def test_each_verb_takes_a_reason(served: Served) -> None:
    """The history has it."""
    served.post("/v1/jobs", {**JOB, "because": "the input is late"})
    served.post("/v1/jobs/nightly/suspend", {"reason": "a release"}, **{"X-Request-Id": "ops/7"})
    served.post("/v1/jobs/nightly/cancel", {"because": "no"})
    refused = served.post("/v1/jobs/nightly/resume", {"because": 7})

    assert refused.status == 422
    assert [entry.text for entry in served.client.job("nightly").history()] == [
        "submitted: the input is late",
        "a suspend was requested: a release",
    ]
    first, second = (entry["request"] for entry in
                     served.get("/v1/jobs/nightly/history").json["history"])  # fmt: skip
    assert re.fullmatch("request [0-9a-f]{16}", first)
    assert second == "request ops/7"


def test_each_end_of_a_verb_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that was refused, whose outcome is unknown, or that has failed; each answer has the
    id of its request."""
    caplog.set_level("INFO", "jrs.sidecar")
    failures = {"unknown": OutcomeUnknown("cut off"), "failed": RuntimeError("oh")}
    submit = Client.submit_spec

    def submitted(client: Client, spec: JobSpec) -> JobHandle:
        if spec.job_id in failures:
            raise failures[spec.job_id]
        return submit(client, spec)

    monkeypatch.setattr(Client, "submit_spec", submitted)
    asked = [
        ("nightly", OPERATE, 201), ("nightly", OPERATE, 409), ("a b", OPERATE, 422),
        ("other", READ, 403), ("unknown", OPERATE, 504), ("failed", OPERATE, 500),
    ]  # fmt: skip
    for number, (job_id, token, status) in enumerate(asked):
        id = {"X-Request-Id": f"ask/{number}"}
        body = {"id": job_id, "entry": f"m:f{number}"}
        answer = served.post("/v1/jobs", body, token=token, **id)
        assert (answer.status, answer.headers["x-request-id"]) == (status, f"ask/{number}")
    assert re.fullmatch("[0-9a-f]{16}", served.get("/v1/jobs/none").headers["x-request-id"])
    for status, given in ((401, {"token": "wrong"}), (403, {"Origin": "https://evil.example"})):
        answer = served.get("/v1/jobs", **given, **{"X-Request-Id": "ask/7"})
        assert (answer.status, answer.headers["x-request-id"]) == (status, "ask/7")
    lines = [vars(one) for one in caplog.records if vars(one).get("kind") == "request"]
    assert [(one["request"], one["status"], one["caller"]) for one in lines] == [
        (f"ask/{number}", status, "ops" if token == OPERATE else "dashboard")
        for number, (_, token, status) in enumerate(asked)
    ]


def test_the_cluster_is_steered(served: Served) -> None:
    """A pause and its end; a switchover needs a leader."""
    first = served.post("/v1/cluster/pause", {"reason": "the lake is moved"}).json
    assert served.post("/v1/cluster/pause", {"reason": "again"}).json == first
    assert served.get("/v1/cluster").json["paused"]["reason"] == "the lake is moved"
    assert served.post("/v1/cluster/unpause").json == {"was_paused": True}
    assert served.post("/v1/cluster/unpause").json == {"was_paused": False}
    assert served.post("/v1/cluster/switchover", {}).status == 409


@pytest.mark.parametrize(
    ("path", "raw", "status", "says"),
    [
        ("/v1/jobs", b"{", 400, "not JSON"),
        ("/v1/jobs", b"\xff", 400, "not JSON"),
        ("/v1/jobs", b"[" * 100_000, 400, "the body has more than 100 levels"),
        ("/v1/jobs", b"[" * 101, 400, "more than 100 levels"),
        ("/v1/jobs", b"[" * 100 + b"]" * 100, 422, "must be a JSON object"),
        ("/v1/jobs", b'{"entry": "%s\\"[[", "id": 7}' % (b"[{" * 99), 422, "must be a JSON string"),
        ("/v1/jobs", b"[]", 422, "must be a JSON object"),
        ("/v1/jobs", b"{}", 422, "id is missing"),
        ("/v1/jobs", b'{"id": "a", "entry": "m:f", "nope": 1}', 422, "no field 'nope'"),
        ("/v1/jobs", b'{"id": "a b", "entry": "m:f"}', 422, "job id"),
        ("/v1/jobs", b'{"id": 7, "entry": "m:f"}', 422, "must be a JSON string"),
        ("/v1/jobs", b'{"id": "a", "entry": "here.py:f"}', 422, "absolute path"),
        ("/v1/jobs", b'{"id": "a", "entry": "m:f", "slots": true}', 422, "integer"),
        ("/v1/jobs", b'{"id": "a", "entry": "m:f", "slots": %s}' % (b"9" * 400), 422, "slots"),
        ("/v1/jobs", b'{"id": "a", "entry": "m:f", "restart": {"x": 1}}', 422, "no field 'x'"),
        ("/v1/jobs", b'{"id": "a", "entry": "m:f", "restart": {"attempts": 0}}', 422, "whole"),
        ("/v1/jobs", b'{"id": "a", "entry": "m:f", "timeout": {"job": NaN}}', 422, "number"),
        ("/v1/jobs", b'{"a": "' + b"x" * (1 << 20) + b'"}', 422, "more than"),
        ("/v1/jobs/a/suspend", b'{"grace": -1}', 422, "grace must be from 0"),
    ],
)  # fmt: skip
def test_bad_bodies(served: Served, path: str, raw: bytes, status: int, says: str) -> None:
    """Each is a problem that says what is wrong, and changes nothing."""
    answer = served.ask("POST", path, raw=raw)

    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert says in answer.json["detail"]
    if "levels" in says:
        assert "JSON" not in answer.json["detail"]  # It may well be.
    assert served.get("/v1/jobs").json == {"jobs": [], "next": None}


class Ends:
    """What only the garbage collector ends, by some calls within each other."""

    ended = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        for _ in re.finditer("a", "aaa"):
            Ends.ended += self._one(20)

    def _one(self, calls: int) -> int:
        return self._one(calls - 1) if calls else 1


def test_a_deep_body_keeps_no_finalizer_from_its_work() -> None:
    """Where the parser is as deep as it may go, the garbage collector's work failed."""
    before = gc.get_threshold()
    for level in range(900, 1000, 5):
        gc.collect()
        gc.disable()
        Ends()
        gc.set_threshold(gc.get_count()[0] + level)
        gc.enable()
        try:
            with pytest.raises(BadRequest):
                body_values(b"[" * 100_000, [])
        finally:
            gc.set_threshold(*before)
    gc.collect()
    assert Ends.ended == 60


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=2000", "status=NONE", "nope=1", "limit=1&limit=2",
              "since=yesterday", "since=nan", "tag=", "after=a%20b", "limit=" + "9" * 400],
    ids=lambda query: query[:20],
)  # fmt: skip
def test_bad_queries(served: Served, query: str) -> None:
    answer = served.get(f"/v1/jobs?{query}")
    assert (answer.status, answer.json["status"]) == (422, 422)


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (BadRequest("x"), 400, "invalid-input"),
        (InvalidInput("x"), 422, "invalid-input"),
        (TooLarge("x"), 422, "too-large"),
        (NoSuchJob("x"), 404, "no-such-job"),
        (WrongState("x"), 409, "wrong-state"),
        (DuplicateJob("x", "clean"), 409, "duplicate-job"),
        (ResultExpired("x"), 410, "result-expired"),
        (CorruptRecord("x"), 409, "corrupt-record"),
        (Fenced("x"), 409, "fenced"),
        (Unavailable("x"), 503, "unavailable"),
        (OutcomeUnknown("x"), 504, "outcome-unknown"),
    ],
)  # fmt: skip
def test_problems(error: JrsError, status: int, name: str) -> None:
    """Each type of error has a status; an unknown outcome says to read back."""
    found = problem_of(error)

    assert (found.status, found.type) == (status, f"urn:jrs:{name}")
    assert ("Retry-After" in found.headers) == (status == 503)
    assert ("read back" in found.title) == (status == 504)


def test_a_failure_of_ours_tells_nothing() -> None:
    assert "secret" not in str(problem_of(RuntimeError("secret")).body())


def test_other_paths(served: Served) -> None:
    """What is no route is a problem, too."""
    assert served.get("/v1/nope").json["status"] == 404
    answer = served.ask("DELETE", "/v1/jobs")
    assert (answer.status, answer.json["status"]) == (405, 405)


def test_paging(served: Served) -> None:
    """Pages of 10,000 jobs, one behind the other, have each job once, in order."""
    backend, ids = served.client.backend, [f"job-{number:05}" for number in range(10_000)]
    ops = [Create(keys.JOBS + id, encode(JobSpec(id, "m:f"))) for id in ids]
    most = backend.capabilities.max_ops
    for at in range(0, len(ops), most):
        backend.commit(*ops[at : at + most])

    page = served.get("/v1/jobs?limit=3").json
    assert [job["job_id"] for job in page["jobs"]] == ids[:3]
    page = served.get(f"/v1/jobs?limit=3&after={page['next']}").json
    assert [job["job_id"] for job in page["jobs"]] == ids[3:6]
    page = served.get("/v1/jobs?order=ended&limit=3").json
    served.client.results.create_dirty(JobResult(ids[2], JobStatus.FINISHED), None)
    page = served.get(f"/v1/jobs?order=ended&limit=3&after={page['next']}").json
    assert [job["job_id"] for job in page["jobs"]] == ids[3:6]
    last = served.get("/v1/jobs?limit=1000&after=job-09899").json
    assert ([job["job_id"] for job in last["jobs"]], last["next"]) == (ids[9900:], None)
    found = served.get("/v1/jobs?prefix=job-0777&limit=1000").json["jobs"]
    assert [job["job_id"] for job in found] == ids[7770:7780]


@pytest.mark.parametrize("order", ["id", "ended"])
def test_a_page_is_bounded_in_bytes(served: Served, order: str) -> None:
    """However many jobs are asked for; the pages have each job once, with its whole result."""
    payload = "x" * 250_000
    for number in range(20):
        result = JobResult(f"job-{number:02}", JobStatus.FINISHED, payload, finished_at=9.0)
        served.client.results.create_dirty(result, None)
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        answer = served.get(f"/v1/jobs?limit=1000&order={order}&after={after}")
        assert len(answer.body) < paging.MOST_BYTES + 300_000
        after = answer.json["next"]
        for job in answer.json["jobs"]:
            assert job["entry"]["result"]["payload"] == payload
            found.append(job["job_id"])
    assert found == [f"job-{number:02}" for number in range(20)]


def test_the_description_is_valid(served: Served) -> None:
    """It is OpenAPI 3.1, has every route of the table, and each has a name of its own."""
    found = served.get("/v1/openapi.json").json

    OpenAPIV31SpecValidator(found).validate()
    described = {(method.upper(), path) for path, one in found["paths"].items() for method in one}
    assert described == {(route.method, route.path) for route in ROUTES}
    assert len({route.name for route in ROUTES}) == len(ROUTES)


def test_metrics(served: Served) -> None:
    """The server has metrics of its own, and of one job where it is asked for; no id is a label."""
    ended(served.client, "done")
    for path in ("/metrics", "/metrics?job=done"):
        text = served.get(path, token=READ).text
        families = {one.name: one for one in text_string_to_metric_families(text)}
        assert "done" not in text
        assert families
    status = {s.labels["status"]: s.value for s in families["jrs_job_status"].samples}
    assert status["FINISHED"] == 1
    assert sum(status.values()) == 1
    assert served.get("/metrics?job=none").status == 404
    assert served.get("/metrics?job=none&prefix=n").status == 422


def test_open_metrics(served: Served) -> None:
    """A caller that asks for it gets OpenMetrics, which its own strict parser reads, with the same
    samples as in the text format."""
    ended(served.client, "done")
    for path in ("/metrics", "/metrics?job=done", "/metrics?prefix=d"):
        answer = served.get(path, token=READ, Accept="application/openmetrics-text;version=1.0.0")
        assert answer.headers["content-type"] == OPEN_METRICS
        assert answer.text.endswith("# EOF\n")
        names = {one.name for one in open_metrics_families(answer.text)}  # type: ignore[no-untyped-call]
        text = served.get(path, token=READ, Accept="text/plain")
        assert text.headers["content-type"] == CONTENT_TYPE
        assert names == {one.name for one in text_string_to_metric_families(text.text)}


def test_promtool_finds_nothing(served: Served) -> None:
    """`promtool check metrics` has nothing to say about the metrics of a master and of the API."""
    if shutil.which("promtool") is None:
        missing("promtool is missing: apt-get install prometheus")
    ended(served.client, "done")
    paths = ("/metrics", "/metrics?job=done", "/metrics?prefix=d")
    for text in (exposition(MasterHealth().facts()), *(served.get(path).text for path in paths)):
        checked = subprocess.run(
            ["promtool", "check", "metrics"],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_newest_of_the_jobs_that_begin_alike(served: Served) -> None:
    """What a canary is seen by: when the last one finished; those that failed do not count."""
    name = "jrs_prefix_finished_timestamp_seconds"
    now = time.time()
    for number, status in enumerate((JobStatus.FINISHED, JobStatus.FINISHED, JobStatus.CANCELED)):
        result = JobResult(f"canary-{number}", status, finished_at=now + number)
        served.client.results.create_dirty(result, None)
    served.client.results.create_dirty(
        JobResult("other", JobStatus.FINISHED, finished_at=now + 9), None
    )

    (line,) = [
        line
        for line in served.get("/metrics?prefix=canary-", token=READ).text.splitlines()
        if line.startswith(f"{name} ")
    ]
    assert float(line.split()[1]) == now + 1
    assert f"{name} 0.0" in served.get("/metrics?prefix=none", token=READ).text


def test_the_history_of_all_jobs_behind_a_cursor(served: Served) -> None:
    """Page by page; a poll waits for the next entry."""
    assert served.get("/v1/history").json == {"history": [], "next": "", "more": False}
    for number in range(3):
        served.post("/v1/jobs", {**JOB, "id": f"job-{number}"})
    first = served.get("/v1/history?limit=2", token=READ).json
    assert [one["job_id"] for one in first["history"]] == ["job-0", "job-1"]
    assert (first["next"], first["more"]) == (first["history"][-1]["cursor"], True)
    second = served.get(f"/v1/history?after={first['next']}").json
    assert [one["job_id"] for one in second["history"]] == ["job-2"]
    assert second == plain.of_page(served.client.history_after(first["next"]))
    with polled(served, f"/v1/history?after={second['next']}&wait=60") as found:
        served.post("/v1/jobs/job-0/cancel")

    assert [one["kind"] for one in found[0].json["history"]] == ["cancel"]
    assert served.get("/v1/history?after=x").status == 422
    assert served.get("/v1/history?after=1~x~x.000000").status == 404
