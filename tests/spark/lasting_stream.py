"""A long-lived stream, and kill -9 of what runs it while it is suspended, changed or drained."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from jrs import JobSpec
from jrs.contract.clock import Deadline
from jrs.contract.errors import WrongState
from jrs.records import keys
from jrs.records.model import JobStatus, StopMode, StopState
from jrs.records.policies import RestartPolicy
from jrs.recovery.spark import rescaling
from jrs.store.jobs import JobCatalog
from jrs.store.stops import JobStops
from tests.killing.snapshots import Figures

from . import events, lasting
from .conftest import Cluster
from .events import EXPECTED, in_order, published, until_or_ended
from .support import BOUND, left_over, marked

FILE = Path(lasting.__file__)
STAGE = "one"
IN_ONE_CHANGE = 2
"""Most kills in one operation; then it is left to finish."""
FIRST_GUESS = {"suspend": 3.0, "rescale": 20.0, "upgrade": 15.0, "drain": 15.0}
"""About how many seconds an operation takes, until it is known."""


class LastingStream:
    """The stream of the job ``lasting``, its input, and what is asked of it."""

    job_id = "lasting"

    def __init__(
        self, cluster: Cluster, folder: Path, chance: random.Random, figures: Figures
    ) -> None:
        self._cluster, self._folder = cluster, folder
        self._chance, self._figures = chance, figures
        self._stops = JobStops(cluster.masters.backend)
        self._usual = dict(FIRST_GUESS)
        self._masters = 0
        self._journal = folder / "journal"
        self._rows = events.write(folder / "in", 3)
        self._partitions, self._version = 2, "first"

    def submit(self) -> None:
        often = RestartPolicy(attempts=10_000, delay=0.0)
        arguments = {"folder": str(self._folder / "in"), "journal": str(self._journal)}
        spec = JobSpec(self.job_id, f"{FILE}:first", arguments, restart=often)
        JobCatalog(self._cluster.masters.backend).submit(spec)

    # -- operations ----------------------------------------------------------------------------

    def suspend(self) -> None:
        request = partial(self._stops.request, self.job_id, StopMode.SUSPEND)
        self._kill_in("suspend", self.job_id, request, self._is_suspended)

    def resume(self) -> None:
        self._stops.resume(self.job_id)
        self.read_more()

    def rescale(self) -> None:
        self._partitions = self._partitions % 4 + 1
        request = partial(self._stops.reconfigure, self.job_id, partitions=self._partitions)
        self._kill_in("rescale", self.job_id, request, self._is_rescaled)
        self.read_more()
        assert self._is_rescaled()

    def upgrade(self) -> None:
        self._version = {"first": "second", "second": "first"}[self._version]
        entry_point = f"{FILE}:{self._version}"
        request = partial(self._stops.reconfigure, self.job_id, entry_point=entry_point)
        self._kill_in("upgrade", self.job_id, request, self._is_upgraded)
        self.read_more()

    def drain(self, job_id: str) -> None:
        """Drain this job, or another one that was made of it: it has each row once."""
        results, backend = self._cluster.results, self._cluster.masters.backend
        request = partial(self._stops.request, job_id, StopMode.DRAIN)
        self._kill_in("drain", job_id, request, lambda: results.has_entry(job_id))
        result = results.wait(job_id, 0)

        assert result.status is JobStatus.FINISHED, str(result.failure)[:3000]
        assert published(self._cluster, job_id, STAGE) == in_order(EXPECTED["windows"](self._rows))

        self._cluster.until_clean(job_id)

        stays = (
            keys.LINEAGE,
            keys.GENERATIONS,
            keys.SNAPSHOTS,
        )  # What its user took, and jobs of it.
        left = left_over(backend, self._cluster.storage, job_id)
        of_it = [one for one in left if f"/{job_id}" in one and not one.startswith(stays)]
        assert not of_it, of_it  # The rest is of other jobs.

    def read_more(self) -> None:
        """Write one more file of events, and wait until it is in a committed batch."""
        self._rows += events.write(self._folder / "in", 1, first=len(self._rows) // 10)
        until_or_ended(self._cluster, self.job_id, self._has_read_all, "it has read all")

    # -- masters -------------------------------------------------------------------------------

    def start_masters(self) -> None:
        """Have two masters that live."""
        masters = self._cluster.masters
        for _ in range(2 - sum(master.alive for master in masters.all)):
            self._masters += 1
            masters.start(f"m{self._masters}")

    def kill_masters(self) -> None:
        for master in self._cluster.masters.all:
            if master.alive:
                master.kill()

    # -- killing -------------------------------------------------------------------------------

    def _kill_in(
        self,
        name: str,
        job_id: str,
        request: Callable[[], object],
        is_done: Callable[[], bool],
    ) -> None:
        """Request an operation, and kill what carries it out until it is done all the same."""
        began, attempts = time.monotonic(), self._attempts(job_id)
        request()
        for _ in range(IN_ONE_CHANGE):
            moment = Deadline.after(self._chance.uniform(0, self._usual[name]))
            self._until(partial(_is_over, moment, is_done), "a moment")
            if is_done():
                break
            self._strike(job_id)
            self._figures.kills[name] += 1
            self._figures.repeats[name] += 1
            with suppress(WrongState):  # It is under way, or the job has just ended.
                request()
            self.start_masters()
        last = time.monotonic()
        self._until(is_done, f"{name} of {job_id} is done")
        self._usual[name] = (self._usual[name] + time.monotonic() - last) / 2
        self._figures.restarts[name] += self._attempts(job_id) - attempts
        self._figures.seconds[name] += time.monotonic() - began

    def _strike(self, job_id: str) -> None:
        """Kill the leader, the attempt, or both; where the storage has objects, perhaps all that is
        on the host."""
        masters = self._cluster.masters
        victims = ["leader", "attempt", "group"]
        if self._cluster.storage.objects is not None:
            victims.append("host")
        victim = self._chance.choice(victims)
        attempt = marked(masters.backend, job_id) if victim != "leader" else {}
        if victim == "host":
            self.kill_masters()
        elif victim != "attempt" or not attempt:
            masters.leader().kill()
        for pid in attempt:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim == "host":
            shutil.rmtree(self._cluster.storage.folder(job_id), ignore_errors=True)

    # -- looking -------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        self._cluster.masters.until(condition, what, BOUND)

    def _attempts(self, job_id: str) -> int:
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        return sum(line.startswith(f"{job_id} ") for line in lines)

    def _checkpoint(self) -> Path:
        found = self._cluster.storage.folder(self.job_id).glob(f"e*/streams/{STAGE}/ck")
        return next(found, Path("nowhere"))

    def _is_suspended(self) -> bool:
        stop = self._stops.get(self.job_id)
        view = JobCatalog(self._cluster.masters.backend).view(self.job_id)
        done = stop is not None and stop.state is StopState.DONE
        return done and view.status is JobStatus.SUSPENDED

    def _is_rescaled(self) -> bool:
        is_over = self._stops.get(self.job_id) is None
        try:
            return is_over and rescaling.partitions(self._checkpoint()) == self._partitions
        except OSError:
            return False  # It is just being taken over.

    def _is_upgraded(self) -> bool:
        lines = self._journal.read_text().splitlines()
        newest = [line for line in lines if line.startswith(f"{self.job_id} ")][-1]
        is_over = self._stops.get(self.job_id) is None
        return is_over and newest == f"{self.job_id} {self._version}"

    def _has_read_all(self) -> bool:
        newest = f"f{len(self._rows) // 10 - 1:03d}.json"
        checkpoint = self._checkpoint()
        try:
            read = any(newest in log.read_text() for log in checkpoint.glob("sources/0/[0-9]*"))
            planned, committed = (
                max((int(path.name) for path in checkpoint.glob(f"{log}/[0-9]*")), default=-1)
                for log in ("offsets", "commits")
            )
        except OSError:
            return False  # It is just being taken over.
        return read and planned == committed >= 0


def _is_over(moment: Deadline, is_done: Callable[[], bool]) -> bool:
    return moment.expired or is_done()
