"""What a task does with its part of a history, for the checks on Spark.

A task that reads files tells facts in columns, and sends them in parcels, one for each home: so
Spark moves few large rows and looks into none. A task that has a home screens its keys, and gives
those that are suspected to the same functions as in plain Python.
"""

from __future__ import annotations

import functools
from binascii import crc32
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jrs.records import keys
from jrs.testing.chaos.checking import jobs, screens, store
from jrs.testing.chaos.checking.columns import NONE, Columns, Flags, facts_of_table
from jrs.testing.chaos.checking.cycles import (
    Edge,
    Node,
    Stretch,
    back,
    edges_of,
    merged,
    stretch_of,
    tangled,
)
from jrs.testing.chaos.checking.facts import Absences, Anomaly, Facts, What, complete
from jrs.testing.chaos.checking.garbage import without_collections
from jrs.testing.chaos.checking.known_on_spark import Name, settled_table
from jrs.testing.chaos.checking.notes import Context, batch_of, files_of
from jrs.testing.chaos.checking.protocol import is_fenced
from jrs.testing.chaos.checking.stale_reads import contradictions
from jrs.testing.chaos.checking.traces import broken_rules
from jrs.testing.chaos.checking.watches import Watches
from jrs.testing.chaos.recorded import Call, Kind, Part, Verb

P = ParamSpec("P")
Batches = Iterable[pa.RecordBatch]

PARCELS = "home int, facts binary"
TOLD = "history string, what string, text string, names array<string>, first long, last long"
"""Anomalies, and what only the driver can evaluate: its `what` begins with ``_``."""
EDGES = (
    "history string, stretch long, source_begun long, source_ended long, source string, "
    "target_begun long, target_ended long, target string, why string"
)


def _without_collections(
    function: Callable[P, Iterator[pa.RecordBatch]],
) -> Callable[P, Iterator[pa.RecordBatch]]:
    """Let no garbage be looked for while a task runs."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Iterator[pa.RecordBatch]:
        with without_collections():
            yield from function(*args, **kwargs)

    return run


# -- telling facts ---------------------------------------------------------------------------


@_without_collections
def parcels_in(
    paths: Sequence[str], homes: int, known: Mapping[Name, int], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Yield what the operations of files tell of keys, in a parcel for each home."""
    for path in files_of(paths, batches):
        facts = facts_of_table(settled_table(pq.read_table(path), known))
        yield batch_of(list(_parcels(facts, homes)), PARCELS)


def _parcels(facts: pa.Table, homes: int) -> Iterator[tuple[int, pa.Buffer]]:
    names = facts["key"].combine_chunks().dictionary_encode()
    own = [crc32(jobs.job_of(name).encode()) % homes for name in names.dictionary.to_pylist()]
    home = np.array(own, np.int64)[np.array(names.indices)]
    order = np.argsort(home, kind="stable")
    facts = facts.take(pa.array(order)).combine_chunks()
    places = np.searchsorted(home[order], np.arange(homes + 1)).tolist()
    for number in range(homes):
        first, last = places[number], places[number + 1]
        if first < last:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, facts.schema, options=_SMALL) as stream:
                stream.write_table(facts.slice(first, last - first))
            yield number, sink.getvalue().to_pybytes()


_SMALL = pa.ipc.IpcWriteOptions(compression="lz4")


def _unpacked(batches: Batches) -> pa.Table | None:
    parcels = (parcel.as_buffer() for batch in batches for parcel in batch.column("facts"))
    tables = [pa.ipc.open_stream(parcel).read_all() for parcel in parcels]
    return pa.concat_tables(tables) if tables else None


# -- evaluating each key ------------------------------------------------------------------------


