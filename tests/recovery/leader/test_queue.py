"""The queue for slots under kills: order, slots and memory, seen from outside."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from jrs.records import keys
from jrs.records.model import JobStatus
from jrs.recovery.attempt_main import PROGRAM
from jrs.recovery.inspect.queue import queue
from jrs.recovery.processes import marks
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from jrs.testing.processes import command_lines, pss
from tests.recovery.support import job, spec

SLOTS = 4
PRIORITIES = 5
MOST_PSS = 80 << 20
"""Bytes."""


def parents() -> dict[int, tuple[int, bool]]:
    """Return every process: its parent, and whether it is an attempt's."""
    found = {}
    for pid, line in command_lines().items():
        # The watchdog names the program, too.
        found[pid] = marks.parent(pid) or 0, f"-m {PROGRAM} " in line
    return found


def ancestors(processes: Mapping[int, tuple[int, bool]], pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent, and so on."""
    while pid in processes:
        pid = processes[pid][0]
        yield pid


@attrs.define
class Watcher:
    """Looks at masters from outside, in a thread, until `close`."""

    masters: Masters
    most_attempts: int = 0
    most_pss: int = 0
    _over: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._over.wait(0.2):
                return
            alive = [each.process.pid for each in self.masters.all if each.alive]
            processes = parents()
            of_master = Counter(
                above
                for pid, (_, is_attempt) in processes.items()
                if is_attempt
                for above in ancestors(processes, pid)
            )
            self.most_attempts = max([self.most_attempts, *(of_master[pid] for pid in alive)])
            if number % 10 == 0:
                self.most_pss = max([self.most_pss, *map(pss, alive)])


def run_queue(folder: Path, jobs: int, *, kill_every: float | None, timeout: float) -> Watcher:
    """Submit so many jobs of five priorities at once, run them on two masters with four slots, and
    kill the leader again and again; check every result, the order and the slots."""
    options = ["--max-attempts", str(SLOTS)]
    with Masters((folder / "store").as_uri(), options=options) as masters:
        catalog = JobCatalog(masters.backend, now=itertools.count(1).__next__)
        names = [f"job-{number:05}" for number in range(jobs)]
        ranks = {}
        for number, name in enumerate(names):
            priority = number % PRIORITIES
            catalog.submit(spec(name, job("add_slowly"), priority=priority))
            ranks[name] = -priority, number
        ordered = sorted(names, key=ranks.__getitem__)

        assert list(queue(masters.backend)) == []  # Nobody leads.

        numbers = itertools.count(1)
        for _ in range(2):
            masters.start(f"m{next(numbers)}")
        watcher = Watcher(masters)
        watcher.start()
        ended: set[str] = set()
        until, next_kill = time.monotonic() + timeout, time.monotonic()

        def count() -> bool:
            nonlocal next_kill
            ended.update(keys.job_of(one.key) for one in masters.backend.scan(keys.RESULTS))
            kills = len(ended) >= SLOTS and (kill_every is not None or len(masters.all) == 2)
            if kills and time.monotonic() >= next_kill + (kill_every or 0.0):
                masters.leader().kill()
                masters.start(f"m{next(numbers)}")
                next_kill = time.monotonic()
            return len(ended) == jobs

        try:
            masters.until(count, "all have ended", until - time.monotonic(), poll=0.2)
        finally:
            watcher.close()
            print(
                f"{len(ended)} of {jobs} ended; {len(masters.all) - 2} leaders killed; at most "
                f"{watcher.most_attempts} attempts of a master; {watcher.most_pss >> 20} MiB PSS"
            )
        results = [one.result for one in JobResultStore(masters.backend).list() if one.result]

        assert sorted(one.job_id for one in results) == names
        assert {one.status for one in results} == {JobStatus.FINISHED}
        assert {one.payload for one in results} == {3}

        begun = [one.job_id for one in sorted(results, key=lambda one: one.started_at)]
        late = [abs(begun.index(name) - place) for place, name in enumerate(ordered)]

        assert max(late) <= 2 * SLOTS, "no job overtakes one of a higher priority"
        assert 0 < watcher.most_attempts <= SLOTS
        assert watcher.most_pss < MOST_PSS
        return watcher


def test_a_queue_outlives_its_leader(tmp_path: Path) -> None:
    """U15: 16 jobs of five priorities, the leader killed once: all end once, in the order of the
    queue, and never more than four attempts run."""
    run_queue(tmp_path, 16, kill_every=None, timeout=240.0)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_thousand_jobs_are_a_queue(tmp_path: Path) -> None:
    """U15: 2,000 jobs submitted at once, a leader killed every 10 seconds."""
    jobs = int(os.environ.get("JRS_QUEUE", "2000"))
    run_queue(tmp_path, jobs, kill_every=10.0, timeout=7000.0)


def waits_at(place: int, message: str) -> bool:
    return f"at place {place} in the queue" in message


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_thousand_jobs_wait_in_little_memory(tmp_path: Path) -> None:
    """U15: a leader with 10,000 jobs that wait takes less than 80 MB."""
    jobs = 10_000
    hold = tmp_path / "hold"
    hold.touch()
    with Masters((tmp_path / "store").as_uri(), options=["--max-attempts", "1"]) as masters:
        catalog = JobCatalog(masters.backend, now=itertools.count(1).__next__)
        held = {"calls": str(tmp_path / "calls"), "hold": str(hold)}
        catalog.submit(spec("first", job("two_stages"), arguments=held))
        for number in range(jobs):
            catalog.submit(spec(f"job-{number:05}", job("add"), priority=number % PRIORITIES))
        began = time.monotonic()
        master = masters.start("m1")
        masters.event(lambda one: waits_at(jobs, one.message), "the last one waits", 300.0)
        masters.event(lambda one: one.kind == "leading", "it leads", 300.0)
        took, memory = time.monotonic() - began, pss(master.process.pid)
        print(f"{memory >> 20} MiB PSS, {took:.1f} s until the last one waits")

        assert memory < MOST_PSS
        assert len(queue(masters.backend)) == jobs
