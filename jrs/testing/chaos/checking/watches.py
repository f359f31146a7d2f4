"""The check of watches: they report every change in time, and every call returns."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import attrs

from jrs.testing.chaos.checking.facts import Anomaly
from jrs.testing.chaos.checking.known import settled
from jrs.testing.chaos.checking.verdict import Run, check
from jrs.testing.chaos.recorded import FOREVER, Call, Event, Kind, Verb

DUE = 15_000_000_000
"""Nanoseconds in which a watch has to report a change, and to return when its time is over, if its
process lives. Harm of that time may take as long as it lasts, and these once more."""
_CALLS = 2
"""How many calls that return when a report is due may still report it."""


def _had_time(run: Run) -> bool:
    """Return whether any change was made early enough, or any call is overdue."""
    watches = Watches(run.events)
    return any(watches.evaluates(call) for call in _changes(run)) or any(watches.hung())


@functools.partial(check, able=_had_time)
def watched(run: Run) -> Iterator[Anomaly]:
    """Every change of a watched key is reported to every watch that is asked often enough."""
    watches = Watches(run.events)
    for call in sorted(_changes(run), key=lambda call: call.ended):
        yield from watches.unreported(call)
    yield from watches.hung()


def _changes(run: Run) -> Iterator[Call]:
    return (
        call for call in settled(run.calls, run.known)
        if call.f is Verb.COMMIT and call.type is Kind.OK
    )  # fmt: skip


@attrs.define
class _Watch:
    """A watch, and what it reported when."""

    prefix: str
    opened: int
    times: list[int] = attrs.field(factory=list)
    reports: list[list[str] | None] = attrs.field(factory=list)
    overdue: tuple[int, int] = (0, 0)
    """For how long a call was overdue, at most, and the moment of that."""

    def reported(self, key: str, since: int, due: int) -> int | None:
        """Return when it reported a key, or that anything may have changed; `FOREVER` if it never
        did; None if it did in time.

        It is asked now and then, so the first calls that return behind the due moment are in time,
        too: the first one may belong to a process that could not run, and hears of it in the next.
        """
        in_time = bisect_left(self.times, due) + _CALLS
        for number in range(bisect_left(self.times, since), len(self.times)):
            names = self.reports[number]
            if names is None or any(_covers(key, name) for name in names):
                return None if number < in_time else self.times[number]
        return FOREVER


class Watches:
    """The watches of a history: of its events in the order of time, those of watches and nemeses
    are enough."""

    EVENTS = (Verb.WATCH, Verb.NOTICE, Verb.OVERDUE, Verb.STRIKE, Verb.HEAL)

    def __init__(self, events: Iterable[Event]) -> None:
        found: dict[tuple[str, int], _Watch] = {}
        struck: dict[int, int] = {}
        harm = []
        for event in events:
            watch = event.process, event.seq
            if event.f is Verb.WATCH:
                found[watch] = _Watch(event.key, event.t)
            elif event.f is Verb.NOTICE and watch in found:
                found[watch].times.append(event.t)
                found[watch].reports.append(event.value)
            elif event.f is Verb.OVERDUE and watch in found:
                overdue = event.version or 0, event.t
                found[watch].overdue = max(overdue, found[watch].overdue)
            elif event.f is Verb.STRIKE:
                struck[event.seq] = event.t
            elif event.f is Verb.HEAL and event.seq in struck:
                harm.append((struck[event.seq], event.t))
        self._watches = list(found.values())
        self._harm = sorted(harm)

    @property
    def prefixes(self) -> set[str]:
        """What is watched."""
        return {watch.prefix for watch in self._watches}

    def _due(self, moment: int) -> int:
        """Return until when a watch may take that should act at a moment."""
        due = moment + DUE
        for struck, healed in self._harm:
            if struck > due:
                break
            if healed > moment:
                due = max(due, healed + DUE)
        return due

    def _asked_of(self, call: Call) -> list[tuple[_Watch, str, int]]:
        """Return the watches that must have reported a change of an accepted commit, it, and until
        when."""
        keys = [str(part[1]) for part in call.value if part[0] in ("create", "update", "delete")]
        if call.ended == FOREVER or not keys or not self._watches:
            return []
        due = self._due(call.ended)
        return [
            (watch, key, due)
            for watch in self._watches
            if watch.opened <= call.begun and watch.times and due <= watch.times[-1]
            for key in keys
            if key.startswith(watch.prefix)
        ]

    def evaluates(self, call: Call) -> bool:
        """Return whether a watch had to report a change of an accepted commit, and had the time."""
        return bool(self._asked_of(call))

    def unreported(self, call: Call) -> Iterator[Anomaly]:
        """Yield the changes of an accepted commit that a watch has not reported in time."""
        for watch, key, due in self._asked_of(call):
            if (moment := watch.reported(key, call.begun, due)) is not None:
                late = f"{(moment - call.ended) / 1e9:.0f} s after it"
                when = "never" if moment == FOREVER else f"only {late}"
                yield f"a watch of {watch.prefix} reported the change of {key} {when}", (call.name,)

    def hung(self) -> Iterator[Anomaly]:
        """Yield the watches of which a call did not return in time."""
        for watch in self._watches:
            overdue, moment = watch.overdue
            if moment > self._due(moment - overdue):
                said = f"did not return for {overdue / 1e9:.0f} s after its time was over"
                yield f"a watch of {watch.prefix} {said}", ()


def _covers(key: str, name: str) -> bool:
    """Return whether a watch that reports this name reports the key, too."""
    return key == name or (name.endswith("/") and key.startswith(name))
