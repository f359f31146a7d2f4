"""What one trial is, and where its parts are inside of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

import attrs

from jrs.recovery.files.job_folders import JobStorage

EXPORT = Path("/mnt/export")
"""The folder that the server exports: the truth, without any client's cache."""
MOUNTS = (Path("/mnt/zombies"), Path("/mnt/leader"))
"""The same folder, as the two clients see it."""
LOGS = Path("/run/trial")
"""What the programs report; in memory, apart from NFS."""
CLUSTER, STAGE = "cluster", "s"
OLD, NEW = 5, 6
"""The epochs of the zombies and of the leader."""


@attrs.frozen
class Trial:
    """Zombies that run on while a leader on another host takes their jobs over.

    Attributes:
        options: of both clients' mounts.
        zombies: how many; each has a job of its own.
        plain: take over by a rename alone, as in clusters before format 5.
        restarting: the zombies begin their stage again every two seconds.
        alone: seconds that the zombies run before the leader looks at their jobs.
        polled: seconds in which the leader looks at the jobs once a second.
        watched: seconds after a take-over in which nothing of the zombie may appear.
    """

    options: str
    zombies: int = 10
    plain: bool = False
    restarting: bool = False
    alone: float = 15.0
    polled: float = 62.0
    watched: float = 75.0

    @property
    def jobs(self) -> list[str]:
        return [f"job-{number}" for number in range(self.zombies)]

    @property
    def over(self) -> Path:
        """The file that ends the zombies."""
        return LOGS / "over"

    def as_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


def checkpoint(root: Path, job: str, epoch: int) -> Path:
    return JobStorage(root, CLUSTER).checkpoint(job, epoch, STAGE)


def output(root: Path, job: str) -> Path:
    return JobStorage(root, CLUSTER).published(job, STAGE, temporary=False)
