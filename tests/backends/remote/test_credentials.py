"""A backend's credentials reach the attempts, and no process that inherits from them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from jrs.records.model import JobSpec, JobStatus
from jrs.records.signing import SpecKey
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from jrs.testing.servers import ZooKeeperServer
from tests.recovery.support import job
from tests.support import BOUND


def run_and_look(
    url: str, storage: Path, environment: dict[str, str], key: SpecKey | None = None
) -> dict[str, str]:
    """Run a job under a master with that environment; return what the job could read."""
    with Masters(url, storage=storage, environment=environment) as masters:
        JobCatalog(masters.backend, spec_key=key).submit(JobSpec("looks", job("sees")))
        masters.start("m1")
        result = JobResultStore(masters.backend).wait("looks", BOUND)
        assert result.status is JobStatus.FINISHED, result.failure
        found: dict[str, str] = result.payload
        return found


def test_not_inherited(tmp_path: Path) -> None:
    """X3: neither the attempt's environment nor its watchdog's, its children's or what they read
    from standard input holds a secret; what is none is inherited."""
    key = tmp_path / "sesame"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    secrets = {
        "JRS_BACKEND": "etcd://me:sesame@host/x",
        "JRS_BACKEND_USER": "sesame",
        "JRS_BACKEND_PASSWORD": "sesame",
        "JRS_BACKEND_OF_SOMEBODY_ELSE": "sesame",
        "JRS_SPEC_KEY_FILE": str(key),
    }
    url = (tmp_path / "store").as_uri()
    environment = {**secrets, "PLAIN": "seen"}
    found = run_and_look(url, tmp_path / "jobs", environment, SpecKey.read(key))

    assert {place for place, text in found.items() if "sesame" in text} == set()
    assert {place for place, text in found.items() if "PLAIN" in text} == {*found} - {"stdin"}
    assert found["stdin"] == ""
    assert url.removeprefix("file://") not in found["watchdog"]


def test_the_backend_is_reached(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X3: an attempt comes into a backend that is closed to all but one user."""
    path = f"theirs-{uuid.uuid4().hex}"
    client = KazooClient(zookeeper_server.url_part)
    client.start(BOUND)
    client.create(f"/{path}", b"")
    client.stop()
    client.close()
    url = zookeeper_server.url(path)
    for name, value in (("USER", "me"), ("PASSWORD", "sesame")):
        monkeypatch.setenv(f"JRS_BACKEND_{name}", value)

    found = run_and_look(url, tmp_path, {})

    assert {place for place, text in found.items() if "sesame" in text} == set()
