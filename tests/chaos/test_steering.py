"""kill -9 at random moments of a switchover, a pause and an expiry: nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

import jrs
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import Tombstone
from tests.support import until

COUNTS = """
import os, time

def counts(job, path, seconds):
    with open(path, "a") as file:
        file.write(f"{job.job_id} {time.time()}\\n")
    time.sleep(seconds)
    return job.job_id

def on_spark(job, path, seconds):
    import jrs

    spark = jrs.spark(job)
    counted = job.stage("count", lambda stage: stage.spark.range(1000).count())
    assert counted.result() == 1000
    return counts(job, path, seconds)
"""
MASTERS = ("m1", "m2", "m3")
COMMANDS = {
    "switchover": (
        ("switchover", "--timeout", "5"),
        *(("switchover", "--to", name, "--timeout", "5") for name in MASTERS),
    ),
    "pause": (("pause", "--because", "chaos"), ("unpause",)),
    "expire": (("expire", "--older-than", "0s"),),
}


class World:
    """Masters that are killed and started again, commands that are killed, and jobs that end."""

    def __init__(self, folder: Path, seed: int, kinds: Iterable[str], function: str) -> None:
        self.random = random.Random(seed)
        self.commands = [COMMANDS[kind] for kind in kinds]
        self.entry = f"counted:{function}"
        self.folder = folder
        self.url = f"file://{folder}/store"
        (folder / "counted.py").write_text(COUNTS)
        self.masters: dict[str, subprocess.Popen[bytes]] = {}
        self.submitted: list[str] = []

    def command(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "jrs", "--backend", self.url, *arguments]
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(command, cwd=self.folder, stdout=said, stderr=said)

    def keep_masters(self) -> None:
        for name in MASTERS:
            if name not in self.masters or self.masters[name].poll() is not None:
                options = ("--ttl", "5", "--retain", "results=0s", "--max-attempts", "4")
                self.masters[name] = self.command("master", "--name", name, *options)

    def submit(self, client: jrs.Client) -> None:
        name = f"job-{len(self.submitted):04}"
        path = str(self.folder / "ran")
        client.submit(self.entry, id=name, path=path, seconds=0.2)
        self.submitted.append(name)

    def strike(self) -> None:
        """Begin a command, and kill it or a master at a random moment of it."""
        command = self.random.choice(self.random.choice(self.commands))
        process = self.command(*command)
        time.sleep(self.random.uniform(0.1, 1.2))  # The moment of the kill, not a wait.
        victim = process if self.random.random() < 0.5 else self.random.choice([
            *self.masters.values()
        ])  # fmt: skip
        if victim.poll() is None:
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait(60)
        process.wait(60)
        if self.random.random() < 0.5:  # Repeating is harmless.
            assert self.command(*command).wait(60) in (0, 2, 3)

    def close(self) -> None:
        for process in self.masters.values():
            process.kill()
            process.wait(60)


def ended_at(client: jrs.Client, job_id: str) -> float:
    """Return when a job ended, by its result or its tombstone."""
    entry = client.results.get(job_id)
    if entry is not None and entry.result is not None:
        return entry.result.finished_at
    stored = client.backend.get(keys.TOMBSTONES + job_id)
    assert stored is not None
    return decode(Tombstone, stored.value, stored.key).finished_at


def survive(folder: Path, kills: int, seed: int, *kinds: str, function: str = "counts") -> World:
    """Strike that often; then every job has ended once, by a result or its tombstone."""
    world = World(folder, seed, kinds or COMMANDS, function)
    try:
        with jrs.connect(world.url) as client:
            for _ in range(kills):
                world.keep_masters()
                world.submit(client)
                world.strike()
            world.keep_masters()
            client.unpause()
            for name in world.submitted:
                until(partial(client.results.has_entry, name), f"{name} has ended", 300)
            for name in world.submitted:
                entry = client.results.get(name)
                assert entry is not None
                if entry.result is not None:
                    assert entry.result.status is jrs.JobStatus.FINISHED, entry.result
            assert client.paused() is None
            until(lambda: not list(client.results.dirty()), "everything is cleaned up", 300)
            report = client.fsck()
            assert report.damaged == ()
            ran = [line.split() for line in (folder / "ran").read_text().splitlines()]
            assert {name for name, _ in ran} == set(world.submitted)
            # Nothing ran again behind its result: an attempt that died has none.
            ended = {name: ended_at(client, name) for name in world.submitted}
            assert [name for name, at in ran if float(at) > ended[name]] == []
    finally:
        world.close()
    return world


def test_a_few_kills(tmp_path: Path) -> None:
    """A switchover, a pause or an expiry that is killed, or whose masters are, loses nothing."""
    survive(tmp_path, 4, seed=12)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", COMMANDS)
def test_many_kills(tmp_path: Path, kind: str) -> None:
    """The long form: 200 kills of each kind of command, or of a master meanwhile."""
    survive(tmp_path, 200, 200, kind)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(3600)
def test_kills_with_spark(tmp_path: Path) -> None:
    """The same of all of them 20 times, with jobs on Spark."""
    survive(tmp_path, 20, 20, function="on_spark")
