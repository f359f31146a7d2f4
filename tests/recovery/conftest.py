"""The fixtures of the recovery tests: backends with faults, on memory and on a folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jrs.backends.memory import Space
from jrs.contract.operations import Create
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobSpec
from tests.recovery.attempt.objects_attempt import lead_on
from tests.recovery.lead import Lead
from tests.recovery.storage.support import Store
from tests.recovery.support import CLUSTER, Faulty, FaultyFile, FaultyMemory


@pytest.fixture(params=["memory", "file"])
def open_faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Faulty]]:
    """Open handles on one cluster, in memory and then on a folder."""
    space = Space()
    name = uuid.uuid4().hex

    with ExitStack() as stack:

        def open_one() -> Faulty:
            backend: Faulty
            if request.param == "memory":
                backend = FaultyMemory(space, url=f"memory://{name}", cluster=CLUSTER)
            else:
                backend = FaultyFile(tmp_path / "store", CLUSTER)
            stack.enter_context(backend)
            return backend

        yield open_one


@pytest.fixture
def faulty(open_faulty: Callable[[], Faulty]) -> Faulty:
    return open_faulty()


@pytest.fixture
def memory() -> Iterator[FaultyMemory]:
    """A memory backend of its own, with faults."""
    with FaultyMemory(Space(), url=f"memory://{uuid.uuid4().hex}", cluster=CLUSTER) as backend:
        yield backend


@pytest.fixture
def store() -> Store:
    """A store of objects, in memory."""
    return Store()


@pytest.fixture
def lead(memory: FaultyMemory, tmp_path: Path, store: Store) -> Lead:
    """A leadership whose jobs keep their files in that store, and the spec of ``job``."""
    made = lead_on(memory, tmp_path / "work", store)
    memory.commit(Create(keys.JOBS + "job", encode(JobSpec("job", "m:f"))))
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of the jobs' folders."""
    return tmp_path / "jobs"


@pytest.fixture(autouse=True)
def leads_end() -> Iterator[None]:
    yield
    while Lead.current:
        Lead.current.pop().leadership.resign()
