"""The damage fuzzer: damages one file per store and compares every answer with the truth.

    python -m jrs.testing.chaos.damage --cases 200000 --seed 1 --resume damage.jsonl

The seed and its number determine each case. Separate processes run the cases in chunks. Each
chunk that is done is a line of the file that `--resume` names, and is not run again. Exit status 1
if anything was wrong.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from jrs.testing.chaos import runs
from jrs.testing.chaos.figures import scratch
from jrs.testing.chaos.operators import Damage, choose
from jrs.testing.chaos.runs import Run, Tally
from jrs.testing.chaos.truth import KINDS, Truth, make_truth
from jrs.testing.chaos.verdicts import WALL_LIMIT, evaluate

_MODULE = "jrs.testing.chaos.damage"
_CHUNK = 400
NEVER = ("wrong", "hangs", "raw", "silent", "overreach")
"""The counts that must be 0; see `Verdict`."""
COUNTED = ("cases", "lookups", *NEVER, "newest_tail", "held", "omitted", "refused")


def run_case(
    seed: int, case: int, truths: Mapping[int, Truth], root: Path, only: str | None = None
) -> Tally:
    """Write, damage and evaluate one store in the folder `root`, and remove it.

    Must run in the main thread of a process of its own (see `evaluate`).
    """
    truth, damage, rng = damage_of(seed, case, truths, only)
    truth.write(root)
    target = root / damage.path
    if damage.data is None:
        target.unlink()
    else:
        target.write_bytes(damage.data)
    try:
        verdict = evaluate(root, truth, damage, rng)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    tally = Tally()
    counts = tally.counts
    counts["cases"] += 1
    counts["lookups"] += verdict.lookups
    counts["held"] += verdict.held
    counts["omitted"] += verdict.omitted
    counts["refused"] += not verdict.opened
    counts["newest_tail"] += verdict.newest_tail
    for kind, found in verdict.bad.items():
        tally.note(case, kind, f"{truth.name}, {damage}", found[0])
    return tally


def damage_of(
    seed: int, case: int, truths: Mapping[int, Truth], only: str | None = None
) -> tuple[Truth, Damage, random.Random]:
    """Return the store and the damage of a case, and its random generator.

    Args:
        truths: the stores by their numbers, at least those that the case needs; behind one of each
            kind there are as many foreign stores in the same order.
        only: the name of the only operator to use.
    """
    rng = random.Random(f"{seed}:{case}")
    store, foreign = (truths[number] for number in _stores(rng))
    while True:
        damage = choose(rng, store, foreign)
        if only is None or damage.operator == only:
            return store, damage, rng


def _stores(rng: random.Random) -> tuple[int, int]:
    """Return the numbers of the store of a case, and of the foreign one."""
    own = len(KINDS)
    number = rng.choice((0, *range(own), own - 2))
    return number, own + number


def fuzz(
    seed: int,
    cases: range,
    *,
    workers: int = 2,
    jobs: int = 150,
    only: str | None = None,
    resume: Path | None = None,
    report: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Evaluate the cases in separate processes; return the tally.

    Args:
        jobs: the number of jobs in the largest stores.
        only: the only operator to use.
        resume: a file with the chunks that were evaluated before; new ones are appended.
        report: called with the whole tally after each chunk.
    """
    with tempfile.TemporaryDirectory(prefix="jrs-damage-", dir=scratch()) as folder:
        truths = Path(folder, "truths")
        run = Run(
            _MODULE,
            ["--seed", str(seed), *(("--only", only) if only else ())],
            cases,
            chunk=_CHUNK,
            workers=workers,
            resume=resume,
            private=["--truths", str(truths)],
        )
        left = (case for chunk in run.left() for case in chunk)
        # A store takes seconds to make, and few cases need few of them.
        needed = sorted({one for case in left for one in _stores(random.Random(f"{seed}:{case}"))})
        made = {number: _made(number, seed, jobs).as_json() for number in needed}
        truths.write_text(json.dumps(made))
        return run.tally(report)


def _made(number: int, seed: int, jobs: int) -> Truth:
    foreign, kind = divmod(number, len(KINDS))
    return make_truth(KINDS[kind], seed + foreign, jobs=jobs)


def _work(seed: int, cases: range, truths: Path, only: str | None) -> None:
    made = json.loads(truths.read_text())
    stores = {int(number): Truth.from_json(one) for number, one in made.items()}

    def evaluated(case: int) -> Tally:
        faulthandler.dump_traceback_later(3 * WALL_LIMIT, exit=True)
        folder = truths.parent / f"{os.getpid()}-{case}"
        return run_case(seed, case, stores, folder, only)

    runs.work(cases, evaluated)


def main() -> int:
    parser = runs.parser(_MODULE, 2000)
    parser.add_argument("--only", metavar="OPERATOR", help="no other damage than this")
    parser.add_argument("--truths", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    cases = range(given.first, given.first + given.cases)
    if given.worker:
        _work(given.seed, cases, given.truths, given.only)
        return 0
    return runs.show(
        lambda report: fuzz(
            given.seed, cases, workers=given.workers, only=given.only, resume=given.resume,
            report=report,
        ),
        NEVER, COUNTED, given.show,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
