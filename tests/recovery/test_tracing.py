"""Submitting a job and its attempts on all leaders are one trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from jrs.backends.memory import MemoryBackend, Space
from jrs.client.client import Client
from jrs.records.model import JobSpec, RunnerKind
from jrs.records.policies import RestartPolicy
from jrs.records.settings import JobSettings
from jrs.records.traceparent import of_job
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from tests.recovery.spans import SPANS
from tests.recovery.support import CLUSTER, job

FILE = Path(__file__).with_name("traced_jobs.py")
GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def masters_in(tmp_path: Path, **environment: str) -> Masters:
    return Masters(
        (tmp_path / "store").as_uri(),
        cluster=CLUSTER,
        storage=tmp_path / "jobs",
        ttl=30.0,  # A leader that is slow for a while leads on; a killed one is replaced at once.
        environment=environment,
    )


def spans(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def ended(path: Path, attempts: int) -> bool:
    """Return whether the spans of that many attempts are exported, to the end of a line."""
    text = path.read_text() if path.exists() else ""
    return text.endswith("\n") and text.count('"name": "jrs.attempt"') >= attempts


@pytest.mark.parametrize("late", ["", "1"], ids=["each span", "when the process ends"])
def test_one_trace_over_a_failover(tmp_path: Path, late: str) -> None:
    """Whatever exports the spans, also where it does so only at the end of a process: all of them
    have the submitter's trace, and each attempt's parent is the submitter's span."""
    path, pids = tmp_path / "spans", tmp_path / "pids"
    tracer = TracerProvider().get_tracer("test")
    with masters_in(tmp_path, **{SPANS: str(path), "JRS_TEST_LATE": late}) as masters:
        masters.start("a")
        masters.start("b")
        again = RestartPolicy(attempts=5, delay=0.1, on_exception=True)
        with tracer.start_as_current_span("submitting") as span:
            submitted = span.get_span_context()
            Client(masters.backend).submit(
                f"{FILE}:fails_once_and_hangs_once", id="traced", restart=again, pids=str(pids)
            )
        masters.until(pids.exists, "the second attempt hangs")
        masters.leader().kill()
        result = JobResultStore(masters.backend).wait("traced", 90)
        # Some spans come behind the result, when the process of the attempt ends.
        masters.until(lambda: ended(path, 2), "all are exported", 90)

    found = spans(path)
    trace = f"{submitted.trace_id:032x}"
    parent = f"{submitted.span_id:016x}"
    attempts = [one for one in found if one["name"] == "jrs.attempt"]
    stages = {one["jrs.stage"]: one for one in found if one["name"] == "jrs.stage"}
    assert isinstance(result.payload, dict)
    assert result.payload["traceparent"].startswith(f"00-{trace}-{parent}-")
    assert {one["trace"] for one in found} == {trace}
    # The second attempt was killed: its span never ended.
    assert [(one["jrs.attempt"], one["ok"]) for one in attempts] == [(1, False), (3, True)]
    assert {one["parent"] for one in attempts} == {parent}
    assert {one["jrs.job"] for one in attempts} == {"traced"}
    assert attempts[0]["jrs.epoch"] < attempts[1]["jrs.epoch"] == result.epoch
    last = attempts[1]["span"]
    # That of the second attempt was lost with it where spans are exported at the end.
    assert set(stages) == ({"second"} if late else {"first", "second"})
    assert stages["second"]["parent"] == last  # Although it ran on another thread.
    assert [one["parent"] for one in found if one["name"] == "mine"] == [last]


def test_spans_of_a_job_that_has_ended_are_exported(tmp_path: Path) -> None:
    """Its leader lets the process end by itself, although it has seen the result."""
    path, taken = tmp_path / "spans", tmp_path / "taken"
    more = {SPANS: str(path), "JRS_TEST_LATE": "1", "JRS_TEST_UNTIL": str(taken)}
    with masters_in(tmp_path, **more) as masters:
        masters.start("a")
        JobCatalog(masters.backend).submit(JobSpec("job", f"{FILE}:traced"))
        masters.until(
            lambda: any("[clean up]" in event.message for event in masters.events),
            "the leader has seen the result",
        )
        taken.touch()
        masters.until(lambda: ended(path, 1), "they are exported", 30)
        masters.until(lambda: JobResultStore(masters.backend).has_clean("job"), "it is clean")


