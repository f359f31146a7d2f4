"""What a task does with its part of a history, for the checks on Spark."""

from __future__ import annotations

import functools
import gc
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec

import attrs

from jrs.contract.operations import EPOCH_KEY
from jrs.testing.chaos.checking import jobs, store
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
from jrs.testing.chaos.checking.facts import (
    Absences,
    Fact,
    Facts,
    Finding,
    What,
    complete,
    facts_of_call,
    thinned,
)
from jrs.testing.chaos.checking.registers import contradictions, happened
from jrs.testing.chaos.recorded import FOREVER, OPERATIONS, Call, Kind

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
Batches = Iterable["pa.RecordBatch"]

FACTS = (
    "history string, key string, begun long, ended long, what int, state long, digest string, "
    "name string, sure boolean, epoch long"
)
TOLD = "history string, what string, text string, names array<string>, first long, last long"
"""Findings, and what only the driver can judge: its `what` begins with ``_``."""
EDGES = (
    "history string, stretch long, source_begun long, source_ended long, source string, "
    "target_begun long, target_ended long, target string, why string"
)


@attrs.frozen
class Context:
    """What every task has to know, by history."""

    checks: set[str]
    leads: Mapping[str, store.Leads]
    absences: Mapping[str, Absences]
    attempts: Mapping[str, list[jobs.RunningAttempt]]


def _without_collections(
    function: Callable[P, Iterator[pa.RecordBatch]],
) -> Callable[P, Iterator[pa.RecordBatch]]:
    """Let no garbage be looked for while a task runs: it makes millions of tuples, and no cycles of
    references."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> Iterator[pa.RecordBatch]:
        gc.disable()
        try:
            yield from function(*args, **kwargs)
        finally:
            gc.enable()

    return run


# -- what is known of each key ---------------------------------------------------------------


@_without_collections
def facts_in(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield what operations tell of keys; checks of the epoch are thinned out."""
    epochs: dict[str, list[Fact]] = defaultdict(list)
    open_calls: dict[tuple[str, str, int], list[Any]] = {}
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        for history, call in _calls(batch, open_calls):
            for key, fact in facts_of_call(call):
                if key == EPOCH_KEY:
                    epochs[history].append(fact)
                else:
                    rows.append((history, key, *fact))
        for history, some in epochs.items():
            epochs[history] = thinned(some)
        yield _batch(rows, FACTS)
    rest = [
        (history, key, *fact)
        for (history, _, _), begun in open_calls.items()
        for key, fact in facts_of_call(_call(begun, None))
    ]
    rest += [(history, EPOCH_KEY, *fact) for history, some in epochs.items() for fact in some]
    yield _batch(rest, FACTS)


_KINDS = {kind.value: kind for kind in Kind}
_VERBS = {verb.value: verb for verb in OPERATIONS}
_EVENT = ("history", "process", "seq", "type", "f", "key", "value", "version", "epoch", "t",
          "error")  # fmt: skip


def _calls(
    batch: pa.RecordBatch, open_calls: dict[tuple[str, str, int], list[Any]]
) -> Iterator[tuple[str, Call]]:
    columns = [batch.column(name).to_pylist() for name in _EVENT]
    for history, process, seq, kind, *rest in zip(*columns, strict=True):
        if rest[0] not in _VERBS:
            continue
        operation = history, process, seq
        if kind == "invoke":
            open_calls[operation] = [process, seq, *rest]
        elif (begun := open_calls.pop(operation, None)) is not None:
            yield history, _call(begun, [kind, *rest])
        else:
            raise ValueError(
                f"the answer of {process}#{seq} is in another row group than its question: "
                "make the table with to_parquet"
            )


def _call(begun: list[Any], ended: list[Any] | None) -> Call:
    """Return an operation, like `recorded.calls_of`."""
    process, seq, f, key, value, version, epoch, t, _ = begun
    if ended is None:
        kind, end, error = Kind.INFO, FOREVER, ""
    else:
        kind, _, _, read, read_version, read_epoch, end, error = (
            _KINDS[ended[0]], *ended[1:],
        )  # fmt: skip
        end = FOREVER if kind is Kind.INFO else end
        value = read if value is None else value
        version = read_version if version is None else version
        epoch = read_epoch if epoch is None else epoch
    if value is not None:
        plain = value[0] == '"' and "\\" not in value  # As a digest is.
        value = value[1:-1] if plain else json.loads(value)
    return Call(
        process, seq, _VERBS[f], t, end, kind, key or "", value, version, epoch, error or ""
    )


