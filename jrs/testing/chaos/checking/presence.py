"""How often a key can have been created and deleted, at each moment of a history.

A key comes and goes in turns. So at no moment have more of its creations ended than deletes have
begun, but for one; and no more of its deletes than creations have begun.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from jrs.testing.chaos.checking.facts import Fact, What


def created_again(facts: Iterable[Fact]) -> tuple[Fact, Fact] | None:
    """Return two creations of a key between which no delete can have come, or None.

    Deletes that came before the first of them, and later ones, excuse nothing.
    """
    writes = [fact for fact in facts if fact.what is What.WRITE]
    created = _sure(writes, lambda write: write.state is None)
    number = _first_ahead(created, (write.begun for write in writes if write.digest is None), 1)
    return None if number is None else (created[number - 1], created[number])


def deleted_again(facts: Iterable[Fact]) -> Fact | None:
    """Return a delete of a key that can have been nowhere then, or None."""
    writes = [fact for fact in facts if fact.what is What.WRITE]
    deleted = _sure(writes, lambda write: write.digest is None)
    number = _first_ahead(deleted, (write.begun for write in writes if write.state is None), 0)
    return None if number is None else deleted[number]


def _sure(writes: Iterable[Fact], wanted: Callable[[Fact], bool]) -> list[Fact]:
    """Return the wanted ones that are known to have happened, in the order of their ends."""
    found = (write for write in writes if write.sure and wanted(write))
    return sorted(found, key=lambda write: (write.ended, write.begun, write.name))


def _first_ahead(done: list[Fact], begun: Iterable[int], lead: int) -> int | None:
    """Return the number of the first with whose end more are done than others had begun, and a
    lead."""
    moments = sorted(begun)
    for number, fact in enumerate(done):
        if number + 1 > bisect_right(moments, fact.ended) + lead:
            return number
    return None
