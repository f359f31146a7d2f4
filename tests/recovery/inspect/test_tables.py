"""The tables of a cluster: their rows, and how much each filter leaves to read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from jrs.contract.backend import Backend
from jrs.contract.operations import Create, Delete
from jrs.records import keys
from jrs.records.attempts import AttemptSummary
from jrs.records.codec import encode
from jrs.records.heads import BatchReport, StreamHead, StreamProgress
from jrs.records.history import HistoryKind
from jrs.records.model import (
    AttemptRecord,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    StageRecord,
    StageSummary,
    StreamRecord,
)
from jrs.records.snapshots import SnapshotFormat, SnapshotRecord
from jrs.recovery.inspect import tables
from jrs.recovery.inspect.table_jobs import Wanted
from jrs.recovery.inspect.tables import TABLES, ranges
from jrs.store import feed
from jrs.store.historian import Historian, Why
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore

ALL = Wanted()


@attrs.define
class Reads:
    """Counts the records that are read."""

    count: int = 0


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted = Reads()
    scan, get, get_many = Backend.scan, Backend.get, Backend.get_many

    def counting_scan(backend: Backend, prefix: str, **how: Any) -> Iterator[Any]:
        for record in scan(backend, prefix, **how):
            counted.count += 1
            yield record

    def counting_get(backend: Backend, key: str, **how: Any) -> Any:
        counted.count += 1
        return get(backend, key, **how)

    def counting_get_many(backend: Backend, keys: Any, **how: Any) -> Any:
        found = get_many(backend, keys, **how)
        counted.count += sum(record is not None for record in found)
        return found

    monkeypatch.setattr(Backend, "scan", counting_scan)
    monkeypatch.setattr(Backend, "get_many", counting_get_many)
    monkeypatch.setattr(Backend, "get", counting_get)
    return counted


def rows(backend: Backend, name: str, wanted: Wanted = ALL) -> list[dict[str, Any]]:
    table = TABLES[name]
    names = [column.split()[0] for column in table.columns.split(", ")]
    return [dict(zip(names, row, strict=True)) for row in table.rows(backend, wanted)]


def ids(backend: Backend, name: str, **options: str) -> list[str]:
    return sorted(row["job_id"] for row in rows(backend, name, Wanted.chosen(options)))


def ended(backend: Backend, job_id: str, at: float = 5.0, **more: Any) -> None:
    """Write the result of a job, and clean it."""
    store = JobResultStore(backend)
    status = more.pop("status", JobStatus.FINISHED)
    store.create_dirty(JobResult(job_id, status, finished_at=at, **more), None)
    store.mark_clean(job_id, None)


def many(backend: Backend, count: int) -> None:
    """Write results; one in ten has failed, and each ended a second after the one before."""
    for number in range(count):
        failure = Failure("exception", "no disk") if number % 10 == 0 else None
        status = JobStatus.FINISHED if failure is None else JobStatus.FAILED
        ended(backend, f"job-{number:03d}", 1000.0 + number, status=status, failure=failure)


# -- the rows -------------------------------------------------------------------------------------


def test_results(backend: Backend) -> None:
    """A result that cannot be read is a row that says so, and one that was expired is none."""
    failure = Failure("exception", "no disk")
    ended(
        backend, "a", status=JobStatus.FAILED, failure=failure, epoch=3, attempt=2, code="v1",
        started_at=2.5, stages=(StageSummary("one", 1, 3, 0.5),), payload={"é": 1},
    )  # fmt: skip
    backend.commit(Create(keys.RESULTS + "b", b"damaged"), Create(keys.DIRTY + "b", b""))
    ended(backend, "c")
    JobResultStore(backend).delete("c")

    first, second = rows(backend, "results")

    assert first == {
        "job_id": "a", "state": "clean", "status": "FAILED", "payload": '{"\\u00e9": 1}',
        "failure": "exception", "message": "no disk", "attempt": 2, "epoch": 3, "started_at": 2.5,
        "finished_at": 5.0, "code": "v1", "application": None, "stages": 1, "problem": None,
    }  # fmt: skip
    assert (second["job_id"], second["state"], second["status"]) == ("b", "dirty", None)
    assert "results/b" in second["problem"]


def test_jobs_that_have_not_ended_and_those_that_have(backend: Backend) -> None:
    """Each is there once, also one that is being cleaned up."""
    catalog = JobCatalog(backend, now=lambda: 7.0)
    spec = JobSpec("waits", "m:f", {"n": 1}, tags=("team=a",), slots=2, submitted_by="me@here")
    catalog.submit(spec)
    dirty = catalog.submit(JobSpec("cleaned-up", "m:g"))
    result = JobResult("cleaned-up", JobStatus.FINISHED, spec=dirty, finished_at=9.0)
    JobResultStore(backend).create_dirty(result, None)
    ended(backend, "clean")

    found = {row["job_id"]: row for row in rows(backend, "jobs")}

    assert sorted(found) == ["clean", "cleaned-up", "waits"]
    assert found["waits"] == {
        "job_id": "waits", "status": "CREATED", "state": None, "entry_point": "m:f",
        "arguments": '{"n": 1}', "tags": ("team=a",), "priority": 0, "slots": 2,
        "application": None, "submitted_at": 7.0, "submitted_by": "me@here", "attempt": None,
        "epoch": None, "started_at": None, "finished_at": None, "problems": (),
    }  # fmt: skip
    assert found["cleaned-up"]["state"] == "dirty"
    assert found["cleaned-up"]["entry_point"] == "m:g"
    assert (found["clean"]["status"], found["clean"]["entry_point"]) == ("FINISHED", None)


def test_a_job_that_ends_while_it_is_read(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there once, whichever of the two looks sees it."""
    JobCatalog(backend).submit(JobSpec("one", "m:f"))
    found = TABLES["jobs"].rows(backend, ALL)
    first = next(found)
    backend.commit(Delete(keys.JOBS + "one", backend.get(keys.JOBS + "one").version))  # type: ignore[union-attr]
    ended(backend, "one")

    assert first[:2] == ("one", "CREATED")
    assert list(found) == []


