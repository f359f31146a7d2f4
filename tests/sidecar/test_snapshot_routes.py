"""The routes of snapshots and of forks, over a job as Spark and jrs leave it."""

from __future__ import annotations

import http.client
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jrs import Client, JobResult, JobStatus
from jrs.client import plain
from jrs.client.snapshots import JobSnapshots
from jrs.contract.operations import Delete
from jrs.records.codec import to_plain
from jrs.records.model import MAX_COPIED_ARGUMENTS
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.files.transfer import Progress
from jrs.recovery.snapshots import SnapshotCatalog
from jrs.sidecar import paging, storage_threads
from jrs.sidecar.storage_threads import MOST_LONG
from tests.recovery.snapshots.fabricate import FakeJob
from tests.sidecar.conftest import OPERATE, READ, Served
from tests.support import BOUND, until

PATH = "/v1/jobs/job"


@pytest.fixture
def job(client: Client, tmp_path: Path) -> FakeJob:
    """A suspended job with four batches behind it."""
    storage = JobStorage(tmp_path / "store" / "storage", "default")
    return FakeJob(client.backend, storage).run(4).suspend()


def statuses(served: Served, path: str, *bodies: dict[str, Any]) -> list[int]:
    return [served.post(f"{PATH}{path}", body).status for body in bodies]


def test_snapshots_are_taken(served: Served, job: FakeJob) -> None:
    """A new one is 201, the same one again 200, another one of that name 409, of any field; without
    a name each request takes one."""
    same = {"name": "mine", "format": "cas", "batches": {"hourly": 2}}
    others = ({"format": "link"}, {"output": False}, {"batches": {"hourly": 3}})

    assert statuses(served, "/snapshots", same, same, {"name": "mine"}) == [201, 200, 200]
    assert statuses(served, "/snapshots", *({**same, **other} for other in others)) == [409] * 3
    assert statuses(served, "/snapshots", {}, {}) == [201, 201]
    snapshots = served.client.job("job").snapshots.list()
    assert [(one.number, one.name) for one in snapshots] == [(1, "mine"), (2, None), (3, None)]
    assert snapshots[0].stages[0].batch == 2
    for body, says in (
        ({"batches": {"hourly": "2"}}, "no number for stage 'hourly'"),
        ({"batches": {"hourly": 99}}, "99"),
        ({"batches": {"none": 1}}, "none"),
        ({"name": "7"}, "would be read as a number"),
        ({"format": "logical"}, "must be one of"),
    ):
        answer = served.post(f"{PATH}/snapshots", body)
        assert (answer.status, says in answer.text) == (422, True), body
    assert served.post("/v1/jobs/none/snapshots", {"name": "x"}).status == 404


