"""Facts as columns: what the operations of a table tell of each key, without an object for each.

The rows say the same as `facts.facts_of_call`; a test compares the two. Only of the keys that a
screen suspects are they made into `Fact`.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.checking.facts import ANY, Absences, Fact, Facts, Page, What
from jrs.testing.chaos.recorded import FOREVER, Kind, Part, Verb

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ABSENT = -2
"""In columns, the state of a key that is not there; `ANY` is a state, too."""
NONE = -1
"""In columns, that a fact has no epoch, and no number among many reads."""
_PAGES = 1_000
"""How many pages are looked at in columns, for each key."""

# -- from operations to facts ----------------------------------------------------------------


def facts_of_table(operations: pa.Table) -> pa.Table:
    """Return what the operations of a table tell of keys, once those that are known to have
    happened are settled; checks of the epoch are thinned out."""
    parts = _whole(operations["parts"])
    kind, key, digest, version = parts.flatten().flatten()
    parent = _ints(pc.list_parent_indices(parts))
    answer = operations["type"]
    failed = _flags(pc.equal(answer, Kind.FAIL.value))[parent]
    what, state = _told(_ints(kind), _ints(version, ANY), answer, parent, failed)
    refused = np.flatnonzero(failed & (state != ANY))
    refused = refused[_named(key, operations["error"], parent, refused)]

    told = np.flatnonzero(what)
    told = told[~_thin(operations, key, what, state, parent, told)]
    rows = np.concatenate([told, refused])
    refusals = np.full(len(refused), What.REFUSED, np.int8)
    what, state = np.concatenate([what[told], refusals]), state[rows]
    state[what == What.NOT_WRITTEN] = ANY
    own = parent[rows]
    written = (what == What.WRITE) | (what == What.READ) | (what == What.NOT_WRITTEN)
    certain = _flags(pc.not_equal(answer, Kind.INFO.value))[own]
    ended = np.where(certain, _ints(operations["ended"], FOREVER)[own], FOREVER)
    number = rows - _ints(_whole(parts.offsets))[own]
    number[~_flags(pc.equal(operations["f"], Verb.GET_MANY.value))[own]] = NONE
    epoch = _ints(operations["epoch"], NONE)[own]
    epoch[what != What.WRITE] = NONE
    of = pa.array(own)
    return pa.table(
        {
            "history": operations["history"].take(of),
            "key": key.take(pa.array(rows)),
            "begun": _ints(operations["begun"])[own],
            "ended": ended,
            "what": what,
            "state": state,
            "digest": pc.if_else(pa.array(written), digest.take(pa.array(rows)), None),
            "process": operations["process"].take(of),
            "seq": operations["seq"].take(of),
            "number": number.astype(np.int32),
            "sure": certain,
            "unanswered": operations["unanswered"].take(of),
            "epoch": epoch,
        }
    )


def _told(
    kinds: Ints, state: Ints, answer: pa.ChunkedArray, parent: Ints, failed: Flags
) -> tuple[npt.NDArray[np.int8], Ints]:
    """Return what each part of the operations tells of its key, 0 if nothing, and of which
    state."""
    ok, unknown = (_flags(pc.equal(answer, one.value))[parent] for one in (Kind.OK, Kind.INFO))
    reads = kinds == Part.READ
    conditions = (kinds == Part.CHECK) | (kinds == Part.ABSENT)
    values = (kinds == Part.CREATE) | (kinds == Part.UPDATE)
    writes = values | (kinds == Part.DELETE)

    what = np.zeros(len(kinds), np.int8)
    what[reads] = What.READ
    what[conditions & ok] = What.CHECK
    what[conditions & unknown] = What.ASKED
    what[writes & ~failed] = What.WRITE
    what[values & failed] = What.NOT_WRITTEN
    state[(reads | conditions & ok) & (state == ANY)] = ABSENT
    state[(kinds == Part.CREATE) | (kinds == Part.ABSENT)] = ABSENT
    return what, state


def _named(key: pa.Array, error: pa.ChunkedArray, parent: Ints, some: Ints) -> Flags:
    """Return which of some parts have the key because of which their commit was refused."""
    errors = error.take(pa.array(parent[some]))
    return _flags(pc.equal(pc.replace_substring_regex(errors, "^[^ ]* ?", ""),
                           key.take(pa.array(some))))  # fmt: skip


def _thin(
    operations: pa.Table, key: pa.Array, what: npt.NDArray[np.int8], state: Ints, parent: Ints,
    told: Ints,
) -> Flags:  # fmt: skip
    """Return which of some parts are checks of the epoch that prove nothing more than others do,
    as `facts.thinned` does."""
    checks = what[told] == What.CHECK
    checks[checks] = _flags(pc.equal(key.take(pa.array(told[checks])), EPOCH_KEY))
    some = told[checks]
    own = parent[some]
    history = _ints(_whole(operations["history"]).dictionary_encode().indices)[own]
    begun, ended = _ints(operations["begun"])[own], _ints(operations["ended"])[own]
    kept = np.zeros(len(some), bool)
    for times in ((ended, begun), (-begun, -ended)):
        order = np.lexsort((times[1], times[0], state[some], history))
        same = np.zeros(len(some), bool)
        same[1:] = (np.diff(history[order]) == 0) & (np.diff(state[some][order]) == 0)
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(some))))
        kept[order] |= np.logical_and.reduce([at[order] == at[order][first] for at in times])
    thin = np.zeros(len(told), bool)
    thin[checks] = ~kept
    return thin


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _ints(column: pa.ChunkedArray | pa.Array, null: int = 0) -> Ints:
    return np.array(pc.fill_null(column, null), dtype=np.int64)


def _flags(column: pa.ChunkedArray | pa.Array) -> Flags:
    return np.array(pc.fill_null(column, False), dtype=bool)


# -- the facts of many keys ------------------------------------------------------------------


@attrs.frozen(slots=False, eq=False)
class Columns:
    """Facts of many keys.

    Attributes:
        table: as `facts_of_table` returns it.
        row: the rows of the table, those of a key together, in the order of the table. All other
            columns are in this order, and behind them are the absences that pages tell of.
        keys: the names of the history and of the key, by the numbers of keys.
        key: the number of the key, by rows.
    """

    table: pa.Table
    row: Ints
    keys: Sequence[tuple[str, str]]
    key: Ints
    begun: Ints
    ended: Ints
    what: npt.NDArray[np.int8]
    state: Ints
    digest: Ints
    valued: Flags
    """Whether there is a digest."""
    sure: Flags
    unanswered: Flags
    """Whether the operation got no answer, and is known to have happened."""
    epoch: Ints
    wanting: Flags
    """By keys: more pages had room for the key, in its time, than are looked at here."""
    paged: Flags
    """By keys: a page may have had room for the key. Those that began before all that is known of
    the key are not here, for the key may well have been absent then; and of those that began when
    all that had ended, there is one, for they all tell the same."""

    @classmethod
    def of(cls, table: pa.Table, absences: Mapping[str, Absences] | None = None) -> Columns:
        """Return the facts of a table, with what pages tell by lacking a key."""
        keys, key = _numbered(table)
        few = len(keys) < 1 << 16
        row = np.argsort(key.astype(np.uint16) if few else key, kind="stable")  # A faster sort.
        columns = cls(
            table=table,
            row=row,
            keys=keys,
            key=key[row],
            begun=_ints(table["begun"])[row],
            ended=_ints(table["ended"])[row],
            what=_ints(table["what"]).astype(np.int8)[row],
            state=_ints(table["state"])[row],
            digest=_ints(table["digest"])[row],
            valued=_flags(pc.is_valid(table["digest"]))[row],
            sure=_flags(table["sure"])[row],
            unanswered=_flags(table["unanswered"])[row],
            epoch=_ints(table["epoch"])[row],
            wanting=np.zeros(len(keys), bool),
            paged=np.zeros(len(keys), bool),
        )
        return columns._with(absences) if absences else columns

    def _with(self, absences: Mapping[str, Absences]) -> Columns:
        """Return the same, with the pages that lack a key as reads that found it absent."""
        rooms = self._rooms(absences)
        paged, wanting = np.zeros((2, len(self.keys)), bool)
        paged[list(rooms)] = True
        wanting[[number for number, pages in rooms.items() if len(pages) > _PAGES]] = True
        shown = self._shown(np.unique([page.begun for pages in rooms.values() for page in pages]))
        lacking = [
            (number, page.begun, page.ended)
            for number, pages in rooms.items()
            for page in pages
            if (number, page.name) not in shown
        ]
        key, begun, ended = np.array(lacking, np.int64).reshape(-1, 3).T
        more = len(lacking)
        return attrs.evolve(
            self,
            key=np.append(self.key, key),
            begun=np.append(self.begun, begun),
            ended=np.append(self.ended, ended),
            what=np.append(self.what, np.full(more, What.READ, np.int8)),
            state=np.append(self.state, np.full(more, ABSENT)),
            digest=np.append(self.digest, np.zeros(more, np.int64)),
            valued=np.append(self.valued, np.zeros(more, bool)),
            sure=np.append(self.sure, np.ones(more, bool)),
            unanswered=np.append(self.unanswered, np.zeros(more, bool)),
            epoch=np.append(self.epoch, np.full(more, NONE)),
            wanting=wanting,
            paged=paged,
        )

    def _rooms(self, absences: Mapping[str, Absences]) -> dict[int, list[Page]]:
        """Return the pages that had room for a key in its time, of those keys that any may have
        had room for; of too many, one too many."""
        starts = np.searchsorted(self.key, np.arange(len(self.keys)))
        firsts = np.minimum.reduceat(self.begun, starts).tolist()
        ended = np.where(self.ended == FOREVER, self.begun, self.ended)
        lasts = np.maximum.reduceat(ended, starts).tolist()
        found = {}
        for number, (history, name) in enumerate(self.keys):
            of_history = absences.get(history)
            if of_history is not None and of_history.any_room(name):
                some = of_history.room(name, firsts[number], lasts[number])
                found[number] = list(islice(some, _PAGES + 1))
        return found

    def _shown(self, begins: Ints) -> set[tuple[int, str]]:
        """Return the key and the operation of reads that began at some moments, as pages did."""
        if not len(begins):
            return set()
        reads = np.flatnonzero(self.what == What.READ)
        place = np.searchsorted(begins, self.begun[reads]) % len(begins)
        reads = reads[begins[place] == self.begun[reads]]
        return set(zip(self.key[reads].tolist(), self._names(reads), strict=True))

    @functools.cached_property
    def by_history(self) -> dict[str, Ints]:
        """The rows of each history."""
        names = {history: number for number, (history, _) in enumerate(self.keys)}
        number = np.array([names[history] for history, _ in self.keys], np.int64)[self.key]
        order = np.argsort(number, kind="stable")
        ends = np.searchsorted(number[order], sorted(names.values()), "right")
        ordered = sorted(names, key=names.__getitem__)
        return dict(zip(ordered, np.split(order, ends[:-1]), strict=True))

    def _names(self, rows: Ints) -> list[str]:
        some = self.table.select(["process", "seq", "number"]).take(pa.array(self.row[rows]))
        columns = (column.to_pylist() for column in some.columns)
        return [
            f"{process}#{seq}" if number == NONE else f"{process}#{seq}:{number}"
            for process, seq, number in zip(*columns, strict=True)
        ]

    def named(self, rows: Flags) -> Iterable[tuple[str, str]]:
        """Yield the history and the operation of some rows, which are those of operations."""
        numbers = np.flatnonzero(rows)
        for key, name in zip(self.key[numbers].tolist(), self._names(numbers), strict=True):
            yield self.keys[key][0], name

    def facts(self, keys: Flags) -> dict[str, Facts]:
        """Return what operations tell of some keys, by history."""
        found: dict[str, Facts] = defaultdict(lambda: defaultdict(list))
        rows = np.flatnonzero(keys[self.key[: len(self.row)]])
        columns = (self.begun, self.ended, self.what, self.state, self.digest, self.valued,
                   self.sure, self.epoch, self.key)  # fmt: skip
        lists = (column[rows].tolist() for column in columns)
        for name, begun, ended, what, state, digest, valued, sure, epoch, key in zip(
            self._names(rows), *lists, strict=True
        ):
            history, of = self.keys[key]
            fact = Fact(
                begun,
                ended,
                _WHAT[what],
                None if state == ABSENT else state,
                f"{digest & _ALL:016x}" if valued else None,
                name,
                sure,
                None if epoch == NONE else epoch,
            )
            found[history][of].append(fact)
        return found


_WHAT = {what.value: what for what in What}
_ALL = (1 << 64) - 1


def _numbered(table: pa.Table) -> tuple[list[tuple[str, str]], Ints]:
    """Return the histories and keys of a table, and the number of each row's."""
    histories = _whole(table["history"]).dictionary_encode()
    keys = _whole(table["key"]).dictionary_encode()
    names, titles = keys.dictionary.to_pylist(), histories.dictionary.to_pylist()
    number = _ints(keys.indices)
    if len(titles) == 1:
        return [(titles[0], name) for name in names], number
    both, number = np.unique(_ints(histories.indices) * len(names) + number, return_inverse=True)
    return [(titles[one // len(names)], names[one % len(names)]) for one in both.tolist()], number