def test_stages_and_attempts(backend: Backend) -> None:
    """Those of a job that has ended are in its result, those of another one in its records."""
    stage, attempt = StageSummary("one", 1, 3, 0.5, 4.0), AttemptSummary(1, 3, "m1", "h", 7, 2.0)
    ended(backend, "a", stages=(stage,), attempts=(attempt,))
    JobCatalog(backend).submit(JobSpec("b", "m:f"))
    record = AttemptRecord("b", 2, 4, "m2", 8.0, host="h2")
    backend.commit(Create(keys.ATTEMPTS + "b", encode(record)))

    (row,) = rows(backend, "stages")
    assert tuple(row.values()) == ("a", "one", 1, 3, 0.5, 4.0, *[None] * 9)
    one, other = sorted(rows(backend, "attempts"), key=lambda row: row["job_id"])
    assert tuple(one.values()) == ("a", 1, 3, "m1", "h", 2.0, None, None, None, None)
    assert (other["attempt"], other["epoch"], other["host"]) == (2, 4, "h2")


def test_the_progress_of_streams(backend: Backend) -> None:
    """A stream has it whether it has finished or not, until its job has ended. One whose record
    cannot be read is no row, unless it has finished."""
    JobCatalog(backend).submit(JobSpec("live", "m:f"))
    progress = StreamProgress(11, 1.0, 1200, 120.5, 1263.1, 0.95, 0.5, 1532, 7, 3, 1800)
    for at, name in enumerate(("batch", "done", "hurt"), 4):
        stage = StageRecord("live", name, None, 1, 2, 3.0, float(at))
        backend.commit(Create(keys.stage("live", name), encode(stage)))
    backend.commit(
        Create(keys.head("live", "done"), encode(StreamHead("live", "done", 1, 6))),
        Create(keys.head("live", "hurt"), b"{"),
        Create(keys.head("live", "sums"), encode(
            StreamHead("live", "sums", 1, 12, report=BatchReport(12, 9.0, progress))
        )),
        Create(keys.stream("live", "new"),
               encode(StreamRecord("live", "new", False, "p", "4.3", 8.0))),
        Create(keys.head("live", "torn"), b"{"),
    )  # fmt: skip
    ended(backend, "past", stages=(StageSummary("sums", 1, 3, 0.5, 4.0),))

    found = {
        (row["job_id"], row["stage"]): tuple(row.values())[2:] for row in rows(backend, "stages")
    }

    of_none = (None,) * 9
    assert found == {
        ("live", "batch"): (1, 2, 3.0, 4.0, *of_none),
        ("live", "done"): (1, 2, 3.0, 5.0, 6, *of_none[1:]),
        ("live", "hurt"): (1, 2, 3.0, 6.0, *of_none),
        ("live", "sums"): (*[None] * 4, 12, 9.0, 120.5, 1263.1, 1532, 7, 0.5, 3, 1800),
        ("live", "new"): (*[None] * 4, *of_none),
        ("past", "sums"): (1, 3, 0.5, 4.0, *of_none),
    }  # fmt: skip


