"""Many short chaos runs on real processes, in which no check may find anything.

    python -m jrs.testing.chaos.clean --cases 100 --workers 2

A check that finds something in a product without a fault raises a false alarm. Each run is a small
soak: jobs of all kinds on three masters, on the file backend, etcd and ZooKeeper in turn, under
three nemeses that the seed chooses. The exit status is 1 if any check found anything; the files of
such a run are kept, and `jrs chaos check` evaluates them again.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from jrs.testing.chaos import faults
from jrs.testing.chaos.checking.jobs import counts
from jrs.testing.chaos.faults import SCHEMES, Nemesis
from jrs.testing.chaos.plan import Plan
from jrs.testing.chaos.runs import Run, Tally, parser, show, work
from jrs.testing.chaos.soak import soak_in

NEVER = ("alarms", "hangs")
COUNTED = ("cases", *SCHEMES, "operations", "commits", "unknown", "epochs", "attempts", "strikes",
           *NEVER)  # fmt: skip
TTL = 2.0
_MODULE = "jrs.testing.chaos.clean"
_NEMESES: tuple[Nemesis, ...] = (
    faults.kill("master", every=3),
    faults.kill("child", every=3),
    faults.kill("leader", every=4),
    faults.pause(TTL * 1.5, "master", every=4),
    faults.pause(2.0, "child", every=4),
    faults.terminate("leader", every=4),
    faults.no_descriptors(2.0, every=4),
    faults.slow_disk(0.1, every=4),
    faults.failing_disk(1.0, every=4),
    faults.skew(60.0, every=4),
    faults.kill_server(every=5),
    faults.pause_server(1.0, every=4),
    faults.partition("leader", 2.0, every=4),
    faults.partition("one", 2.0, every=4),
    faults.disconnect(every=3),
)


def plan_of(seed: int, case: int, seconds: float) -> Plan:
    """Return the plan of a run: its backend follows from its number, its faults from the seed."""
    rng = random.Random(f"{seed} {case}")
    scheme = SCHEMES[case % len(SCHEMES)]
    able = [one for one in _NEMESES if all(scheme in fault.backends for fault in one.faults)]
    nemesis = Nemesis()
    for one in rng.sample(able, 3):
        nemesis = nemesis | one
    return Plan(backend=scheme, seconds=seconds, seed=rng.randrange(1 << 32), nemesis=nemesis,
                ttl=TTL, timeout=300.0)  # fmt: skip


def evaluate(seed: int, seconds: float, jobs: int) -> Callable[[int], Tally]:
    """Return what runs a case."""

    def run(case: int) -> Tally:
        plan, tally = plan_of(seed, case, seconds), Tally()
        home = Path(tempfile.mkdtemp(prefix="jrs-clean-"))
        outcome = soak_in(home, plan, jobs, 2.0, lambda text: None)
        tally.counts.update({"cases": 1, plan.backend[0]: 1, **counts(outcome.run)})
        for violation in outcome.violations:
            subject = f"{plan.backend[0]} under {plan.nemesis}; {home}"
            tally.note(case, "alarms", subject, str(violation))
        if not outcome.violations:
            shutil.rmtree(home, ignore_errors=True)
        return tally

    return run


def main() -> int:
    options = parser(_MODULE, cases=100)
    options.add_argument("--seconds", type=float, default=10.0, help="of faults, in each run")
    options.add_argument("--jobs", type=int, default=6, help="of each run")
    given = options.parse_args()
    if given.jobs < 1:
        options.error("--jobs is at least 1")
    cases = range(given.first, given.first + given.cases)
    if given.worker:
        work(cases, evaluate(given.seed, given.seconds, given.jobs))
        return 0
    arguments = ["--seed", str(given.seed), "--seconds", str(given.seconds),
                 "--jobs", str(given.jobs)]  # fmt: skip
    run = Run(_MODULE, arguments, cases, 5, given.workers, given.resume)
    return show(run.tally, NEVER, COUNTED, given.show)


if __name__ == "__main__":
    sys.exit(main())
