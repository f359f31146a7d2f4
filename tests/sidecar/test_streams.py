"""Streams: what is committed is seen, a slow client stalls nobody, one watch serves all."""

from __future__ import annotations

import math
import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs import Client, JobResult, JobStatus
from jrs.client.job import JobHandle
from jrs.contract.backend import Backend
from jrs.contract.errors import NotFound, Unavailable
from jrs.contract.operations import Create, Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.history import HistoryKind
from jrs.records.lineage import Descendant, LineageKind
from jrs.records.model import CleanupJournal, Failure, MasterInfo
from jrs.sidecar import changes, streams
from jrs.sidecar.changes import EVERYTHING, NOTHING, Changes, Note, note_of
from jrs.sidecar.streams import MOST_FOLLOWED
from jrs.store.historian import Historian
from jrs.store.masters import MasterView, Registry
from jrs.testing.contract import lead
from tests.sidecar.conftest import OPERATE, READ, Served, serving, write_tokens
from tests.support import BOUND, until

JOB = {"id": "nightly", "entry": "etl.jobs:nightly"}


def finish(client: Client, job_id: str, payload: Any = None) -> None:
    client.results.create_dirty(JobResult(job_id, JobStatus.FINISHED, payload), None)


def test_a_job_is_watched(served: Served, closing: ExitStack) -> None:
    """A stream begins with the present state, also of a job that does not exist yet, and has each
    later state."""
    stream = served.events("/v1/jobs/nightly/events")
    closing.callback(stream.close)
    name, data = stream.next()
    assert (name, data["status"], data["type"]) == ("problem", 404, "urn:jrs:no-such-job")

    served.post("/v1/jobs", JOB)
    found = stream.until(lambda name, data: name == "job")
    assert (found["job_id"], found["status"]) == ("nightly", "CREATED")
    served.post("/v1/jobs/nightly/cancel")
    stream.until(lambda name, data: data["decision"] == "cancel")
    finish(served.client, "nightly")
    found = stream.until(lambda name, data: data["status"] == "FINISHED")
    assert found["state"] == "dirty"


def test_whatever_happens_to_a_job_is_an_event(served: Served, closing: ExitStack) -> None:
    """Each kind of entry of its history: the page of the job shows it, and is renewed by events.
    So do what its cleanup has left, also of a job that FAILED, and the jobs made from it."""
    backend = served.client.backend
    failure = Failure("exception", "ValueError: no flights")
    served.client.results.create_dirty(JobResult("nightly", JobStatus.FAILED, None, failure), None)
    stream = served.events("/v1/jobs/nightly/events")
    closing.callback(stream.close)
    assert stream.next()[1]["history"] is None
    historian = Historian(backend, "m1")
    for kind in HistoryKind:
        with historian.recorded("nightly", kind, "it happened") as event:
            backend.commit(*event)
        newest = served.client.job("nightly").history()[-1].id
        assert stream.next()[1]["history"] == newest

    journal = CleanupJournal("nightly", problems={"files": "no space"})
    backend.commit(Create(keys.CLEANUP + "nightly", encode(journal)))
    assert stream.next()[1]["left"] == {"files": "no space"}
    stored = backend.get(keys.CLEANUP + "nightly")
    assert stored is not None
    exhausted = encode(attrs.evolve(journal, exhausted=True))
    backend.commit(Update(stored.key, exhausted, stored.version))
    assert stream.next()[1]["exhausted"]
    fork = Descendant("nightly", "other", LineageKind.FORK)
    backend.commit(Create(keys.descendant("nightly", "other"), encode(fork)))
    assert stream.next()[1]["descendants"] == ["other"]


def test_the_cluster_is_watched(served: Served, closing: ExitStack) -> None:
    """A stream of the cluster names the jobs to read again, and says when the cluster changed."""
    stream = served.events("/v1/events")
    closing.callback(stream.close)
    assert stream.next() == ("changed", {"jobs": None, "cluster": True})

    served.post("/v1/jobs", JOB)
    stream.until(lambda _, data: data["jobs"] is None or "nightly" in data["jobs"])
    served.post("/v1/cluster/pause")
    stream.until(lambda _, data: data["cluster"])


