"""How soon a new leader leads, and reacts, next to many jobs that have nothing to do.

    python benchmarks/leading.py [--jobs N] [--state queued|held] [--kind KIND] [--json]

The cluster is paused, so that queued jobs stay queued. The master is elected next to them, and one
more job is canceled the moment the master leads.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from measure import print_plain

from backends import SERVERS
from jrs.contract.backend import Backend
from jrs.records.model import JobSpec
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.steering import Steering
from jrs.store.stops import JobStops
from jrs.testing.masters import Masters


def prepare(backend: Backend, jobs: int, state: str) -> None:
    """Submit the jobs; hold them if they are to be held."""
    catalog = JobCatalog(backend)
    for number in range(jobs):
        catalog.submit(JobSpec(f"job-{number}", "nowhere:never"))
    catalog.submit(JobSpec("canceled", "nowhere:never"))
    if state == "held":
        with backend.campaign("holder", ttl=60.0, stop=threading.Event()) as leadership:  # type: ignore[union-attr]
            stops = JobStops(backend)
            for number in range(jobs):
                stops.hold(f"job-{number}", "for this measurement", leadership.fence)
    Steering(backend).pause("benchmark", "queued jobs are to stay queued")


def trial(url: str, folder: Path, jobs: int, state: str) -> dict[str, float]:
    """Return the figures of one run."""
    with Masters(url, cluster="leading", storage=folder / "files") as masters:
        prepare(masters.backend, jobs, state)
        results = JobResultStore(masters.backend)
        masters.start("master")
        elected = masters.event(lambda event: event.kind == "elected", "it is elected").at
        leads = masters.event(lambda event: event.kind == "leading", "it leads").at
        JobCatalog(masters.backend).cancel("canceled")
        asked = time.monotonic()
        results.wait("canceled", timeout=600.0)
        reacted = time.monotonic()
    return {
        "jobs": jobs,
        "elected to leading, s": leads - elected,
        "cancel to result, s": reacted - asked,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--state", choices=["queued", "held"], default="queued")
    parser.add_argument("--kind", choices=["file", *SERVERS], default="file")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jrs-leading-")))
        if given.kind == "file":
            url = (folder / "store").as_uri()
        else:
            url = stack.enter_context(SERVERS[given.kind]()).url()
        figures = trial(url, folder, given.jobs, given.state)
    print_plain(figures, digits=3, as_json=given.json)


if __name__ == "__main__":
    main()
