"""Which steps of an exploration commute, and what may still happen while a process stands still.

Two steps of different processes commute if none of them writes what the other one uses, and none
reaches into the other's process. Each step says what it uses, while it is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from jrs.testing.simulation.explored import Use


class Uses:
    """Sets of uses, as numbers with a bit for each use."""

    def __init__(self) -> None:
        self._bits: dict[Use, int] = {}
        self._against: list[int] = []
        self._of_sets: dict[int, tuple[int, int]] = {}

    def number(self, uses: Iterable[Use]) -> int:
        """Return the number of a set."""
        found = 0
        for use in uses:
            found |= 1 << self._bit(use)
        return found

    def _bit(self, use: Use) -> int:
        if (bit := self._bits.get(use)) is None:
            bit = self._bits[use] = len(self._bits)
            self._against.append(0)
            for other, place in self._bits.items():
                if are_in_conflict(use, other):
                    self._against[bit] |= 1 << place
                    self._against[place] |= 1 << bit
        return bit

    def against(self, uses: int) -> int:
        """Return all uses known so far that are in conflict with one of these."""
        known = len(self._against)
        found = self._of_sets.get(uses)
        if found is None or found[0] != known:
            conflicts, left = 0, uses
            while left:
                conflicts |= self._against[(left & -left).bit_length() - 1]
                left &= left - 1
            found = self._of_sets[uses] = known, conflicts
        return found[1]


def are_in_conflict(one: Use, other: Use) -> bool:
    """Return whether two uses by different processes may make a difference to each other."""
    (how, what), (how_other, what_other) = sorted((one, other))
    kinds = how, how_other
    if kinds in (("r", "w"), ("w", "w")):
        return what.startswith(what_other) or what_other.startswith(what)
    return kinds in (("reach", "reach"), ("reach", "step")) and what == what_other


@attrs.frozen
class Futures:
    """What may be used from a state on, before time passes.

    Attributes:
        uses: by all.
        without: the same, if one process stands still; for each process to which anything may
            happen.
    """

    uses: int = 0
    without: dict[str, int] = attrs.field(factory=dict)

    def if_still(self, process: str) -> int:
        """Return what may be used while a process stands still."""
        return self.without.get(process, self.uses)


@attrs.frozen
class Step:
    """A step that was taken, and what may come behind it.

    Attributes:
        uses: a number of `Uses`.
        passes: time has passed behind it, since nobody asked for anything any more.
    """

    owner: str | None
    uses: int
    passes: bool
    then: Futures


def futures_of(steps: Sequence[Step], persistent: str | None) -> Futures:
    """Return what may be used from a state on.

    Args:
        steps: the steps that were explored there.
        persistent: the process whose steps they are, if others need not be explored. What may
            happen while it stands still may happen behind them as well.
    """
    names = {step.owner for step in steps if step.owner is not None}
    for step in steps:
        names.update(step.then.without)
    uses = 0
    for step in steps:
        uses |= step.uses if step.passes else step.uses | step.then.uses
    without = {}
    for name in names:
        found = 0
        for step in steps:
            if step.owner != name:
                found |= step.uses
            elif persistent != name:
                continue
            if not step.passes:
                found |= step.then.if_still(name)
        without[name] = found
    return Futures(uses, without)