def test_a_leader_that_is_gone(
    client: Client, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that is killed commits nothing: the page and streams hear of it by time alone."""
    gone = threading.Event()
    monkeypatch.setattr(changes, "INTERVAL", 0.05)
    monkeypatch.setattr(Registry, "_is_running", lambda registry, info: not gone.is_set())
    with lead(client.backend) as leadership, serving(client, tmp_path) as served:
        info = MasterInfo("m1", "h", 1, time.time(), 0.0, leading=leadership.epoch)
        Registry(client.backend).put(info)
        served.post("/v1/jobs", JOB)
        job, cluster = [served.events(f"/v1/{path}events") for path in ("jobs/nightly/", "")]
        closing.callback(job.close)
        closing.callback(cluster.close)
        job.until(lambda name, data: name == "job" and "no master leads" not in data["reason"])
        until(lambda: "m1 leads" in served.get("/").text, "the page shows its leader")
        gone.set()

        job.until(lambda name, data: "no master leads" in data["reason"])
        cluster.until(lambda name, data: data["cluster"])
        assert "No master leads" in served.get("/").text


def test_heartbeats_are_not_looked_at_one_by_one(
    client: Client, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams hear of each, and the masters are read once an interval."""
    looks: list[Registry] = []
    notes: list[Note] = []
    views, heard = Registry.views, Changes._heard

    def hear(changes: Changes, note: Note) -> None:
        heard(changes, note)
        notes.append(note)

    def counted(registry: Registry) -> list[MasterView]:
        looks.append(registry)
        return views(registry)

    monkeypatch.setattr(changes, "INTERVAL", math.inf)
    monkeypatch.setattr(Registry, "views", counted)
    monkeypatch.setattr(Changes, "_heard", hear)
    with serving(client, tmp_path) as served:
        until(lambda: looks and notes, "the masters are read, and what follows from it is told")
        stream = served.events("/v1/events")
        closing.callback(stream.close)
        for number in range(5):
            Registry(client.backend).put(MasterInfo(f"m{number}", "h", 1, 0.0, 0.0))
            stream.until(lambda name, data: data["cluster"] and data["jobs"] == [])
    assert len(looks) == 1


def test_a_job_is_watched_over_a_pause(served: Served, closing: ExitStack) -> None:
    """What a leader does with a job depends on records that are not the job's own."""
    with lead(served.client.backend) as leadership:
        info = MasterInfo("m1", "h", 1, time.time(), 0.0, leading=leadership.epoch)
        Registry(served.client.backend).put(info)
        served.client.raise_cluster_format()
        served.post("/v1/jobs", JOB)
        stream = served.events("/v1/jobs/nightly/events")
        closing.callback(stream.close)
        stream.until(lambda name, data: name == "job" and data["decision"] == "recover")
        served.post("/v1/cluster/pause")
        stream.until(lambda name, data: data["decision"] == "wait")
        served.post("/v1/cluster/unpause")
        stream.until(lambda name, data: data["decision"] == "recover")


def test_a_hundred_clients_and_one_that_does_not_read(served: Served, closing: ExitStack) -> None:
    """One watch serves 100 streams; one of them that is never read stalls no other one."""
    stuck = closing.enter_context(socket.create_connection(("127.0.0.1", served.port), BOUND))
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    stuck.sendall(
        b"GET /v1/jobs/nightly/events HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer " + READ.encode() + b"\r\n\r\n"
    )
    streams = [served.events("/v1/jobs/nightly/events") for _ in range(100)]
    for stream in streams:
        closing.callback(stream.close)
    watches = [one for one in threading.enumerate() if one.name == "jrs-changes"]
    assert len(watches) == 1
    served.post("/v1/jobs", JOB)
    for number in range(20):
        served.post("/v1/jobs/nightly/suspend", {"reason": f"{number}" + "x" * 4000})
        served.post("/v1/jobs/nightly/resume")
    finish(served.client, "nightly")

    for stream in streams:
        stream.until(lambda _, data: data["status"] == "FINISHED")


def test_streams_of_one_job_share_what_is_read(
    served: Served, closing: ExitStack, monkeypatch: Any
) -> None:
    """Each change is read once, not once for each stream."""
    reads: list[str] = []
    view = JobHandle.view

    def counted(job: JobHandle) -> Any:
        reads.append(threading.current_thread().name)
        return view(job)

    served.post("/v1/jobs", JOB)
    streams = [served.events("/v1/jobs/nightly/events") for _ in range(50)]
    for stream in streams:
        closing.callback(stream.close)
        stream.next()
    monkeypatch.setattr(JobHandle, "view", counted)
    finish(served.client, "nightly")
    for stream in streams:
        stream.until(lambda _, data: data["status"] == "FINISHED")
    assert len(reads) < 25


def test_streams_of_the_history_share_what_is_read(
    served: Served, closing: ExitStack, monkeypatch: Any
) -> None:
    """What is new is read and encoded once, not once for each stream; each has it once and in
    order."""
    reads: list[str] = []
    history_after = Client.history_after

    def counted(client: Client, *given: Any) -> Any:
        reads.append(*given)
        return history_after(client, *given)

    served.post("/v1/jobs", JOB)
    streams = [served.events("/v1/history/events") for _ in range(50)]
    for stream in streams:
        closing.callback(stream.close)
        assert stream.next()[1]["job_id"] == "nightly"
    served.post("/v1/jobs", {**JOB, "id": "first"})
    for stream in streams:
        assert stream.next()[1]["job_id"] == "first"
    monkeypatch.setattr(Client, "history_after", counted)
    ids = [f"job-{number}" for number in range(10)]
    for job_id in ids:
        served.post("/v1/jobs", {**JOB, "id": job_id})
    for stream in streams:
        assert [stream.next()[1]["job_id"] for _ in ids] == ids
    assert len(reads) < 50


def test_a_stream_survives_an_outage(client: Client, tmp_path: Path, monkeypatch: Any) -> None:
    """When the watch fails, streams go ahead with a new one, and miss no change."""
    failed = threading.Event()
    watch = type(client.backend).watch

    def fails_once(backend: Backend, prefix: str) -> Any:
        if not failed.is_set():
            failed.set()
            raise Unavailable("away")
        return watch(backend, prefix)

    monkeypatch.setattr(type(client.backend), "watch", fails_once)
    with serving(client, tmp_path) as served:
        stream = served.events("/v1/jobs/nightly/events")
        until(failed.is_set, "the watch has failed")
        served.post("/v1/jobs", JOB)
        stream.until(lambda name, data: name == "job")
        stream.close()


def test_streams_of_a_backend_that_did_not_answer_once(
    served: Served, closing: ExitStack, monkeypatch: Any
) -> None:
    """A stream says so once, and has the newest state as soon as the backend answers, also if
    nothing changes any more."""
    away, answered = threading.Event(), list[str]()

    def failing(real: Any) -> Any:
        def read(*given: Any) -> Any:
            if away.is_set():
                answered.append("no")
                raise Unavailable("away")
            return real(*given)

        return read

    monkeypatch.setattr(JobHandle, "view", failing(JobHandle.view))
    monkeypatch.setattr(Client, "history_after", failing(Client.history_after))
    served.post("/v1/jobs", JOB)
    streams = [served.events(f"/v1/{path}/events") for path in ("jobs/nightly", "history")]
    for stream in streams:
        closing.callback(stream.close)
        stream.next()
    away.set()
    served.post("/v1/jobs/nightly/cancel")
    for stream in streams:
        assert stream.next()[0] == "problem"
    before = len(answered)
    until(lambda: len(answered) > before + 4, "they were asked again")
    away.clear()

    (name, state), (also, entry) = [stream.next() for stream in streams]
    assert (name, state["decision"]) == ("job", "cancel")
    assert (also, entry["kind"]) == ("history", "cancel")


def test_the_server_ends_with_streams_open(closing: ExitStack, served: Served) -> None:
    """Open streams and long polls do not keep it from ending; the fixture checks that it ends."""
    served.post("/v1/jobs", JOB)
    for path in ("/v1/events", "/v1/jobs/nightly/events"):
        stream = served.events(path)
        closing.callback(stream.close)  # After the server, whose fixture is entered later.
        stream.next()


def test_streams_end_with_their_token(
    served: Served, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream ends when its token is removed from the file, and so does a silent log that is
    followed; those of another token go ahead."""
    monkeypatch.setattr(streams, "_PULSE", 0.1)
    monkeypatch.setattr(streams, "_CHECK", 0.1)
    served.post("/v1/jobs", JOB)
    assert served.client.backend.default_storage is not None
    folder = served.client.backend.default_storage / "default" / "nightly" / "logs"
    folder.mkdir(parents=True)
    (folder / "attempt-1.out").write_bytes(b"one\n")
    followed = "/v1/jobs/nightly/log?follow=true"
    paths = ("/v1/events", "/v1/jobs/nightly/events", "/v1/history/events", followed)
    opened = [served.events(path) for path in paths]
    for stream in opened:
        closing.callback(stream.close)
    other = served.events("/v1/events", OPERATE)
    closing.callback(other.close)
    assert other.next()[0] == "changed"
    write_tokens(served.tokens, f"operate {OPERATE}\n")

    for stream in opened:
        stream.until_its_end()
    served.post("/v1/cluster/pause", {})
    other.until(lambda _, data: data["cluster"])


def test_logs(served: Served, tmp_path: Path, closing: ExitStack) -> None:
    """A log is read whole, by stream, by its end, and followed until the job has ended."""
    client = served.client
    served.post("/v1/jobs", JOB)
    assert client.backend.default_storage is not None
    folder = client.backend.default_storage / "default" / "nightly" / "logs"
    folder.mkdir(parents=True)
    (folder / "attempt-1.out").write_bytes(b"one\ntwo\n")
    (folder / "attempt-1.err").write_bytes(b"\x1b[31mred\n")
    path = "/v1/jobs/nightly/log"

    assert served.get(f"{path}?stream=out").body == b"one\ntwo\n"
    assert served.get(f"{path}?stream=out&tail=1").body == b"two\n"
    both = served.get(path)
    assert both.headers["content-type"].startswith("text/plain")
    assert b"==> attempt 1, stdout <==\none\n" in both.body
    assert served.get(f"{path}?attempt=7").status == 404
    assert served.get(f"{path}?stream=in").status == 422

    found: list[bytes] = []
    follows = threading.Thread(
        target=lambda: found.append(served.get(f"{path}?stream=out&follow=true").body)
    )
    follows.start()
    with (folder / "attempt-1.out").open("ab") as log:
        log.write(b"three\n")
    finish(client, "nightly")
    follows.join(BOUND)
    assert found == [b"one\ntwo\nthree\n"]


def test_logs_of_a_storage_that_hangs(served: Served, closing: ExitStack, monkeypatch: Any) -> None:
    """Nobody waits for them but who has asked for them. They count among those that are followed,
    until they have failed."""
    served.post("/v1/jobs", JOB)
    begun, answers = list[str](), threading.Event()
    closing.callback(answers.set)

    def hangs(job: JobHandle, **given: Any) -> Any:
        begun.append(job.id)
        answers.wait(BOUND)
        raise NotFound("no logs")

    monkeypatch.setattr(JobHandle, "logs", hangs)
    path, found = "/v1/jobs/nightly/log?follow=true", list[int]()
    threads = [
        threading.Thread(target=lambda: found.append(served.get(path).status))
        for _ in range(MOST_FOLLOWED)
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(begun) == MOST_FOLLOWED, "all are asked for")
    assert served.get("/livez").status == 200
    assert served.get(path).status == 503
    answers.set()
    for thread in threads:
        thread.join(BOUND)
    assert found == [404] * MOST_FOLLOWED
    assert served.get(path).status == 404


def test_notes() -> None:
    """Notes add up; too many jobs are any; what is about no job is about none."""
    assert note_of(["jobs/a", "stages/b/x", "results/a"]) == Note(frozenset("ab"))
    assert note_of(["masters/m1"]) == note_of(["cluster/format"]) == Note(frozenset(), True)
    assert note_of(["cluster/pause"]) == note_of(["leader/epoch"]) == EVERYTHING
    assert note_of(["ended/FINISHED/1/a"]) == NOTHING
    assert note_of(["jobs/"]) == EVERYTHING
    assert note_of([f"jobs/{number}" for number in range(2000)]).jobs is None
    assert Note(frozenset("a")) | EVERYTHING == EVERYTHING


def test_the_history_of_all_jobs_resumes(served: Served, closing: ExitStack) -> None:
    """A client that reconnects with the id of its last event gets each event once, in order; a
    cursor that is of no use is refused before the stream begins."""
    path = "/v1/history/events"
    stream = served.events(path)
    closing.callback(stream.close)
    served.post("/v1/jobs", JOB)
    name, first = stream.next()
    assert (name, first["job_id"], first["kind"]) == ("history", "nightly", "submitted")
    stream.close()
    for number in range(3):
        served.post("/v1/jobs", {**JOB, "id": f"job-{number}"})
    stream = served.events(path, last_event_id=first["cursor"])
    closing.callback(stream.close)
    served.post("/v1/jobs/nightly/cancel")

    found = [stream.next()[1] for _ in range(4)]
    assert [(one["job_id"], one["kind"]) for one in found] == [
        ("job-0", "submitted"),
        ("job-1", "submitted"),
        ("job-2", "submitted"),
        ("nightly", "cancel"),
    ]
    also = served.events(f"{path}?after={found[1]['cursor']}")
    closing.callback(also.close)
    assert [also.next()[1] for _ in range(2)] == found[2:]
    for cursor, status in (("x", 422), ("1~nightly~x.000000", 404)):
        assert served.get(f"{path}?after={cursor}", token=READ).status == status


def test_the_head_of_what_does_not_end(served: Served) -> None:
    """It is refused: no log is followed for it, and no login link is used up."""
    served.post("/v1/jobs", JOB)
    for path in ("events", "jobs/nightly/events", "jobs/nightly/log?follow=true"):
        assert served.ask("HEAD", f"/v1/{path}").status == 405
    link = served.post("/v1/login-link").json["path"]
    assert served.ask("HEAD", link, token=None).status == 405
    assert served.get(link, token=None).status == 303
