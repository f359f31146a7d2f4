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
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        violations, choices, story: of the first run that broke a promise, if one did; its choices
            are all that was chosen, its story is what happened.
    """

    is_whole: bool
    states: int
    steps: int
    ends: int
    longest: int
    violations: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
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
        self._chosen: list[str] = []

    def explore(self) -> int:
        """Go through all that can come behind the state; return how it ended."""
        run = self._run
        while True:
            if violations := run.settle():
                self._tell(violations)
                return BAD
            if run.is_over():
                self._counts.add(ENDS)
                return DONE
            choices = list(run.choices())
            if (len(choices) > 1 or not len(self._chosen) % 4) and not self._enter():
                return DONE
            if self._counts[STATES] >= self._most:
                return FULL
            if self._backwards:
                choices.reverse()
            choices = [one for one in choices if one.state is None or self._is_new(one.state())]
            if not choices:
                return DONE
            *others, last = choices
            saved = run.files.save() if others else []
            for choice in others:
                if status := self._explore_apart(choice):
                    return status
                run.files.restore(saved)
            self._take(last)

    def _enter(self) -> bool:
        """Claim the state; return whether to go on from there."""
        is_new = self._is_new(self._run.state())
        is_first = not len(self._chosen)  # Both workers begin there.
        if not is_new and not is_first:
            return False
        self._counts.add(STATES)
        return len(self._chosen) < self._deepest

    def _is_new(self, state: int) -> bool:
        return self._visited.claim(state, len(self._chosen))

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
        self._counts.add(STEPS)
        self._counts.at_least(LONGEST, len(self._chosen))
        self._chosen.append(choice.says)
        self._run.scheduler.steps = len(self._chosen)
        if not choice.is_read:
            self._run.say(choice.says)
        choice.take()

    def _tell(self, violations: list[Violation]) -> None:
        told = {
            "violations": list(map(str, violations)),
            "choices": self._chosen,
            "story": self._run.setting.story,
        }
        self._report.write_text(json.dumps(told))


def fork() -> int:
    """Fork, without what Python does to the locks and threads of a child: they are simulated."""
    return int(_LIBC.fork())


_LIBC = ctypes.PyDLL(None)


def explore(
    scenario: Scenario,
    *,
    most: int = 1 << 24,
    deepest: int = 1 << 15,
    tell: Callable[[int, int], None] = lambda states, steps: None,
) -> Explored:
    """Explore a scenario with two workers, which go through the choices in opposite orders.

    Args:
        most: how many states each of them enters at most.
        deepest: how many steps a run has at most.
        tell: called ten times in a second with the states and the steps so far.
    """
    visited = Visited()
    with tempfile.TemporaryDirectory(prefix="jrs-explored-", dir=scratch()) as folder:
        workers = []
        for backwards in (False, True):
            counts, report = _Counts(), Path(folder) / f"report-{backwards}"
            pid = fork()
            if not pid:
                _work(scenario, visited, counts, report, most, deepest, backwards=backwards)
            workers.append((pid, counts, report))
        statuses = _wait([pid for pid, _, _ in workers], [counts for _, counts, _ in workers], tell)
        if BROKEN in statuses or any(status < 0 for status in statuses):
            raise RuntimeError("an exploration broke; its last words are above")
        told = [json.loads(report.read_text()) for _, _, report in workers if report.exists()]
    best: dict[str, list[str]] = min(told, key=lambda one: len(one["choices"]), default={})
    return Explored(
        is_whole=set(statuses) == {DONE},
        states=len(visited),
        steps=sum(counts[STEPS] for _, counts, _ in workers),
        ends=sum(counts[ENDS] for _, counts, _ in workers),
        longest=max(counts[LONGEST] for _, counts, _ in workers),
        **{name: tuple(texts) for name, texts in best.items()},
    )


def shortest(scenario: Scenario, found: Explored, *, most: int = 1 << 24) -> Explored:
    """Return the shortest run that breaks a promise, given one that does."""
    while found.violations:
        shorter = explore(scenario, most=most, deepest=len(found.choices) - 1)
        if not shorter.violations:
            break
        found = shorter
    return found


def _wait(pids: list[int], counts: list[_Counts], tell: Callable[[int, int], None]) -> list[int]:
    statuses: dict[int, int] = {}
    while len(statuses) < len(pids):
        for pid in set(pids) - set(statuses):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                statuses[pid] = os.waitstatus_to_exitcode(status)
        if len(statuses) < len(pids):
            time.sleep(0.1)
        tell(sum(one[STATES] for one in counts), sum(one[STEPS] for one in counts))
    return [statuses[pid] for pid in pids]


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
        sys.setrecursionlimit(100_000)
        with begun(scenario, report.with_name(f"worker-{backwards}")) as run:
            explorer = Explorer(run, visited, counts, report, most=most, deepest=deepest,
                                backwards=backwards)  # fmt: skip
            status = explorer.explore()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


@contextmanager
def begun(scenario: Scenario, folder: Path) -> Iterator[Exploration]:
    """Begin a run in a new folder, which becomes the one that this process works in.

    Only for a process that does nothing else: what it replaces stays replaced.
    """
    (folder / _ROOT).mkdir(parents=True)
    os.chdir(folder)
    _warm_up(scenario)
    run = Exploration(scenario, Path(_ROOT))
    with run.entered(run.scheduler.random_bits, run.new_space):
        run.files.watch()
        run.begin()
        gc.collect()
        gc.freeze()
        gc.disable()
        yield run


def _warm_up(scenario: Scenario) -> None:
    """Go one way to the end, so that what Python makes at the first use is made once."""
    run = Exploration(scenario, Path(_ROOT))
    with run.entered(run.scheduler.random_bits, run.new_space):
        run.begin()
        while not run.settle() and (choice := next(run.choices(), None)) is not None:
            choice.take()
    run.files.restore([])
