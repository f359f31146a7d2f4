"""What the operations tell of one list: its order, what cannot be, and who depends on whom.

An order is inferred from the lists that were read, as Elle does (Kingsbury and Alvaro, "Elle:
Inferring Isolation Anomalies from Experimental Observations", VLDB 2020). Each element is unique,
so the longest list that was read has the order of the commits that appended to it. The order of the
versions is never looked at. A version only names the read on which a condition of a commit rests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise, zip_longest
from operator import itemgetter
from typing import NamedTuple

import attrs

from jrs.testing.chaos.checking.cycles import Edge, Node
from jrs.testing.chaos.checking.facts import Anomaly
from jrs.testing.chaos.recorded import LISTS, Call, Kind, Part, Verb


class Item(NamedTuple):
    """What one operation tells of one list.

    Attributes:
        text: the list that was read or written; empty if it was absent.
        alone: whether the operation has read nothing else at that moment.
    """

    begun: int
    ended: int
    kind: int
    version: int | None
    text: str
    name: str
    process: str
    type: Kind
    alone: bool


Items = dict[str, list[Item]]
"""By list."""
_READ, _CHECK, _ABSENT, _DELETE = Part.READ, Part.CHECK, Part.ABSENT, Part.DELETE
_CREATE, _UPDATE = Part.CREATE, Part.UPDATE
_OK, _FAIL, _COMMIT = Kind.OK, Kind.FAIL, Verb.COMMIT
_KINDS = {part.name.lower(): part for part in Part}
# Constants, for a member of an enumeration is slow to look up.


def items_of(calls: Iterable[Call]) -> Items:
    """Return what operations tell of lists."""
    found: Items = defaultdict(list)
    for call in calls:
        for key, item in _items_of(call):
            found[key].append(item)
    return found


def _items_of(call: Call) -> Iterator[tuple[str, Item]]:
    begun, ended, name, process = call.begun, call.ended, call.name, call.process
    if call.f is _COMMIT:
        for part in call.value:
            kind, key = part[0], part[1]
            if key.startswith(LISTS):
                text = part[2] if kind == "create" or kind == "update" else ""
                version = part[-1] if kind == "update" or kind == "check" else None
                yield key, Item(begun, ended, _KINDS[kind], version, text, name, process,
                                call.type, False)  # fmt: skip
        return
    if call.type is not _OK:
        return
    if call.f is Verb.GET and call.key.startswith(LISTS):
        yield call.key, Item(begun, ended, _READ, call.version, call.value or "", name, process,
                             _OK, True)  # fmt: skip
    elif call.f is Verb.GET_MANY or call.f is Verb.SCAN:
        many = call.f is Verb.GET_MANY  # Each read has a moment of its own.
        for number, (key, version, text) in enumerate(call.value if many else call.value[2]):
            if key.startswith(LISTS):
                own = f"{name}:{number}" if many else name
                yield key, Item(begun, ended, _READ, version, text or "", own, process, _OK, many)


@attrs.define
class Told:
    """What the operations tell of one list.

    Attributes:
        wrong: what cannot be.
        edges: which commit or page depends on which. The reason has its kind (``ww``, ``wr``,
            ``rw``), the element that shows it, and the list.
        seen: the commits whose elements were read, so that they happened.
    """

    wrong: list[Anomaly]
    edges: list[Edge]
    seen: set[str]


def told_of(key: str, items: list[Item]) -> Told:
    """Return what operations tell of a list. One that was deleted tells nothing."""
    if any(item.kind == _DELETE for item in items):
        return Told([], [], set())
    return _List(key, items).told()


@attrs.frozen
class _Append:
    """What a commit has appended to a list."""

    item: Item
    elements: list[str]
    base: str | None
    """The list that it had read before; None if no read of it is known."""


class _List:
    """One list. A place is the number of elements before it."""

    def __init__(self, key: str, items: list[Item]) -> None:
        self.key = key
        self.wrong: list[Anomaly] = []
        self.readers: dict[str, list[Item]] = defaultdict(list)
        """Who has read a list, by its text."""
        items = sorted(items, key=_BY_END)
        for item in items:
            if item.kind == _READ:
                self.readers[item.text].append(item)
        self.bases: list[tuple[Item, str]] = []
        """What the conditions of commits rest on."""
        self.appends: dict[str, _Append] = {}
        """Who has appended an element, and what else at once."""
        self._find_appends(items)
        texts = sorted(self.readers, key=lambda text: (len(text), text))
        self.longest = texts[-1] if texts else ""
        self.order = self.longest.split()
        self.place = {element: place for place, element in enumerate(self.order)}
        self.odd = [text for text in texts if not _extends(self.longest, text)]
        """Lists that the longest one does not begin with."""
        self.texts = texts
        self.seen = {
            self.appends[element].item.name
            for text in (self.longest, *self.odd)
            for element in text.split()
            if element in self.appends and self.appends[element].item.type is not _FAIL
        }

    def told(self) -> Told:
        self._incompatible()
        self._elements()
        self._intermediate()
        self._lost_updates()
        return Told(self.wrong, list(self._edges()), self.seen)

    # -- who appended what -----------------------------------------------------------------

    def _find_appends(self, items: list[Item]) -> None:
        reads: dict[tuple[str, int | None], list[Item]] = defaultdict(list)
        for some in self.readers.values():
            for item in some:
                reads[item.process, item.version].append(item)
        for item in items:
            if item.kind == _READ:
                continue
            base = self._base(item, reads)
            if item.kind == _CREATE or item.kind == _UPDATE:
                self._find_elements(item, base)
            if base is not None and item.type is not _FAIL:
                self.bases.append((item, base))

    @staticmethod
    def _base(item: Item, reads: dict[tuple[str, int | None], list[Item]]) -> str | None:
        """Return the list that a process had read before it committed, if that is known."""
        if item.kind == _CREATE or item.kind == _ABSENT:
            return ""
        before = [
            read for read in reads.get((item.process, item.version), ())
            if read.ended <= item.begun
        ]  # fmt: skip
        return max(before, key=_BY_END).text if before else None

    def _find_elements(self, item: Item, base: str | None) -> None:
        """Note what a commit has appended: only its last element, if no read of it is known."""
        before = item.text.rpartition(" ")[0] if base is None else base
        elements = item.text[len(before) :].split()
        if not _extends(item.text, before):
            elements = [one for one in item.text.split() if one not in before.split()]
            self.wrong.append(
                (f"a commit did not extend {self._shown(before)}, which it had read", (item.name,))
            )
        append = _Append(item, elements, base)
        for element in elements:
            other = self.appends.setdefault(element, append)
            if other is not append:
                self.wrong.append(
                    (f"{element} was appended to {self.key} twice", (other.item.name, item.name))
                )

    # -- what cannot be ----------------------------------------------------------------------

    def _incompatible(self) -> None:
        """Two reads of which neither is the beginning of the other one."""
        for text in self.odd:
            pairs = zip_longest(text.split(), self.order, fillvalue="nothing")
            one, other = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
            readers = self.readers[text][0].name, self.readers[self.longest][0].name
            what = f"incompatible orders: where one read of {self.key} has {one}, another has "
            self.wrong.append((what + other, readers))

    def _elements(self) -> None:
        """Elements that are in a list twice, that nobody appended, or that were refused (G1a)."""
        told: set[str] = set()
        for text in (self.longest, *self.odd):
            elements = text.split()
            counted: set[str] = set()
            for element in elements:
                if element in counted and f"2 {element}" not in told:
                    told.add(f"2 {element}")
                    reader = self._first_reader(element, 2)
                    self.wrong.append((f"{element} is twice in {self.key}", (reader.name,)))
                counted.add(element)
                append = self.appends.get(element)
                happened = append is not None and append.item.type is not _FAIL
                if element in told or happened:
                    continue
                told.add(element)
                reader = self._first_reader(element, 1)
                if append is None:
                    what = f"{element} was read in {self.key}, and nobody had appended it"
                    self.wrong.append((what, (reader.name,)))
                else:
                    what = f"G1a: {element} was read in {self.key}, and its commit had failed"
                    self.wrong.append((what, (append.item.name, reader.name)))

    def _first_reader(self, element: str, times: int) -> Item:
        some = (
            readers[0] for text, readers in self.readers.items()
            if text.split().count(element) >= times
        )  # fmt: skip
        return min(some, key=_BY_END)

    def _intermediate(self) -> None:
        """A list that ends amid what one commit appended (G1b)."""
        for text in self.texts:
            last = text.rpartition(" ")[2]
            append = self.appends.get(last)
            if append is None or last == append.elements[-1] or append.item.type is _FAIL:
                continue
            self.wrong.append((
                f"G1b: {self.key} was read up to {last}, and the same commit had appended "
                f"{append.elements[-1]} behind it",
                (append.item.name, self.readers[text][0].name),
            ))  # fmt: skip

    def _lost_updates(self) -> None:
        """Two commits that extended the same list."""
        first: dict[str, _Append] = {}
        told: set[int] = set()
        for append in self.appends.values():
            item = append.item
            happened = item.type is _OK or item.name in self.seen
            if append.base is None or id(append) in told or not happened:
                continue
            told.add(id(append))
            other = first.setdefault(append.base, append)
            if other is not append:
                self.wrong.append((
                    f"lost update: {self._shown(append.base)} was extended twice, by "
                    f"{other.elements[0]} and by {append.elements[0]}",
                    (other.item.name, item.name),
                ))  # fmt: skip

    def _shown(self, text: str) -> str:
        elements = text.split()
        if len(elements) > _SHOWN:
            elements = ["…", *elements[-_SHOWN:]]
        return f"{self.key} [{' '.join(elements)}]"

    # -- who depends on whom -----------------------------------------------------------------

    def _edges(self) -> Iterator[Edge]:
        owners = [self._owner(element) for element in self.order]
        unseen = self._unseen()
        known = [(owner, one) for owner, one in zip(owners, self.order, strict=True) if owner]
        for (one, _), (other, element) in pairwise(known):
            yield from self._edge(one, other, "ww", element)
        if known:
            for item, element in unseen:
                yield from self._edge(known[-1][0], item, "ww", element)
        for text, readers in self.readers.items():
            for item in readers:
                # A read of one list lies on no cycle that is not there without it.
                if not item.alone:
                    yield from self._around(item, text, owners, unseen)
        for item, text in self.bases:
            yield from self._around(item, text, owners, unseen)

    def _unseen(self) -> list[tuple[Item, str]]:
        """Return the commits that were not seen here, each with an element: if they happened, it
        was behind all that was seen. None, if there are many."""
        found = {
            append.item.name: (append.item, append.elements[0])
            for append in self.appends.values()
            if append.item.type is not _FAIL and append.item.name not in self.seen
        }
        return [*found.values()] if len(found) <= _UNSEEN else []

    def _owner(self, element: str) -> Item | None:
        append = self.appends.get(element)
        return None if append is None or append.item.type is _FAIL else append.item

    def _around(
        self, item: Item, text: str, owners: list[Item | None], unseen: list[tuple[Item, str]]
    ) -> Iterator[Edge]:
        """Yield what a commit or page depends on that has read a list, and what depends on it."""
        last = text.rpartition(" ")[2]
        if last and (before := self._owner(last)) is not None:
            yield from self._edge(before, item, "wr", last)
        if text in self.odd:
            return
        for place in range(self.place[last] + 1 if last else 0, len(owners)):
            if (behind := owners[place]) is not None:
                yield from self._edge(item, behind, "rw", self.order[place])
                return
        for behind, element in unseen:
            yield from self._edge(item, behind, "rw", element)

    def _edge(self, source: Item, target: Item, kind: str, element: str) -> Iterator[Edge]:
        if source.name == target.name:
            return
        given = ""
        if source.type is not _OK or target.type is not _OK:
            unsure = [
                item.name for item in (source, target)
                if item.type is not _OK and item.name not in self.seen
            ]  # fmt: skip
            if len(unsure) == 2:
                return
            given = "".join(unsure)
        yield Edge(_node(source), _node(target), f"{kind} {element} {self.key}", given)


_SHOWN = 5
"""How many elements a message shows of a list."""
_UNSEEN = 8
"""Of how many commits to a list that were not seen there the place is looked at."""


_BY_END = itemgetter(1, 0, 5)


def _extends(text: str, base: str) -> bool:
    """Return whether a list begins with another one."""
    return not base or text == base or text.startswith(base + " ")


def _node(item: Item) -> Node:
    return Node(item.begun, item.ended, item.name)
