"""The job that the chaos tests run: it says at every moment that it is alive."""

from __future__ import annotations

import os
import time

from jrs import Job


def stamp(job: Job, path: str) -> str:
    """Write the monotonic clock, the same for all processes of a host, to a file of this epoch and
    attempt again and again, until there is a file of that path with the suffix ``.stop``."""
    with open(f"{path}.{job.epoch}.{job.attempt}", "a", buffering=1) as file:
        while not os.path.exists(f"{path}.stop"):
            file.write(f"{time.monotonic()!r}\n")
            time.sleep(0.002)
    return f"epoch {job.epoch}"
