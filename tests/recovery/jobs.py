"""The jobs that the recovery tests run in processes of their own, given as ``jobs.py:function``."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from jrs import Job, Stage
from jrs.recovery.attempt.job import context_of

not_callable = 7

_FOREVER = 3600.0


def add(job: Job, a: int = 1, b: int = 2) -> int:
    return a + b


def add_slowly(job: Job) -> int:
    """Take long enough to be seen."""
    time.sleep(0.5)
    return add(job)


def where(job: Job) -> dict[str, Any]:
    return {"job": job.job_id, "attempt": job.attempt, "epoch": job.epoch, "pid": os.getpid()}


def boom(job: Job) -> None:
    raise ValueError("no good")


def session_then_death(job: Job, pids: str) -> int:
    """Die once, after recording a session as a job on Spark does; then return the process."""
    note(pids)
    if job.attempt == 1:
        context = context_of(job)
        context.own.starts_session(context.backend, context.fence, {})
        os._exit(9)
    return os.getpid()


def not_json(job: Job) -> Any:
    return {1, 2}


def nan(job: Job) -> float:
    return float("nan")


def canceled_inside(job: Job) -> None:
    import asyncio

    raise asyncio.CancelledError("from inside")


def die(job: Job, status: int = 9, words: str = "last words") -> None:
    print(words, file=sys.stderr, flush=True)
    os._exit(status)


def full_disk_at_first(job: Job) -> int:
    """Return the number of the first attempt whose disk is not full."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if job.attempt == 1:
        os.fsync = full  # type: ignore[assignment]  # In this process alone, which ends by it.
    return job.stage("s", lambda stage: job.attempt).result()


def die_by_signal(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(job: Job, pids: str, deaf: bool = False) -> None:
    """Run forever; if `deaf`, ignoring every signal that can be ignored."""
    if deaf:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    note(pids)
    time.sleep(_FOREVER)


def family(job: Job, pids: str) -> None:
    """Run forever next to children that moved away in every way there is."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(3600)"]
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
    children = [
        subprocess.Popen(sleeper),
        subprocess.Popen(sleeper, start_new_session=True),
        subprocess.Popen([sys.executable, "-c", deaf], process_group=0),
    ]
    for child in children:
        note(pids, child.pid)
    note(pids, daemonized())
    note(pids)
    time.sleep(_FOREVER)


def daemonized() -> int:
    """Fork twice with a new session in between, as daemons do; return the daemon's pid."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        pid = os.fork()
        if pid:
            os.write(writer, str(pid).encode())
            os._exit(0)
        time.sleep(_FOREVER)
        os._exit(0)
    os.waitpid(middle, 0)
    return int(os.read(reader, 32))


def note(path: str, pid: int | None = None) -> None:
    """Add a line with a pid, whole, to a file."""
    with open(path, "a") as file:
        file.write(f"{pid or os.getpid()}\n")


def litter(job: Job, pids: str, count: int) -> None:
    """Leave orphans that end at once, and run forever."""
    reader, writer = os.pipe()
    for _ in range(count):
        middle = os.fork()
        if middle == 0:
            if os.fork() == 0:
                os.read(reader, 1)  # Not before its parent has ended.
            os._exit(0)
        os.waitpid(middle, 0)
    os.write(writer, b"." * count)
    note(pids)
    time.sleep(_FOREVER)


def leave_child(job: Job, pids: str) -> str:
    """End at once, and leave a child running."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
    )
    note(pids, child.pid)
    return "done"


def two_stages(job: Job, calls: str, hold: str | None = None) -> dict[str, Any]:
    """Note each call of a stage; wait between the stages as long as the file `hold` exists."""

    def first(stage: Stage) -> dict[str, int]:
        note(f"{calls}.first", job.epoch)
        (stage.output / "data").write_text("first")
        return {"rows": 3}

    def second(stage: Stage) -> str:
        note(f"{calls}.second", job.epoch)
        text = (one.output / "data").read_text()
        (stage.output / "data").write_text(f"{text} second")
        return text

    one = job.stage("first", first, temporary=True)
    note(f"{calls}.between", job.epoch)
    while hold and os.path.exists(hold):
        time.sleep(0.005)
    two = job.stage("second", second)
    return {
        "rows": one.result()["rows"],
        "skipped": [one.skipped, two.skipped],
        "text": (two.output / "data").read_text(),
    }


def write_when_told(job: Job, started: str, go: str, wrote: str) -> str:
    """Wait for the file `go`, then finish a stage; tell in `wrote` how that went."""
    note(started, job.epoch)
    while not os.path.exists(go):
        time.sleep(0.005)
    try:
        job.stage("only", lambda stage: (stage.output / "data").write_text(str(job.epoch)))
    except BaseException as error:
        Path(wrote).write_text(type(error).__name__)
        raise
    return f"epoch {job.epoch}"


def sees(job: Job) -> dict[str, str]:
    """Return what a job, its child and its watchdog can read of how the backend is reached."""
    child = [
        sys.executable,
        "-c",
        "import os; print(os.environ, os.read(0, 9), os.readlink('/proc/self/fd/0'))",
    ]
    parent = Path(f"/proc/{os.getppid()}/environ")
    return {
        "os.environ": str(dict(os.environ)),
        "environ": Path("/proc/self/environ").read_text(),
        "watchdog": parent.read_text(),
        "child": subprocess.run(child, capture_output=True, text=True, check=False).stdout,
        "stdin": Path("/proc/self/fd/0").read_text(),
    }
