"""A chaos test: kill the leader in the middle of a job, and ask for the same result.

    python examples/chaos.py

Point `JOB` at a job of your own and keep it in your test suite.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import jrs
from jrs.testing.masters import Masters

JOB = f"{Path(__file__).with_name('orders.py')}:orders"
ARGUMENTS: dict[str, Any] = {"n": 100_000}


def run(folder: Path, *, kill_in: str | None = None) -> jrs.JobResult:
    """Run the job on two masters; kill -9 the one that leads when stage `kill_in` has begun."""
    url = (folder / "store").as_uri()
    with Masters(url, storage=folder / "files") as masters, jrs.connect(url) as client:
        masters.start("m1")
        masters.start("m2")
        job = client.submit(JOB, id="job", **ARGUMENTS)
        if kill_in is not None:
            staging = folder / "files" / "default" / "job"
            masters.until(lambda: any(staging.glob(f"e*/{kill_in}.*")), f"{kill_in} has begun")
            masters.leader().kill()
        return job.result(timeout=180)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        calm = run(Path(folder, "calm"))
        disturbed = run(Path(folder, "disturbed"), kill_in="total")
    print(f"undisturbed: attempt {calm.attempt}, {calm.payload}")
    print(f"disturbed:   attempt {disturbed.attempt}, {disturbed.payload}")
    print(f"skipped:     {[s.name for s in disturbed.stages if s.attempt < disturbed.attempt]}")
    return 0 if disturbed.payload == calm.payload and disturbed.attempt == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
