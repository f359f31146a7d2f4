"""The fixtures of the snapshot tests: a catalogue on a memory backend, and one with faults."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.backends.memory import Space
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.snapshots import SnapshotCatalog
from tests.recovery.snapshots.fabricate import FakeJob
from tests.recovery.support import CLUSTER, FaultyMemory


@pytest.fixture
def memory() -> Iterator[FaultyMemory]:
    with FaultyMemory(Space(), url=f"memory://{uuid.uuid4().hex}", cluster=CLUSTER) as backend:
        yield backend


@pytest.fixture
def elsewhere() -> Iterator[FaultyMemory]:
    """The backend of another cluster."""
    with FaultyMemory(Space(), url=f"memory://{uuid.uuid4().hex}", cluster=CLUSTER) as backend:
        yield backend


@pytest.fixture
def storage(tmp_path: Path) -> JobStorage:
    return JobStorage(tmp_path / "jobs", CLUSTER)


@pytest.fixture
def catalog(memory: FaultyMemory, storage: JobStorage) -> SnapshotCatalog:
    ticks = itertools.count(1000)
    return SnapshotCatalog(
        memory, storage, now=lambda: float(next(ticks)), sleep=lambda seconds: None
    )


@pytest.fixture
def job(memory: FaultyMemory, storage: JobStorage) -> FakeJob:
    """A job that was never attempted, with five batches behind it."""
    return FakeJob(memory, storage).run(5)
