"""What every task of the checks on Spark has to know of a history: it is small, and noted first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jrs.records import keys
from jrs.testing.chaos.checking import jobs, store
from jrs.testing.chaos.checking.facts import Absences, Page
from jrs.testing.chaos.recorded import Call, Event, Kind, Part, Verb

NOTES = (
    "history string, f string, process string, seq long, begun long, ended long, key string, "
    "after string, until string, version long, epoch long"
)
"""Leaderships, pages, and of an attempt its first commit and its last sign of life."""
PAGES = 200_000
"""Of how many pages the absences are looked for; of more pages, of a sample."""


@attrs.frozen
class Context:
    """What every task has to know, by history."""

    checks: set[str]
    leads: Mapping[str, store.Leads]
    absences: Mapping[str, Absences]
    attempts: Mapping[str, list[jobs.RunningAttempt]]

    @classmethod
    def of(cls, checks: set[str], notes: pa.Table) -> Context:
        """Return what was noted, for some checks."""
        leads: dict[str, list[Call]] = defaultdict(list)
        for history, process, seq, begun, ended, key, version, epoch in _noted(
            notes, Verb.CAMPAIGN, "process", "seq", "begun", "ended", "key", "version", "epoch"
        ):
            leads[history].append(
                Call(process, seq, Verb.CAMPAIGN, begun, ended, Kind.OK, key, None, version, epoch)
            )
        return cls(
            checks=checks,
            leads={history: store.Leads(calls) for history, calls in leads.items()},
            absences=_absences(notes),
            attempts=_attempts(notes),
        )


# -- reading files ---------------------------------------------------------------------------


def batch_of(rows: list[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    """Return rows as a batch with the columns of a schema of Spark."""
    types = {"string": pa.string(), "long": pa.int64(), "int": pa.int32(), "binary": pa.binary(),
             "array<string>": pa.list_(pa.string())}  # fmt: skip
    fields = [field.split() for field in schema.split(", ")]
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [[]] * len(fields)
    arrays = [pa.array(column, types[of]) for (_, of), column in zip(fields, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in fields])


def files_of(paths: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """Yield the paths whose numbers a task has got."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield paths[number]


