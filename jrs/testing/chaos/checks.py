"""The checks after a soak. Each check yields a line for each violation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.model import JobStatus
from jrs.store.result_store import JobResultStore
from jrs.testing.chaos.history import History
from jrs.testing.chaos.marks import marked
from jrs.testing.processes import command_lines


def one_result_each(history: History, backend: Backend) -> Iterator[str]:
    """Every acknowledged job has the result that was seen first, and no other result."""
    store = JobResultStore(backend)
    for job_id in history.missing():
        yield f"{job_id} has no result"
    for job_id, seen in sorted(history.seen.items()):
        entry = store.get(job_id)
        if entry is None or entry.result != seen.result:
            yield f"the result of {job_id} was {seen.result}, and is {entry}"
    for entry in store.list():
        if entry.job_id not in history.expected:
            yield f"{entry.job_id} has a result, and its submission was never acknowledged"


def as_expected(history: History) -> Iterator[str]:
    """Every job has ended as its kind should."""
    for job_id, expected in sorted(history.expected.items()):
        seen = history.seen.get(job_id)
        if seen is None:
            continue
        result = seen.result
        if result.status not in expected.statuses:
            yield f"{job_id} ended {result.status.name}: {result.failure}"
        elif result.status is JobStatus.FINISHED and result.payload != expected.payload:
            yield f"{job_id} returned {result.payload}, not {expected.payload}"


def no_run_behind_a_result(history: History, begun: Path) -> Iterator[str]:
    """No attempt began after the result of its job was seen."""
    for line in begun.read_text().splitlines() if begun.exists() else ():
        at, job_id, epoch, attempt = line.split()
        seen = history.seen.get(job_id)
        if seen is not None and float(at) > seen.at:
            yield f"attempt {attempt} of {job_id} (epoch {epoch}) began behind its result"


def no_records_left(backend: Backend) -> Iterator[str]:
    """All results are clean, and all records that exist only while a job runs are deleted."""
    for prefix in (keys.JOBS, keys.DIRTY, *keys.WHILE_IT_RUNS):
        for record in backend.scan(prefix):
            yield f"{record.key} is left"


def no_files_left(folder: Path) -> Iterator[str]:
    """All files that jobs left outside of their folders were removed."""
    for path in sorted(folder.iterdir()):
        yield f"{path} is left"


def fsck(url: str, cluster: str, storage: Path) -> Iterator[str]:
    """`jrs fsck` finds nothing."""
    command = [sys.executable, "-m", "jrs", "--backend", url, "--cluster", cluster, "fsck",
               "--storage", str(storage)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        yield f"fsck: exit {done.returncode}: {done.stdout}{done.stderr}"


def no_process_left(mark: str) -> Iterator[str]:
    """No process that descends from the masters is alive."""
    left = marked(mark)
    lines = command_lines(left)
    for pid in left:
        yield f"process {pid} is left: {lines.get(pid, '?')}"