def test_snapshots_and_history(backend: Backend) -> None:
    record = SnapshotRecord("a", 1, SnapshotFormat.CAS, 6.0, "f" * 64, 3, 100, 50, name="eve")
    backend.commit(Create(keys.snapshots("a") + "1", encode(record)))
    JobCatalog(backend, now=lambda: 1.0).submit(JobSpec("a", "m:f"))

    (row,) = rows(backend, "snapshots")
    assert (row["number"], row["name"], row["format"], row["bytes"]) == (1, "eve", "cas", 100)
    (told,) = rows(backend, "history")
    assert (told["kind"], told["text"], told["epoch"]) == ("submitted", "submitted", None)
    assert "@" in told["by"]
    assert ids(backend, "snapshots", job="b") == []


def test_the_history_has_ids_facts_and_cursors(backend: Backend) -> None:
    """A cursor continues behind its event; an event whose place was swept has none."""
    jobs, facts = JobCatalog(backend), {"tries": 2, "places": ["a", "b"]}
    jobs.submit(JobSpec("a", "m:f", submitted_at=1.0))
    why = Why("recover", 1, facts)
    kind = HistoryKind.ATTEMPT
    with Historian(backend, "m").recorded("a", kind, "attempt 1 was started", why=why) as told:
        backend.commit(*told)
    jobs.submit(JobSpec("b", "m:f", submitted_at=1.0))

    first, second, third = rows(backend, "history")
    assert len({first["id"], second["id"], third["id"]}) == 3
    assert first["facts"] is None
    assert json.loads(second["facts"]) == facts
    assert [one.event.id for one in feed.read(backend, first["cursor"]).events] == [
        second["id"], third["id"],
    ]  # fmt: skip
    for place in list(feed.places(backend, "a")):
        backend.commit(Delete(keys.fed("a", place.event), place.version))
    assert [row["cursor"] for row in rows(backend, "history")] == [None, None, third["cursor"]]


def test_the_columns_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "tables.md").read_text()
    for name, table in TABLES.items():
        columns = ", ".join(f"`{column.split()[0]}`" for column in table.columns.split(", "))

        assert re.search(rf"(?m)^\| `{name}` \| .* \| {columns} \|$", page), name


# -- which jobs ----------------------------------------------------------------------------------


