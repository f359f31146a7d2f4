"""Long runs: numbered cases, evaluated in separate processes, in chunks that can be resumed.

A program that uses this module is also its own worker: as a worker it runs a range of cases and
prints the tally of each case as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Self

import attrs

from jrs.testing.chaos.figures import proof_line

AGAIN = 75
"""The exit status of a worker that needs a new process for the remaining cases."""
_WORDS = 200
"""Most bad cases of a chunk that are kept with a description."""


@attrs.frozen
class BadCase:
    """Something that must not happen.

    Attributes:
        case: its number; with the seed it determines the case.
        kind: the name of its count.
        subject: what was done.
        what: the first problem, in words.
    """

    case: int
    kind: str
    subject: str
    what: str

    def __str__(self) -> str:
        return f"case {self.case}: {self.kind} ({self.subject}): {self.what}"


@attrs.define
class Tally:
    """The counts of many cases, and descriptions of the problems."""

    counts: Counter[str] = attrs.field(factory=Counter)
    found: list[BadCase] = attrs.field(factory=list)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.found += other.found

    def note(self, case: int, kind: str, subject: str, what: str) -> None:
        """Count a problem."""
        self.counts[kind] += 1
        self.found.append(BadCase(case, kind, subject, what))

    def of(self, kinds: Iterable[str]) -> dict[str, int]:
        """Return the counts of some kinds, including zeros."""
        return {kind: self.counts[kind] for kind in kinds}

    def __str__(self) -> str:
        return "\n".join(map(str, self.found[:20]))

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(Counter(data["counts"]), [BadCase(**one) for one in data["found"]])


@attrs.frozen
class Run:
    """A long run of a program.

    Attributes:
        module: the program, started as ``python -m``.
        arguments: the arguments of its workers, besides the range of cases; together with `module`
            they identify this run's chunks in a file.
        cases: the numbers of the cases.
        chunk: the number of cases for one process.
        workers: the number of processes at a time.
        resume: a file with the chunks that were evaluated before; more are appended.
        private: further arguments of the workers that may differ between runs.
    """

    module: str
    arguments: Sequence[str]
    cases: range
    chunk: int
    workers: int
    resume: Path | None = None
    private: Sequence[str] = ()

    def tally(self, report: Callable[[Tally], None] = lambda tally: None) -> Tally:
        """Run the cases that were not run before; return the tally of all cases. `report` is
        called with the whole tally after each chunk."""
        total, chunks = self._begun()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="jrs-chaos") as pool:
            futures = {pool.submit(self._judge, chunk): chunk for chunk in chunks}
            try:
                for future in as_completed(futures):
                    tally = future.result()
                    self._remember(futures[future], tally)
                    total.add(tally)
                    report(total)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return total

    def left(self) -> list[range]:
        """Return the chunks of cases that were not run before."""
        return self._begun()[1]

    def _begun(self) -> tuple[Tally, list[range]]:
        """Return the tally of the cases that were run before, and the chunks that are left."""
        total = Tally()
        done = self._judged_before(total)
        firsts = range(self.cases.start, self.cases.stop, self.chunk)
        left = [range(one, min(one + self.chunk, self.cases.stop))
                for one in firsts if one not in done]  # fmt: skip
        return total, left

    def _judge(self, cases: range) -> Tally:
        """Evaluate a chunk in a process; start another one after a case that ended it."""
        total, first = Tally(), cases.start
        while first < cases.stop:
            command = [sys.executable, "-m", self.module, "--worker", *self.arguments,
                       *self.private, "--first", str(first),
                       "--cases", str(cases.stop - first)]  # fmt: skip
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    total.add(Tally.from_json(json.loads(line)))
                    first += 1
            if process.returncode not in (0, AGAIN):
                if not total.counts["cases"]:
                    raise RuntimeError(f"the first case ended its process: {' '.join(command)}")
                total.counts["cases"] += 1
                total.note(first, "hangs", "?", f"its process ended: {process.returncode}")
                first += 1
        del total.found[_WORDS:]
        return total

    def _key(self, cases: range) -> list[Any]:
        return [self.module, *self.arguments, cases.start, len(cases)]

    def _judged_before(self, total: Tally) -> set[int]:
        """Return the first cases of the chunks in the file, and add what they found."""
        done: set[int] = set()
        if self.resume is None or not self.resume.exists():
            return done
        for line in self.resume.read_text().splitlines():
            try:
                chunk = json.loads(line)
            except ValueError:
                continue  # The run was killed while it wrote this line.
            first, size = chunk["key"][-2:]
            cases = range(first, first + size)
            if chunk["key"] == self._key(cases) and first in self.cases:
                done.add(first)
                total.add(Tally.from_json(chunk))
        return done

    def _remember(self, cases: range, tally: Tally) -> None:
        if self.resume is not None:
            with self.resume.open("a") as file:
                file.write(json.dumps({"key": self._key(cases), **tally.as_json()}) + "\n")


def work(cases: range, evaluate: Callable[[int], Tally]) -> None:
    """Evaluate cases in this process, which is a worker."""
    for case in cases:
        tally = evaluate(case)
        print(json.dumps(tally.as_json()), flush=True)
        if tally.counts["hangs"]:
            # One of its threads may still be computing.
            os._exit(AGAIN)


def parser(module: str, cases: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all programs; `cases` is the default number."""
    made = argparse.ArgumentParser(prog=f"python -m {module}")
    made.add_argument("--cases", type=int, default=cases, help="how many (default: %(default)s)")
    made.add_argument("--first", type=int, default=0, help="the first one's number")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    made.add_argument("--resume", type=Path, metavar="FILE", help="where chunks are kept")
    made.add_argument("--show", type=int, default=20, help="findings that are printed in words")
    made.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return made


def show(run: Callable[[Callable[[Tally], None]], Tally], never: Sequence[str],
         counted: Sequence[str], limit: int) -> int:  # fmt: skip
    """Run, print the problems and the line of figures; return the exit status.

    Args:
        never: the counts that must be 0.
        counted: all counts, in the order of printing.
        limit: most findings that are printed.
    """
    began = time.monotonic()
    shown = 0

    def report(total: Tally) -> None:
        nonlocal shown
        for finding in total.found[shown:limit]:
            print(finding, flush=True)
        shown = len(total.found)
        bad = sum(total.of(never).values())
        print(f"{total.counts['cases']:,} cases, {bad:,} findings", file=sys.stderr, flush=True)

    total = run(report)
    print(proof_line(total.of(counted), time.monotonic() - began))
    return 1 if any(total.of(never).values()) else 0
