"""Each attempt starts once and ends once for OpenLineage, whatever happens to leaders."""

from __future__ import annotations

import json
import time
from contextlib import closing
from datetime import datetime
from itertools import count
from pathlib import Path

from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.exports import ExportRecord
from jrs.records.model import JobSpec, JobStatus
from jrs.records.policies import RestartPolicy
from jrs.recovery.rules.lineage_runs import run_id
from jrs.store import feed
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from tests.recovery.lineage import Receiver, without_retries
from tests.recovery.support import CLUSTER, job

ONCE = RestartPolicy(attempts=1)
JOBS = [
    JobSpec("added", job("add")),
    JobSpec("failed", job("boom"), restart=ONCE),
    JobSpec("died", job("die"), restart=RestartPolicy(attempts=2, delay=0.1)),
]


def started(tmp_path: Path, environment: dict[str, str], names: str) -> Masters:
    masters = Masters(
        (tmp_path / "store").as_uri(),
        cluster=CLUSTER,
        storage=tmp_path / "jobs",
        options=["--openlineage"],
        environment=environment,
    )
    for name in names:
        masters.start(name)
    return masters


def is_exported(masters: Masters) -> bool:
    """Return whether all events of the history are behind the recorded position."""
    stored = masters.backend.get(keys.export("openlineage"))
    if stored is None:
        return False
    position = decode(ExportRecord, stored.value, stored.key).cursor
    return not feed.read(masters.backend, position).events


def test_leaders_that_are_killed_between_sending_and_recording(tmp_path: Path) -> None:
    """What the next leader sends once more is the same to the byte: each attempt has one start and
    one end."""
    with closing(Receiver()) as receiver:
        with started(tmp_path, {"OPENLINEAGE_URL": receiver.url}, "abc") as masters:
            names = (f"m{number}" for number in count())
            seen: set[bytes] = set()
            killed: list[bytes] = []

            def kill(body: bytes) -> None:
                """Kill the sender, which waits for the answer: every second event is its last."""
                if body in seen or len(killed) == 4:
                    return
                seen.add(body)
                if len(seen) % 2 == 0:
                    masters.leader().kill()
                    killed.append(body)
                    masters.start(next(names))

            receiver.on_body = kill
            jobs = JobCatalog(masters.backend)
            for spec in JOBS:
                jobs.submit(spec)
            pids = tmp_path / "pids"
            jobs.submit(JobSpec("hangs", job("hang"), arguments={"pids": str(pids)}))
            masters.until(lambda: len(killed) == 4, "four leaders were killed")
            masters.until(pids.exists, "the hanging job runs")
            jobs.cancel("hangs")
            results = {
                one: JobResultStore(masters.backend).wait(one, 90)
                for one in ("added", "failed", "died", "hangs")
            }
            masters.until(lambda: is_exported(masters), "all is exported")

        attempts = {one: result.attempt for one, result in results.items()}
        runs = {one: receiver.runs(CLUSTER, one, attempts[one]) for one in attempts}
        last = {"added": "COMPLETE", "failed": "FAIL", "died": "FAIL", "hangs": "ABORT"}

    assert len(receiver.events) == 2 * sum(attempts.values())
    assert all(receiver.bodies.count(body) > 1 for body in killed)  # They were sent once more.
    for one, states in runs.items():
        assert all(len(each) == 2 and each[0] == "START" for each in states), (one, states)
        assert states[-1][1] == last[one]
        assert {each[1] for each in states[:-1]} <= {"ABORT", "FAIL"}


def test_a_receiver_that_is_down(tmp_path: Path) -> None:
    """Jobs finish meanwhile, one line says that the export waits, and the events follow in their
    order. So it is while it does not answer, and while it answers with an error."""
    with closing(Receiver()) as receiver:
        receiver.status = 503
        environment = without_retries(tmp_path, receiver.url)
        with started(tmp_path, environment, "a") as masters:
            jobs, results = JobCatalog(masters.backend), JobResultStore(masters.backend)
            jobs.submit(JOBS[0])
            assert results.wait("added", 60).status is JobStatus.FINISHED
            masters.until(lambda: receiver.refused > 2, "it was tried several times")
            receiver.silent.set()
            jobs.submit(JOBS[1])
            assert results.wait("failed", 60).status is JobStatus.FAILED
            waiting = [one for one in masters.events if "OpenLineage waits" in one.message]
            assert [one.kind for one in waiting] == ["waiting"]
            assert "503" in waiting[0].message
            assert not is_exported(masters)

            receiver.status = 201
            receiver.silent.clear()
            masters.until(lambda: is_exported(masters), "all is exported")
            masters.event(lambda one: one.kind == "export", "it says that it works again")
            assert len([one for one in masters.events if "waits" in one.message]) == 1

        states = [(event["job"]["name"], event["eventType"]) for event in receiver.events]

    assert states == [
        ("added", "START"), ("added", "COMPLETE"), ("failed", "START"), ("failed", "FAIL")
    ]  # fmt: skip


def test_an_event_that_is_never_taken(tmp_path: Path) -> None:
    """A receiver that finds an event invalid says so for good: what follows is still sent."""
    with closing(Receiver()) as receiver:
        receiver.status = 422
        with started(tmp_path, without_retries(tmp_path, receiver.url), "a") as masters:
            jobs, results = JobCatalog(masters.backend), JobResultStore(masters.backend)
            jobs.submit(JOBS[0])
            assert results.wait("added", 60).status is JobStatus.FINISHED
            said = masters.event(lambda one: "refuses" in one.message, "it says so")
            assert (said.kind, said.job_id) == ("error", "added")
            assert "422" in said.message
            masters.until(lambda: is_exported(masters), "it does not wait for it")

            receiver.status = 201
            jobs.submit(JOBS[1])
            assert results.wait("failed", 60).status is JobStatus.FAILED
            masters.until(lambda: receiver.ends() == 1, "the next events are taken")

    assert receiver.refused == 2  # Each was sent once.
    assert {event["job"]["name"] for event in receiver.events} == {"failed"}


def test_what_an_event_says(tmp_path: Path) -> None:
    """The job's id under the cluster's name space, the run of the attempt, the moment of the
    history, and why an attempt failed."""
    with closing(Receiver()) as receiver:
        with started(tmp_path, {"OPENLINEAGE_URL": receiver.url}, "a") as masters:
            before = time.time()
            JobCatalog(masters.backend).submit(JOBS[1])
            JobResultStore(masters.backend).wait("failed", 60)
            masters.until(lambda: len(receiver.events) == 2, "both are received")
            after = time.time()
        start, end = receiver.events

    assert start["job"] == {"namespace": "jrs://test", "name": "failed", "facets": {}}
    assert start["run"]["runId"] == end["run"]["runId"] == run_id(CLUSTER, "failed", 1)
    assert "errorMessage" not in start["run"]["facets"]
    facet = end["run"]["facets"]["errorMessage"]
    assert facet["message"] == "ValueError: no good"
    assert json.loads(receiver.bodies[0])["producer"] == facet["_producer"]
    moments = [_seconds(event["eventTime"]) for event in (start, end)]
    assert before - 1 <= moments[0] <= moments[1] <= after


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
