"""Faults of watches to plant in histories that have none; see `anomalies`."""

from __future__ import annotations

import attrs

from jrs.testing.chaos.checking.planted import Amid, Anomaly, found_by
from jrs.testing.chaos.recorded import Event, Kind, Verb

WATCH_FAULTS: dict[str, Anomaly] = {}
"""All of these faults, by their names."""
_SECOND = 10**9


@found_by("watched", WATCH_FAULTS)
def hung_watch(amid: Amid) -> None:
    """A call of a watch never returns."""
    opened = Event(f"{amid.key}.watch", 1, Kind.INVOKE, Verb.WATCH, amid.now, amid.key)
    amid.events.append(opened)
    for seconds in range(1, 20):
        late = seconds * _SECOND
        amid.events.append(
            attrs.evolve(opened, type=Kind.INFO, f=Verb.OVERDUE, t=amid.now + late, version=late)
        )


@found_by("watched", WATCH_FAULTS)
def unreported_behind_harm(amid: Amid) -> None:
    """A change is not reported, and harm that lasted for long was over before it."""
    struck = Event(f"{amid.key}.world", 1, Kind.INFO, Verb.STRIKE, amid.now, "pause", "m1")
    amid.now += 100 * _SECOND
    amid.events += [struck, attrs.evolve(struck, f=Verb.HEAL, t=amid.now)]
    amid.now += _SECOND
    amid.watch([])


@found_by("watched", WATCH_FAULTS)
def reported_late(amid: Amid) -> None:
    """A change is reported with a later one of the key, an hour behind it."""
    amid.watch([])
    last = amid.events[-1]
    for seconds, names in ((3598, []), (3599, []), (3600, [amid.key])):
        amid.events.append(attrs.evolve(last, t=amid.now + seconds * _SECOND, value=names))


@found_by("watched", WATCH_FAULTS)
def unreported_unanswered(amid: Amid) -> None:
    """A change is not reported whose commit got no answer; it was read."""
    opened = Event(f"{amid.key}.watch", 1, Kind.INVOKE, Verb.WATCH, amid.now, amid.key)
    amid.now += 1
    amid.commit(["create", amid.key, "watched"], answer=None)
    amid.read(amid.next(), "watched")
    amid.events += [
        opened,
        attrs.evolve(opened, type=Kind.INFO, f=Verb.NOTICE, t=amid.now + 60 * _SECOND, value=[]),
    ]
