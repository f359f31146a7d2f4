"""On the first client: attempts that do not know that they are replaced.

Each one writes as Spark and the sink ``jrs`` do, by path, ten times a second: the plan of a batch,
the batch itself, its state, its commit. Unlike Spark it continues after errors, with each of these
by itself, and makes folders again that are missing.

Every second one has rows to publish only now and then. A client that is told that a folder is gone
looks at the whole path again; so one that publishes notices at once that its staging is gone, and
the others write on into the folder of their epoch. Every second pair is slow, and removes nothing:
who finds that a file is gone looks again, too, and then sees what was added meanwhile.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs

from jrs.contract.errors import JrsError
from jrs.recovery.files.job_folders import JobStorage
from tests.chaos.nfs.trial import CLUSTER, LOGS, MOUNTS, OLD, STAGE, Trial, checkpoint, output
from tests.recovery.snapshots import fabricate
from tests.recovery.snapshots.fabricate import FakeQuery

PERIOD, SLOW = 0.1, 1.0
"""Seconds from one batch to the next."""
KEPT = 100
"""Batches whose files are kept, as by Spark."""
RARELY = 50
"""Batches of which one has rows, where there are few."""
_RESTART = 2.0


@attrs.define
class Zombie:
    """An attempt of one job; `deeds` is what it has done, and what it was told instead."""

    job: str
    rows_in: int = 1
    """Which batches have rows: those whose number this divides."""
    batch: int = -1
    deeds: list[tuple[float, str, str]] = attrs.field(factory=list)
    """The time at which it was done, what was done, and to which path or with which error."""
    query: FakeQuery = attrs.field(init=False)
    _written: dict[int, list[Path]] = attrs.field(factory=dict)

    def begin(self) -> None:
        storage = JobStorage(MOUNTS[0], CLUSTER)
        storage.take_over(self.job, OLD)
        storage.stream(self.job, OLD, STAGE)
        output(MOUNTS[0], self.job).mkdir(parents=True)
        fabricate.put = self._write  # As Spark writes: under another name first.
        ck = checkpoint(MOUNTS[0], self.job, OLD)
        self.query = FakeQuery(ck, "changelog-v2", partitions=1)
        self.query.start()

    def restart(self) -> None:
        JobStorage(MOUNTS[0], CLUSTER).stream(self.job, OLD, STAGE)

    def run_batch(self) -> None:
        self.batch += 1
        self.query.batch = self.batch - 1
        self._try("plan", self.query.plan)
        if self.batch % self.rows_in == 0:
            self._try("publish", self._publish)
        self._try("commit", self.query.commit)
        if self.deeds[-1][1] != "commit":  # Its state could not be written.
            self._try("commit alone", self._commit_alone)
        self._try("purge", self._purge)

    def _try(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
            self.deeds.append((time.time(), what, ""))
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, str(error))
            self.deeds.append((time.time(), f"no {what}", name))
        except JrsError as error:
            self.deeds.append((time.time(), f"no {what}", type(error).__name__))

    def _publish(self) -> None:
        staging = self.query.ck.parent / "staging"
        whole = staging / f"batch={self.batch}"
        target = output(MOUNTS[0], self.job) / whole.name
        whole.mkdir()
        (whole / "part").write_text(f"rows of {self.batch}")
        os.rename(whole, target)
        self.deeds.append((time.time(), "published", target.name))

    def _commit_alone(self) -> None:
        self._write(self.query.ck / f"commits/{self.batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def _purge(self) -> None:
        old = self._written.pop(self.batch - KEPT, []) if self.batch >= KEPT else []
        for path in old:
            self.deeds.append((time.time(), "removed", self._name(path)))
            with suppress(FileNotFoundError):
                path.unlink()

    def _write(self, path: Path, text: str | bytes) -> Path:
        data = text.encode() if isinstance(text, str) else text
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            temporary.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
        os.rename(temporary, path)
        self.deeds.append((time.time(), "written", self._name(path)))
        self._written.setdefault(self.batch, []).append(path)
        return path

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.query.ck))


def run(number: int, trial: Trial) -> None:
    job = trial.jobs[number]
    zombie = Zombie(job, rows_in=RARELY if number % 2 else 1)
    period = SLOW if number % 4 > 1 else PERIOD
    zombie.begin()
    due = restart = time.monotonic()
    while not trial.over.exists():
        zombie.run_batch()
        if trial.restarting and time.monotonic() > restart + _RESTART:
            zombie._try("restart", zombie.restart)
            restart = time.monotonic()
        due = max(due + period, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    (LOGS / f"{job}.deeds").write_text(json.dumps(zombie.deeds))


def main(trial: Trial) -> int:
    # Forked, since the programs of a process that is simulated take long to load.
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=run, args=(number, trial)) for number in range(trial.zombies)]
    for process in running:
        process.start()
    for process in running:
        process.join()
    return sum(process.exitcode != 0 for process in running)


if __name__ == "__main__":
    sys.exit(main(Trial.from_json(Path(sys.argv[1]).read_text())))
