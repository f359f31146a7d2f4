"""Goes through every state that a small scenario can get into, each of them once.

At each state the exploration forks: a child takes one choice and goes through all that can come
behind it, while its parent waits. The states that any of them has been in are in a table that all
share. So nothing has to be put back by hand but files.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import sys
import tempfile
import traceback
from pathlib import Path

import attrs

from jrs.testing.chaos.checking.verdict import Violation
from jrs.testing.chaos.figures import scratch
from jrs.testing.simulation.exploration import Choice, Exploration
from jrs.testing.simulation.failover import Scenario
from jrs.testing.simulation.visited import Visited

DONE, BAD, FULL, BROKEN = 0, 3, 4, 5
"""How a process ends: it is through, found a violation, had enough, or broke."""
_ROOT = "files"


@attrs.frozen
class Explored:
    """What came of an exploration.

    Attributes:
        is_whole: no state was left out.
        states: how many different ones.
        steps: how many choices were taken.
        ends: how many of the states are ends of a run.
        longest: steps of the longest run.
        violations, story: of the first run that broke a promise, if one did.
    """

    is_whole: bool
    states: int
    steps: int
    ends: int
    longest: int
    violations: tuple[str, ...] = ()
    story: tuple[str, ...] = ()


class _Counts:
    """Numbers that the processes of one worker share; only one of them runs at a time."""

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 8 * 4)).cast("Q")

    def add(self, place: int) -> None:
        self._numbers[place] += 1

    def at_least(self, place: int, number: int) -> None:
        self._numbers[place] = max(number, self._numbers[place])

    def __getitem__(self, place: int) -> int:
        return self._numbers[place]


STATES, STEPS, ENDS, LONGEST = range(4)


class Explorer:
    """Explores, in this process and its children.

    Args:
        report: where a violation is written.
        most: how many states are enough.
        deepest: how many steps a run has at most.
    """

    def __init__(
        self,
        run: Exploration,
        visited: Visited,
        counts: _Counts,
        report: Path,
        *,
        most: int,
        deepest: int = 1 << 15,
        backwards: bool = False,
    ) -> None:
        self._run = run
        self._visited = visited
        self._counts = counts
        self._report = report
        self._most = most
        self._deepest = deepest
        self._backwards = backwards
        self._depth = 0

    def explore(self) -> int:
        """Go through all that can come behind the state; return how it ended."""
        run = self._run
        while True:
            if violations := run.settle():
                self._tell(violations)
                return BAD
            is_new = self._visited.claim(run.state(), self._depth)
            if self._depth and (not is_new or self._depth > self._deepest):
                return DONE
            self._counts.add(STATES)
            if self._counts[STATES] >= self._most:
                return FULL
            if run.is_over():
                self._counts.add(ENDS)
                return DONE
            choices = list(run.choices())
            if self._backwards:
                choices.reverse()
            *others, last = choices
            saved = run.files.save()
            for choice in others:
                if status := self._explore_apart(choice):
                    return status
                run.files.restore(saved)
            self._take(last)

    def _explore_apart(self, choice: Choice) -> int:
        pid = fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        status = BROKEN
        try:
            self._take(choice)
            status = self.explore()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _take(self, choice: Choice) -> None:
        self._depth += 1
        self._counts.add(STEPS)
        self._counts.at_least(LONGEST, self._depth)
        self._run.say(choice.says)
        choice.take()

    def _tell(self, violations: list[Violation]) -> None:
        told = {"violations": list(map(str, violations)), "story": self._run.setting.story}
        self._report.write_text(json.dumps(told))


def fork() -> int:
    """Fork, without what Python does to the locks and threads of a child: they are simulated."""
    return int(_LIBC.fork())


_LIBC = ctypes.PyDLL(None)


def explore(scenario: Scenario, *, most: int = 1 << 24, deepest: int = 1 << 15) -> Explored:
    """Explore a scenario with two workers, which go through the choices in opposite orders."""
    visited = Visited()
    with tempfile.TemporaryDirectory(prefix="jrs-explored-", dir=scratch()) as folder:
        workers = []
        for backwards in (False, True):
            counts, report = _Counts(), Path(folder) / f"report-{backwards}"
            pid = fork()
            if not pid:
                _work(scenario, visited, counts, report, most, deepest, backwards=backwards)
            workers.append((pid, counts, report))
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, _, _ in workers]
        if BROKEN in statuses or any(status < 0 for status in statuses):
            raise RuntimeError("an exploration broke; its last words are above")
        told = [json.loads(report.read_text()) for _, _, report in workers if report.exists()]
    best: dict[str, list[str]] = min(
        told, key=lambda one: len(one["story"]), default={"violations": [], "story": []}
    )
    return Explored(
        is_whole=set(statuses) == {DONE},
        states=len(visited),
        steps=sum(counts[STEPS] for _, counts, _ in workers),
        ends=sum(counts[ENDS] for _, counts, _ in workers),
        longest=max(counts[LONGEST] for _, counts, _ in workers),
        violations=tuple(best["violations"]),
        story=tuple(best["story"]),
    )


def _work(
    scenario: Scenario,
    visited: Visited,
    counts: _Counts,
    report: Path,
    most: int,
    deepest: int,
    *,
    backwards: bool,
) -> None:
    status = BROKEN
    try:
        folder = report.with_name(f"worker-{backwards}")
        (folder / _ROOT).mkdir(parents=True)
        os.chdir(folder)
        sys.setrecursionlimit(100_000)
        run = Exploration(scenario, Path(_ROOT))
        explorer = Explorer(run, visited, counts, report, most=most, deepest=deepest,
                            backwards=backwards)  # fmt: skip
        with run.entered(run.scheduler.random_bits, run.new_space):
            run.files.watch()
            run.begin()
            gc.collect()
            gc.freeze()
            gc.disable()
            status = explorer.explore()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
