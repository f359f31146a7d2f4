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
from jrs.testing.chaos.checking import jobs, store, watches
from jrs.testing.chaos.checking.facts import Absences, Page
from jrs.testing.chaos.recorded import Call, Event, Kind, Verb

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
    """Yield the last event of each process of a file, as a sign of life if it has given one; the
    first and the last sign of each attempt that runs in a process among others; and the first
    commit of a process that names a job's fence."""
    table = pq.read_table(path, columns=["history", "process", "seq", "f", "begun", "ended", "key",
                                         "version", "epoch", "error", "parts"])  # fmt: skip
    last = pc.max_element_wise(table["begun"], table["ended"])
    signs = pc.equal(table["f"], Verb.ALIVE.value)
    among = pc.and_(signs, pc.greater(pc.utf8_length(pc.fill_null(table["key"], "")), 0))
    lives = pa.table(
        {
            "history": table["history"],
            "process": table["process"],
            "key": pc.if_else(among, table["key"], ""),
            "version": pc.if_else(among, table["version"], None),
            "epoch": pc.if_else(among, table["epoch"], None),
            "seq": table["seq"],
            "begun": table["begun"],
            "last": last,
            "alive": signs,
        }
    ).group_by(["history", "process", "key", "version", "epoch"])
    for row in lives.aggregate(
        [("seq", "min"), ("begun", "min"), ("last", "max"), ("alive", "max")]
    ).to_pylist():
        f = Verb.ALIVE if row["alive_max"] else Verb.NOTICE
        yield (row["history"], f.value, row["process"], row["seq_min"], row["begun_min"],
               row["last_max"], row["key"], None, None, row["version"], row["epoch"])  # fmt: skip
    table = table.drop_columns(["key", "version"])

    parts = table["parts"].combine_chunks()
    _, key, _, _ = parts.flatten().flatten()
    checks = np.flatnonzero(pc.starts_with(key, keys.FENCES))[::-1]
    own = np.array(pc.list_parent_indices(parts))[checks]
    commits = table.drop_columns(["parts"]).take(pa.array(own))
    commits = commits.append_column("key", key.take(pa.array(checks)))
    commits = commits.filter(pc.and_(pc.equal(commits["f"], Verb.COMMIT.value),
                                     pc.not_equal(commits["error"], jobs.SHUT_OUT)))  # fmt: skip
    first: dict[tuple[str, str], tuple[Any, ...]] = {}
    for row in commits.sort_by([("begun", "ascending"), ("seq", "ascending")]).to_pylist():
        note = (row["history"], row["f"], row["process"], row["seq"], row["begun"], row["ended"],
                row["key"], None, None, None, row["epoch"])  # fmt: skip
        first.setdefault((row["history"], row["process"]), note)
    yield from first.values()


def watches_in(paths: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events of files that tell of watches, and of the harm that they may wait for."""
    for path in files_of(paths, batches):
        some = pc.field("f").isin([verb.value for verb in watches.Watches.EVENTS])
        table = pq.read_table(path, columns=_OF_WATCHES, filters=some)
        rows: list[tuple[Any, ...]] = []
        for *row, parts in zip(*(column.to_pylist() for column in table.columns), strict=True):
            names = [part["key"] for part in parts]
            rows.append((*row, [name for name in names if name], int("" in names)))
        yield batch_of(rows, WATCHES)


WATCHES = (
    "history string, process string, seq long, f string, begun long, key string, version long, "
    "names array<string>, anything int"
)
"""Events of watches and nemeses; `anything`: a watch said that anything may have changed."""
_OF_WATCHES = ["history", "process", "seq", "f", "begun", "key", "version", "parts"]


def watches_of(noted: pa.Table) -> dict[str, watches.Watches]:
    """Return the watches of each history."""
    events: dict[str, list[Event]] = defaultdict(list)
    for history, process, seq, f, t, key, version, names, anything in zip(
        *(column.to_pylist() for column in noted.sort_by("begun").columns), strict=True
    ):
        value = None if anything else names
        events[history].append(Event(process, seq, Kind.INFO, Verb(f), t, key, value, version))
    return {history: watches.Watches(some) for history, some in events.items()}


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
    """Return the attempts, by history."""
    last: dict[str, dict[str, int]] = defaultdict(dict)
    in_threads: dict[str, dict[tuple[str, str, int], jobs.RunningAttempt]] = defaultdict(dict)
    for f in (Verb.ALIVE, Verb.NOTICE):
        for history, process, seq, begun, ended, key, version, epoch in _noted(
            notes, f, "process", "seq", "begun", "ended", "key", "version", "epoch"
        ):
            if key:
                made = jobs.RunningAttempt(
                    process, key, epoch or 0, begun, ended, f"{process}#{seq}"
                )
                other = in_threads[history].setdefault((process, key, version), made)
                first = min(made, other, key=lambda one: one.begun)
                longest = max(made.ended, other.ended)
                in_threads[history][process, key, version] = attrs.evolve(first, ended=longest)
            elif f is Verb.ALIVE or process in last[history]:
                last[history][process] = max(ended, last[history].get(process, ended))
    calls: dict[str, list[Call]] = defaultdict(list)
    for history, process, seq, begun, key, epoch in _noted(
        notes, Verb.COMMIT, "process", "seq", "begun", "key", "epoch"
    ):
        if process in last[history]:
            commit = process, seq, Verb.COMMIT, begun, begun, Kind.INFO
            parts = [["check", key, None]]
            calls[history].append(Call(*commit, value=parts, epoch=epoch))
    return {
        history: jobs.attempts_in(calls[history], last[history], in_threads[history].values())
        for history in {*calls, *in_threads}
    }
