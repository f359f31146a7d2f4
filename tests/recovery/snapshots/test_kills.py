"""Commands on snapshots of a job with the state of a real query, killed -9 at any moment."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import jrs
from jrs.recovery.files.job_folders import JobStorage
from jrs.store.opening import open_backend
from tests.killing.clients import Clients, Place
from tests.killing.snapshots import Figures, SnapshotTrial
from tests.recovery.checkpoint_format.fixtures import MADE
from tests.recovery.snapshots.fabricate import FakeJob, jrs_sink
from tests.recovery.support import CLUSTER

ROUNDS = int(__import__("os").environ.get("ROUNDS", "3"))


def test_kills_in_a_folder(tmp_path: Path) -> None:
    """N3, S8: whatever command is killed, no snapshot is lost or half there, and a repeat completes
    it. Two of each; the long form is `tests/spark/test_snapshot_kills.py`."""
    figures, url = Figures(), (tmp_path / "store").as_uri()
    storage = JobStorage(tmp_path / "jobs", CLUSTER)
    with open_backend(url, cluster=CLUSTER) as backend:
        job = FakeJob(backend, storage).suspend()
        made = MADE[0]
        shutil.rmtree(job.query.ck)
        shutil.copytree(made.ck, job.query.ck)
        jrs_sink(job.out("hourly"), 7)
    with (
        jrs.connect(url, cluster=CLUSTER, storage=storage.root.parent) as client,
        Clients(Place(url, CLUSTER, storage.root.parent, "job")) as clients,
    ):
        trial = SnapshotTrial(
            client, storage, "job", tmp_path / "far", clients, random.Random(1), figures
        )
        for _ in range(ROUNDS):
            for name in trial.operations:
                trial.kill(name)
    print(trial._usual)
    print(figures)
    assert figures.kills.total() >= len(trial.operations)
