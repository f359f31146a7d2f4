"""How fast a leader works off a queue of jobs that do nothing.

    python benchmarks/queued.py [--jobs N] [--runner process|thread] [--backend URL] [--json]

The jobs wait before the master starts. It is measured from its lead to the last clean result, with
the processor time of the master and all of its processes.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from measure import print_plain

from jrs.records.model import JobSpec, RunnerKind
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.masters import Masters
from jrs.testing.processes import pss

NOTHING = f"{Path(__file__).with_name('waiting.py')}:nothing"


def trial(
    url: str, folder: Path, jobs: int, runner: RunnerKind, options: list[str]
) -> dict[str, float]:
    """Return the figures of one run."""
    with Masters(url, cluster="queued", storage=folder / "files") as masters:
        catalog, results = JobCatalog(masters.backend), JobResultStore(masters.backend)
        for number in range(jobs):
            catalog.submit(JobSpec(f"job-{number}", NOTHING, runner=runner))
        before = _processor()
        asked = time.time()
        master = masters.start("master", options=options)
        elected = masters.event(lambda event: event.kind == "elected", "it is elected").at
        leads = masters.event(lambda event: event.kind == "leading", "it leads").at
        for number in range(jobs):
            while not results.has_clean(f"job-{number}"):
                time.sleep(0.2)  # Rarely, as a look costs the processor that is measured.
        done = time.time()
        memory = pss(master.process.pid)
        master.process.terminate()  # Only who waits for its children has their processor time.
        master.process.wait(60.0)
    return {
        "jobs": jobs,
        "jobs a second": jobs / (done - leads),
        "CPU-ms a job": 1e3 * (_processor() - before) / jobs,
        "start to elected, s": elected - asked,
        "elected to leading, s": leads - elected,
        "master's PSS, MB": memory / 1e6,
    }


def _processor() -> float:
    """Return the seconds of processor that ended children have had, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--runner", choices=[kind.value for kind in RunnerKind], default="process")
    parser.add_argument("--backend", help="a URL; by default files in a temporary folder")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("options", nargs="*", help="of the master, after --")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="jrs-queued-") as folder:
        url = given.backend or Path(folder, "store").as_uri()
        figures = trial(url, Path(folder), given.jobs, RunnerKind(given.runner), given.options)
    print_plain(figures, digits=1, as_json=given.json)


if __name__ == "__main__":
    main()
