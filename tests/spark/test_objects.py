"""Streams whose storage has objects, their leaders killed -9, on hosts that are lost with them."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jrs.contract.storage_place import WORK, place_of
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.storage.objects import Objects
from jrs.testing.masters import Masters
from tests.s3 import S3

from .conftest import Cluster
from .test_stream_kills import IN_ONE_RUN, JOB, one_run


@pytest.fixture
def new_on_objects(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Cluster]]:
    """Make clusters whose jobs keep their files in objects."""
    monkeypatch.setenv(WORK, str(tmp_path / "work"))
    with ExitStack() as made:

        def make(name: str) -> Cluster:
            url = s3.url()
            masters = Masters((tmp_path / name / "store").as_uri(), storage=url)
            cluster = Cluster(masters, JobStorage(place_of(url), masters.backend.cluster))
            made.callback(cluster.close)
            return cluster

        yield make


def rounds(
    new_on_objects: Callable[[str], Cluster], folder: Path, *, kills: int, seed: int
) -> None:
    """Kill leaders until so many are dead. Every other one takes with it what is on its host."""
    chance, done = random.Random(seed), 0
    while done < kills:
        cluster, died = new_on_objects(f"run-{done}"), [done]

        def lose_host(cluster: Cluster = cluster, died: list[int] = died) -> None:
            died[0] += 1
            if died[0] % 2:
                for master in cluster.masters.all:
                    if master.alive:
                        master.kill()
                shutil.rmtree(cluster.storage.folder(JOB), ignore_errors=True)

        most = min(IN_ONE_RUN, kills - done)
        done += one_run(cluster, chance, folder / str(done), most, lose_host)
        cluster.close()


def test_three_kills(new_on_objects: Callable[[str], Cluster], tmp_path: Path) -> None:
    """A9: each row once, each stage once, whatever host the next attempt is on: 3 kills."""
    rounds(new_on_objects, tmp_path, kills=3, seed=5)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_kills(new_on_objects: Callable[[str], Cluster], tmp_path: Path) -> None:
    """A9: each row once, each stage once, whatever host the next attempt is on: 50 kills."""
    rounds(new_on_objects, tmp_path, kills=50, seed=50)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("which", [[], ["--streaming", "--seed", "3"]])
def test_the_demos(s3: S3, tmp_path: Path, which: list[str]) -> None:
    """Both demos with their files in objects, of which they leave none."""
    prefix = uuid.uuid4().hex
    url = s3.url(prefix)
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "demo", *which, "--storage", url],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=1500,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "EQUAL: all" in done.stdout
    assert list(Objects(url.replace(f"/{prefix}", ""), prefix).under()) == []
