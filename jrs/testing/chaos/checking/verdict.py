"""A check, what it looks at, and what it finds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from jrs.testing.chaos.checking.facts import Anomaly, Facts, facts_of
from jrs.testing.chaos.checking.garbage import without_collections
from jrs.testing.chaos.checking.known import known_of, settled
from jrs.testing.chaos.recorded import Call, Event, calls_of


@attrs.frozen
class Violation:
    """A broken promise.

    Attributes:
        check: the name of the check that found it.
        message: what happened, in a sentence.
        calls: the names of the operations that prove it.
    """

    check: str
    message: str
    calls: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


@attrs.frozen(slots=False)
class Run:
    """A chaos run that has ended.

    Attributes:
        events: its history, in the order of time.
        notes: what was noted at its end: what is left, what the jobs returned, and so on.
    """

    events: list[Event]
    notes: Mapping[str, Any] = attrs.field(factory=dict)

    @functools.cached_property
    def calls(self) -> list[Call]:
        """Its operations."""
        with without_collections():
            return list(calls_of(self.events))

    @functools.cached_property
    def known(self) -> dict[str, int]:
        """The commits of unknown outcome that are known to have happened, and since when."""
        with without_collections():
            return known_of(self.calls)

    @functools.cached_property
    def facts(self) -> Facts:
        """What its operations tell of each key."""
        with without_collections():
            return facts_of(settled(self.calls, self.known))


@attrs.frozen
class Check:
    """One check.

    Attributes:
        name: its name in reports and on the command line.
        promise: what holds if it finds nothing, in a sentence.
    """

    name: str
    promise: str
    _find: Callable[[Run], Iterator[Anomaly]] = attrs.field(repr=False)
    needs: str = ""
    """The note of a run that it evaluates; empty if it evaluates the history alone."""
    _able: Callable[[Run], bool] = attrs.field(default=lambda run: True, repr=False)
    expected: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    """What its caller expects of jobs, by their ids."""

    def can_judge(self, run: Run) -> bool:
        """Return whether the run has what the check looks at."""
        return self._has_note(run) and self._able(run)

    def _has_note(self, run: Run) -> bool:
        return not self.needs or self.needs in run.notes

    def violations(self, run: Run) -> list[Violation]:
        """Return what it finds in a run; nothing without the note that it needs."""
        if not self._has_note(run):
            return []
        with without_collections():
            return [Violation(self.name, message, calls) for message, calls in self._find(run)]


def evaluated_nothing(checks: Iterable[Check], run: Run) -> list[str]:
    """Return a line for each of some checks that has found nothing wrong because the run has
    nothing that it looks at."""
    return [
        f"{one.name} judged nothing: the run has nothing that it looks at"
        for one in checks
        if not one.can_judge(run) and not one.violations(run)
    ]


def check(
    find: Callable[[Run], Iterator[Anomaly]],
    needs: str = "",
    able: Callable[[Run], bool] = lambda run: True,
) -> Check:
    """Make a check of a function; its docstring's first line is the promise. `able` returns whether
    a run has what it looks at, besides the note that it needs."""
    promise = (find.__doc__ or "").strip().partition("\n")[0]
    return Check(find.__name__, promise, find, needs, able)
