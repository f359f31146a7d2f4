"""Waiting for a job in the queue, and explaining many: how often the queue is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from jrs import Client, Create, Delete, Explanation, JobResult, JobStatus, MasterInfo
from jrs.client import waiting
from jrs.contract.backend import Backend
from jrs.contract.operations import Record, Update
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import StopRecord, StopState
from jrs.recovery.inspect import explain
from jrs.recovery.inspect.queue import places
from jrs.store.masters import Registry
from jrs.testing.contract import lead
from tests.recovery.conftest import memory
from tests.recovery.support import FaultyMemory
from tests.support import BOUND, until

__all__ = ["memory"]


@pytest.fixture
def client(memory: FaultyMemory) -> Iterator[Client]:
    """A client of a cluster whose leader has one slot, for which four jobs wait in a row."""
    client = Client(memory)
    for number in range(5):
        client.submit("m:f", id=f"job-{number}")
    with lead(memory) as leadership:
        Registry(memory).put(
            MasterInfo("m1", "h", 1, 1.0, 0.0, leading=leadership.epoch, max_attempts=1)
        )
        yield client


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> list[Backend]:
    """Gets the backend each time that the queue is read."""
    read: list[Backend] = []

    def counted(backend: Backend) -> dict[str, int]:
        read.append(backend)
        return places(backend)

    monkeypatch.setattr(explain, "places", counted)
    return read


def test_a_queue_that_moves_is_read_once_and_reported_once(
    client: Client, queues: list[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that waits for a job in the queue reads the queue when the job comes to wait, not
    whenever another job starts."""
    monkeypatch.setattr(waiting, "_FIRST", 0.001)
    monkeypatch.setattr(waiting, "_LAST", 0.001)
    backend, told = client.backend, list[str]()
    looks, seen = threading.Semaphore(0), backend.get

    def get(key: str, **more: Any) -> Record | None:
        if key == keys.PAUSE:
            looks.release()
        return seen(key, **more)

    def notify(found: Explanation) -> None:
        told.append(str(found))

    monkeypatch.setattr(backend, "get", get)
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(client.job("job-4").result, 60.0, notify=notify)
        until(lambda: told, "it is said to wait")
        for number in range(3):
            backend.commit(Delete(keys.JOBS + f"job-{number}"))
            for _ in range(5):
                assert looks.acquire(timeout=60.0)

        assert told == ["waiting: place 4 in the queue [wait]"]
        assert len(queues) == 1

        client.pause(reason="for a test")
        until(lambda: len(told) == 2, "the pause is said")
        client.unpause()
        until(lambda: len(told) == 3, "the new place is said")
        backend.commit(
            Create(keys.RESULTS + "job-4", encode(JobResult("job-4", JobStatus.FINISHED))),
            Create(keys.DIRTY + "job-4", b""),
        )
        end.result(timeout=60.0)

    assert told[2] == "waiting: place 1 in the queue [wait]"
    assert len(queues) == 2


def test_a_wait_for_a_stop_reports_what_happens_to_the_job(
    memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that no master leads, once, and tells of each change of the stop once."""
    monkeypatch.setattr(waiting, "_FIRST", 0.001)
    monkeypatch.setattr(waiting, "_LAST", 0.001)
    client, told, stops = Client(memory), list[Explanation](), list[StopRecord]()
    job = client.submit("m:f", id="job")
    job.suspend(reason="a release")
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(job.wait_stopped, 60.0, stops.append, notify=told.append)
        until(lambda: told, "it is said that nobody leads")
        looks = memory.reads.count(keys.PAUSE)
        until(lambda: memory.reads.count(keys.PAUSE) > looks + 2, "it has looked again")
        assert len(told) == len(stops) == 1
        stopped = attrs.evolve(stops[0], state=StopState.DONE)
        (stored,) = memory.scan(keys.STOPS)
        memory.commit(Update(stored.key, encode(stopped), stored.version))

        assert end.result(timeout=60.0) == stopped
    assert told[0].nobody_leads.startswith("no master has ever led this cluster")
    assert stops[-1] == stopped


def test_a_wait_for_a_stop_that_takes_too_long(memory: FaultyMemory) -> None:
    job = Client(memory).submit("m:f", id="job")
    job.suspend()

    with pytest.raises(TimeoutError, match="has not stopped yet; the request stays"):
        job.wait_stopped(0.0, notify=lambda explained: None)


def test_a_timeout_of_the_callers_own_is_not_taken_for_the_waits(
    memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the caller's function raises ends the wait as it is."""
    monkeypatch.setattr(waiting, "_FIRST", 0.001)
    job = Client(memory).submit("m:f", id="job")
    job.suspend()
    own = TimeoutError("the bell did not ring")

    def fails(_: object) -> None:
        raise own

    for wait in (
        lambda: job.wait_stopped(BOUND, fails, notify=lambda explained: None),
        lambda: job.wait_stopped(BOUND, notify=fails),
        lambda: job.result(notify=fails),
    ):
        with pytest.raises(TimeoutError) as raised:
            wait()
        assert raised.value is own


def test_the_queue_is_read_once_for_many_jobs(client: Client, queues: list[Backend]) -> None:
    """Each job has its own place; the first one has the slot."""
    said = [one.reason for one in client.explanations(client.unfinished())]

    assert said == ["starting", *(f"waiting: place {n} in the queue" for n in range(1, 5))]
    assert len(queues) == 1


def test_fsck_needs_no_place_in_the_queue(client: Client, queues: list[Backend]) -> None:
    """It reports the jobs that a leader holds, which have none."""
    assert client.fsck().held == ()
    assert queues == []
