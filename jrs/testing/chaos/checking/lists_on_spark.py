"""The check of lists on Spark: joins give edges, which are peeled until the rest is small.

What the operations tell of a list goes to one task, which checks it as in plain Python. Edges that
depend on a commit of unknown outcome are joined with the commits that were seen. Then the
operations without an edge to them, or from them, are taken away until there are none, or few
edges are left; the driver searches these for cycles.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jrs.testing.chaos.checking.cycles import Edge, Node, Stretch, merged, stretch_of
from jrs.testing.chaos.checking.garbage import without_collections
from jrs.testing.chaos.checking.list_append import going_back, knots, peeled
from jrs.testing.chaos.checking.lists import Item, told_of
from jrs.testing.chaos.checking.notes import batch_of, files_of
from jrs.testing.chaos.recorded import FOREVER, Kind, Verb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FEW = 200_000
"""How many edges the driver searches without peeling them on Spark."""
_OPERATIONS = 200_000
"""How many operations a task evaluates, about; a list may be long."""
_ITEMS = (
    "history string, key string, begun long, ended long, kind int, version long, text string, "
    "name string, process string, type string, alone int"
)
_EDGE = (
    "source_begun long, source_ended long, source string, target_begun long, target_ended long, "
    "target string, why string, given string"
)
_TOLD = f"history string, what string, text string, names array<string>, {_EDGE}"
_BACK = "history string, first long, last long"


def broken_lists(
    paths: Sequence[str], numbers: DataFrame
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield what is wrong with the lists of a table: the history, a sentence, and operations."""
    tasks = numbers.sparkSession.sparkContext.defaultParallelism
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    items = numbers.mapInArrow(lambda batches: _items_in(paths, batches), _ITEMS)
    items = items.repartition(max(tasks, -(-rows // _OPERATIONS)), "history", "key")
    told = items.mapInArrow(_told_in, _TOLD).persist()
    try:
        wrong = told.where("what = 'wrong'").select("history", "text", "names").toArrow()
        for history, text, names in _rows(wrong):
            yield history, text, tuple(names)
        edges = _peeled(_certain(told)).toArrow()
    finally:
        told.unpersist()
    by_history: dict[str, list[Edge]] = defaultdict(list)
    for history, *edge in _rows(edges):
        by_history[history].append(_edge_of(edge))
    for history, some in sorted(by_history.items()):
        for text, found in knots(peeled(going_back(some))):
            yield history, text, found


# -- edges -----------------------------------------------------------------------------------


def _certain(told: DataFrame) -> DataFrame:
    """Return the edges whose operations have happened."""
    columns = ["history", *(field.split()[0] for field in _EDGE.split(", "))]
    edges = told.where("what = 'edge'").select(columns)
    seen = told.where("what = 'seen'").selectExpr("history", "text AS given").distinct()
    open_edges = edges.where("given != ''").join(seen, ["history", "given"], "leftsemi")
    return edges.where("given = ''").unionByName(open_edges.select(columns))


def _peeled(edges: DataFrame) -> DataFrame:
    """Return what is left of edges that are peeled until they are few, or all lie on cycles or
    between cycles."""
    edges = edges.localCheckpoint()
    left = edges.count()
    while left > FEW:
        before, edges = left, _within_stretches(edges)
        sources = edges.selectExpr("history", "source AS name").distinct()
        targets = edges.selectExpr("history", "target AS name").distinct()
        # Neither a source without an edge to it, nor a target without an edge from it.
        both = sources.join(targets, ["history", "name"], "leftsemi")
        for end in ("source", "target"):
            some = both.withColumnRenamed("name", end)
            kept = edges.join(some, ["history", end], "leftsemi")
            edges = kept.select(edges.columns)
        edges = edges.localCheckpoint()
        left = edges.count()
        if left == before:
            break
    return edges


def _within_stretches(edges: DataFrame) -> DataFrame:
    """Return the edges that lie in stretches of time over which edges lead back."""
    spark = edges.sparkSession
    back = edges.where("target_begun <= source_begun")
    back = back.selectExpr("history", "target_begun AS first", "source_begun AS last")
    found = _stretches(_rows(back.mapInArrow(_merged_in, _BACK).toArrow()))
    shared = spark.sparkContext.broadcast(found)
    return edges.mapInArrow(lambda batches: _edges_in(shared.value, batches), edges.schema)


def _stretches(rows: Iterable[Sequence[Any]]) -> dict[str, list[Stretch]]:
    found: dict[str, list[Stretch]] = defaultdict(list)
    for history, first, last in rows:
        found[history].append((first, last))
    return {history: merged(some) for history, some in found.items()}


def _rows(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _edge_of(row: Sequence[Any]) -> Edge:
    return Edge(Node(*row[:3]), Node(*row[3:6]), row[6], row[7])


# -- in tasks --------------------------------------------------------------------------------


def _items_in(paths: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what the operations of files tell of lists, a row for each list."""
    names = ["history", "process", "seq", "f", "type", "begun", "ended", "lists"]
    for path in files_of(paths, batches):
        table = pq.read_table(path, columns=names)
        lists = table["lists"].combine_chunks()
        kind, key, text, version, number = lists.flatten().flatten()
        of = table.drop_columns(["lists"]).take(pc.list_parent_indices(lists)).combine_chunks()
        name = pc.binary_join_element_wise(of["process"], pc.cast(of["seq"], pa.string()), "#")
        many = pc.equal(of["f"], Verb.GET_MANY.value)
        numbered = pc.binary_join_element_wise(name, pc.cast(number, pa.string()), ":")
        known = pc.not_equal(of["type"], Kind.INFO.value)
        alone = pc.is_in(of["f"], pa.array([Verb.GET.value, Verb.GET_MANY.value]))
        rows = {
            "history": of["history"],
            "key": key,
            "begun": of["begun"],
            "ended": pc.if_else(known, of["ended"], FOREVER),
            "kind": pc.cast(kind, pa.int32()),
            "version": version,
            "text": pc.fill_null(text, ""),
            "name": pc.if_else(many, numbered, name),
            "process": of["process"],
            "type": of["type"],
            "alone": pc.cast(alone, pa.int32()),
        }
        yield from pa.table(rows).to_batches()


def _told_in(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield what is wrong with the lists of a task, their edges, and which commits were seen."""
    with without_collections():
        items: dict[tuple[str, str], list[Item]] = defaultdict(list)
        for batch in batches:
            for history, key, *row, answer, alone in _rows(batch):
                items[history, key].append(Item._make((*row, Kind(answer), bool(alone))))
        for (history, key), some in items.items():
            told = told_of(key, some)
            rows: list[tuple[Any, ...]] = [
                (history, "wrong", text, list(names), *[None] * 8) for text, names in told.wrong
            ]
            rows += [(history, "seen", name, None, *[None] * 8) for name in sorted(told.seen)]
            rows += [(history, "edge", None, None, *edge.source, *edge.target, edge.why, edge.given)
                     for edge in told.edges]  # fmt: skip
            yield batch_of(rows, _TOLD)


def _merged_in(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield stretches, those that touch each other as one."""
    for batch in batches:
        found = _stretches(_rows(batch))
        rows = [(history, *stretch) for history, some in found.items() for stretch in some]
        yield batch_of(rows, _BACK)


def _edges_in(
    stretches: Mapping[str, list[Stretch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the edges that lie in a stretch."""

    @functools.cache
    def begins(history: str) -> list[int]:
        return [first for first, _ in stretches[history]]

    for batch in batches:
        kept = [
            history in stretches
            and stretch_of(_edge_of(edge), stretches[history], begins(history)) is not None
            for history, *edge in _rows(batch)
        ]
        yield batch.filter(pa.array(kept, pa.bool_()))
