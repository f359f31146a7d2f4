"""Scenes for take_screenshots.py that last too short, or need too much, to wait for them.

Each is made of what masters, attempts and clients write, by the same functions of the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from jrs import Client, StreamProgress
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Fence, Update
from jrs.records import keys
from jrs.records.attempts import AttemptSummary
from jrs.records.codec import encode
from jrs.records.heads import BatchReport, StreamHead
from jrs.records.model import (
    AttemptRecord,
    CleanupJournal,
    Failure,
    JobResult,
    JobSpec,
    JobStatus,
    StageRecord,
    StopMode,
    StopRecord,
    StreamRecord,
)
from jrs.records.stages import StageSummary
from jrs.records.stop import StopState
from jrs.store.masters import Registration, Registry
from jrs.store.stops import JobStops
from jrs.testing.masters import Masters

ARCHIVED = 100_000
_AT_A_TIME = 5000
_BATCH = 10.0
"""Seconds between two batches of the streams."""


@contextmanager
def elected(client: Client, name: str) -> Iterator[Leadership]:
    """Have this process elected as that master. It runs no job."""
    leadership = client.backend.campaign(name, ttl=60.0, stop=threading.Event())
    assert leadership is not None
    try:
        yield leadership
    finally:
        leadership.resign()


@contextmanager
def leading(client: Client, name: str) -> Iterator[Fence]:
    """Lead from this process; yield the fence of what a leader writes."""
    with elected(client, name) as leadership:
        registration = Registration(Registry(client.backend), name, max_attempts=4)
        registration.leading(leadership.epoch)
        try:
            yield leadership.fence
        finally:
            registration.close()


@contextmanager
def leaderless(masters: Masters, client: Client) -> Iterator[None]:
    """Kill the leader; none leads in here, and the others stand by.

    A standby would lead within a second. They are stopped, therefore, until this process has won
    the election in their place, which then says nothing: as a master that hangs at its start.
    """
    leader = masters.leader()
    others = [one for one in masters.all if one.alive and one is not leader]
    for one in others:
        one.pause()
    leader.kill()
    try:
        with elected(client, "m4"):
            for one in others:
                one.resume()
            yield
    finally:
        for one in others:
            one.resume()


@contextmanager
def recovering(client: Client) -> Iterator[None]:
    """Register the master that was elected in `leaderless`: it recovers the jobs, slowly."""
    registration = Registration(Registry(client.backend), "m4", max_attempts=3)
    try:
        yield
    finally:
        registration.close()


def draining(client: Client, fence: Fence) -> None:
    """Write a job with two streams that drain, as its leader and its attempt would.

    It needs no Spark: these are the records that the attempt commits with its batches, and then
    the steps that it reports of a drain that was requested.
    """
    now, job_id = time.time(), "live-delays"
    client.submit_spec(JobSpec(job_id, "flights:live", {"airport": "JFK"}, tags=("team=ops",)))
    job = client.job(job_id)
    earlier = AttemptSummary(1, 1, "m1", "host-a", 711, now - 5400, now - 1900, "its master died")
    attempt = AttemptRecord(
        job_id, 2, 2, "m2", now - 1880, first_started_at=now - 5400, host="host-b", pid=1213,
        earlier=(earlier,),
    )  # fmt: skip
    carriers = StageRecord(job_id, "carriers", {"rows": 16}, 1, 1, 41.0, now - 5350)
    progress = {
        "delays": StreamProgress(
            187, now - 12, 42_118, 4_188.2, 6_015.9, 7.0, now - 75, 1_532, None, 88_214, 31_457_280
        ),
        "alerts": StreamProgress(92, now - 24, 310, 31.0, 1_240.0, 0.25, None, None, 0, None, None),
    }
    records = {keys.ATTEMPTS + job_id: attempt, keys.stage(job_id, "carriers"): carriers}
    for name in progress:
        began = StreamRecord(job_id, name, False, "plan", "4.3", now - 5340)
        records[keys.stream(job_id, name)] = began
        records[keys.head(job_id, name)] = _head(job_id, name, progress[name], now - _BATCH)
    client.backend.commit(
        *(Create(key, encode(record)) for key, record in records.items()), fence=fence
    )
    job.drain(reason="the source moves to another topic")
    steps = {"delays": "flushing", "alerts": "drained"}
    JobStops(client.backend).report_progress(job_id, steps, fence)


def _head(job_id: str, stage: str, progress: StreamProgress, at: float) -> StreamHead:
    batch = progress.batch + 1
    return StreamHead(job_id, stage, 1, batch, report=BatchReport(batch, at, progress))


def commit_batch(client: Client, fence: Fence) -> None:
    """Commit one more batch of the stream that still flushes, as its attempt would."""
    key = keys.head("live-delays", "delays")
    found = client.backend.get(key)
    assert found is not None
    (status,) = (one for one in client.job("live-delays").streams() if one.stage == "delays")
    assert status.progress is not None
    later = attrs.evolve(status.progress, batch=status.progress.batch + 1)
    head = _head("live-delays", "delays", later, time.time())
    client.backend.commit(Update(key, encode(head), found.version), fence=fence)


def odd(client: Client, fence: Fence) -> None:
    """Write jobs with the longest and strangest texts that a cluster may have."""
    now, weeks = time.time(), 21 * 86400.0
    error = "Py4JJavaError: An error occurred while calling o45.save.\n:"
    error += "\n\tat a.b.C(D.java)" * 300
    long_id = f"{'monthly-reconciliation-of-all-ledgers.' * 4}"[:123] + "-end1"
    tags = ("צוות=לילה", "🚀🛰️=launch", "t" * 128)
    failed = JobSpec(long_id, "etl:load", tags=tags, submitted_at=now - weeks)
    attempts = (
        AttemptSummary(1, 1, "m1", "h" * 63, 711, now - weeks, now - 86400, f"died: {error}"),
        AttemptSummary(2, 2, "m2", "host-b", 712, now - 0.9, now - 0.5, "failed"),
    )
    names = ("extract", "a" * 64, "load")
    ends = (now - weeks / 2, now - 86400 - 5.0, now - 0.6)
    stages = tuple(
        StageSummary(name, 1 + (name == "load"), 1, seconds, end)
        for name, seconds, end in zip(names, (weeks / 2 - 9, 9e5, 0.004), ends, strict=True)
    )
    client.results.create_dirty(
        JobResult(
            long_id, JobStatus.FAILED, None,
            Failure("exception", error, f"Traceback\n{error}\x1b[31m"), attempt=2, epoch=2,
            started_at=now - weeks, finished_at=now - 0.5, spec=failed,
            attempts=attempts, stages=stages,
        ), fence,
    )  # fmt: skip
    left = {"checkpoints": f"/srv/{'deep/' * 60}state: [Errno 13] Permission denied"}
    held = StopRecord(f"held-{long_id}"[:128], StopMode.HOLD, StopState.DONE, now, error)
    client.submit_spec(JobSpec(held.job_id, "m:f", {"text": "ש" * 900}, tags=tags))
    client.submit_spec(JobSpec("x", "m:f", tags=tags))
    records = {
        keys.CLEANUP + long_id: CleanupJournal(long_id, (), 9, left, True),
        keys.STOPS + held.job_id: held,
        keys.ATTEMPTS + "x": AttemptRecord("x", 1, 2, "m2", now, first_started_at=now, host="h"),
    }
    client.backend.commit(
        *(Create(key, encode(record)) for key, record in records.items()), fence=fence
    )
    client.pause(reason="the data lake moves to another region; ask the night shift " * 6)


def archive(client: Client, fence: Fence) -> None:
    """Write the results of 10^5 jobs, as leaders have done over some weeks, and submit a few."""
    now = time.time()
    for first in range(0, ARCHIVED, _AT_A_TIME):
        numbers = range(first, first + _AT_A_TIME)
        results = [_archived(number, now) for number in numbers]
        for write in [client.results.create_dirty_async(one, fence) for one in results]:
            write.result(60)
        for write in [client.results.mark_clean_async(one.job_id, fence) for one in results]:
            write.result(60)
    for day in range(1, 13):
        client.submit_spec(JobSpec(f"report-2026-12-{day:02}", "etl:report", tags=("daily",)))


def _archived(number: int, now: float) -> JobResult:
    job_id = f"load-{number // 40:04}-{number % 40:02}"
    ended = now - 3600 - 20.0 * (ARCHIVED - number)
    failed = number % 997 == 7
    return JobResult(
        job_id,
        JobStatus.FAILED if failed else JobStatus.FINISHED,
        None if failed else {"rows": 1000 + number % 89},
        Failure("exception", "FileNotFoundError: orders.csv has not arrived") if failed else None,
        attempt=1 + (number % 61 == 0),
        epoch=1 + number // 30_000,
        started_at=ended - 90,
        finished_at=ended,
        spec=JobSpec(job_id, "etl:load", tags=("team=sales",), submitted_at=ended - 95),
    )
