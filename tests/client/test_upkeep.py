"""Looking after a cluster from a client: which results go, and what is said of the others."""

from __future__ import annotations

import pytest

from jrs import Client, JobResult, JobStatus, WrongState
from jrs.contract.errors import AccessDenied, ClusterMoved, Refused
from jrs.contract.operations import Fence
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.store.result_store import JobResultStore
from jrs.testing.contract import contents
from tests.recovery.conftest import memory
from tests.recovery.support import FaultyMemory, put

__all__ = ["memory"]


@pytest.fixture
def client(memory: FaultyMemory) -> Client:
    """A client of a cluster with the clean results of three jobs, the last of an application."""
    client = Client(memory)
    client.raise_cluster_format()
    for id, application in (("a", ""), ("b", ""), ("c", "nightly")):
        client.results.create_dirty(
            JobResult(id, JobStatus.FINISHED, application=application, finished_at=40.0), None
        )
        client.results.mark_clean(id, None)
    return client


def test_one_that_an_application_may_need_keeps_all(client: Client) -> None:
    """What is refused has changed nothing."""
    put(client.backend, keys.APPLICATIONS + "nightly", ApplicationRecord("nightly", "d:main"))
    before = contents(client.backend)
    with pytest.raises(WrongState, match="'nightly' has not ended"):
        client.expire("a", "c")
    assert contents(client.backend) == before


def refuse(monkeypatch: pytest.MonkeyPatch, error: Refused) -> None:
    """Have the deletion of the result of job a refused."""
    delete = JobResultStore.delete

    def refused(self: JobResultStore, job_id: str, fence: Fence | None = None) -> None:
        if job_id == "a":
            raise error
        delete(self, job_id, fence)

    monkeypatch.setattr(JobResultStore, "delete", refused)


def test_one_that_changes_meanwhile_stays(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go, and they alone are returned. One that was asked for alone is refused."""
    refuse(monkeypatch, WrongState("its application has just begun"))
    assert client.expire("a", "b") == ["b"]
    assert client.results.has_clean("a")
    assert not client.results.has_clean("b")
    with pytest.raises(WrongState, match="has just begun"):
        client.expire("a")


@pytest.mark.parametrize("error", [AccessDenied("no"), ClusterMoved("moved")], ids=type)
def test_what_concerns_the_whole_cluster_is_raised(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Refused
) -> None:
    """It is not taken for a change of the result."""
    refuse(monkeypatch, error)
    with pytest.raises(type(error)):
        client.expire("a", "b")
