"""The processes of an attempt: found by a mark in their environment, killed as a whole.

A process group is not enough: PySpark's worker daemon leaves it, and so may anything a job starts.
The mark is inherited by every descendant, whatever session it moves to, and can not be mistaken
for a recycled pid.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

from jrs.clock import Deadline
from jrs.errors import Unavailable

MARK = "JRS_JOB"


def mark_of_cluster(url: str, cluster: str) -> str:
    """Return what the marks of all attempts of a cluster begin with."""
    where = hashlib.sha256(f"{url}\0{cluster}".encode()).hexdigest()[:16]
    return f"{where}:"


def mark_of_job(url: str, cluster: str, job_id: str) -> str:
    """Return what the marks of all attempts of a job begin with, on whatever master they run."""
    return f"{mark_of_cluster(url, cluster)}{job_id}:"


def mark_of_attempt(url: str, cluster: str, job_id: str, epoch: int, attempt: int) -> str:
    """Return the mark of one attempt's processes."""
    return f"{mark_of_job(url, cluster, job_id)}{epoch}.{attempt};"


def marked(beginning: str) -> list[int]:
    """Return the pids of all living processes whose mark begins so, but for this one."""
    entry = f"{MARK}={beginning}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path("/proc", name, "environ").read_bytes()
            if any(part.startswith(entry) for part in environment.split(b"\0")) and _alive(name):
                found.append(int(name))
        except OSError:
            continue  # It ended, or is not ours.
    return found


def _alive(pid: str) -> bool:
    state = Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()[0]
    return state not in (b"Z", b"X")


def end(beginning: str, deadline: Deadline) -> list[int]:
    """Kill every process whose mark begins so, also stopped ones; return once none is left.

    Idempotent. Returns the pids that were killed.

    Raises:
        Unavailable: some would not die (a hung disk keeps a process in the kernel).
    """
    killed: set[int] = set()
    while True:
        pids = marked(beginning)
        if not pids:
            return sorted(killed)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            except ProcessLookupError:
                pass
        if deadline.expired:
            raise Unavailable(f"processes {sorted(pids)} do not die; the job is not started again")
        # No event tells of the end of somebody else's child.
        time.sleep(0.005)
