"""On the second client: a leader that has looked at the jobs before, and takes them over."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from jrs.contract.errors import JrsError, Unavailable
from jrs.recovery.checkpoint_format import checkpoint as spark
from jrs.recovery.checkpoint_format.links import link_checkpoint
from jrs.recovery.checkpoint_format.listing import newest
from jrs.recovery.checkpoint_format.position import position
from jrs.recovery.files.job_folders import JobStorage
from tests.chaos.nfs.trial import (
    CLUSTER,
    EXPORT,
    LOGS,
    MOUNTS,
    NEW,
    OLD,
    Trial,
    checkpoint,
    output,
)

_TRIES = 60


def look(job: str) -> None:
    """Fill the caches: with lists, attributes, and names that are not there yet."""
    ck, out = checkpoint(MOUNTS[1], job, OLD), output(MOUNTS[1], job)
    for folder in (ck, ck / "offsets", ck / "commits", ck / "state/0/0", out, out.parents[1]):
        if folder.is_dir():
            for path in folder.iterdir():
                os.path.lexists(path)
    following = newest(ck / "offsets") + 1
    for batch in range(following, following + 3):
        for path in (ck / f"offsets/{batch}", ck / f"commits/{batch}", out / f"batch={batch}"):
            path.exists()
    checkpoint(MOUNTS[1], job, NEW).exists()
    try:
        position(ck)
    except (JrsError, OSError):
        pass  # It was listed while batches were planned.


def take_over(job: str, trial: Trial) -> dict[str, Any]:
    """Take a job over; return when that was, what was there then, and what the leader saw."""
    storage = JobStorage(MOUNTS[1], CLUSTER)
    begun = time.time()
    refused: list[str] = []
    while True:
        try:
            if trial.plain:
                storage.take_over(job, NEW)
            else:
                storage.take_over(job, NEW, staged=set(), link_checkpoint=link_checkpoint)
            break
        except Unavailable as error:  # A leader repeats it, too.
            refused.append(str(error))
            if len(refused) == _TRIES:
                raise
            time.sleep(0.5)
    returned = time.time()
    return {
        "begun": begun,
        "returned": returned,
        "refused": refused,
        "at return": truth(job),
        "left at return": left(job),
        "seen": seen(job),
    }


def truth(job: str) -> dict[str, Any]:
    """Return the new epoch's files and the published batches, as the server has them."""
    return {
        "files": files(checkpoint(EXPORT, job, NEW)),
        "batches": sorted(os.listdir(output(EXPORT, job))),
    }


def seen(job: str) -> dict[str, Any]:
    """Return the same as the leader's client has it, and what it makes of it."""
    ck = checkpoint(MOUNTS[1], job, NEW)
    found: dict[str, Any] = {
        "files": files(ck),
        "batches": sorted(os.listdir(output(MOUNTS[1], job))),
    }
    try:
        at = position(ck)
        found |= {"planned": at.planned, "committed": at.committed}
        found["selected"] = spark.select(ck).batch
    except (JrsError, OSError) as error:
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def files(top: Path) -> dict[str, tuple[int, int]]:
    """Return the files below a folder, and for each its size and the time of its last change."""
    found = {}
    for folder, _, names in os.walk(top):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):  # In trials that leak, the zombie removes some.
                status = path.stat()
                found[str(path.relative_to(top))] = status.st_size, status.st_mtime_ns
    return found


def left(job: str) -> int:
    """Return how many files of old epochs the server still has: in the trash and with the job."""
    storage = JobStorage(EXPORT, CLUSTER)
    old = [storage.root / ".trash", *storage.folder(job).glob(".e*")]
    return sum(len(names) for top in old for _, _, names in os.walk(top))


def main(trial: Trial) -> None:
    until = time.monotonic() + trial.polled
    while (began := time.monotonic()) < until:
        for job in trial.jobs:
            look(job)
        time.sleep(max(0.0, began + 1 - time.monotonic()))
    taken = {}
    for job in trial.jobs:
        taken[job] = take_over(job, trial)
    for job in trial.jobs:
        time.sleep(max(0.0, taken[job]["returned"] + trial.watched - time.time()))
        taken[job]["at end"] = truth(job)
    trash = left(trial.jobs[0])
    JobStorage(MOUNTS[1], CLUSTER).empty_trash()
    found = {"jobs": taken, "left at end": trash, "left after emptying": left(trial.jobs[0])}
    (LOGS / "leader").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Trial.from_json(Path(sys.argv[1]).read_text()))