def at(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


@pytest.mark.parametrize(
    ("options", "found", "read"),
    [
        ({"job": "job-007"}, 1, 15),
        ({"job": "none"}, 0, 15),
        ({"job": "job-007", "since": at(1007)}, 1, 15),
        ({"job": "job-007", "since": at(1008)}, 0, 15),
        ({"job": "job-007", "until": at(1006)}, 0, 15),
        ({"until": "1970-01-01T00:16:40.000500+00:00"}, 1, 20),
        ({"prefix": "job-09"}, 10, 25),
        ({"prefix": "no id"}, 0, 5),
        ({"status": "FAILED"}, 10, 40),
        ({"status": "FAILED,RUNNING"}, 10, 40),
        ({"status": "RUNNING"}, 0, 5),
        ({"since": at(1095)}, 5, 20),
        ({"since": at(1002), "until": at(1004)}, 3, 20),
        ({"since": at(1085), "status": "FAILED"}, 1, 10),
        ({}, 100, 250),
    ],
)
@pytest.mark.parametrize("name", ["results", "jobs"])
def test_no_more_is_read_than_is_asked_for(
    backend: Backend, reads: Reads, name: str, options: dict[str, str], found: int, read: int
) -> None:
    """Jobs are found without the others, as far as there is an index."""
    many(backend, 100)
    for number in range(50):
        JobCatalog(backend).submit(JobSpec(f"other-{number}", "m:f"))
    reads.count = 0
    expected = found + (50 if name == "jobs" and not options else 0)
    looks_at_unfinished = name == "jobs" and (not options or "RUNNING" in options.get("status", ""))
    read += 10 * 50 * looks_at_unfinished

    assert len(ids(backend, name, **options)) == expected
    assert reads.count <= read


def test_snapshots_are_found_without_the_others(backend: Backend, reads: Reads) -> None:
    """One that cannot be read is a row that says so."""
    for job_id in ("a", "b", "b-c", "c"):
        record = SnapshotRecord(job_id, 1, SnapshotFormat.CAS, 6.0, "f" * 64, 3, 100, 50)
        backend.commit(Create(keys.snapshots(job_id) + "1", encode(record)))
    backend.commit(Create(keys.snapshots("b") + "2", b"damaged"))
    reads.count = 0

    found = rows(backend, "snapshots", Wanted.chosen({"job": "b"}))
    assert [row["number"] for row in found] == [1, None]
    assert "snapshots/b/2" in found[1]["problem"]
    assert reads.count == 2
    assert ids(backend, "snapshots", prefix="b-") == ["b-c"]
    assert reads.count == 3


def test_what_a_result_has_kept_of_its_job(backend: Backend) -> None:
    """What it left out is null, and what it knows is not."""
    large = JobSpec("large", "m:f", {"text": "x" * 20_000}, slots=3)
    ended(backend, "large", spec=large)
    ended(backend, "old", attempt=2, epoch=3, started_at=100.0, application="app")

    large_row, old = rows(backend, "jobs")
    assert (large_row["arguments"], large_row["slots"]) == (None, 3)
    assert [old[name] for name in ("attempt", "epoch", "started_at", "application")] == [
        2, 3, 100.0, "app",
    ]  # fmt: skip


def test_ranges(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they have each row once, also one whose id is a bound."""
    monkeypatch.setattr(tables, "_SMALL", 50)
    many(backend, 100)
    for job_id in ("job-0", "job-00", "job-1", "job-2", "z"):
        ended(backend, job_id)
    JobCatalog(backend).submit(JobSpec("job-050.unfinished", "m:f"))
    parts = ranges(backend, TABLES["jobs"], ALL, 4)
    found = [[row[0] for row in TABLES["jobs"].rows(backend, part)] for part in parts]

    assert len(parts) == 4
    assert sorted(job_id for part in found for job_id in part) == ids(backend, "jobs")
    assert min(map(len, found)) > 15


@pytest.mark.parametrize(
    ("name", "wanted", "most"),
    [
        ("results", ALL, 1),
        ("snapshots", ALL, 4),
        ("results", Wanted(since=5.0), 4),
        ("results", Wanted.chosen({"status": "FAILED,CANCELED"}), 4),
        ("results", Wanted(job="a"), 4),
    ],
)
def test_what_is_read_in_one_part(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, name: str, wanted: Wanted, most: int
) -> None:
    monkeypatch.setattr(tables, "_SMALL", 10)
    many(backend, 50)

    assert ranges(backend, TABLES[name], wanted, most) == [wanted]


def test_few_results_are_read_in_one_part(backend: Backend) -> None:
    many(backend, 50)

    assert ranges(backend, TABLES["results"], ALL, 4) == [ALL]
