"""The fixtures and common steps of all cases of the contract: handles, processes, leading."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from jrs.contract.backend import Backend
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Fence, Record
from jrs.testing.worker import Worker

BOUND = 60.0
"""Seconds to wait for a condition that should hold soon."""

Opener = Callable[[str], Backend]
"""Opens a handle on the cluster of that name; all clusters of a test are in one store."""

Hang = Callable[[Backend, float], Fence]
"""Lets another process lead with that ttl and then hang; returns its fence."""


class BackendFixtures:
    """The fixtures of every case. A backend overrides `opener`; the fixtures close its handles."""

    @pytest.fixture
    def opener(self) -> Opener:
        raise NotImplementedError("override the fixture `opener`")

    @pytest.fixture
    def handles(self, opener: Opener) -> Iterator[Opener]:
        """Open handles like `opener`, and close them all when the test ends."""
        with ExitStack() as stack:
            yield lambda cluster: stack.enter_context(opener(cluster))

    @pytest.fixture
    def cluster(self) -> str:
        return f"contract-{uuid.uuid4().hex}"

    @pytest.fixture
    def backend(self, handles: Opener, cluster: str) -> Backend:
        return handles(cluster)

    @pytest.fixture
    def other(self, handles: Opener, cluster: str) -> Backend:
        """A second client of the same cluster."""
        return handles(cluster)

    @pytest.fixture
    def worker(self, backend: Backend) -> Iterator[Callable[[], Worker]]:
        """Start processes on the same cluster; they are killed when the test ends."""
        if not backend.capabilities.multi_process:
            pytest.skip("one process only, as its capabilities say")
        with ExitStack() as stack:
            yield lambda: stack.enter_context(Worker(backend.url, backend.cluster))

    @pytest.fixture
    def hang(self, request: pytest.FixtureRequest) -> Hang:
        """Override it if a process of the backend cannot be stopped."""
        start: Callable[[], Worker] = request.getfixturevalue("worker")

        def stopped_process(backend: Backend, ttl: float) -> Fence:
            process = start()
            fence = process.lead("hung", ttl)
            process.stop()
            return fence

        return stopped_process


def contents(backend: Backend, prefix: str = "") -> dict[str, bytes]:
    """Return all values under `prefix`, without the record of the election."""
    return {record.key: record.value for record in backend.scan(prefix) if record.key != EPOCH_KEY}


def present(backend: Backend, key: str) -> Record:
    """Return the record of a key that must exist."""
    record = backend.get(key)
    assert record is not None, f"{key} is absent"
    return record


def lead(backend: Backend, candidate: str = "me", ttl: float | None = None) -> Leadership:
    """Campaign until `candidate` leads."""
    limits = backend.capabilities
    if ttl is None:
        ttl = min(max(10.0, limits.min_ttl), limits.max_ttl)
    stop = threading.Event()
    timer = threading.Timer(BOUND, stop.set)
    timer.start()
    try:
        won = backend.campaign(candidate, ttl=ttl, stop=stop)
    finally:
        timer.cancel()
    assert won is not None, f"{candidate} did not lead within {BOUND:g} s"
    return won
