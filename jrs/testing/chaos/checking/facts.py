"""What each operation of a history tells of each key."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.recorded import Call, Kind, Verb


class What(enum.IntEnum):
    """What an operation did with a key."""

    READ = enum.auto()
    """It saw a state."""
    WRITE = enum.auto()
    """It put another state in the place of the one that it required, or may have."""
    CHECK = enum.auto()
    """It required a state, and found it."""
    REFUSED = enum.auto()
    """It required a state, and was refused because of another one."""
    NOT_WRITTEN = enum.auto()
    """It was refused: its value must never be seen."""
    ASKED = enum.auto()
    """It required a state, and it is unknown whether it found it: it may not have happened."""


ANY = -1
"""For a state: whichever it was, if only there is one."""


class Fact(NamedTuple):
    """What one operation tells of one key.

    The name is that of the operation; of many reads, with the number of this one. A state is a
    version, None if the key was absent, or `ANY`. The digest is that of the value that
    was seen or written; None for a key that was absent, or was deleted.
    """

    begun: int
    ended: int
    what: What
    state: int | None
    digest: str | None
    name: str
    sure: bool = True
    """Whether a write is known to have happened."""
    epoch: int | None = None
    """The epoch of the leader that wrote."""


Facts = dict[str, list[Fact]]
Anomaly = tuple[str, tuple[str, ...]]
"""What is wrong, in a sentence, and the names of the operations that prove it."""


class Page(NamedTuple):
    """What a scan has looked at: the keys with its prefix, from `after` up to `until`."""

    begun: int
    ended: int
    name: str
    after: str
    until: str | None


def facts_of(calls: Iterable[Call]) -> Facts:
    """Return what the operations tell, by key; for each key in the order in which they ended."""
    facts: Facts = defaultdict(list)
    pages: dict[str, list[Page]] = defaultdict(list)
    for call in calls:
        for key, fact in facts_of_call(call):
            facts[key].append(fact)
        if call.f is Verb.SCAN and call.type is Kind.OK:
            pages[call.key].append(page_of(call))
    absences = Absences(pages)
    for key, key_facts in facts.items():
        complete(key, key_facts, absences)
    return dict(facts)


def complete(key: str, facts: list[Fact], absences: Absences) -> None:
    """Add what pages tell of a key by lacking it, thin out what tells nothing new, and sort."""
    facts += absences.of(key, facts)
    if key == EPOCH_KEY:
        facts[:] = thinned(facts)
    facts.sort(key=_BY_END)


_BY_END = itemgetter(1, 0, 5)


def page_of(call: Call) -> Page:
    after, until, _ = call.value
    return Page(call.begun, call.ended, call.name, after or "", until)


_READ, _WRITE, _CHECK, _ASKED = What.READ, What.WRITE, What.CHECK, What.ASKED
_OK, _FAIL, _COMMIT, _GET = Kind.OK, Kind.FAIL, Verb.COMMIT, Verb.GET
# Constants, for a member of an enumeration is slow to look up.


def facts_of_call(call: Call) -> list[tuple[str, Fact]]:
    """Return what an operation tells of the keys that it names."""
    begun, ended, name, f = call.begun, call.ended, call.name, call.f
    if f is _COMMIT:
        if call.type is _FAIL:
            return list(_refused(call))
        return _committed(call)
    if call.type is not _OK:
        return []
    if f is _GET:
        return [(call.key, Fact(begun, ended, _READ, call.version, call.value, name))]
    if f is Verb.CAMPAIGN:
        return [(EPOCH_KEY, Fact(begun, ended, _CHECK, call.version, None, name))]
    if f is Verb.GET_MANY:  # Each read has a moment of its own.
        return [
            (key, Fact(begun, ended, _READ, version, value, f"{name}:{number}"))
            for number, (key, version, value) in enumerate(call.value)
        ]
    read = call.value[2]
    return [(key, Fact(begun, ended, _READ, version, value, name)) for key, version, value in read]


def _committed(call: Call) -> list[tuple[str, Fact]]:
    begun, ended, name, epoch = call.begun, call.ended, call.name, call.epoch
    sure = call.type is _OK
    found = []
    for part in call.value:
        kind, key = part[0], part[1]
        if kind == "check" or kind == "absent":
            state = part[2] if kind == "check" else None
            what = _CHECK if sure else _ASKED
            found.append((key, Fact(begun, ended, what, state, None, name, sure)))
            continue
        state, value = _required(part), None if kind == "delete" else part[2]
        found.append((key, Fact(begun, ended, _WRITE, state, value, name, sure, epoch)))
    return found


def _refused(call: Call) -> Iterator[tuple[str, Fact]]:
    because = call.error.partition(" ")[2]
    for part in call.value:
        key, required = part[1], _required(part)
        if part[0] in ("create", "update"):
            yield key, Fact(call.begun, call.ended, What.NOT_WRITTEN, ANY, part[2], call.name)
        if key == because and required != ANY:
            yield key, Fact(call.begun, call.ended, What.REFUSED, required, None, call.name)


def _required(part: list[object]) -> int | None:
    """Return the state that a part of a commit requires."""
    kind, last = part[0], part[-1]
    if kind == "create" or kind == "absent":
        return None
    return last if isinstance(last, int) else ANY


def thinned(facts: Iterable[Fact]) -> list[Fact]:
    """Return, of the operations that checked a version, the first to end and the last to begin.

    Every fenced commit checks the epoch. The other ones prove nothing more.
    """
    kept, first, last = [], dict[int | None, Fact](), dict[int | None, Fact]()
    for fact in facts:
        if fact.what is not What.CHECK:
            kept.append(fact)
            continue
        state = fact.state
        if state not in first:
            first[state] = last[state] = fact
            continue
        if _BY_END(fact) < _BY_END(first[state]):
            first[state] = fact
        if _BY_BEGIN(fact) > _BY_BEGIN(last[state]):
            last[state] = fact
    return [*kept, *{*first.values(), *last.values()}]


_BY_BEGIN = itemgetter(0, 1, 5)


class Absences:
    """Which pages lack a key that they had room for.

    Of the pages that ended between the beginnings of two deletes of the key, the one that began
    last is enough: if it may lack the key, all of them may. So a key has at most one absence more
    than it has deletes, however many pages there are.
    """

    def __init__(self, pages: Mapping[str, list[Page]]) -> None:
        self._pages = {prefix: _Pages(some) for prefix, some in pages.items()}
        self._lengths = sorted(set(map(len, pages)))

    def _with_room(self, key: str) -> list[_Pages]:
        names = {key[:length] for length in self._lengths}
        return [self._pages[name] for name in sorted(names) if name in self._pages]

    def room(self, key: str, first: int, last: int) -> Iterator[Page]:
        """Yield pages that had room for a key, whether they show it or not: those that began
        between two moments, and of those that began later one for each prefix at least."""
        for pages in self._with_room(key):
            yield from pages.room(key, first, last)

    def any_room(self, key: str) -> bool:
        """Return whether a page may have had room for a key."""
        return bool(self._with_room(key))

    def of(self, key: str, facts: list[Fact]) -> list[Fact]:
        """Return where a key was absent, given what else is known of it."""
        prefixes = self._with_room(key)
        if not prefixes:
            return []
        deletes = sorted(
            fact.begun for fact in facts if fact.what is What.WRITE and fact.digest is None
        )
        shown = {fact.name for fact in facts if fact.what is What.READ}
        found: dict[int, Page] = {}
        for pages in prefixes:
            for page in pages.lacking(key, deletes, shown):
                bucket = bisect_left(deletes, page.ended)
                found[bucket] = max(page, found.get(bucket, page))
        return [
            Fact(page.begun, page.ended, What.READ, None, None, page.name)
            for page in found.values()
        ]


class _Pages:
    """The pages of one prefix.

    Those that reach to the end of the prefix are kept by where they begin, in the order of time;
    those that were full, by where they begin.
    """

    def __init__(self, pages: Iterable[Page]) -> None:
        self._open: dict[str, list[Page]] = defaultdict(list)
        self._full = []
        for page in sorted(pages):
            if page.until is None:
                self._open[page.after].append(page)
            else:
                self._full.append((page.after, page.until, page))
        self._begun = {after: [page.begun for page in some] for after, some in self._open.items()}
        self._full.sort()
        self._reach = list(accumulate((until for _, until, _ in self._full), max))

    def _full_with_room(self, key: str) -> Iterator[Page]:
        place = bisect_left(self._full, (key,))
        while place and self._reach[place - 1] >= key:
            place -= 1
            _, until, page = self._full[place]
            if until >= key:
                yield page

    def room(self, key: str, first: int, last: int) -> Iterator[Page]:
        """Yield the pages that had room for a key between two moments, and one that is later."""
        yield from self._full_with_room(key)
        for after, pages in self._open.items():
            if after < key:
                begun = self._begun[after]
                yield from pages[bisect_left(begun, first) : bisect_right(begun, last) + 1]

    def lacking(self, key: str, deletes: list[int], shown: set[str]) -> Iterator[Page]:
        """Yield pages that lack a key: all that are full, and what is needed of the others."""
        yield from (page for page in self._full_with_room(key) if page.name not in shown)
        for after, pages in self._open.items():
            if after < key:
                yield from self._newest(pages, self._begun[after], deletes, shown)

    def _newest(
        self, pages: list[Page], begun: list[int], deletes: list[int], shown: set[str]
    ) -> Iterator[Page]:
        place, newest = len(pages), len(deletes) + 1
        while place:
            place -= 1
            page = pages[place]
            bucket = bisect_left(deletes, page.ended)
            if bucket >= newest or page.name in shown:
                continue
            yield page
            if not bucket:
                return
            # Those that ended before the delete began, have begun before that, too.
            newest = bucket
            place = min(place, bisect_left(begun, deletes[bucket - 1]))
