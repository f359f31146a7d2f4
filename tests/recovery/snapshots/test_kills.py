"""Operations on the snapshots of a job that are killed -9 at any moment: the short form.

The long form, on a stream that Spark runs, is `tests/spark/test_snapshot_kills.py`.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import jrs
from jrs.contract.operations import Create
from jrs.contract.storage_place import WORK, place_of
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import AttemptRecord, StopMode, StopRecord, StopState
from jrs.recovery.files.job_folders import JobStorage
from jrs.store import attempt_fence
from jrs.store.opening import open_backend
from tests.killing.clients import Clients, Site
from tests.killing.snapshots import Figures, SnapshotTrial
from tests.recovery.attempt.objects_attempt import begin
from tests.recovery.checkpoint_format.fixtures import BATCHES, MADE
from tests.recovery.lead import Lead
from tests.recovery.snapshots.fabricate import FakeJob, jrs_sink
from tests.recovery.support import CLUSTER, spec
from tests.s3 import S3


def kill_in_each(url: str, storage: JobStorage, far: Path) -> None:
    """Kill each operation until it was hit inside."""
    named = storage.place.url or str(storage.place.root)
    figures, place = Figures(), Site(url, CLUSTER, named, "job")
    with jrs.connect(url, cluster=CLUSTER, storage=named) as client, Clients(place) as clients:
        trial = SnapshotTrial(client, storage, "job", far, clients, random.Random(1), figures)
        for name in trial.operations:
            while not trial.kill(name):
                pass
    print(figures)


def test_in_a_folder(tmp_path: Path) -> None:
    """N3, S8: no snapshot is lost or half there, and a repeat completes what a kill has cut off.
    The state is that of a real query."""
    url, storage = (tmp_path / "store").as_uri(), JobStorage(tmp_path / "jobs", CLUSTER)
    with open_backend(url, cluster=CLUSTER) as backend:
        job = FakeJob(backend, storage).suspend()
        shutil.rmtree(job.query.ck)
        shutil.copytree(MADE[0].ck, job.query.ck)
        jrs_sink(job.out("hourly"), BATCHES)
    kill_in_each(url, storage, tmp_path / "far")


def test_on_objects(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N3, S8: the same where the storage has objects."""
    monkeypatch.setenv(WORK, str(tmp_path / "work"))
    url, storage = (tmp_path / "store").as_uri(), JobStorage(place_of(s3.url()), CLUSTER)
    with open_backend(url, cluster=CLUSTER) as backend:
        suspended_on_objects(backend, storage)
    kill_in_each(url, storage, tmp_path / "far")


def suspended_on_objects(backend: jrs.Backend, storage: JobStorage) -> None:
    """Have an attempt commit five batches, and end it."""
    lead = Lead(backend, storage.place.root)
    lead.storage = storage
    backend.commit(Create(keys.JOBS + "job", encode(spec("job"))))
    stream = begin(lead)
    for _ in range(5):
        stream.batch()
    attempt_fence.shut_out(backend, "job", lead.leadership.fence)
    stop = StopRecord("job", StopMode.SUSPEND, StopState.DONE)
    backend.commit(
        Create(keys.ATTEMPTS + "job", encode(AttemptRecord("job", first_started_at=1.0))),
        Create(keys.STOPS + "job", encode(stop)),
    )
    Lead.current.pop().leadership.resign()
