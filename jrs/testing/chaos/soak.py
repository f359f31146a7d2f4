"""The soak: puts masters and jobs of all kinds through every nemesis, for minutes.

    python -m jrs.testing.chaos.soak --backend file --minutes 10 --jobs 300 --seed 1

After the faults end, every job must have the one result of its kind, and nothing may be left
behind: no record, no file, no process. Otherwise the exit status is 1. The full disk is a small
filesystem, which only root can mount; if that is impossible, the soak says so and does without it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from jrs.records.model import JobStatus
from jrs.testing.chaos import faults
from jrs.testing.chaos.checking.facts import Anomaly
from jrs.testing.chaos.checking.jobs import (
    counts,
    no_overlap,
    nothing_left,
    nothing_lost,
    once_per_job,
    once_per_stage,
)
from jrs.testing.chaos.checking.store import fenced, linearizable, outcomes, serializable
from jrs.testing.chaos.checking.traces import protocol
from jrs.testing.chaos.checking.verdict import Check, Run, Violation
from jrs.testing.chaos.checking.watches import watched
from jrs.testing.chaos.failure import ChaosFailure
from jrs.testing.chaos.faults import Nemesis
from jrs.testing.chaos.figures import proof_line
from jrs.testing.chaos.jobs import FOLDER
from jrs.testing.chaos.operator import Operator
from jrs.testing.chaos.plan import Plan
from jrs.testing.chaos.recorded import Verb
from jrs.testing.chaos.soak_jobs import Planned, planned
from jrs.testing.chaos.world import World

SETTLED_WITHIN = 60.0
"""Seconds of peace after which all jobs that were submitted before it should be done."""
CHECKS = (
    *(once_per_job, once_per_stage, no_overlap, nothing_lost, nothing_left),
    *(fenced, linearizable, serializable, outcomes, watched, protocol),
)


def everything(ttl: float) -> Nemesis:
    """Return all that a soak does, about one strike a second."""
    made = Nemesis()
    for nemesis in (
        faults.kill("master", every=7),
        faults.pause(ttl * 1.5, "master", every=7),
        faults.kill("child", every=7),
        faults.pause(4.0, "child", every=7),
        faults.no_descriptors(4.0, every=9),
        faults.full_disk(4.0, every=9),
        faults.slow_disk(0.1, every=12),
        faults.failing_disk(1.0, every=12),
        faults.skew(60.0, every=12),
        faults.pause_server(2.0, every=9),
        faults.kill_server(every=9),
        faults.partition("one", 3.0, every=12),
    ):
        made = made | nemesis
    return made


@attrs.frozen
class Outcome:
    """The outcome of a soak.

    Attributes:
        settled: seconds of peace until everything was done.
    """

    violations: Sequence[Violation]
    run: Run
    settled: float

    def counts(self) -> dict[str, int]:
        ended = Counter(one["status"].lower() for one in self.run.notes["ended"].values())
        strikes = Counter(event.key for event in self.run.events if event.f is Verb.STRIKE)
        return {
            "jobs": ended.total(),
            **dict(sorted(ended.items())),
            **counts(self.run),
            **dict(sorted(strikes.items())),
            "violations": len(self.violations),
            "settled in (s)": round(self.settled),
        }


def as_expected(jobs: Sequence[Planned]) -> Check:
    """Return the check that every job has ended as its kind must."""

    def find(run: Run) -> Iterator[Anomaly]:
        for job in jobs:
            ended = run.notes["ended"].get(job.spec.job_id)
            if ended is None:
                continue  # Another check says so.
            if JobStatus(ended["status"]) not in job.statuses:
                yield f"{job.spec.job_id} ended {ended['status']}", ()
            elif ended["status"] == JobStatus.FINISHED and ended["payload"] != job.payload:
                yield f"{job.spec.job_id} returned {ended['payload']}, not {job.payload}", ()

    return Check("as_expected", "Every job has ended as its kind must.", find)


def soak(
    plan: Plan,
    jobs: int,
    longest: float = 6.0,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run a soak on the first backend of the plan, in a temporary folder; see `soak_in`."""
    with tempfile.TemporaryDirectory(prefix="jrs-soak-") as home:
        return soak_in(Path(home), plan, jobs, longest, say)


def soak_in(
    home: Path, plan: Plan, jobs: int, longest: float, say: Callable[[str], None]
) -> Outcome:
    """Run a soak on the first backend of the plan.

    Args:
        home: a folder for all of its files.
        jobs: how many.
        longest: most seconds of a slow job.
    """
    notes = home / "notes"
    (notes / "left").mkdir(parents=True)
    wanted = list(planned(random.Random(plan.seed), jobs, longest))
    plan = attrs.evolve(
        plan,
        options=["--resource", "jrs.testing.chaos.jobs:leftovers"],
        environment={FOLDER: str(notes)},
    )
    with World(plan, plan.backend[0], home / "run", say=say) as world:
        pace = plan.seconds * 0.9 / jobs
        with Operator(world.cluster.backend, random.Random(plan.seed + 1)) as operator:
            for number, job in enumerate(wanted):
                world.submit_spec(job.spec, after=number * pace)
                operator.follow(job.spec.job_id, job.then)
            try:
                run, found = world.check(*CHECKS, as_expected(wanted)), []
            except ChaosFailure as failure:
                run, found = world.ended, list(failure.violations)
        found += [Violation("nothing_left", f"{path.name} was left by its job")
                  for path in sorted((notes / "left").iterdir())]  # fmt: skip
        found += [Violation("operator", said) for said in operator.problems]
    return Outcome(found, run, run.notes["settled"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jrs.testing.chaos.soak")
    parser.add_argument("--backend", choices=("file", "etcd", "zookeeper"), default="file")
    parser.add_argument("--minutes", type=float, default=10.0, help="of faults")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--masters", type=int, default=4)
    parser.add_argument("--ttl", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.jobs < 1 or given.masters < 1:
        parser.error("--jobs and --masters are at least 1")
    began = time.monotonic()
    plan = Plan(backend=given.backend, seconds=given.minutes * 60, seed=given.seed,
                masters=given.masters, ttl=given.ttl, timeout=600.0,
                nemesis=everything(given.ttl))  # fmt: skip
    outcome = soak(plan, given.jobs, say=lambda text: print(text, file=sys.stderr, flush=True))
    late = outcome.settled > SETTLED_WITHIN
    for violation in outcome.violations:
        print(violation)
    if late:
        print(
            f"it took {outcome.settled:.0f} s of peace to settle; {SETTLED_WITHIN:g} s are allowed"
        )
    print(proof_line(outcome.counts(), time.monotonic() - began))
    return 1 if outcome.violations or late else 0


if __name__ == "__main__":
    sys.exit(main())
