"""What the tests on Spark share: their jobs' entry points, and what to look for afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jrs.contract.backend import Backend
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.snapshots import SnapshotRecord
from jrs.recovery.attempt_main import PROGRAM
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.processes import marks
from jrs.testing.chaos.reading import CHECKS, run_of
from jrs.testing.chaos.recorder import HISTORY
from jrs.testing.processes import command_lines
from tests.support import until as wait_until

BOUND = 600.0
"""Seconds after which a condition that should hold soon is taken to never hold."""

TTL = 15.0
"""Seconds, of leaders whose epochs and attempts are counted: a machine on which JVMs start must not
depose them. A leader whose process has died is replaced at once, unless its attempt cannot end."""

JOBS = Path(__file__).with_name("jobs.py")


def until(condition: Callable[[], Any], what: str) -> None:
    """Wait until `condition` holds."""
    wait_until(condition, what, BOUND)


def job(name: str) -> str:
    """Return the entry point of a function in jobs.py."""
    return f"{JOBS}:{name}"


def recorded(env: Mapping[str, str], history: Path) -> dict[str, str]:
    """Return an environment in which a demo records what its processes ask of the store."""
    return {**env, HISTORY: str(history)}


def assert_promises_kept(history: Path, clusters: int) -> None:
    """Assert that no check finds anything in the recorded histories of so many clusters."""
    folders = list(history.iterdir())
    assert len(folders) == clusters
    for folder in folders:
        run = run_of(folder)
        checks = [check for check in CHECKS.values() if check.can_judge(run)]
        assert {"protocol", "linearizable", "fenced"} <= {check.name for check in checks}
        assert [str(one) for check in checks for one in check.violations(run)] == []
        print(f"{folder.name}: {len(run.events)} events")


def marked(backend: Backend, job_id: str) -> dict[int, str]:
    """Return the processes of a job's attempts, and what each runs."""
    mark = marks.mark_of_job(backend.url, backend.cluster, job_id)
    return command_lines(marks.marked(mark))


def watchdogs(backend: Backend) -> list[int]:
    """Return the watchdogs of the cluster's attempts, by their arguments."""
    mark = marks.old_mark(backend.url, backend.cluster, "", 0, 0).partition(":")[0]
    return [pid for pid, line in command_lines().items() if f"watchdog {PROGRAM} {mark}:" in line]


def published(storage: JobStorage, job_id: str) -> dict[str, list[str]]:
    """Return the digests of the files that were published, by table: Spark's names are random."""
    out = storage.folder(job_id) / "out"
    found: dict[str, list[str]] = {}
    for path in sorted(out.rglob("[!._]*")):
        if path.is_file():
            digests = found.setdefault(str(path.parent.relative_to(out)), [])
            digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def left_over(backend: Backend, storage: JobStorage, job_id: str) -> list[str]:
    """Return everything of a job that its cleanup should have removed."""
    folder = storage.folder(job_id)
    trash = storage.root / ".trash"
    kept = [
        record.key
        for record in backend.scan(keys.snapshots(job_id))
        if decode(SnapshotRecord, record.value, record.key).at_end  # For a retry.
    ]
    stay = ("out", "logs", *(["snapshots"] if kept else []))
    places = [path for path in folder.glob("*") if path.name not in stay]
    places += list(trash.glob("*"))
    records = [
        record.key
        for prefix in keys.PER_JOB
        if prefix != keys.RESULTS
        for record in backend.scan(prefix)
        if record.key not in kept
    ]
    return [*map(str, places), *records, *marked(backend, job_id).values()]
