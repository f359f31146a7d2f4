"""What each kind of process loads: a room is not loaded by a process that does not use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    *("pyspark", "pyarrow", "pandas", "kazoo", "grpc", "rich", "click", "tenacity", "cattrs"),
    *("openlineage", "opentelemetry", "requests", "asyncio", "http.client", "importlib.metadata"),
}
"""Packages that take time or memory to load."""

STORE = {"jrs.contract", "jrs.records", "jrs.store"}
RUNS = STORE | {
    "jrs.host",
    "jrs.recovery.files",
    "jrs.recovery.processes",
    "jrs.recovery.checkpoint_format",
    "jrs.recovery.snapshots",
    "jrs.recovery.attempt",
    "jrs.recovery.rules",
    "jrs.recovery.spark",
    "jrs.recovery.storage",
}
"""The rooms that an attempt needs."""
CLIENT = {
    "jrs.client",
    "jrs.host",
    *(f"jrs.recovery.{name}" for name in ("attempt", "checkpoint_format", "cleanup", "files")),
    *(f"jrs.recovery.{name}" for name in ("inspect", "processes", "rules", "snapshots", "spark")),
    "jrs.recovery.storage",
}
"""The rooms that a client needs, which does by itself whatever needs no leader."""

PROCESSES = {
    "import jrs": ("import jrs", set(), set(), 1),
    "a reader of results": (
        "import jrs; jrs.JobResultStore; jrs.JobResult",
        STORE,
        {"cattrs"},
        57,  # Two of them check the types of what callers give, and know by which time all is old.
    ),
    "a client": (
        "import jrs; jrs.connect; jrs.Client",
        STORE | CLIENT,
        {"cattrs"},
        # Of it eight compare a call or a submission, check arguments, and an entry point in another
        # process, tell which snapshots forks have taken for themselves, and are parts of the
        # cleanup, which a client does by force; one has the pools of all rooms. Six are the
        # sources of restores and the output left out, what a session's environment needs, and by
        # which time results are old. Two find the jobs that are held, and have the calls about
        # jobs that have not ended; two count in a cleanup's journal, and keep
        # a snapshot while it is copied. One finds the storage.
        227,
    ),
    "the writer of a base": (
        "import jrs.backends.file.base_writer",
        {"jrs.backends.file", "jrs.backends.shared", "jrs.contract", "jrs.host", "jrs.records"},
        set(),
        57,  # Two of them start a thread, and tell what can be a key from what damage has left.
    ),
    "the client of ZooKeeper's protocol": (
        "import jrs.backends.zookeeper.protocol.connection",
        # jrs.host reads renewed certificates again.
        {"jrs.backends.remote", "jrs.backends.zookeeper", "jrs.contract", "jrs.host"},
        {"kazoo"},
        23,
    ),
    "the watchdog of an attempt": (
        "import jrs.recovery.attempt.watchdog",
        {
            "jrs.contract",
            "jrs.host",
            "jrs.recovery.attempt",
            "jrs.recovery.files",
            "jrs.recovery.processes",
        },
        set(),
        25,  # One of them starts the thread that writes its logs.
    ),
    "an attempt without Spark": (
        "import jrs.recovery.attempt_main",
        RUNS,
        {"cattrs", "tenacity"},
        # Seven of them give a job that is made from another the span of who made it, run what may
        # hang in a thread of its own, have the pools of all rooms, tell the snapshots of forks,
        # compare the output that a snapshot has left out, keep the sources of restores, and check
        # arguments. Three make a session's environment, know which errors of Spark pass, and by
        # which time results are old.
        198,
    ),
    "a master": (
        "import jrs.cli.master",
        RUNS
        | {f"jrs.recovery.{name}" for name in ("cleanup", "health", "leader", "rules")}
        | {"jrs.cli"},
        {"cattrs", "click", "tenacity"},
        # Eight of them have the pools of all rooms and the digest of a submission, tell the
        # snapshots of forks, remember the jobs that have ended, are parts of the cleanup, and
        # check arguments. Two look at the storage while a master stands by, and wait for it no
        # longer than a ttl. Five more are an attempt's, see there; one counts in a cleanup's
        # journal, and two have a case and the times of its snapshots.
        315,
    ),
}
"""A program; the rooms of ours that it loads; the heavy packages; and the most modules of ours."""


@pytest.mark.parametrize("process", PROCESSES)
def test_what_a_process_loads(process: str) -> None:
    """It loads the rooms that it uses and no others, and no package that it does not need."""
    program, rooms, packages, most = PROCESSES[process]
    loaded = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ours = [name for name in loaded if name.split(".")[0] == "jrs"]

    assert {name for name in ours if is_room(name)} == rooms
    assert set(loaded) & HEAVY == packages
    assert len(ours) <= most


def is_room(name: str) -> bool:
    """Return whether a module is the package of a room."""
    parts = name.split(".")
    if parts[1:2] in (["recovery"], ["backends"]):
        return len(parts) == 3 and name not in COMPOSITION
    return len(parts) == 2


COMPOSITION = {
    f"jrs.recovery.{name}"
    for name in (
        "application",
        "master",
        "attempt_main",
        "driver_calls",
        "leading_replica",
        "run_hook",
        "snapshot_catalog",
        "standby_replica",
    )
}
"""The modules that join rooms."""
