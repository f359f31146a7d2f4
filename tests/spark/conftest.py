"""Every test here starts real JVMs, and ends with none of them left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest

from jrs import JobResultStore, JobSpec
from jrs.contract.errors import InvalidInput
from jrs.demo import data as demo_data
from jrs.records.model import JobStatus, Json
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.spark.configuration import require_java
from jrs.store.jobs import JobCatalog
from jrs.testing.masters import Masters

from .support import BOUND, TTL, job, published

_LIMIT = 3 * BOUND
"""Seconds for one test: a JVM on a busy machine has a small share of it, and what waits in vain
says for what before."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip it where Spark cannot run."""
    here = Path(__file__).parent
    reason = ""
    try:
        require_java()
        import pyspark  # noqa: F401
    except (InvalidInput, ImportError) as error:
        reason = str(error)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_LIMIT))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@attrs.define
class Cluster:
    """A cluster of real masters on the file backend, and what it stores."""

    masters: Masters
    storage: JobStorage
    closed: bool = False

    @property
    def results(self) -> JobResultStore:
        return JobResultStore(self.masters.backend)

    def submit(self, job_id: str, name: str, **arguments: Json) -> None:
        JobCatalog(self.masters.backend).submit(JobSpec(job_id, job(name), arguments))

    def is_clean(self, job_id: str) -> bool:
        return self.results.has_clean(job_id)

    def until_clean(self, job_id: str) -> None:
        self.masters.until(lambda: self.is_clean(job_id), f"{job_id} is clean", BOUND)

    def close(self) -> None:
        """End whatever runs in it. Its histories are whole, and each decision in them follows from
        its recorded facts. Idempotent."""
        if self.closed:
            return
        self.closed = True
        try:
            assert self.masters.wrong_histories() == []
        finally:
            self.masters.close()


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Make clusters, each with a folder of its own; end whatever runs in them."""
    with ExitStack() as made:

        def make(name: str = "cluster", *options: str) -> Cluster:
            folder = tmp_path / name
            url = (folder / "store").as_uri()
            masters = Masters(url, storage=folder / "files", ttl=TTL, options=options)
            cluster = Cluster(masters, JobStorage(folder / "files", masters.backend.cluster))
            made.callback(cluster.close)
            return cluster

        yield make


@pytest.fixture
def cluster(new_cluster: Callable[[str], Cluster]) -> Cluster:
    return new_cluster("cluster")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The flights, weather and airlines of New York in 2013."""
    return str(demo_data.export(tmp_path_factory.mktemp("flights")))


@attrs.frozen
class Undisturbed:
    """What the demo's job gives when nothing dies."""

    payload: Json
    published: dict[str, list[str]]


@pytest.fixture(scope="session")
def undisturbed(data: str, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    with Masters((folder / "store").as_uri(), storage=folder / "files", ttl=TTL) as masters:
        masters.start("calm")
        calm = Cluster(masters, JobStorage(folder / "files", masters.backend.cluster))
        calm.submit("flights", "flights", data=data, journal=str(folder / "journal"))
        calm.until_clean("flights")
        result = calm.results.wait("flights", 0)

        assert result.status is JobStatus.FINISHED, result.failure
        assert result.attempt == 1
        return Undisturbed(result.payload, published(calm.storage, "flights"))
