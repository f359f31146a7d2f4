"""The checks of a run itself, whatever else was asked for: what did not run was not checked."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from jrs.testing.chaos.checking.facts import Anomaly
from jrs.testing.chaos.checking.verdict import Check, Run, Violation, check
from jrs.testing.chaos.recorded import Event, Verb

NOTES = "run.json"
"""The file with the notes of a run, in its folder."""


@functools.partial(check, needs="unfinished")
def all_ended(run: Run) -> Iterator[Anomaly]:
    """Every job and every driver has ended, and the drivers have used the store."""
    waited, most = (run.notes.get(name, "?") for name in ("settled", "timeout"))
    for name in run.notes["unfinished"]:
        yield f"{name} had not ended {waited} s after the faults, with timeout={most}", ()
    for line in run.notes.get("idle", ()):
        yield line, ()


@functools.partial(check, needs="broken")
def no_crash(run: Run) -> Iterator[Anomaly]:
    """No master and none of its threads ends by itself."""
    for line in run.notes["broken"]:
        yield line, ()


@functools.partial(check, needs="wrong")
def works(run: Run) -> Iterator[Anomaly]:
    """No job and no driver fails again and again without any fault, and no job fails for good."""
    for line in run.notes.get("wrong", ()):
        yield line, ()


OF_THE_RUN: tuple[Check, ...] = (all_ended, no_crash, works)
"""They look at the notes of the run alone."""


def idle(drivers: Iterable[str], events: Iterable[Event]) -> Iterator[str]:
    """Yield what says that drivers cannot have done what they are tested for.

    A driver may well find that another one has done everything; but it has looked.
    """
    drivers = list(drivers)
    seen, working = set(), set()
    for event in events:
        name = event.process.rpartition(".")[0]
        seen.add(name)
        if event.f in (Verb.CAMPAIGN, Verb.COMMIT):
            working.add(name)
    for name in drivers:
        if name not in seen:
            yield f"{name} has asked the store for nothing: does its program open JRS_BACKEND?"
    if drivers and not working.intersection(drivers):
        yield "no driver has campaigned or written anything"


def wrong_with(folder: Path) -> list[Violation]:
    """Return what these checks find in the notes of a run that is kept in a folder, if it has any.

    Raises:
        OSError, ValueError: they cannot be read.
    """
    path = folder / NOTES
    run = Run([], json.loads(path.read_text()) if path.exists() else {})
    return [one for each in OF_THE_RUN for one in each.violations(run)]
