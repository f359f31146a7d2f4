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


def marked(beginning: str, *, up_to_epoch: int | None = None) -> list[int]:
    """Return the pids of all living processes whose mark begins so, but for this one.

    `up_to_epoch` goes with the mark of a job, and leaves attempts of newer epochs out.
    """
    entry = f"{MARK}={beginning}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path("/proc", name, "environ").read_bytes()
            marks = [part for part in environment.split(b"\0") if part.startswith(entry)]
            if any(_is_within(mark[len(entry) :], up_to_epoch) for mark in marks) and _alive(name):
                found.append(int(name))
        except OSError:
            continue  # It ended, or is not ours.
    return found


def _is_within(rest: bytes, up_to_epoch: int | None) -> bool:
    return up_to_epoch is None or int(rest.partition(b".")[0]) <= up_to_epoch


def _alive(pid: str) -> bool:
    return _state(int(pid))[0] not in (b"", b"Z", b"X")


def _state(pid: int) -> tuple[bytes, bytes]:
    """Return a process's state and start time; empty if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return b"", b""
    return fields[0], fields[19]


def _is_over(pid: int, born: bytes) -> bool:
    """Return whether a process that was killed runs no more, with all of its threads.

    Its environment is gone a little earlier, and its first thread may be dead before the others.
    """
    state, start = _state(pid)
    if not start or start != born:
        return True
    try:
        return state in (b"Z", b"X") and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


def end(beginning: str, deadline: Deadline, *, up_to_epoch: int | None = None) -> list[int]:
    """Kill every process whose mark begins so, also stopped ones; return once none is left.

    Idempotent. Returns the pids that were killed. `up_to_epoch`: a leader that was replaced while
    it slept must not kill the attempts of the one that leads now.

    Raises:
        Unavailable: some would not die (a hung disk keeps a process in the kernel).
    """
    killed: dict[int, bytes] = {}
    sure = False
    while True:
        pids = marked(beginning, up_to_epoch=up_to_epoch)
        dying = [pid for pid, born in killed.items() if not _is_over(pid, born)]
        if not pids and not dying and (sure or not killed):
            return sorted(killed)
        # A child that is just calling exec shows no environment: one more look.
        sure = not pids and not dying
        for pid in pids:
            born = _state(pid)[1]
            try:
                os.kill(pid, signal.SIGKILL)
                killed[pid] = born
            except ProcessLookupError:
                pass
        if not sure and deadline.expired:
            left = sorted({*pids, *dying})
            raise Unavailable(f"processes {left} do not die; the job is not started again")
        # No event tells of the end of somebody else's child.
        time.sleep(0.005)