def test_snapshots_are_read(served: Served, job: FakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """By job, by number and by name; of all jobs, in pages; what does not exist is 404."""
    served.post(f"{PATH}/snapshots", {"name": "mine"})
    served.post(f"{PATH}/snapshots/mine/fork", {"as_id": "new"})
    served.post("/v1/jobs/new/snapshots", {"name": "own"})
    snapshots = served.client.job("job").snapshots
    mine = to_plain(snapshots.get("mine"))

    for path, expected in (
        ("/snapshots", {"snapshots": [mine]}),
        ("/snapshots/1", mine),
        ("/snapshots/mine", mine),
        ("/snapshots/mine/manifest", to_plain(snapshots.manifest("mine"))),
        ("/pending-restore", {"restore": None}),
    ):
        answer = served.get(f"{PATH}{path}", token=READ)
        assert (answer.status, answer.json) == (200, expected), path
    for path in ("/snapshots/9", "/snapshots/9/manifest"):
        assert served.get(f"{PATH}{path}").status == 404
    for path in ("/snapshots", "/pending-restore"):
        assert served.get(f"/v1/jobs/none{path}").status == 404
    first = served.get("/v1/snapshots?limit=1", token=READ).json
    assert ([one["name"] for one in first["snapshots"]], first["next"]) == (["mine"], "job")
    second = served.get("/v1/snapshots?limit=1&after=job").json
    assert ([one["name"] for one in second["snapshots"]], second["next"]) == (["own"], None)
    monkeypatch.setattr(paging, "MOST_BYTES", 1)  # A page ends behind a job.
    assert served.get("/v1/snapshots", token=READ).json == first
    assert served.get("/v1/snapshots?after=a%20b").status == 422


def test_snapshots_are_checked_converted_and_deleted(served: Served, job: FakeJob) -> None:
    """Each is the client's call; a damaged one is told, and an older one taken; the last one that
    the job needs stays."""
    for name in ("old", "new"):
        served.post(f"{PATH}/snapshots", {"name": name, "format": "full"})
    snapshots = served.client.job("job").snapshots
    verified = served.post(f"{PATH}/snapshots/new/verify")
    assert (verified.status, verified.json) == (200, to_plain(snapshots.get("new")))
    usable = served.post(f"{PATH}/newest-usable").json
    assert (usable["snapshot"]["name"], usable["skipped"]) == ("new", [])
    for _ in range(2):
        answer = served.post(f"{PATH}/snapshots/old/convert", {"format": "cas"})
        assert (answer.status, answer.json["format"]) == (200, "cas")
    assert statuses(served, "/snapshots/old/convert", {}, {"format": "logical"}) == [422, 422]

    damaged = next((job.storage.folder("job") / "snapshots" / "2").rglob("offsets/3"))
    damaged.write_text("damaged")
    answer = served.post(f"{PATH}/snapshots/new/verify")
    assert (answer.status, answer.json["type"]) == (409, "urn:jrs:damaged-snapshot")
    usable = served.post(f"{PATH}/newest-usable").json
    assert usable == plain.of_usable(snapshots.newest_usable())
    assert usable["snapshot"]["name"] == "old"
    assert [one["snapshot"]["name"] for one in usable["skipped"]] == ["new"]
    assert statuses(served, "/snapshots/new/restore", {"as_id": "b"}) == [409]
    assert statuses(served, "/snapshots/old/delete", {}) == [409]
    assert statuses(served, "/snapshots/new/delete", {}, {}) == [200, 404]
    missing = [f"/snapshots/9/{verb}" for verb in ("delete", "verify", "restore")]
    assert [served.post(f"{PATH}{path}").status for path in missing] == [404] * 3


@pytest.mark.parametrize("verb", ["restore", "fork"])
def test_jobs_are_made_of_a_snapshot(served: Served, job: FakeJob, verb: str) -> None:
    """A new job is 201, the same one again 200, another one of that id 409."""
    for name in ("one", "two"):
        served.post(f"{PATH}/snapshots", {"name": name})
    first = served.post(f"{PATH}/snapshots/one/{verb}", {"as_id": "new"})
    again = served.post(f"{PATH}/snapshots/1/{verb}", {"as_id": "new"})
    other = "fork" if verb == "restore" else "restore"

    assert (first.status, again.status) == (201, 200)
    assert first.json["stages"] == [{"name": "hourly", "batch": 3}]
    assert again.json.items() <= first.json.items()
    assert served.client.job("job").descendants()[0].descendant == "new"
    assert statuses(served, f"/snapshots/two/{verb}", {"as_id": "new"}) == [409]
    assert statuses(served, f"/snapshots/one/{other}", {"as_id": "new"}) == [409]
    assert statuses(served, "/fork", {"as_id": "job"}) == [409]
    assert statuses(served, f"/snapshots/9/{verb}", {"as_id": "b"}) == [404]
    assert statuses(served, "/snapshots/one/fork", {}) == [422]


def test_a_job_is_put_back(served: Served, job: FakeJob) -> None:
    """A suspended job, as often as it is asked; one that runs is refused; no restore is left."""
    served.post(f"{PATH}/snapshots", {"name": "one"})
    assert statuses(served, "/snapshots/one/restore", {}, {}) == [200, 200]
    assert statuses(served, "/finish-restore", {}) == [409]
    assert statuses(served, "/resume", {}) == [200]
    answer = served.post(f"{PATH}/snapshots/one/restore")
    assert (answer.status, answer.json["type"]) == (409, "urn:jrs:job-is-running")


def test_a_fork_of_what_is_there_now(served: Served, job: FakeJob) -> None:
    """A new job is 201, the same one again 200, another one of that id 409."""
    assert statuses(served, "/fork", {"as_id": "new"}, {"as_id": "new"}) == [201, 200]
    served.post("/v1/jobs", {"id": "other", "entry": "m:f"})
    assert statuses(served, "/fork", {"as_id": "other"}, {"as_id": "job"}, {}) == [409, 409, 422]
    assert served.post("/v1/jobs/none/fork", {"as_id": "b"}).status == 404
    assert served.get(f"{PATH}/snapshots").json == {"snapshots": []}


def test_a_cleanup_is_forced(served: Served, job: FakeJob) -> None:
    """What is left is told, and the result is clean; a job that has not ended, or is clean, is
    refused."""
    assert served.get(f"{PATH}/left").status == 404
    assert statuses(served, "/cleanup/force", {}) == [404]
    served.client.results.create_dirty(JobResult("job", JobStatus.CANCELED), None)
    left = served.get(f"{PATH}/left", token=READ).json["left"]
    assert left

    forced = served.post(f"{PATH}/cleanup/force", {"because": "the disk is gone"})
    assert (forced.status, forced.json["left"].keys()) == (200, left.keys())
    assert served.client.results.has_clean("job")
    assert statuses(served, "/cleanup/force", {}) == [409]


def test_a_job_is_retried(served: Served, job: FakeJob) -> None:
    """A new job is 201, the same one again 200, another one of that id 409."""
    catalog = SnapshotCatalog(served.client.backend, job.storage)
    catalog.create("job", at_end=True)
    served.client.results.create_dirty(JobResult("job", JobStatus.CANCELED), None)
    served.client.results.mark_clean("job", None)
    same = {"as_id": "new", "entry": "m:g", "changed": {"day": 2}}

    assert statuses(served, "/retry", same, same) == [201, 200]
    others = ({"entry": "m:h"}, {"changed": {"day": 3}}, {"arguments": {"x": 2}})
    assert statuses(served, "/retry", *({**same, **other} for other in others)) == [409] * 3
    assert statuses(served, "/retry", {}, {"as_id": "b", "from_stage": "none"}) == [422, 422]
    assert served.client.job("new").view().spec
    # Its words decide, whatever its code is now.
    served.client.job("new").upgrade("m:h")
    spec = served.client.job("new").view().spec
    assert spec is not None
    again: list[dict[str, Any]] = [{}, {"entry": "m:h"}, {"arguments": spec.arguments}]
    assert statuses(served, "/retry", *({**same, **one} for one in again)) == [200, 409, 409]
    # Also once it has ended, and keeps no such arguments.
    large = {"as_id": "large", "arguments": {"x": "y" * MAX_COPIED_ARGUMENTS}}
    assert statuses(served, "/retry", large) == [201]
    spec = served.client.job("large").view().spec
    served.client.results.create_dirty(JobResult("large", JobStatus.CANCELED, spec=spec), None)
    served.client.results.mark_clean("large", None)
    served.client.backend.commit(Delete("jobs/large"))
    other = {"as_id": "large", "arguments": {"x": "z" * MAX_COPIED_ARGUMENTS}}
    assert statuses(served, "/retry", large, other) == [200, 409]


READING_ALL = [("verify", "snapshots/1/verify"), ("newest_usable", "newest-usable")]


@pytest.mark.parametrize(("method", "path"), READING_ALL)
def test_what_reads_every_byte_ends_once_its_caller_has_gone(
    served: Served, job: FakeJob, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """It may read for hours, in one of the few threads for the storage."""
    begun, ended, over = threading.Event(), threading.Event(), threading.Event()

    def read(self: JobSnapshots, *which: int | str, progress: Progress) -> None:
        begun.set()
        try:
            while not over.wait(0.01):
                progress(0, 1)
        finally:
            ended.set()

    monkeypatch.setattr(JobSnapshots, method, read)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=BOUND)
    try:
        sent = {"Authorization": f"Bearer {OPERATE}"}
        connection.request("POST", f"{PATH}/{path}", headers=sent)
        assert begun.wait(BOUND)
        assert not ended.is_set()
        connection.close()
        assert ended.wait(BOUND)
    finally:
        over.set()


def test_what_reads_every_byte_leaves_the_storage_to_others(
    served: Served, job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few such requests run at once, for as long as they take: one more is refused, and requests
    that are soon answered still are."""
    monkeypatch.setattr(storage_threads, "_PATIENCE", 0.2)
    begun, over = list[str](), threading.Event()
    for method, _ in READING_ALL:
        real = getattr(JobSnapshots, method)

        def read(*given: Any, real: Any = real, **named: Any) -> Any:
            begun.append(real.__name__)
            over.wait(BOUND)
            return real(*given, **named)

        monkeypatch.setattr(JobSnapshots, method, read)
    assert served.post(f"{PATH}/snapshots", {"name": "one"}).status == 201
    with ThreadPoolExecutor() as callers:
        try:
            paths = [f"{PATH}/{path}" for _, path in READING_ALL] * (MOST_LONG // 2)
            answers = [callers.submit(served.post, path) for path in paths]
            until(lambda: len(begun) == MOST_LONG, "as many run as may")
            for _, path in READING_ALL:
                refused = served.post(f"{PATH}/{path}")
                assert refused.status == 503
                assert "4 requests read whole snapshots now" in refused.json["detail"]
            assert served.get(f"{PATH}/snapshots").status == 200
        finally:
            over.set()
        assert [answer.result().status for answer in answers] == [200] * MOST_LONG
    assert served.post(f"{PATH}/newest-usable").status == 200
