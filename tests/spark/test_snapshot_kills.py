"""A stream with state whose snapshots, suspends, changes and drains are killed -9: the long form.

The short ones are tests/recovery/snapshots/test_kills.py, test_dying_in_a_change.py and
test_dying_in_a_drain.py.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jrs
from jrs.contract.storage_place import WORK, place_of
from jrs.recovery.files.job_folders import JobStorage
from jrs.testing.masters import Masters
from tests.killing.clients import Clients, Site
from tests.killing.snapshots import Figures, SnapshotTrial
from tests.s3 import serving

from .conftest import Cluster
from .lasting_stream import LastingStream

pytestmark = [pytest.mark.soak, pytest.mark.timeout(5400)]

ROUNDS = int(os.environ.get("JRS_ROUNDS", "2"))
"""How often the stream is suspended for operations on its snapshots, and resumed."""
PASSES = int(os.environ.get("JRS_PASSES", "9"))
"""How often each of them is begun meanwhile; the first time it is not killed."""


@pytest.fixture
def on_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster whose jobs keep their files in objects."""
    monkeypatch.setenv(WORK, str(tmp_path / "work"))
    with serving(tmp_path / "log") as s3:
        url = s3.url()
        with Masters((tmp_path / "store").as_uri(), storage=url) as masters:
            yield Cluster(masters, JobStorage(place_of(url), masters.backend.cluster))


def one_life(cluster: Cluster, folder: Path, seed: int) -> Figures:
    """Run the stream from its submission to its drain; return what was killed meanwhile."""
    chance, figures = random.Random(seed), Figures()
    stream = LastingStream(cluster, folder, chance, figures)
    stream.start_masters()
    stream.submit()
    stream.read_more()
    for number in range(ROUNDS):
        stream.rescale()
        stream.upgrade()
        stream.suspend()
        stream.kill_masters()
        kept = kill_in_snapshots(cluster, folder / "far", chance, figures, number)
        stream.start_masters()
        stream.drain(kept)
        stream.resume()
        print(f"after round {number + 1}: {figures}", flush=True)
    stream.drain(stream.job_id)
    return figures


def kill_in_snapshots(
    cluster: Cluster, far: Path, chance: random.Random, figures: Figures, number: int
) -> str:
    """Kill operations on the snapshots of the suspended stream. Of the jobs that they have made,
    return one; the others are canceled."""
    masters, job_id = cluster.masters, LastingStream.job_id
    place = Site(masters.url, masters.cluster, None, job_id)
    with jrs.connect(masters.url, cluster=masters.cluster) as client, Clients(place) as clients:
        trial = SnapshotTrial(client, cluster.storage, job_id, far, clients, chance, figures)
        for _ in range(PASSES):
            for name in trial.operations:
                trial.kill(name)
        kinds = ("fork-now", "restore-as", "claim", "fork")
        made = [one for one in trial.made if one.startswith(f"{kinds[number % 4]}-")]
        kept = made[-1]
        for one in trial.made:
            if one != kept:
                assert client.job(one).cancel()
    return kept


def report(where: str, figures: Figures, began: float) -> None:
    """Print the line of docs/proofs.md."""
    print(f"{where}: {figures}, {time.monotonic() - began:.0f} s", flush=True)
    assert figures.kills.total() >= ROUNDS * PASSES


def test_on_local_disk(cluster: Cluster, tmp_path: Path) -> None:
    """N3, N6, S1, S7, S8: whatever is killed, no snapshot is lost or half there, a repeat is
    harmless, and each row is there once."""
    began = time.monotonic()
    report("on local disk", one_life(cluster, tmp_path, seed=1), began)


def test_on_objects(on_objects: Cluster, tmp_path: Path) -> None:
    """N3, N6, S1, S7, S8: the same where the storage has objects, and hosts are lost."""
    began = time.monotonic()
    report("on objects", one_life(on_objects, tmp_path, seed=2), began)