@_without_collections
def evaluate(context: Context, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield what is wrong with the keys of a home, and what only the driver can evaluate."""
    if (table := _unpacked(batches)) is not None:
        yield batch_of(list(told(context, Columns.of(table, context.absences))), TOLD)


_OF_JOBS = (*jobs.JUDGED, keys.STAGES)


def told(context: Context, facts: Columns) -> Iterator[tuple[Any, ...]]:
    """Yield what is wrong with keys, in the form of `TOLD`."""

    def said(check: str, found: Iterable[Anomaly]) -> Iterator[tuple[Any, ...]]:
        for text, names in found:
            yield history, check, text, list(names), None, None

    checks, known = context.checks, screens.seen(facts)
    nothing = np.zeros(len(facts.keys), bool)
    contradicted = screens.contradicted(facts, known) if "linearizable" in checks else nothing
    late = screens.late(facts, known, context.leads) if "fenced" in checks else nothing
    backwards = screens.backwards(facts, known) if "serializable" in checks else nothing
    of_jobs = ruled = nothing
    if checks & {"once_per_job", "once_per_stage", "nothing_lost"}:
        of_jobs = np.array([name.startswith(_OF_JOBS) for _, name in facts.keys], bool)
    if "protocol" in checks:
        ruled = _ruled(facts)
    suspected = contradicted | late | backwards | of_jobs | ruled
    for history, some in _exactly(facts, suspected, context.absences):
        for key, exact in some(contradicted):
            yield from said("linearizable", contradictions(key, exact))
        for _, exact in some(late):
            for name, number, own in context.leads[history].late(exact):
                yield history, "_late", "", [name], number, own
        yield from _backwards(history, dict(some(backwards)))
        evaluated = dict(some(of_jobs))
        if "once_per_job" in checks:
            attempts = context.attempts.get(history, ())
            yield from said("once_per_job", jobs.results_of(evaluated, attempts))
        if "once_per_stage" in checks:
            yield from said("once_per_stage", jobs.stages_of(evaluated))
        if "nothing_lost" in checks:
            yield from said("nothing_lost", jobs.losses_of(evaluated))
        yield from said("protocol", broken_rules(dict(some(ruled))))
    if "outcomes" in checks:
        for history, name in facts.named(screens.denied(facts)):
            yield history, "_denied", "", [name], None, None


def _ruled(facts: Columns) -> Flags:
    """Return the keys that `traces.broken_rules` looks at: those of jobs, whose commits are checked
    together, and those that are written without a fence."""
    bare = np.zeros(len(facts.keys), bool)
    bare[facts.key[(facts.what == What.WRITE) & (facts.epoch == NONE)]] = True
    return np.array(
        [
            key.startswith(keys.PER_JOB) or (without_fence and is_fenced(key))
            for (_, key), without_fence in zip(facts.keys, bare.tolist(), strict=True)
        ],
        bool,
    )


_NO_PAGES = Absences({})
_Some = Callable[[Flags], Iterator[tuple[str, list[Any]]]]


def _exactly(
    facts: Columns, suspected: Flags, absences: Mapping[str, Absences]
) -> Iterator[tuple[str, _Some]]:
    """Yield for each history a function that returns the facts of some of the suspected keys."""
    numbers = {facts.keys[number]: number for number in np.flatnonzero(suspected).tolist()}
    for history, found in facts.facts(suspected).items():
        for key, some in found.items():
            complete(key, some, absences.get(history, _NO_PAGES))

        def of(
            keys: Flags, history: str = history, found: Facts = found
        ) -> Iterator[tuple[str, list[Any]]]:
            return ((key, some) for key, some in found.items() if keys[numbers[history, key]])

        yield history, of


@_without_collections
def outcomes_in(
    names: Mapping[str, set[str]], absences: Mapping[str, Absences], batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Yield what the keys of a home tell of some commits of unknown outcome."""
    if (table := _unpacked(batches)) is None:
        return
    facts = Columns.of(table)
    unanswered = (facts.what == What.WRITE) & facts.unanswered
    own = zip(facts.key[unanswered].tolist(), facts.named(unanswered), strict=True)
    suspected = np.zeros(len(facts.keys), bool)
    suspected[[key for key, (history, name) in own if name in names.get(history, ())]] = True
    rows = [
        (history, "_outcome", key, [name], int(shown), None)
        for history, some in _exactly(facts, suspected, absences)
        for key, exact in some(suspected)
        for name, shown in store.outcomes_of(exact, names[history])
    ]
    yield batch_of(rows, TOLD)


# -- watches ---------------------------------------------------------------------------------


@_without_collections
def unreported_in(
    paths: Sequence[str],
    watches: Mapping[str, Watches],
    known: Mapping[Name, int],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """Yield the changes in files that a watch should have reported."""
    rows = [
        (history, "watched", text, list(names), None, None)
        for path in files_of(paths, batches)
        for history, call in _changes(path, watches, known)
        for text, names in watches[history].unreported(call)
    ]
    yield batch_of(rows, TOLD)


_OF_COMMITS = ["history", "process", "seq", "begun", "ended"]


def _changes(
    path: str, watches: Mapping[str, Watches], known: Mapping[Name, int]
) -> Iterator[tuple[str, Call]]:
    """Yield the accepted commits of a file that change what is watched, with those changes."""
    commits = pc.field("f") == Verb.COMMIT.value
    table = pq.read_table(path, columns=[*_OF_COMMITS, "type", "parts"], filters=commits)
    table = settled_table(table, known).filter(pc.field("type") == Kind.OK.value)
    table = table.select([*_OF_COMMITS, "parts"])
    parts = table["parts"].combine_chunks()
    own = np.array(pc.list_parent_indices(parts))
    kind, key, _, _ = parts.flatten().flatten()
    names = key.dictionary_encode()
    prefixes = tuple({prefix for one in watches.values() for prefix in one.prefixes})
    under = np.array([name.startswith(prefixes) for name in names.dictionary.to_pylist()], bool)
    writes = np.isin(np.array(kind), (Part.CREATE, Part.UPDATE, Part.DELETE))
    rows = np.flatnonzero(writes & under[np.array(names.indices)])
    commits = table.drop_columns(["parts"]).take(pa.array(own[rows]))
    changes = zip(*(column.to_pylist() for column in commits.columns), strict=True)
    for (history, process, seq, begun, ended), number in zip(changes, rows.tolist(), strict=True):
        if history in watches:
            part = ["update", key[number].as_py()]
            yield history, Call(process, seq, Verb.COMMIT, begun, ended, Kind.OK, value=[part])


# -- cycles ----------------------------------------------------------------------------------


def _backwards(history: str, facts: Facts) -> Iterator[tuple[Any, ...]]:
    """Yield over which stretches edges lead back in time."""
    edges = (edge for some in facts.values() for edge in edges_of(some))
    for first, last in merged(filter(None, map(back, edges))):
        yield history, "_back", "", [], first, last


@_without_collections
def edges_within(
    stretches: Mapping[str, list[Stretch]],
    absences: Mapping[str, Absences],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """Yield the edges of the keys of a home that lie in a stretch."""
    if (table := _unpacked(batches)) is None:
        return
    facts = Columns.of(table, absences)
    suspected = screens.within(facts, stretches)
    for history, of_keys in _exactly(facts, suspected, absences):
        found = stretches.get(history, [])
        begins = [first for first, _ in found]
        rows: list[tuple[Any, ...]] = []
        for _, some in of_keys(suspected) if found else ():
            for edge in edges_of(some):
                if (number := stretch_of(edge, found, begins)) is not None:
                    rows.append((history, number, *edge.source, *edge.target, edge.why))
        yield batch_of(rows, EDGES)


@_without_collections
def tangles_in(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield the cycles of the stretches of a partition."""
    within: dict[tuple[str, int], list[Edge]] = defaultdict(list)
    for batch in batches:
        for history, number, *edge in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            source, target = Node(*edge[:3]), Node(*edge[3:6])
            within[history, number].append(Edge(source, target, edge[6]))
    rows = [
        (history, "serializable", text, list(names), None, None)
        for (history, _), edges in sorted(within.items())
        for text, names in tangled(edges)
    ]
    yield batch_of(rows, TOLD)
