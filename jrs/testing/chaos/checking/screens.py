"""Screens: which keys the exact checks have to look at.

A screen looks at the facts of many keys at once, in columns, and returns a flag for each key. It
never misses a key in which the exact check finds something, and may suspect one in which it finds
nothing. So it decides how fast a history is evaluated, and not what is said of it.

Each docstring says why the screen cannot miss. All of them count on this: versions and epochs are
not negative, and no operation ends before it begins. The facts are at least those that the exact
checks have, and another fact can only add to what is suspected. Where these go by the name of an
operation, a screen goes by rows; so a key that one operation writes twice is always suspected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.checking.columns import ABSENT, NONE, Columns, Flags, Ints
from jrs.testing.chaos.checking.cycles import UNORDERED, Stretch
from jrs.testing.chaos.checking.facts import ANY, What
from jrs.testing.chaos.checking.store import Leads
from jrs.testing.chaos.checking.sweeps import LATEST, NEVER, Groups, highest, numbered

_HIGHEST = LATEST >> 2
"""The highest version that can be doubled."""


# -- what is seen of values ------------------------------------------------------------------


@attrs.frozen
class Seen:
    """What reads show of writes, by rows.

    Attributes:
        made: the version that a write has made beyond doubt, as `registers.made_by` has it; or
            `NONE`.
        strange: by keys, whether a value is read more often than it was written, or before that.
    """

    made: Ints
    strange: Flags


def seen(facts: Columns) -> Seen:
    """Bring together the reads and the writes of each value of each key."""
    write, read = facts.what == What.WRITE, (facts.what == What.READ) & (facts.state >= 0)
    made = np.full(len(facts.key), NONE)
    strange = np.zeros(len(facts.keys), bool)
    rows = np.flatnonzero((write | read) & facts.valued)
    groups = Groups.of(facts.key[rows], facts.digest[rows])
    of_write, state = write[rows], facts.state[rows]
    writers = groups.sums(of_write)
    first = groups.least(np.where(of_write, LATEST, state))
    last = groups.most(np.where(of_write, NONE, state))
    shown = last >= 0
    begun = groups.least(np.where(of_write, facts.begun[rows], LATEST))
    ended = groups.least(np.where(of_write, LATEST, facts.ended[rows]))
    wrong = shown & ((writers == 0) | (ended < begun))
    several = shown & (first != last)
    if several.any():
        some = np.flatnonzero(groups.spread(several) & ~of_write)
        number = groups.spread(np.arange(len(several)))[some]
        versions = Groups.of(number, state[some])
        of = number[versions.order[versions.starts]]
        wrong |= np.bincount(of, minlength=len(several)) > np.maximum(writers, 1)
    strange[facts.key[rows[groups.rows(wrong)]]] = True
    once = np.where(shown & (writers == 1) & ~several, first, NONE)
    made[rows] = np.where(of_write, groups.spread(once), NONE)
    return Seen(made, strange)


# -- the screens -----------------------------------------------------------------------------


def contradicted(facts: Columns, known: Seen) -> Flags:
    """Return the keys in which `registers.contradictions` may find something.

    Each part is one of its parts, and asks no more than that does: a refusal has a cause only if a
    write of the same version had begun. A place is twice the version instead of twice its rank, in
    the same order.
    """
    suspected = facts.wanting | _named_twice(facts)
    suspected |= _keys(facts, facts.state > _HIGHEST)
    suspected |= _two_values(facts) | _written_twice(facts) | _out_of_turn(facts)
    epoch = np.array([key == EPOCH_KEY for _, key in facts.keys], bool)
    suspected |= (known.strange | _refused(facts)) & ~epoch
    return suspected | _out_of_order(facts, known)


def _named_twice(facts: Columns) -> Flags:
    """A key that one operation writes twice, or that two write which begin in the same moment."""
    rows = np.flatnonzero(facts.what == What.WRITE)
    groups = Groups.of(facts.key[rows], facts.begun[rows])
    return _keys(facts, rows[groups.rows(groups.sizes() > 1)])


def _two_values(facts: Columns) -> Flags:
    rows = np.flatnonzero((facts.what == What.READ) & (facts.state >= 0))
    groups = Groups.of(facts.key[rows], facts.state[rows])
    digest, valued = facts.digest[rows], facts.valued[rows].astype(np.int64)
    wrong = (groups.least(digest) != groups.most(digest)) | (
        groups.least(valued) != groups.most(valued)
    )
    return _keys(facts, rows[groups.rows(wrong)])


def _written_twice(facts: Columns) -> Flags:
    """A version that was replaced twice."""
    sure = (facts.what == What.WRITE) & facts.sure
    rows = np.flatnonzero(sure & (facts.state >= 0))
    groups = Groups.of(facts.key[rows], facts.state[rows])
    return _keys(facts, rows[groups.rows(groups.sizes() > 1)])


def _out_of_turn(facts: Columns) -> Flags:
    """A key that was created or deleted too often by some moment. What began in the moment in which
    a write ended is not counted; so this suspects more."""
    write = facts.what == What.WRITE
    created, deleted = write & (facts.state == ABSENT), write & ~facts.valued
    return _ahead(facts, created, deleted, 1) | _ahead(facts, deleted, created, 0)


def _ahead(facts: Columns, done: Flags, others: Flags, lead: int) -> Flags:
    rows, begun = np.flatnonzero(done & facts.sure), np.flatnonzero(others)
    key, ended = facts.key[rows], facts.ended[rows]
    number = numbered(facts.key[begun], facts.begun[begun])
    had_begun = highest(facts.key[begun], facts.begun[begun], number, key, ended)
    return _keys(facts, rows[numbered(key, ended) > np.maximum(had_begun, 0) + lead])


def _refused(facts: Columns) -> Flags:
    write = facts.what == What.WRITE
    rows = np.flatnonzero(facts.what == What.REFUSED)
    key, state = facts.key[rows], facts.state[rows]
    begun, ended = facts.begun[rows], facts.ended[rows]
    values, whichever = write & facts.valued, write & (facts.state == ANY)
    written = highest(facts.key[values], facts.begun[values], facts.ended[values], key, ended)
    gone = write & facts.sure & ~facts.valued
    removed = highest(facts.key[gone], facts.ended[gone], facts.begun[gone], key, begun)
    present = (written != NEVER) & (written >= removed)
    replaced = _first(facts, whichever)[key] < ended
    writes = np.flatnonzero(write & (facts.state >= 0))
    both = np.concatenate([writes, rows])
    groups = Groups.of(facts.key[both], facts.state[both])
    since = np.where(np.arange(len(both)) < len(writes), facts.begun[both], LATEST)
    replaced |= groups.spread(groups.least(since))[len(writes) :] < ended
    return _keys(facts, rows[~np.where(state == ABSENT, present, replaced)])


def _first(facts: Columns, rows: Flags) -> Ints:
    """Return by keys when the first of some operations began."""
    found = np.full(len(facts.keys), LATEST)
    np.minimum.at(found, facts.key[rows], facts.begun[rows])
    return found


def _out_of_order(facts: Columns, known: Seen) -> Flags:
    """The sweep over time. Each operation that has ended proves that a place was reached, and no
    operation that began later may show a place before it, or an absence that no delete explains."""
    key, begun, ended, state = facts.key, facts.begun, facts.ended, facts.state
    shows = (facts.what == What.READ) | (facts.what == What.CHECK)
    write = facts.what == What.WRITE
    sure = write & facts.sure
    place = np.where(shows & (state >= 0), 2 * state, NEVER)
    place[sure] = np.maximum(
        np.where(state[sure] >= 0, 2 * state[sure] + 1, NEVER),
        np.where(known.made[sure] >= 0, 2 * known.made[sure], NEVER),
    )
    shown = np.flatnonzero((shows | sure) & (state >= 0))
    absent = np.flatnonzero((shows | sure) & (state == ABSENT))
    asked = np.concatenate([shown, absent])
    removals = np.flatnonzero(sure & (state == ANY))
    # First what the removals have removed; then they prove that it was.
    for rows in (removals, asked) if len(removals) else (asked,):
        proofs = np.flatnonzero(place != NEVER)
        reached = highest(key[proofs], ended[proofs], place[proofs], key[rows], begun[rows])
        if rows is removals:
            place[rows] = np.maximum(place[rows], np.where(reached < 0, NEVER, reached | 1))
    suspected = _keys(facts, shown[reached[: len(shown)] > 2 * state[shown]])

    reached = reached[len(shown) :]
    deletes = np.flatnonzero(write & ~facts.valued & (state != ABSENT))
    far = np.where(state[deletes] == ANY, 2 * _HIGHEST + 2, 2 * state[deletes] + 1)
    until = ended[absent]
    deleted = highest(key[deletes], begun[deletes], far, key[absent], until)
    values = np.flatnonzero(sure & facts.valued)
    newest = highest(key[values], ended[values], begun[values], key[absent], begun[absent])
    removed = highest(key[deletes], begun[deletes], ended[deletes], key[absent], until)
    wrong = (reached >= 0) & (deleted < reached) | (newest != NEVER) & (removed < newest)
    return suspected | _keys(facts, absent[wrong])


def late(facts: Columns, known: Seen, leads: Mapping[str, Leads]) -> Flags:
    """Return the keys in which `store.Leads.late` finds something: it is the same comparison."""
    suspected = _named_twice(facts)
    fenced = (facts.what == What.WRITE) & facts.sure & (facts.epoch != NONE)
    for history, rows in facts.by_history.items():
        if history not in leads:
            continue
        epochs, versions, ends = leads[history].columns()
        rows = rows[fenced[rows]]
        later = np.searchsorted(np.array(epochs), facts.epoch[rows], "right")
        rows, later = rows[later < len(epochs)], later[later < len(epochs)]
        behind = (known.made[rows] > np.array(versions)[later]) | (
            facts.begun[rows] > np.array(ends)[later]
        )
        suspected[facts.key[rows[behind]]] = True
    return suspected


def denied(facts: Columns) -> Flags:
    """Return the rows of which `store.outcomes_of` may say that they have not happened: all writes
    of unknown outcome that required a state. They are few."""
    found: Flags = (facts.what == What.WRITE) & facts.unanswered & (facts.state != ANY)
    return found


def backwards(facts: Columns, known: Seen) -> Flags:
    """Return the keys of which `cycles.edges_of` may have an edge that leads back in time.

    Each edge leads from a place to a later one: a write that made a version is right before it, and
    one that replaces it right behind it; an absence is before the only creation of a key that is
    never deleted. So without an edge back, operations begin in the order of their places. Those
    that begin in the same moment are suspected by themselves.
    """
    write = facts.what == What.WRITE
    shows = _ordered(facts) & ~write
    kept = np.ones(len(facts.keys), bool)
    kept[facts.key[write & ~facts.valued]] = False
    absent = (shows | write) & (facts.state == ABSENT) & kept[facts.key]
    numbers, places = [], []
    for some, place in (
        (shows & (facts.state >= 0), 2 * facts.state),
        (write & (facts.state >= 0), 2 * facts.state + 1),
        (write & (known.made >= 0), 2 * known.made - 1),
        (absent, np.where(write, -3, -4)),
    ):
        numbers.append(np.flatnonzero(some))
        places.append(place[some])
    rows, place = np.concatenate(numbers), np.concatenate(places)
    key, begun = facts.key[rows], facts.begun[rows]
    before = highest(key, place, begun, key, place)
    suspected = facts.wanting | _keys(facts, rows[before > begun])
    rows = np.flatnonzero(_ordered(facts))
    groups = Groups.of(facts.key[rows], facts.begun[rows])
    return suspected | _keys(facts, rows[groups.rows(groups.sizes() > 1)])


def within(facts: Columns, stretches: Mapping[str, Sequence[Stretch]]) -> Flags:
    """Return the keys of which an edge may lie in a stretch: two operations begin in it. The
    creation is enough for a key that pages had room for: one that is not here may be before it."""
    suspected = facts.wanting.copy()
    ordered = _ordered(facts)
    created = (facts.what == What.WRITE) & (facts.state == ABSENT) & facts.paged[facts.key]
    for history, rows in facts.by_history.items():
        if not stretches.get(history):
            continue
        firsts, lasts = np.array(stretches[history], np.int64).T
        rows = rows[ordered[rows]]
        number = np.searchsorted(firsts, facts.begun[rows], "right") - 1
        inside = (number >= 0) & (facts.begun[rows] <= lasts[number])
        rows, number = rows[inside], number[inside]
        groups = Groups.of(facts.key[rows], number)
        suspected |= _keys(facts, rows[groups.rows(groups.sizes() > 1)])
        suspected |= _keys(facts, rows[created[rows]])
    return suspected


def _ordered(facts: Columns) -> Flags:
    """Return the rows that have a place in an order."""
    return np.isin(facts.what, UNORDERED, invert=True)


def _keys(facts: Columns, rows: Ints | Flags) -> Flags:
    """Return the keys of some rows."""
    found = np.zeros(len(facts.keys), bool)
    found[facts.key[rows]] = True
    return found
