"""The damage fuzzer: one damaged file per store, every answer compared with the truth.

    python -m jrs.testing.chaos.damage --cases 200000 --seed 1 --resume damage.jsonl

Each case follows from the seed and its number. Cases are judged in processes of their own, in
chunks; a chunk that has been judged is a line of the file that `--resume` names, and is not judged
again. Exit status 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Self

import attrs

from jrs.testing.chaos.figures import proof_line, scratch
from jrs.testing.chaos.operators import Damage, choose
from jrs.testing.chaos.truth import Truth, make_truths
from jrs.testing.chaos.verdicts import WALL_LIMIT, judge

CHUNK = 400
"""Cases that one process judges."""
COUNTED = ("cases", "lookups", "wrong", "hangs", "raw", "silent", "overreach", "newest_tail",
           "held", "omitted", "refused")  # fmt: skip


@attrs.frozen
class Finding:
    """Something that is not allowed to happen.

    Attributes:
        case: its number; with the seed it tells everything.
        kind: ``wrong``, ``hangs``, ``raw``, ``silent`` or ``overreach``, see `Verdict`.
        store, role: the kind of store and of the damaged file.
        damage: what was done to it.
        what: the first thing that was wrong, in words.
    """

    case: int
    kind: str
    store: str
    role: str
    damage: str
    what: str

    def __str__(self) -> str:
        return f"case {self.case}: {self.kind} ({self.store}, {self.damage}): {self.what}"


@attrs.define
class Tally:
    """The counts of many cases, and what was wrong in words."""

    counts: Counter[str] = attrs.field(factory=Counter)
    found: list[Finding] = attrs.field(factory=list)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.found += other.found

    @property
    def bad(self) -> int:
        """Cases with something that is not allowed to happen."""
        return self.counts["bad"]

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(Counter(data["counts"]), [Finding(**one) for one in data["found"]])


def run_case(
    seed: int, case: int, truths: Sequence[Truth], root: Path, only: str | None = None
) -> Tally:
    """Lay out, damage and judge one store in the folder `root`, which is removed again.

    Must run in the main thread of a process of its own (see `judge`).
    """
    truth, damage, rng = damage_of(seed, case, truths, only)
    truth.write(root)
    target = root / damage.path
    if damage.data is None:
        target.unlink()
    else:
        target.write_bytes(damage.data)
    try:
        verdict = judge(root, truth, damage, rng)
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
        counts[kind] += 1
        tally.found.append(
            Finding(case, kind, truth.name, truth.roles[damage.path].value, str(damage), found[0])
        )
    counts["bad"] += bool(verdict.bad)
    return tally


def damage_of(
    seed: int, case: int, truths: Sequence[Truth], only: str | None = None
) -> tuple[Truth, Damage, random.Random]:
    """Return the store and the damage of a case, and the rest of its chance.

    Args:
        truths: the stores, then as many foreign ones in the same order.
        only: the name of the only operator that is wanted.
    """
    rng = random.Random(f"{seed}:{case}")
    own = len(truths) // 2
    number = rng.choice((0, *range(own), own - 2))
    while True:
        damage = choose(rng, truths[number], truths[own + number])
        if only is None or damage.operator == only:
            return truths[number], damage, rng


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
    """Judge the cases in processes of their own; return what was found.

    Args:
        jobs: how many jobs the largest stores have.
        only: the only operator to use.
        resume: a file with the chunks that were judged before; more are appended.
        report: told of the whole tally after each chunk.
    """
    total = Tally()
    done = _judged_before(resume, seed, only, total)
    chunks = [
        range(first, min(first + CHUNK, cases.stop))
        for first in range(cases.start, cases.stop, CHUNK)
        if first not in done
    ]
    with tempfile.TemporaryDirectory(prefix="jrs-damage-", dir=scratch()) as folder:
        truths = Path(folder, "truths")
        made = [*make_truths(seed, jobs=jobs), *make_truths(seed + 1, jobs=jobs)]
        truths.write_text(json.dumps([truth.as_json() for truth in made]))
        with ThreadPoolExecutor(workers, thread_name_prefix="jrs-fuzz") as pool:
            futures = {pool.submit(_run_chunk, seed, chunk, truths, only): chunk
                       for chunk in chunks}  # fmt: skip
            try:
                for future in as_completed(futures):
                    tally = future.result()
                    if resume is not None:
                        _remember(resume, seed, only, futures[future].start, tally)
                    total.add(tally)
                    report(total)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return total


# -- chunks in processes -------------------------------------------------------------------


def _run_chunk(seed: int, cases: range, truths: Path, only: str | None) -> Tally:
    """Judge a chunk in a process; begin another one behind a case that ended the process."""
    total, first = Tally(), cases.start
    while first < cases.stop:
        command = [sys.executable, "-m", "jrs.testing.chaos.damage", "--seed", str(seed),
                   "--worker", str(truths), "--first", str(first), "--cases",
                   str(cases.stop - first), *(("--only", only) if only else ())]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                total.add(Tally.from_json(json.loads(line)))
                first += 1
        if process.returncode:
            if first == cases.start and total.counts["cases"] == 0 and process.returncode == 2:
                raise RuntimeError(f"no worker could be started: {command}")
            total.counts.update(cases=1, bad=1, hangs=1)
            what = f"it ended its process with status {process.returncode}"
            total.found.append(Finding(first, "hangs", "?", "?", "?", what))
            first += 1
    return total


def _work(seed: int, cases: range, truths: Path, only: str | None) -> None:
    """Judge cases in this process; print the tally of each."""
    stores = [Truth.from_json(one) for one in json.loads(truths.read_text())]
    for case in cases:
        faulthandler.dump_traceback_later(3 * WALL_LIMIT, exit=True)
        folder = truths.parent / f"{os.getpid()}-{case}"
        try:
            tally = run_case(seed, case, stores, folder, only)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(tally.as_json()), flush=True)


def _judged_before(resume: Path | None, seed: int, only: str | None, total: Tally) -> set[int]:
    """Return the first cases of the chunks in the file, and add what they found."""
    done: set[int] = set()
    if resume is None or not resume.exists():
        return done
    for line in resume.read_text().splitlines():
        try:
            chunk = json.loads(line)
        except ValueError:
            continue  # It was being written when the run was killed.
        if (chunk["seed"], chunk["only"], chunk["size"]) == (seed, only, CHUNK):
            done.add(chunk["first"])
            total.add(Tally.from_json(chunk))
    return done


def _remember(resume: Path, seed: int, only: str | None, first: int, tally: Tally) -> None:
    chunk = {"seed": seed, "only": only, "size": CHUNK, "first": first, **tally.as_json()}
    with resume.open("a") as file:
        file.write(json.dumps(chunk) + "\n")


# -- the program ---------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jrs.testing.chaos.damage")
    parser.add_argument("--cases", type=int, default=2000, help="how many (default: 2000)")
    parser.add_argument("--first", type=int, default=0, help="the first one's number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", metavar="OPERATOR", help="no other damage than this")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="where chunks are kept")
    parser.add_argument("--show", type=int, default=20, help="findings that are printed in words")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    cases = range(given.first, given.first + given.cases)
    if given.worker is not None:
        _work(given.seed, cases, given.worker, given.only)
        return 0
    began = time.monotonic()
    shown = 0

    def report(total: Tally) -> None:
        nonlocal shown
        for finding in total.found[shown : given.show]:
            print(finding, flush=True)
        shown = len(total.found)
        print(f"{total.counts['cases']:,} cases, {total.bad:,} bad", file=sys.stderr, flush=True)

    total = fuzz(given.seed, cases, workers=given.workers, only=given.only, resume=given.resume,
                 report=report)  # fmt: skip
    counts = {name: total.counts[name] for name in COUNTED}
    print(proof_line(counts, time.monotonic() - began))
    return 1 if total.bad else 0


if __name__ == "__main__":
    sys.exit(main())
