"""The checks on Spark, for a history that is too large for one process.

What each operation tells of each key is found where the operation stands; then it goes to where its
key is evaluated, by the same functions as in plain Python. All keys of a job go to the same place.
Only what is small comes to the driver: the leaderships, the attempts, what pages had looked at, the
commits of unknown outcome, the stretches of time that may have a cycle, the watches, and the
findings.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from jrs.contract.errors import InvalidInput
from jrs.testing.chaos.checking import jobs, store, traces
from jrs.testing.chaos.checking.cycles import merged
from jrs.testing.chaos.checking.known_on_spark import Name, known_in
from jrs.testing.chaos.checking.list_append import list_append
from jrs.testing.chaos.checking.lists_on_spark import broken_lists
from jrs.testing.chaos.checking.notes import (
    NOTES,
    WATCHES,
    Context,
    notes_in,
    watches_in,
    watches_of,
)
from jrs.testing.chaos.checking.partitions import (
    EDGES,
    PARCELS,
    TOLD,
    edges_within,
    evaluate,
    outcomes_in,
    parcels_in,
    tangles_in,
    unreported_in,
)
from jrs.testing.chaos.checking.run_itself import wrong_with
from jrs.testing.chaos.checking.tables import to_parquet
from jrs.testing.chaos.checking.verdict import Check, Violation
from jrs.testing.chaos.checking.watches import watched
from jrs.testing.chaos.reading import history_in

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

CHECKS: tuple[Check, ...] = (
    *(store.linearizable, store.fenced, store.outcomes, store.serializable),
    *(jobs.once_per_job, jobs.once_per_stage, jobs.no_overlap, jobs.nothing_lost),
    *(watched, traces.protocol, list_append),
)
"""The checks that run on Spark."""
_OPERATIONS = 400_000
"""How many operations a task evaluates, about."""
_TASKS = 4
"""How many tasks read files, for each core."""
_OF_EVENTS = {"no_overlap", "list_append"}
"""The checks for which it does not matter which commits of unknown outcome happened."""


def violations(
    spark: SparkSession, history: Path, checks: Iterable[Check] = CHECKS
) -> list[Violation]:
    """Return what is wrong in a history, and in the run that has left it, if its notes are there.

    Args:
        history: the folder of a run or of its history, or of a table that `to_parquet` has made.
            The workers have to see it at the same path. Only the folder of a run has its notes.

    Raises:
        InvalidInput: there is no history, or those of several clusters.
    """
    of_the_run = wrong_with(history)
    with tempfile.TemporaryDirectory(prefix="jrs-history-") as scratch:
        if not any(history.glob("*.parquet")):
            history = to_parquet(history_in(history), Path(scratch, "table"))
        return [*violations_by_history(spark, history, checks).get("", []), *of_the_run]


def violations_by_history(
    spark: SparkSession, table: Path, checks: Iterable[Check] = CHECKS
) -> dict[str, list[Violation]]:
    """Return what is wrong in each history of a table, by the names in its column ``history``; the
    name of the only history is empty. Histories without a violation are left out.

    Raises:
        InvalidInput: there is no table.
    """
    found = _Judging(spark, table, {check.name for check in checks}).found()
    return {history: found[history] for history in sorted(found)}


@attrs.define
class _Judging:
    spark: SparkSession
    table: Path
    checks: set[str]
    _found: dict[str, list[Violation]] = attrs.field(factory=lambda: defaultdict(list))

    def found(self) -> dict[str, list[Violation]]:
        paths, numbers = self._files()
        attempts = bool(self.checks & {"once_per_job", "no_overlap"})
        notes = numbers.mapInArrow(lambda batches: notes_in(paths, attempts, batches), NOTES)
        context = Context.of(self.checks, notes.toArrow())
        known = known_in(paths, numbers) if self.checks - _OF_EVENTS else {}
        settled = self.spark.sparkContext.broadcast(known)
        shared = self.spark.sparkContext.broadcast(context)
        parcels = self._parcels(settled)
        try:
            rows = _rows(parcels, lambda batches: evaluate(shared.value, batches))
            self._say(rows)
            self._late(context, rows)
            self._overlaps(context)
            if "outcomes" in self.checks:
                self._halves(context, parcels, rows)
            if "serializable" in self.checks:
                self._cycles(context, parcels, rows)
            if "watched" in self.checks:
                self._watched(settled)
            if "list_append" in self.checks:
                for history, message, names in broken_lists(*self._files()):
                    self._add(history, "list_append", message, names)
        finally:
            parcels.unpersist()
            settled.destroy()
            shared.destroy()
        return dict(self._found)

    def _files(self) -> tuple[list[str], DataFrame]:
        """Return the paths of the table's files, and a table of their numbers."""
        paths = sorted(map(str, self.table.glob("*.parquet")))
        if not paths:
            raise InvalidInput(f"{self.table} has no table: make one with to_parquet")
        tasks = _TASKS * self.spark.sparkContext.defaultParallelism
        return paths, self.spark.range(0, len(paths), 1, min(tasks, len(paths)))

    def _parcels(self, known: Broadcast[dict[Name, int]]) -> DataFrame:
        """Return what is known of each key, the keys of a job in one partition."""
        paths, numbers = self._files()
        count = sum(pq.read_metadata(path).num_rows for path in paths)
        homes = max(self.spark.sparkContext.defaultParallelism, -(-count // _OPERATIONS))
        parcels = numbers.mapInArrow(
            lambda batches: parcels_in(paths, homes, known.value, batches), PARCELS
        ).repartitionById(homes, "home")
        # A second pass would make all of it a second time.
        return parcels.persist() if self.checks & {"serializable", "outcomes"} else parcels

    # -- what the tasks have told ------------------------------------------------------------

    def _add(self, history: str, check: str, message: str, calls: Iterable[str]) -> None:
        if check in self.checks:
            self._found[history].append(Violation(check, message, tuple(calls)))

    def _say(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if not row["what"].startswith("_"):
                self._add(row["history"], row["what"], row["text"], row["names"])

    def _late(self, context: Context, rows: list[dict[str, Any]]) -> None:
        late = _by_history(rows, "_late", lambda row: (row["names"][0], row["first"], row["last"]))
        for history, leads in context.leads.items():
            for message, names in leads.broken_by(late.get(history, ())):
                self._add(history, "fenced", message, names)

    def _halves(self, context: Context, parcels: DataFrame, rows: list[dict[str, Any]]) -> None:
        """Look at the commits that are known to have happened, and that a key may deny."""
        doubtful = {
            history: {*some} for history, some in _by_history(rows, "_denied", _name).items()
        }
        if not doubtful:
            return
        shared = self.spark.sparkContext.broadcast((doubtful, context.absences))
        rows = _rows(parcels, lambda batches: outcomes_in(*shared.value, batches))
        shared.destroy()
        told = _by_history(
            rows, "_outcome", lambda row: (row["names"][0], bool(row["first"]), row["text"])
        )
        for history, some in told.items():
            for message, names in store.halves(some):
                self._add(history, "outcomes", message, names)

    def _overlaps(self, context: Context) -> None:
        for history, attempts in context.attempts.items():
            for message, names in jobs.overlaps(attempts):
                self._add(history, "no_overlap", message, names)

    def _watched(self, known: Broadcast[dict[Name, int]]) -> None:
        """Look at the changes where they stand, for every task has all watches."""
        paths, numbers = self._files()
        noted = numbers.mapInArrow(lambda batches: watches_in(paths, batches), WATCHES)
        watches = watches_of(noted.toArrow())
        if not any(one.prefixes for one in watches.values()):
            return
        for history, one in watches.items():
            for message, names in one.hung():
                self._add(history, "watched", message, names)
        shared = self.spark.sparkContext.broadcast(watches)
        self._say(
            _rows(numbers, lambda batches: unreported_in(paths, shared.value, known.value, batches))
        )
        shared.destroy()

    def _cycles(self, context: Context, parcels: DataFrame, rows: list[dict[str, Any]]) -> None:
        """Search the stretches of time that may have a cycle, each by itself."""
        told = _by_history(rows, "_back", lambda row: (row["first"], row["last"]))
        stretches = {history: merged(some) for history, some in told.items()}
        if not stretches:
            return
        shared = self.spark.sparkContext.broadcast((stretches, context.absences))
        edges = parcels.mapInArrow(lambda batches: edges_within(*shared.value, batches), EDGES)
        edges = edges.repartition(self.spark.sparkContext.defaultParallelism,
                                  "history", "stretch")  # fmt: skip
        tangles = _rows(edges, tangles_in)
        shared.destroy()
        self._say(tangles)


def _by_history(
    rows: list[dict[str, Any]], what: str, of: Callable[[dict[str, Any]], Any]
) -> Mapping[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        if row["what"] == what:
            found[row["history"]].append(of(row))
    return found


def _name(row: dict[str, Any]) -> str:
    return str(row["names"][0])


def _rows(
    table: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> list[dict[str, Any]]:
    """Return what a function tells of the partitions of a table."""
    rows: list[dict[str, Any]] = table.mapInArrow(function, TOLD).toArrow().to_pylist()
    return rows
