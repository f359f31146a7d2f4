"""The journal of a cleanup: what a pass adds to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from jrs.contract.operations import Record
from jrs.records.codec import decode
from jrs.records.model import CleanupJournal

from .tries import Problem


def journal_in(stored: Record) -> CleanupJournal:
    """Return the journal of a record; raises `CorruptRecord` if it cannot be read."""
    return decode(CleanupJournal, stored.value, stored.key)


def counted(
    journal: CleanupJournal, problems: Mapping[str, Problem], is_last: Callable[[int], bool]
) -> CleanupJournal:
    """Return the journal after another pass, which has left something, or nothing."""
    said = {name: problem.text for name, problem in problems.items()}
    if problems and not any(problem.is_failure for problem in problems.values()):
        return attrs.evolve(
            journal,
            tries=journal.tries + 1,
            waits=journal.waits + 1,
            problems=said,
            exhausted=False,
        )
    tries = journal.tries - journal.waits + 1
    exhausted = bool(problems) and is_last(tries)
    return attrs.evolve(journal, tries=tries, waits=0, problems=said, exhausted=exhausted)
