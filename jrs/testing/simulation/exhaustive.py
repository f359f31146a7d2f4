"""Goes through every state of a small scenario, but for orders that make no difference.

The search is depth first, over states and the steps between them. It is reduced in two ways; none
of them loses a state in which a run ends, or a commit that breaks a rule.

*Persistent sets* (Godefroid, 1996). If the next steps of one process commute with all that the
others may do while it stands still, nothing else has to come first. What the others may do is not
guessed: it is what they have been seen to do behind these steps, up to the end of each run. For
whatever they can do while the process stands still, they can do behind its step as well, as long as
both commute; and if they do not, that is seen there. If no process has such steps, all of them are
explored. Time that passes commutes with nothing, so that a death of a process which waits comes
before that at the latest, or behind the end of the run.

*Deaths behind effects.* A process that dies before a read leaves the same behind as one that dies
after it: only itself would know the answer. So a death is explored only where a process asks for
something that others can see, or for nothing; or if time passes behind its read. Two deaths that
leave the same behind are explored once.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from jrs.testing.chaos.figures import scratch
from jrs.testing.simulation.failover import Scenario
from jrs.testing.simulation.independence import Futures, Step, Uses, futures_of
from jrs.testing.simulation.ways import Option, Simulator, Situation, start

DEEPEST = 1 << 15
"""Steps of a run without a bound, at most."""
_APART = 8
"""Steps between two simulators that wait."""


@attrs.define
class Explored:
    """What came of an exploration.

    Attributes:
        is_whole: no state was left out, but for those behind the deepest step.
        states: how many different ones were entered.
        steps: how many choices were taken.
        ends: the different states in which runs have ended, as digests.
        longest: steps of the longest run.
        violations, choices, story: of the run that broke a promise, if one did; its choices are
            all that was chosen, its story is what happened.
    """

    is_whole: bool
    states: int = 0
    steps: int = 0
    ends: set[int] = attrs.field(factory=set)
    longest: int = 0
    violations: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    story: tuple[str, ...] = ()


class _Over(Exception):
    """Raised when nothing more is to be explored."""


class Way:
    """The way to the state that the search is at: continues, and goes back.

    Args:
        begin: a simulator at the first state.
    """

    def __init__(self, begin: Simulator) -> None:
        self.numbers: list[int] = []
        self._waiting = [(0, begin)]
        """Simulators that stay on the way, each with its place."""
        self._ahead: Simulator | None = None
        """One that goes ahead."""
        self._place = 0
        """Where it is."""

    def step(self, number: int, *, is_last: bool) -> Situation:
        """Take a step from where the way ends, and return what comes of it.

        Args:
            is_last: the way will not come back here.
        """
        way, here = self.numbers, len(self.numbers)
        if self._ahead is None or self._place != here:
            self._go_back(is_last=is_last)
        assert self._ahead is not None
        if not is_last and here >= self._waiting[-1][0] + _APART:
            self._catch_up()
            self._waiting.append((here, self._ahead.split()))
        way.append(number)
        found = self._ahead.go([*way[self._place : here], number])
        self._place = here + 1
        return found

    def back(self) -> None:
        """Go one step back."""
        self.numbers.pop()

    def _go_back(self, *, is_last: bool) -> None:
        if self._ahead is not None:
            self._ahead.end()
        while self._waiting[-1][0] > len(self.numbers):
            self._waiting.pop()[1].end()
        self._place, waiting = self._waiting[-1]
        if is_last and self._place == len(self.numbers) and len(self._waiting) > 1:
            self._ahead = self._waiting.pop()[1]
        else:
            self._ahead = waiting.split()

    def _catch_up(self) -> None:
        assert self._ahead is not None
        if self._place < len(self.numbers):
            self._ahead.go(self.numbers[self._place :])
            self._place = len(self.numbers)

    def end(self) -> None:
        for _, waiting in self._waiting:
            waiting.end()
        if self._ahead is not None:
            self._ahead.end()


class Search:
    """A search from the first state of a scenario.

    Args:
        most: how many states are enough.
        deepest: how many steps a run has at most.
        reduces: leave out what makes no difference.
        tell: called behind each step with the states and the steps so far.
    """

    def __init__(
        self,
        way: Way,
        *,
        most: int,
        deepest: int,
        reduces: bool,
        tell: Callable[[int, int], None],
    ) -> None:
        self._way = way
        self._most = most
        self._deepest = deepest
        self._reduces = reduces
        self._tell = tell
        self._uses = Uses()
        self._known: dict[int, tuple[int, Futures]] = {}
        """After how many steps each state was explored, and what may come behind it."""
        self._deaths: dict[int, Step] = {}
        """What came of deaths, by what they leave behind."""
        self._in_vain: dict[str, int] = {}
        """How much more often than not others had to be explored besides a step."""
        self._chosen: list[str] = []
        self.found = Explored(is_whole=False)

    def run(self, begin: Situation) -> Explored:
        """Explore all that can come behind the first state."""
        with contextlib.suppress(_Over):
            self._explore(begin)
            self.found.is_whole = True
        return self.found

    def _explore(self, situation: Situation) -> Futures:
        """Explore all that can come behind a state; return what that may use."""
        found, depth, state = self.found, len(self._chosen), situation.state
        if situation.violations:
            found.violations, found.story = situation.violations, situation.story
            found.choices = tuple(self._chosen)
            raise _Over
        if situation.is_over:
            found.ends.add(state)
        known = self._known.get(state)
        if known is not None and (known[0] <= depth or self._deepest == DEEPEST):
            return known[1]
        if depth >= self._deepest:
            return Futures()
        if known is None:
            found.states += 1
            if found.states >= self._most:
                raise _Over
        futures = self._explore_options(situation.options)
        self._known[state] = depth, futures
        return futures

    def _explore_options(self, options: tuple[Option, ...]) -> Futures:
        groups = self._by_owner(options)
        steps: list[Step] = []
        for owner, group in groups:
            is_last_group = owner == groups[-1][0]
            mine: list[Step] = []
            for number, option in group:
                if self._reduces and option.is_hidden and not any(one.passes for one in mine):
                    continue
                is_last = is_last_group and number == group[-1][0]
                mine.append(self._take(number, option, is_last=is_last))
            steps += mine
            request = group[0][1]
            if request.is_request and self._reduces and None not in dict(groups):
                is_enough = self._is_persistent(mine, len(groups) == 1)
                vain = self._in_vain.get(request.says, 0)
                self._in_vain[request.says] = vain + (-1 if is_enough else 1)
                if is_enough:
                    return futures_of(mine, owner)
        return futures_of(steps, None)

    def _by_owner(
        self, options: tuple[Option, ...]
    ) -> list[tuple[str | None, list[tuple[int, Option]]]]:
        """Return the numbered options of each process; first what was most often enough."""
        groups: dict[str | None, list[tuple[int, Option]]] = {}
        for number, option in enumerate(options):
            groups.setdefault(option.owner, []).append((number, option))
        return sorted(
            groups.items(),
            key=lambda one: (
                not one[1][0][1].is_request,
                self._in_vain.get(one[1][0][1].says, 0),
            ),
        )

    def _is_persistent(self, steps: list[Step], is_only_one: bool) -> bool:
        """Return whether nothing has to come before these steps, which are all of one process."""
        if any(step.passes for step in steps):
            return is_only_one
        used = still = 0
        for step in steps:
            assert step.owner is not None
            used |= step.uses
            still |= step.then.if_still(step.owner)
        return not self._uses.against(used) & still

    def _take(self, number: int, option: Option, *, is_last: bool) -> Step:
        known = None if option.state is None else self._deaths.get(option.state)
        if known is not None and self._deepest == DEEPEST:
            return known
        found = self.found
        situation = self._way.step(number, is_last=is_last)
        self._chosen.append(option.says)
        found.steps += 1
        found.longest = max(found.longest, len(self._chosen))
        self._tell(found.states, found.steps)
        uses = self._uses.number(situation.used | {("step", str(option.owner))})
        step = Step(option.owner, uses, situation.passed, self._explore(situation))
        if option.state is not None:
            self._deaths[option.state] = step
        self._chosen.pop()
        self._way.back()
        return step


def explore(
    scenario: Scenario,
    *,
    most: int = 1 << 24,
    deepest: int = DEEPEST,
    reduces: bool = True,
    way: Sequence[int] = (),
    tell: Callable[[int, int], None] = lambda states, steps: None,
) -> Explored:
    """Explore a scenario.

    Args:
        most: how many states are entered at most.
        deepest: how many steps a run has at most.
        reduces: leave out orders that make no difference.
        way: numbers of choices that are taken first; the exploration begins behind them.
        tell: called behind each step with the states and the steps so far.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 8 * DEEPEST))
    with tempfile.TemporaryDirectory(prefix="jrs-explored-", dir=scratch()) as folder:
        begin = start(scenario, Path(folder) / "run")
        first = begin.go(way)
        gone = Way(begin)
        try:
            search = Search(gone, most=most, deepest=deepest, reduces=reduces, tell=tell)
            return search.run(first)
        finally:
            gone.end()


def shortest(scenario: Scenario, found: Explored, *, most: int = 1 << 24) -> Explored:
    """Return a shorter run that breaks a promise, given one that does, until there is none."""
    while found.violations:
        shorter = explore(scenario, most=most, deepest=len(found.choices) - 1)
        if not shorter.violations:
            break
        found = shorter
    return found
