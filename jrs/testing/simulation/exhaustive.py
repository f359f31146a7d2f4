"""Goes through every state that a small scenario can get into, each of them once.

At each state the exploration forks: a child takes one choice and goes through all that can come
behind it, while its parent waits. So nothing has to be put back by hand but files. Since a process
of many generations of forks is slow to fork, it leaves its choices to others, who go there from
the beginning. The states that any of them has been in are in a table that all share.
"""

from __future__ import annotations

import ctypes
import gc
import json
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
from jrs.testing.simulation.shared_work import Visited, Work

_DONE, _BROKEN = 0, 1
"""How a process ends."""
_GENERATIONS = 16
"""Generations of forks, at most."""
_ROOT = "files"
DEEPEST = 1 << 15
"""Steps of a run without a bound, at most."""


@attrs.frozen
class Explored:
    """What came of an exploration.

    Attributes:
        is_whole: no state was left out, but for those behind the deepest step.
        states: how many different ones were entered.
        steps: how many choices were taken.
        ends: how many runs were gone to their end.
        longest: steps of the longest run.
        violations, choices, story: of the shortest run found that broke a promise, if one did; its
            choices are all that was chosen, its story is what happened.
    """

    is_whole: bool
    states: int
    steps: int
    ends: int
    longest: int
    violations: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    story: tuple[str, ...] = ()


class Explorer:
    """Explores, in this process and its children.

    Args:
        reports: a folder for what broke a promise.
        most: how many states are enough.
        deepest: how many steps a run has at most.
    """

    def __init__(
        self,
        run: Exploration,
        visited: Visited,
        work: Work,
        reports: Path,
        *,
        most: int,
        deepest: int,
    ) -> None:
        self._run = run
        self._visited = visited
        self._work = work
        self._reports = reports
        self._most = most
        self._deepest = deepest
        self._is_bounded = deepest < DEEPEST
        self._generation = 0
        self._way: list[int] = []
        self._chosen: list[str] = []

    def explore_all(self) -> int:
        """Go the ways that are left, until there is none; return how it ended."""
        saved = self._run.files.save()
        while not self._work["stop"] and not self._work.is_over():
            if (way := self._work.take()) is None:
                time.sleep(0.01)  # Another worker may add one.
                continue
            if status := self._apart(lambda way=way: self._explore_behind(way)):  # type: ignore[misc]
                return status
            self._work.give_back()
            self._run.files.restore(saved)
        return _DONE

    def _explore_behind(self, way: list[int]) -> None:
        for number in way:
            self._run.settle()
            self._take(list(self._run.choices())[number], number)
        self._explore(is_entered=True)

    def _explore(self, *, is_entered: bool = False) -> None:
        """Go through all that can come behind the state; `is_entered`: it is counted already."""
        run, work = self._run, self._work
        while not work["stop"]:
            if violations := run.settle():
                self._tell(violations)
                return
            if run.is_over():
                work.add("ends", 1)
                return
            choices = list(enumerate(run.choices()))
            if not is_entered:
                if not self._is_new(run.state()) or len(self._way) >= self._deepest:
                    return
                work.add("states", 1)
                if work["states"] >= self._most:
                    work.add("stop", 1)
                if self._generation > _GENERATIONS:
                    work.put(self._way)
                    return
            is_entered = False
            new = [
                (number, choice)
                for number, choice in choices
                if choice.state is None or self._is_new(choice.state())
            ]
            if not new:
                return
            (number, first), *others = new
            self._explore_apart(others)
            self._take(first, number)

    def _explore_apart(self, others: list[tuple[int, Choice]]) -> None:
        if not others:
            return
        saved = self._run.files.save()
        for number, choice in others:

            def explore(number: int = number, choice: Choice = choice) -> None:
                self._take(choice, number)
                self._explore()

            if self._apart(explore):
                raise RuntimeError("a child broke; its last words are above")
            self._run.files.restore(saved)

    def _apart(self, explore: Callable[[], None]) -> int:
        """Do it in a child; return how that ended."""
        if pid := fork():
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        status = _BROKEN
        try:
            self._generation += 1
            explore()
            status = _DONE
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _is_new(self, state: int) -> bool:
        return self._visited.reserve(state, len(self._way) if self._is_bounded else 0)

    def _take(self, choice: Choice, number: int) -> None:
        self._way.append(number)
        self._chosen.append(choice.says)
        self._work.add("steps", 1)
        self._work.at_least("longest", len(self._way))
        self._run.scheduler.steps = len(self._way)
        if not choice.is_read:
            self._run.say(choice.says)
        choice.take()

    def _tell(self, violations: list[Violation]) -> None:
        told = {
            "violations": list(map(str, violations)),
            "choices": self._chosen,
            "story": self._run.setting.story,
        }
        (self._reports / f"{os.getpid()}-{len(self._way)}.json").write_text(json.dumps(told))
        self._work.add("stop", 1)


def fork() -> int:
    """Fork, without what Python does to the locks and threads of a child: they are simulated."""
    return int(_LIBC.fork())


_LIBC = ctypes.PyDLL(None)


def explore(
    scenario: Scenario,
    *,
    workers: int = os.cpu_count() or 1,
    most: int = 1 << 24,
    deepest: int = DEEPEST,
    tell: Callable[[int, int], None] = lambda states, steps: None,
) -> Explored:
    """Explore a scenario.

    Args:
        most: how many states are entered at most.
        deepest: how many steps a run has at most.
        tell: called ten times in a second with the states and the steps so far.
    """
    visited = Visited()
    with tempfile.TemporaryDirectory(prefix="jrs-explored-", dir=scratch()) as folder:
        work = Work(Path(folder) / "work")
        work.put([])
        reports = Path(folder) / "reports"
        reports.mkdir()
        pids = set()
        for number in range(workers):
            pid = fork()
            if not pid:
                explorer = lambda run: Explorer(  # noqa: E731 - used once
                    run, visited, work, reports, most=most, deepest=deepest
                )
                _explore_as_worker(scenario, Path(folder) / f"worker-{number}", explorer)
            pids.add(pid)
        is_broken = False
        while pids:
            for pid in list(pids):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended:
                    continue
                pids.remove(pid)
                if status:  # The others end before their folder does.
                    work.add("stop", 1)
                    is_broken = True
            time.sleep(0.1)
            tell(work["states"], work["steps"])
        if is_broken:
            raise RuntimeError("an exploration broke; its last words are above")
        told = [json.loads(report.read_text()) for report in reports.iterdir()]
    best: dict[str, list[str]] = min(told, key=lambda one: len(one["choices"]), default={})
    return Explored(
        not work["stop"], work["states"], work["steps"], work["ends"], work["longest"],
        **{name: tuple(texts) for name, texts in best.items()},
    )  # fmt: skip


def shortest(scenario: Scenario, found: Explored, *, most: int = 1 << 24) -> Explored:
    """Return the shortest run that breaks a promise, given one that does."""
    while found.violations:
        shorter = explore(scenario, most=most, deepest=len(found.choices) - 1)
        if not shorter.violations:
            break
        found = shorter
    return found


def _explore_as_worker(
    scenario: Scenario, folder: Path, explorer: Callable[[Exploration], Explorer]
) -> None:
    status = _BROKEN
    try:
        with begun(scenario, folder) as run:
            status = explorer(run).explore_all()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
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
