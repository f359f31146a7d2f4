"""What the benchmark runs in a fresh process: one command a line, its figures as JSON.

::

    probe.py build FOLDER CLEAN DIRTY     a store whose log was never compacted; the same in SQLite
    probe.py compact FOLDER               seal it and write its base
    probe.py open FOLDER                  open the store and list what is dirty
    probe.py open-sqlite FOLDER           the same by an indexed query
    probe.py lead FOLDER TTL              lead until killed
    probe.py work FOLDER VERSION NAME SECONDS    one worker's jobs under a given fence
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import peers

from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.lines import Commit, commit
from jrs.backends.shared.group_commit import ACCEPTED
from jrs.contract.operations import Create, Delete, Fence
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import JobResult, JobStatus
from jrs.store.result_store import JobResultStore

NEVER = 1 << 60
"""A `seal_at` that no log reaches."""


def sample(job_id: str) -> JobResult:
    """A small, ordinary result: about 350 bytes once it is encoded."""
    return JobResult(
        job_id,
        JobStatus.FINISHED,
        payload={"rows": 123456, "path": f"/data/out/{job_id}", "columns": ["day", "carrier"]},
        epoch=1,
        started_at=1700000000.25,
        finished_at=1700000060.75,
    )


def build(folder: Path, clean: int, dirty: int) -> dict[str, float]:
    """Two honest commit lines per clean job, as 64 callers would have left them behind."""
    every = max(1, clean // dirty)
    backend = FileBackend(folder / "jrs", seal_at=NEVER)
    leader = backend.campaign("builder", ttl=60.0, stop=threading.Event())
    assert leader is not None
    fence = (leader.fence.check().key, leader.fence.version)
    leader.resign()  # Its heartbeat would read the replica while we append to it behind its lock.
    connection = peers.open_sqlite(folder / "peer.sqlite")
    peers.create_table(connection)
    connection.execute("BEGIN")

    def commits() -> Iterator[Commit]:
        for number in range(clean + dirty):
            job_id = f"job-{number * 2654435761 % (1 << 32):08x}-{number}"
            body = encode(sample(job_id))
            stays = number % (every + 1) == 0 and number // (every + 1) < dirty
            connection.execute("INSERT INTO results VALUES (?, ?, ?)", (job_id, stays, body))
            yield commit(
                (Create(keys.RESULTS + job_id, body), Create(keys.DIRTY + job_id, b"")), fence
            )
            if not stays:
                yield commit((Delete(keys.DIRTY + job_id),), fence)

    gc.disable()
    batch: list[Commit] = []
    for line in commits():
        batch.append(line)
        if len(batch) == 8192:
            _append(backend, batch)
            batch = []
    _append(backend, batch)
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    backend.close()
    return {"jobs": clean + dirty}


def _append(backend: FileBackend, batch: list[Commit]) -> None:
    verdicts = backend.replica.append(batch)
    assert all(verdict == ACCEPTED for verdict in verdicts)


def compact(folder: Path) -> dict[str, float]:
    with FileBackend(folder / "jrs") as backend:
        backend.get("anything")
        began = time.perf_counter()
        backend.compact()
        return {"seconds": time.perf_counter() - began}


def open_store(folder: Path) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    backend = FileBackend(folder / "jrs", seal_at=NEVER)
    entries = list(JobResultStore(backend).dirty())
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert all(entry.result is not None for entry in entries)
    private, peak = _memory()
    backend.close()
    return {
        "seconds": seconds,
        "cpu": cpu,
        "entries": len(entries),
        "private": private,
        "peak": peak,
    }


def open_sqlite(folder: Path) -> dict[str, float]:
    began = time.perf_counter()
    connection = peers.open_sqlite(folder / "peer.sqlite")
    rows = connection.execute(
        "SELECT job, body FROM results WHERE dirty = 1 ORDER BY job"
    ).fetchall()
    fetched = time.perf_counter() - began
    entries = [decode(JobResult, body, job) for job, body in rows]
    seconds = time.perf_counter() - began
    private, peak = _memory()
    connection.close()
    return {
        "seconds": seconds,
        "fetched": fetched,
        "entries": len(entries),
        "private": private,
        "peak": peak,
    }


def _memory() -> tuple[float, float]:
    """Private bytes, without the pages of mapped filters: those are the kernel's to take back."""
    private, counts = 0, True
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            counts = not line.endswith(".filter")
        elif counts and name in ("Private_Clean:", "Private_Dirty:"):
            private += int(rest.split()[0]) * 1024
    return private, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def lead(folder: Path, ttl: float) -> dict[str, float]:
    backend = FileBackend(folder / "jrs")
    leader = backend.campaign("leader", ttl=ttl, stop=threading.Event())
    assert leader is not None
    print(json.dumps({"epoch": leader.epoch}), flush=True)
    threading.Event().wait()
    return {}


def work(folder: Path, version: int, name: str, seconds: float) -> dict[str, float]:
    """Say "ready", begin at the first line of stdin, and do jobs until the time is over."""
    fence = Fence(1, version)
    with FileBackend(folder / "jrs") as backend:
        store = JobResultStore(backend)
        backend.get("anything")
        print("{}", flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        done = 0
        while time.perf_counter() - began < seconds:
            job_id = f"{name}-{done}"
            store.create_dirty(sample(job_id), fence)
            store.mark_clean(job_id, fence)
            done += 1
        return {"jobs": done, "seconds": time.perf_counter() - began}


def main(command: str, folder: str, *rest: str) -> None:
    root = Path(folder)
    commands: dict[str, Callable[[], dict[str, float]]] = {
        "build": lambda: build(root, int(rest[0]), int(rest[1])),
        "compact": lambda: compact(root),
        "open": lambda: open_store(root),
        "open-sqlite": lambda: open_sqlite(root),
        "lead": lambda: lead(root, float(rest[0])),
        "work": lambda: work(root, int(rest[0]), rest[1], float(rest[2])),
    }
    print(json.dumps(commands[command]()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
