"""The soak: puts masters and jobs of all kinds through kills, pauses and shortages.

    python -m jrs.testing.chaos.soak --backend file --minutes 10 --jobs 300 --seed 1

After the faults end, every job must have the one result of its kind, and nothing may be left
behind: no record, no file, no process. Otherwise the exit status is 1. The full disk is a small
filesystem, which only root can mount; if that is impossible, the soak says so and does without it.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs

from jrs.contract.errors import JrsError
from jrs.recovery.master import EXIT_DEPOSED
from jrs.store.masters import Registry
from jrs.testing.chaos import checks, nemeses
from jrs.testing.chaos.clients import Client, plan
from jrs.testing.chaos.figures import proof_line
from jrs.testing.chaos.history import History
from jrs.testing.chaos.jobs import FOLDER
from jrs.testing.chaos.marks import MARK, marked
from jrs.testing.chaos.nemeses import Nemesis
from jrs.testing.masters import MasterProcess, Masters
from jrs.testing.servers import Server, find_etcd, find_zookeeper

SETTLED_WITHIN = 60.0
"""Seconds of peace after which all jobs that were submitted before it should be done."""
_DISK = "160m"
_STARTED = 8.0
"""Seconds after which a master has certainly started."""
_DUE = 1.0
"""Seconds between two strikes."""


@attrs.frozen
class Plan:
    """The settings of a soak.

    Attributes:
        backend: ``file``, ``etcd`` or ``zookeeper``.
        seconds: the duration of the faults.
        longest: most seconds of a slow job.
        at_once: most jobs without a result at a time.
        patience: seconds after the faults until the soak gives up.
        disk: whether to mount a small disk that can be filled; for the file backend.
        nemeses: the names of the nemeses to use; all if empty.
    """

    backend: str = "file"
    seconds: float = 600.0
    jobs: int = 300
    seed: int = 1
    masters: int = 4
    ttl: float = 5.0
    longest: float = 6.0
    at_once: int = 16
    patience: float = 600.0
    disk: bool = True
    nemeses: Sequence[str] = ()


@attrs.frozen
class Outcome:
    """The outcome of a soak.

    Attributes:
        violations: of the checks, a line each.
        settled: seconds of peace until everything that was submitted before it was done.
        spared: jobs that were submitted only afterwards, because the cluster was too slow.
        exits: masters that ended without having been killed; each is a violation, but for those
            that ended themselves because an attempt in them would not die.
        unstarted: masters that could not open their store, and said so: a supervisor starts them
            again.
    """

    violations: list[str]
    history: History
    settled: float
    spared: int
    exits: int
    unstarted: int = 0

    def counts(self) -> dict[str, int]:
        statuses = [seen.result.status.value.lower() for seen in self.history.seen.values()]
        return {
            "jobs": len(self.history.expected),
            **{status: statuses.count(status) for status in sorted(set(statuses))},
            "strikes": sum(self.history.strikes.values()),
            **dict(sorted(self.history.strikes.items())),
            "masters ended": self.exits,
            "masters unstarted": self.unstarted,
            "violations": len(self.violations),
            "submitted after the faults": self.spared,
            "settled in (s)": round(self.settled),
        }


def soak(wanted: Plan, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """Run a soak; return its outcome. `say` is called with each line of the log."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jrs-soak-")))
        disk = stack.enter_context(_small_disk(home / "disk", wanted, say))
        server = stack.enter_context(_server(wanted.backend))
        return _Soak(wanted, home, disk, server, say).run()


# -- inside --------------------------------------------------------------------------------