def _batch(rows: list[tuple[Any, ...]], schema: str) -> pa.RecordBatch:
    import pyarrow as pa

    types = {"string": pa.string(), "long": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(),
             "array<string>": pa.list_(pa.string())}  # fmt: skip
    fields = [field.split() for field in schema.split(", ")]
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [[]] * len(fields)
    arrays = [pa.array(column, types[of]) for (_, of), column in zip(fields, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in fields])


# -- judging each key ------------------------------------------------------------------------


@_without_collections
def judge(context: Context, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield what is wrong with the keys of a partition, and what only the driver can judge."""
    for history, facts in _completed(batches, context.absences):
        yield _batch(list(_told(context, history, facts)), TOLD)


_NO_PAGES = Absences({})


def _completed(batches: Batches, absences: Mapping[str, Absences]) -> Iterator[tuple[str, Facts]]:
    """Yield the facts of each history, with what pages tell by lacking a key."""
    for history, facts in _facts_by_history(batches).items():
        for key, some in facts.items():
            complete(key, some, absences.get(history, _NO_PAGES))
        yield history, facts


def _facts_by_history(batches: Batches) -> dict[str, Facts]:
    found: dict[str, Facts] = defaultdict(lambda: defaultdict(list))
    kinds = {what.value: what for what in What}
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        columns[4] = [kinds[what] for what in columns[4]]
        for history, key, fact in zip(columns[0], columns[1], map(Fact, *columns[2:]), strict=True):
            found[history][key].append(fact)
    return found


def _told(context: Context, history: str, facts: Facts) -> Iterator[tuple[Any, ...]]:
    def said(check: str, found: Iterable[Finding]) -> Iterator[tuple[Any, ...]]:
        for text, names in found:
            yield history, check, text, list(names), None, None

    checks, leads = context.checks, context.leads.get(history)
    for key, some in facts.items():
        if "linearizable" in checks:
            yield from said("linearizable", contradictions(key, some))
        if "fenced" in checks and leads is not None:
            for name, number, own in leads.late(some):
                yield history, "_late", "", [name], number, own
        if "outcomes" in checks:
            for name, shown in store.outcomes_of(some):
                yield history, "_outcome", key, [name], int(shown), None
    if "serializable" in checks:
        yield from _backwards(history, facts)
    if "once_per_job" in checks:
        attempts = context.attempts.get(history, ())
        yield from said("once_per_job", jobs.results_of(facts, attempts))
    if "once_per_stage" in checks:
        yield from said("once_per_stage", jobs.stages_of(facts))
    if "nothing_lost" in checks:
        yield from said("nothing_lost", jobs.losses_of(facts))


# -- cycles ----------------------------------------------------------------------------------


def _backwards(history: str, facts: Facts) -> Iterator[tuple[Any, ...]]:
    """Yield over which stretches edges lead back in time, and which operations of unknown outcome
    have happened."""
    certain: list[Stretch] = []
    for some in facts.values():
        for write, _ in happened(some):
            if not write.sure:
                yield history, "_known", "", [write.name], None, None
        for edge in edges_of(some):
            if (stretch := back(edge)) is None:
                continue
            if edge.given:
                yield history, "_back", edge.given, [], *stretch
            else:
                certain.append(stretch)
    for first, last in merged(certain):
        yield history, "_back", "", [], first, last


@_without_collections
def edges_within(
    stretches: Mapping[str, list[Stretch]],
    known: Mapping[str, set[str]],
    absences: Mapping[str, Absences],
    batches: Batches,
) -> Iterator[pa.RecordBatch]:
    """Yield the edges of the keys of a partition that lie in a stretch."""
    for history, facts in _completed(batches, absences):
        found, some_known = stretches.get(history, []), known.get(history, set())
        begins = [first for first, _ in found]
        rows: list[tuple[Any, ...]] = []
        for some in facts.values() if found else ():
            for edge in edges_of(some):
                if edge.given and edge.given not in some_known:
                    continue
                if (number := stretch_of(edge, found, begins)) is not None:
                    rows.append((history, number, *edge.source, *edge.target, edge.why))
        yield _batch(rows, EDGES)


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
    yield _batch(rows, TOLD)