def notes_in(
    paths: Sequence[str], attempts: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the leaderships and pages of files, and what they tell of attempts."""
    names = [field.split()[0] for field in NOTES.split(", ")]
    some = pc.field("f").isin([Verb.CAMPAIGN.value, Verb.SCAN.value])
    some &= pc.field("type") == Kind.OK.value
    for path in files_of(paths, batches):
        yield from pq.read_table(path, columns=names, filters=some).to_batches()
        if attempts:
            yield batch_of(list(_of_attempts(path)), NOTES)


def _of_attempts(path: str) -> Iterator[tuple[Any, ...]]:
    """Yield the last event of each process of a file, as a sign of life if it has given one; and
    its first commit that checks a job's fence."""
    table = pq.read_table(path, columns=["history", "process", "seq", "f", "begun", "ended",
                                         "epoch", "parts"])  # fmt: skip
    last = pc.max_element_wise(table["begun"], table["ended"])
    table = table.append_column("last", last)
    alive = table.append_column("alive", pc.equal(table["f"], Verb.ALIVE.value))
    processes = alive.group_by(["history", "process"]).aggregate(
        [("last", "max"), ("alive", "max")]
    )
    for row in processes.to_pylist():
        f = Verb.ALIVE if row["alive_max"] else Verb.NOTICE
        yield (row["history"], f.value, row["process"], None, None, row["last_max"], *[None] * 5)

    parts = table["parts"].combine_chunks()
    kind, key, _, _ = parts.flatten().flatten()
    checks = np.flatnonzero(
        np.array(pc.equal(kind, int(Part.CHECK))) & np.array(pc.starts_with(key, keys.FENCES))
    )[::-1]
    own = np.array(pc.list_parent_indices(parts))[checks]
    commits = table.drop_columns(["parts"]).take(pa.array(own))
    commits = commits.append_column("key", key.take(pa.array(checks)))
    first: dict[tuple[str, str], tuple[Any, ...]] = {}
    for row in commits.sort_by([("begun", "ascending"), ("seq", "ascending")]).to_pylist():
        note = (row["history"], row["f"], row["process"], row["seq"], row["begun"], row["ended"],
                row["key"], None, None, None, row["epoch"])  # fmt: skip
        first.setdefault((row["history"], row["process"]), note)
    yield from first.values()


def watches_in(paths: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events of files that tell of watches, and of the harm that they may wait for."""
    for path in files_of(paths, batches):
        some = pc.field("f").isin([verb.value for verb in store.Watches.EVENTS])
        table = pq.read_table(path, columns=_OF_WATCHES, filters=some)
        rows: list[tuple[Any, ...]] = []
        for *row, parts in zip(*(column.to_pylist() for column in table.columns), strict=True):
            names = [part["key"] for part in parts]
            rows.append((*row, [name for name in names if name], int("" in names)))
        yield batch_of(rows, WATCHES)


WATCHES = (
    "history string, process string, seq long, f string, begun long, key string, "
    "names array<string>, anything int"
)
"""Events of watches and nemeses; `anything`: a watch said that anything may have changed."""
_OF_WATCHES = ["history", "process", "seq", "f", "begun", "key", "parts"]


def watches_of(noted: pa.Table) -> dict[str, store.Watches]:
    """Return the watches of each history."""
    events: dict[str, list[Event]] = defaultdict(list)
    for history, process, seq, f, t, key, names, anything in zip(
        *(column.to_pylist() for column in noted.sort_by("begun").columns), strict=True
    ):
        value = None if anything else names
        events[history].append(Event(process, seq, Kind.INFO, Verb(f), t, key, value))
    return {history: store.Watches(some) for history, some in events.items()}


# -- what has been noted ---------------------------------------------------------------------


def _noted(notes: pa.Table, f: Verb, *columns: str) -> Iterable[tuple[Any, ...]]:
    """Return the histories and some columns of the notes of a kind."""
    some = notes.filter(pc.equal(notes["f"], f.value)).select(["history", *columns])
    return zip(*(column.to_pylist() for column in some.columns), strict=True)


def _absences(notes: pa.Table) -> dict[str, Absences]:
    pages = notes.filter(pc.equal(notes["f"], Verb.SCAN.value))
    if len(pages) > PAGES:
        share = len(pages) // PAGES + 1
        pages = pages.filter(pa.array(np.array(pages["begun"]) % share == 0))
    found: dict[str, dict[str, list[Page]]] = defaultdict(lambda: defaultdict(list))
    for history, process, seq, begun, ended, prefix, after, until in _noted(
        pages, Verb.SCAN, "process", "seq", "begun", "ended", "key", "after", "until"
    ):
        page = Page(begun, ended, f"{process}#{seq}", after or "", until)
        found[history][prefix].append(page)
    return {history: Absences(some) for history, some in found.items()}


def _attempts(notes: pa.Table) -> dict[str, list[jobs.RunningAttempt]]:
    """Return the attempts that ran in processes of their own, by history."""
    last: dict[str, dict[str, int]] = defaultdict(dict)
    for history, process, ended in _noted(notes, Verb.ALIVE, "process", "ended"):
        last[history][process] = max(ended, last[history].get(process, ended))
    for history, process, ended in _noted(notes, Verb.NOTICE, "process", "ended"):
        if process in last[history]:
            last[history][process] = max(ended, last[history][process])
    calls: dict[str, list[Call]] = defaultdict(list)
    for history, process, seq, begun, key, epoch in _noted(
        notes, Verb.COMMIT, "process", "seq", "begun", "key", "epoch"
    ):
        if process in last[history]:
            commit = process, seq, Verb.COMMIT, begun, begun, Kind.INFO
            parts = [["check", key, None]]
            calls[history].append(Call(*commit, value=parts, epoch=epoch))
    return {history: jobs.attempts_in(some, last[history]) for history, some in calls.items()}