class _Soak:
    def __init__(
        self, wanted: Plan, home: Path, disk: Path | None, server: Server | None,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._wanted = wanted
        self._say = say
        self._rng = random.Random(wanted.seed)
        self._mark = uuid.uuid4().hex
        self._notes = home / "notes"
        (self._notes / "left").mkdir(parents=True)
        place = disk or home
        self._disk = disk
        self._server = server
        self._url = (place / "store").as_uri() if server is None else server.url()
        self._storage = place / "files"
        self._cluster = f"soak-{self._mark[:12]}"
        self._history = History()
        self._exits = 0
        self._unstarted = 0
        self._registered: set[str] = set()
        self._lock = threading.Lock()
        self._supervised: list[MasterProcess] = []
        self._started: dict[str, float] = {}
        self._over = threading.Event()

    def run(self) -> Outcome:
        wanted = self._wanted
        with Masters(
            self._url, cluster=self._cluster, storage=self._storage, ttl=wanted.ttl,
            resources=["jrs.testing.chaos.jobs:leftovers"],
            environment={MARK: self._mark, FOLDER: str(self._notes)},
        ) as masters:  # fmt: skip
            client = Client(
                masters.backend, self._history,
                list(plan(self._rng, wanted.jobs, wanted.longest)),
                random.Random(wanted.seed + 1), seconds=wanted.seconds * 0.9,
                at_once=wanted.at_once,
            )  # fmt: skip
            self._supervise(masters)
            harm = threading.Thread(target=self._harm, args=(masters,), name="jrs-nemeses")
            harm.start()
            try:
                while harm.is_alive():
                    client.tick()
                    harm.join(0.2)
            finally:
                self._over.set()
                harm.join()
            spared = client.hold_back()
            settled = self._settle(masters, client)
            self._say(f"settled in {settled:.1f} s; {spared} jobs are left to submit")
            # The faults had slowed the cluster down, and more than `at_once` were never submitted.
            client.hurry()
            self._settle(masters, client)
            violations = [*self._history.problems, *self._checked(masters)]
        violations += checks.no_process_left(self._mark)
        return Outcome(violations, self._history, settled, spared, self._exits, self._unstarted)

    def _harm(self, masters: Masters) -> None:
        """Strike every second until the time is up; then heal everything."""
        all_of_them = self._nemeses()
        end = time.monotonic() + self._wanted.seconds
        while time.monotonic() < end and not self._over.wait(_DUE):
            self._supervise(masters)
            for nemesis in all_of_them:
                nemesis.tick()
            nemesis = self._rng.choice(all_of_them)
            whom = nemesis.strike(self._rng)
            if whom is not None:
                self._history.struck(nemesis.name)
                self._say(f"{nemesis.name}: {whom}")
        for nemesis in all_of_them:
            nemesis.heal()
        self._supervise(masters)
        self._say("peace")

    def _nemeses(self) -> list[Nemesis]:
        masters = nemeses.masters_of(self._masters)
        others = nemeses.others_of(self._mark, masters)
        found: list[Nemesis] = [
            nemeses.Kill("a master", masters),
            nemeses.Pause("a master", masters, self._wanted.ttl * 1.5),
            nemeses.Kill("what a master started", others),
            nemeses.Pause("what a master started", others),
            nemeses.NoDescriptors("a master", self._running),
        ]
        if self._disk is not None:
            found.append(nemeses.FullDisk(self._disk))
        if self._server is not None:
            found += [nemeses.PauseServer(self._server), nemeses.KillServer(self._server)]
        return [one for one in found
                if not self._wanted.nemeses or one.name in self._wanted.nemeses]  # fmt: skip

    def _masters(self) -> list[MasterProcess]:
        with self._lock:
            return list(self._supervised)

    def _running(self) -> list[int]:
        """Return the masters that have started: no master can start without descriptors."""
        now = time.monotonic()
        with self._lock:
            return [
                master.process.pid
                for master in self._supervised
                if master.alive and now - self._started[master.name] > _STARTED
            ]

    def _supervise(self, masters: Masters) -> None:
        """Start a new master for each dead one; report why it died, unless a nemesis killed it."""
        with suppress(JrsError):  # Asked again each second.
            self._registered |= {info.name for info in Registry(masters.backend).masters()}
        with self._lock:
            for master in [one for one in self._supervised if not one.alive]:
                self._supervised.remove(master)
                self._look_at_end(master)
            while len(self._supervised) < self._wanted.masters:
                name = f"m{len(masters.all) + 1}"
                self._started[name] = time.monotonic()
                self._supervised.append(masters.start(name))

    def _look_at_end(self, master: MasterProcess) -> None:
        """Judge a master's end: no temporary fault may end a master that has opened its store."""
        status = master.process.returncode
        if status in (-9, 0):
            return
        said = master.errors()
        last = said.rpartition("\n")[2]
        self._say(f"{master.name} ended with status {status}: {last}")
        refused = last.startswith("jrs:")
        if master.name not in self._registered and refused:
            self._unstarted += 1
            return
        self._exits += 1
        if master.name in self._registered and status != EXIT_DEPOSED:
            self._history.problem(f"{master.name} ended with status {status}: {last}")
        elif "Traceback" in said and not refused:
            # Its children report the causes of their deaths there, too.
            self._history.problem(f"{master.name} broke: {said}")

    def _settle(self, masters: Masters, client: Client) -> float:
        """Wait until everything is done and clean; return the seconds."""
        began = time.monotonic()
        while time.monotonic() < began + self._wanted.patience:
            client.tick()
            self._supervise(masters)
            if client.idle and not any(checks.no_records_left(masters.backend)):
                break
            time.sleep(0.1)
        return time.monotonic() - began

    def _checked(self, masters: Masters) -> Iterator[str]:
        backend, history = masters.backend, self._history
        yield from checks.one_result_each(history, backend)
        yield from checks.as_expected(history)
        yield from checks.no_run_behind_a_result(history, self._notes / "begun")
        yield from checks.no_records_left(backend)
        yield from checks.no_files_left(self._notes / "left")
        for master in self._masters():
            master.stop()
        for master in masters.all:
            if "Exception in thread" in (said := master.errors()):
                yield f"a thread of {master.name} broke: {said}"
        deadline = time.monotonic() + 30.0
        while marked(self._mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from checks.no_process_left(self._mark)
        yield from checks.fsck(self._url, self._cluster, self._storage)


@contextmanager
def _server(backend: str) -> Iterator[Server | None]:
    if backend == "file":
        yield None
        return
    with find_etcd() if backend == "etcd" else find_zookeeper() as server:
        yield server


@contextmanager
def _small_disk(path: Path, wanted: Plan, say: Callable[[str], None]) -> Iterator[Path | None]:
    """Mount a small filesystem in memory at `path`, or report that it is impossible."""
    if wanted.backend != "file" or not wanted.disk:
        yield None
        return
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "jrs-soak", str(path)],
        capture_output=True, text=True, check=False,
    ) if os.geteuid() == 0 else None  # fmt: skip
    if mounted is None or mounted.returncode:
        why = "only root may mount" if mounted is None else mounted.stderr.strip()
        say(f"NO FULL DISK in this soak: no small filesystem could be mounted: {why}")
        yield None
        return
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False, timeout=30)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jrs.testing.chaos.soak")
    parser.add_argument("--backend", choices=("file", "etcd", "zookeeper"), default="file")
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--masters", type=int, default=4)
    parser.add_argument("--ttl", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f}  {text}", file=sys.stderr, flush=True)

    wanted = Plan(backend=given.backend, seconds=given.minutes * 60, jobs=given.jobs,
                  seed=given.seed, masters=given.masters, ttl=given.ttl)  # fmt: skip
    outcome = soak(wanted, say)
    late = outcome.settled > SETTLED_WITHIN
    for line in outcome.violations:
        print(line)
    if late:
        print(
            f"it took {outcome.settled:.0f} s of peace to settle; {SETTLED_WITHIN:g} s are allowed"
        )
    print(proof_line(outcome.counts(), time.monotonic() - began))
    return 1 if outcome.violations or late else 0


if __name__ == "__main__":
    sys.exit(main())