def test_without_a_submitter_that_is_traced(tmp_path: Path) -> None:
    """Cluster and job name the trace; a job may set the variable itself; a master's own variable
    is none of the job's."""
    with masters_in(tmp_path, TRACEPARENT=GOOD) as masters:
        masters.start("a")
        results = JobResultStore(masters.backend)
        JobCatalog(masters.backend).submit(JobSpec("plain", f"{FILE}:passes_on"))
        settings = JobSettings(env={"TRACEPARENT": GOOD})
        JobCatalog(masters.backend).submit(JobSpec("own", f"{FILE}:passes_on", settings=settings))
        named, own = (results.wait(one, 60).payload for one in ("plain", "own"))

    assert named == of_job("", CLUSTER, "plain")
    assert own == GOOD


def test_what_a_submission_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current span, else the environment variable; nothing that is malformed."""
    with Client(MemoryBackend(Space())) as client:
        monkeypatch.setenv("TRACEPARENT", GOOD)
        client.submit(job("add"), id="variable")
        with TracerProvider().get_tracer("test").start_as_current_span("mine") as span:
            client.submit(job("add"), id="span")
        monkeypatch.setenv("TRACEPARENT", GOOD.upper())
        client.submit(job("add"), id="malformed")
        client.submit_spec(JobSpec("given", job("add"), traceparent=GOOD))
        monkeypatch.delenv("TRACEPARENT")
        client.submit_spec(JobSpec("bad", job("add"), traceparent="nonsense"))
        found = {view.job_id: _traceparent(client, view.job_id) for view in client.views()}

    assert found["variable"] == found["given"] == GOOD
    assert f"{span.get_span_context().trace_id:032x}" in found["span"]
    assert found["malformed"] == found["bad"] == ""


def _traceparent(client: Client, job_id: str) -> str:
    spec = client.job(job_id).view().spec
    assert spec is not None
    return spec.traceparent


def test_a_process_without_opentelemetry(tmp_path: Path) -> None:
    """A job runs as before where it is not installed, whether its submitter was traced or not."""
    hidden = tmp_path / "opentelemetry"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with masters_in(tmp_path, PYTHONPATH=path) as masters:
        masters.start("a")
        JobCatalog(masters.backend).submit(JobSpec("a", job("add"), traceparent=GOOD))
        assert JobResultStore(masters.backend).wait("a", 60).payload == 3


def test_what_is_not_traced_loads_nothing(tmp_path: Path) -> None:
    """An attempt of a job that does not use OpenTelemetry does not import it, although it could."""
    program = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from jrs.recovery.attempt.run import run_attempt\n"
        "from tests.recovery.lead import Lead\n"
        "from jrs.backends.memory import MemoryBackend, Space\n"
        "lead = Lead(MemoryBackend(Space()), Path(sys.argv[1]))\n"
        "print(run_attempt(lead.context(), lambda job: 7).payload, 'opentelemetry' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True
    )

    assert done.stdout == "7 False\n"


def test_a_thread_of_the_master(tmp_path: Path) -> None:
    """A job in its master's own process is traced as well."""
    path = tmp_path / "spans"
    with masters_in(tmp_path, **{SPANS: str(path)}) as masters:
        masters.start("a")
        spec = JobSpec("t", f"{FILE}:traced", runner=RunnerKind.THREAD, traceparent=GOOD)
        JobCatalog(masters.backend).submit(spec)
        JobResultStore(masters.backend).wait("t", 60)
        masters.until(path.exists, "the span is exported")

    (span,) = spans(path)
    assert (span["trace"], span["parent"]) == tuple(GOOD.split("-")[1:3])
    assert (span["name"], span["jrs.job"], span["jrs.attempt"]) == ("jrs.attempt", "t", 1)
