"""The cluster of a chaos run: its backend, masters and hosts, as nemeses reach them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import JrsError
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import EpochRecord
from jrs.recovery.rules.events import EventKind
from jrs.testing.chaos.harm import Harms
from jrs.testing.chaos.hosts import Hosts
from jrs.testing.chaos.meddling import Meddler
from jrs.testing.chaos.plan import Plan
from jrs.testing.chaos.reaper import Reaper
from jrs.testing.chaos.recorder import HISTORY, NAME, SCHEME, end_recording, recorded, recording_in
from jrs.testing.chaos.surroundings import environment, fsck, small_disk
from jrs.testing.chaos.trials import Trials
from jrs.testing.masters import MasterEvent, Masters
from jrs.testing.servers import FINDERS, Proxies, Server


class ChaosCluster:
    """A cluster whose calls are recorded, and whose parts can be broken: an `Arena`.

    Attributes:
        name: its id.
        storage: the folder of the jobs' files.
        server: the servers of the backend; None with the file backend.
        disk: a small filesystem with the store and the files, if the plan fills it.
        harms: what hurts it now.
        fleet: its hosts.
    """

    def __init__(
        self,
        plan: Plan,
        scheme: str,
        folder: Path,
        server: Server | None,
        say: Callable[[str], None],
        trials: Trials,
    ) -> None:
        self._mark = uuid.uuid4().hex
        self.name = f"chaos-{self._mark[:12]}"
        self.server = server
        self.disk: Path | None = None
        self.harms = Harms()
        self._plan = plan
        self._folder = folder
        with ExitStack() as stack:
            stack.enter_context(closing(Reaper(self._mark, folder / "disk")))
            history = folder / "history"
            stack.enter_context(environment({HISTORY: str(history), NAME: "world"}))
            place = folder
            if scheme == "file":
                if any(fault.small_disk for fault in plan.nemesis.faults):
                    self.disk = stack.enter_context(small_disk(folder / "disk", say))
                    place = self.disk or place
                self._file_url = (place / "store").as_uri()
            elif server is None:
                self.server = stack.enter_context(FINDERS[scheme](plan.members))
            self.storage = place / "files"
            self.storage.mkdir()  # Perhaps no job makes it, and `jrs fsck` looks at it.
            self.recording = recording_in(history / self.name)
            stack.callback(end_recording, history / self.name)
            self.masters = stack.enter_context(
                Masters(self.url, cluster=self.name, storage=self.storage, ttl=plan.ttl,
                        options=plan.options, on_event=lambda event: _note(trials, event))
            )  # fmt: skip
            self.masters.backend.check_ttl(plan.ttl)  # No master would start.
            self.fleet = Hosts(self._url, self.server, folder, self._mark, trials, plan.environment)
            stack.callback(self.heal)  # The servers may be another test's next.
            stack.callback(self.fleet.close)
            self._stack = stack.pop_all()

    def _url(self, network: Proxies | None) -> str:
        if self.server is None:
            return recorded(self._file_url)
        return recorded(self.server.url(endpoints=None if network is None else network.endpoints))

    @property
    def url(self) -> str:
        """The backend's URL, as all processes of the run have it but for their proxies."""
        return self._url(None)

    @property
    def backend(self) -> Backend:
        """A handle on the cluster, which is recorded, too."""
        return self.masters.backend

    def start(self) -> None:
        """Start the masters, and wait until one leads."""
        for number in range(self._plan.masters):
            self.fleet.add_master(f"m{number + 1}", self.masters)
        if self._plan.masters:
            self.masters.leader()

    def has_reached(self, job_id: str, stage: str, kind: EventKind, batch: int | None) -> bool:
        """Return whether a master has told that of a stage; if a batch is given, of it or of a
        later one."""
        return any(
            event.job_id == job_id and event.stage == stage and event.kind == kind.value
            and (batch is None or _last_number(event.message) >= batch)
            for event in list(self.masters.events)
        )  # fmt: skip

    def fsck(self) -> list[str]:
        """Return what `jrs fsck` finds."""
        return fsck(self.url.removeprefix(f"{SCHEME}:"), self.name, self.storage)

    def heal(self) -> None:
        """Wait until the servers are healthy. Idempotent."""
        if self.server is not None:
            self.server.heal()

    def close(self) -> None:
        """End everything. Idempotent.

        Raises:
            ServerUnhealthy: a server does not heal. All else has ended.
        """
        self._stack.close()

    # -- what nemeses reach ------------------------------------------------------------------

    def hosts(self) -> list[str]:
        return sorted(self.fleet.all)

    def leading(self) -> str | None:
        try:
            record = self.backend.get(keys.EPOCH, deadline=Deadline.after(1.0))
            if record is None:
                return None
            return self.fleet.name_of(decode(EpochRecord, record.value, record.key).candidate)
        except JrsError:
            return None

    def pids(self, who: str) -> list[int]:
        if who == "leader":
            return self.fleet.pid_of(self.leading())
        return self.fleet.pids(who)

    def starve(self, pid: int) -> None:
        self.fleet.starved.add(pid)

    def network(self, host: str) -> Proxies | None:
        return self.fleet.all[host].network

    def meddler(self, host: str) -> Meddler:
        return self.fleet.all[host].meddler


def _note(trials: Trials, event: MasterEvent) -> None:
    """Note that an attempt of a job starts, or has died."""
    if event.kind == EventKind.ATTEMPT:
        trials.begins(event.job_id)
    elif event.kind == EventKind.DIED:
        trials.fails(event.job_id)


def _last_number(text: str) -> int:
    numbers = re.findall(r"\d+", text)
    return int(numbers[-1]) if numbers else -1
