"""The checks on Spark, for a history that is too large for one process.

What each operation tells of each key is found where the operation stands; then it goes to where its
key is judged, by the same functions as in plain Python. All keys of a job go to the same place.
Only what is small comes to the driver: the leaderships, the attempts, what pages had looked at, the
stretches of time that may have a cycle, and the findings.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from jrs.records import keys
from jrs.testing.chaos.checking import jobs, store
from jrs.testing.chaos.checking.cycles import Stretch, merged
from jrs.testing.chaos.checking.facts import Absences, Page, page_of
from jrs.testing.chaos.checking.partitions import (
    EDGES,
    FACTS,
    TOLD,
    Context,
    edges_within,
    facts_in,
    judge,
    tangles_in,
)
from jrs.testing.chaos.checking.tables import to_parquet
from jrs.testing.chaos.checking.verdict import Check, Violation
from jrs.testing.chaos.recorded import Call, Event, Kind, Verb, calls_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKS: tuple[Check, ...] = (
    *(store.linearizable, store.fenced, store.outcomes, store.serializable),
    *(jobs.once_per_job, jobs.once_per_stage, jobs.no_overlap, jobs.nothing_lost),
)
"""The checks that run on Spark."""
PAGES = 200_000
"""Of how many pages the absences are looked for; of more pages, of a sample."""
_FACTS = 400_000
"""How many operations a task judges, about."""


def violations(
    spark: SparkSession, history: Path, checks: Iterable[Check] = CHECKS
) -> list[Violation]:
    """Return what is wrong in a history.

    Args:
        history: a folder of JSON lines, or of a table that `to_parquet` has made.
    """
    with tempfile.TemporaryDirectory(prefix="jrs-history-") as scratch:
        if any(history.glob("*.jsonl")):
            history = to_parquet(history, Path(scratch, "table"))
        found = violations_by_history(spark.read.parquet(str(history)), checks)
    return found.get("", [])


def violations_by_history(
    table: DataFrame, checks: Iterable[Check] = CHECKS
) -> dict[str, list[Violation]]:
    """Return what is wrong in each history of a table, by the names in its column ``history``; the
    name of the only history is empty. Histories without a violation are left out."""
    if "history" not in table.columns:
        table = table.selectExpr("*", "'' as history")
    found = _Judging(table, {check.name for check in checks}).found()
    return {history: found[history] for history in sorted(found)}


@attrs.define
class _Judging:
    table: DataFrame
    checks: set[str]
    _found: dict[str, list[Violation]] = attrs.field(factory=lambda: defaultdict(list))

    def found(self) -> dict[str, list[Violation]]:
        spark = self.table.sparkSession
        context = self._context()
        shared = spark.sparkContext.broadcast(context)
        facts = self._facts()
        try:
            told = facts.mapInArrow(lambda batches: judge(shared.value, batches), TOLD).toArrow()
            rows = told.to_pylist()
            self._say(rows)
            self._late(context, rows)
            self._halves(rows)
            self._overlaps(context)
            if "serializable" in self.checks:
                self._cycles(context, facts, rows)
        finally:
            facts.unpersist()
            shared.destroy()
        return dict(self._found)

    def _facts(self) -> DataFrame:
        """Return what is known of each key, the keys of a job in one partition."""
        count = self.table.count() // 2
        parallel = self.table.sparkSession.sparkContext.defaultParallelism
        partitions = max(parallel, -(-count // _FACTS))
        home = f"regexp_replace(key, '^({'|'.join(jobs.JUDGED)})', '') as home"
        facts = self.table.mapInArrow(facts_in, FACTS).selectExpr("*", home)
        facts = facts.repartition(partitions, "history", "home").drop("home")
        # A second pass, for cycles, would find all of it a second time.
        return facts.persist() if "serializable" in self.checks else facts

    # -- what every task has to know ---------------------------------------------------------

    def _context(self) -> Context:
        leads: dict[str, list[Call]] = defaultdict(list)
        pages: dict[str, dict[str, list[Page]]] = defaultdict(lambda: defaultdict(list))
        for history, call in self._calls(Verb.CAMPAIGN):
            leads[history].append(call)
        for history, call in self._calls(Verb.SCAN):
            if call.type is Kind.OK:
                pages[history][call.key].append(page_of(call))
        return Context(
            checks=self.checks,
            leads={history: store.Leads(calls) for history, calls in leads.items()},
            absences={history: Absences(some) for history, some in pages.items()},
            attempts=self._attempts() if self.checks & {"once_per_job", "no_overlap"} else {},
        )

    def _calls(self, f: Verb) -> Iterator[tuple[str, Call]]:
        """Yield the operations of a kind, without the records that a page has."""
        some = self.table.where(f"f = '{f.value}'")
        if f is Verb.SCAN:
            pages = some.where("type = 'ok'").count()
            if pages > PAGES:
                some = some.where(f"abs(hash(process, seq)) % {pages // PAGES + 1} = 0")
        rows = some.selectExpr(
            *("history", "process", "seq", "type", "key", "version", "epoch", "t"),
            # Unlike get_json_object, this tells null from "null".
            *("from_json(value, 'array<string>')[0] as after",
              "from_json(value, 'array<string>')[1] as until"),
        ).toArrow()  # fmt: skip
        events: dict[str, list[Event]] = defaultdict(list)
        for row in rows.to_pylist():
            kind = Kind(row["type"])
            read = [row["after"], row["until"], []] if kind is Kind.OK and f is Verb.SCAN else None
            who = row["process"], row["seq"], kind, f, row["t"], row["key"]
            events[row["history"]].append(Event(*who, read, row["version"], row["epoch"]))
        for history, some_events in events.items():
            for call in calls_of(sorted(some_events, key=lambda event: event.t)):
                yield history, call

    def _attempts(self) -> dict[str, list[jobs.RunningAttempt]]:
        """Return the attempts that ran in processes of their own, by history."""
        spark = self.table.sparkSession
        alive = self.table.where("f = 'alive'").select("history", "process").distinct()
        own = self.table.join(alive.hint("broadcast"), ["history", "process"])
        ends = spark.sql(
            "select history, process, max(t) from {own} group by history, process", own=own
        ).collect()
        last: dict[str, dict[str, int]] = defaultdict(dict)
        for history, process, moment in ends:
            last[history][process] = moment
        first = spark.sql(
            "select history, process, min(struct(t, seq, value, epoch)) as first from {own} "
            "where f = 'commit' and type = 'invoke' and contains(value, {fence}) "
            "group by history, process",
            own=own,
            fence=f'["check", "{keys.FENCES}',
        )
        begins = first.select("history", "process", "first.*").collect() if ends else []
        calls: dict[str, list[Call]] = defaultdict(list)
        for history, process, begun, seq, value, epoch in begins:
            parts = json.loads(value)
            call = Call(process, seq, Verb.COMMIT, begun, begun, Kind.INFO, "", parts, None, epoch)
            calls[history].append(call)
        return {name: jobs.attempts_in(some, last[name]) for name, some in calls.items()}

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

    def _halves(self, rows: list[dict[str, Any]]) -> None:
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

    def _cycles(self, context: Context, facts: DataFrame, rows: list[dict[str, Any]]) -> None:
        """Search the stretches of time that may have a cycle, each by itself."""
        known = {
            history: set(names)
            for history, names in _by_history(rows, "_known", lambda row: row["names"][0]).items()
        }
        stretches: dict[str, list[Stretch]] = {}
        told = _by_history(rows, "_back", lambda row: (row["first"], row["last"], row["text"]))
        for history, some in told.items():
            happened = known.get(history, set())
            stretches[history] = merged(
                (first, last) for first, last, given in some if not given or given in happened
            )
        if not any(stretches.values()):
            return
        shared = facts.sparkSession.sparkContext.broadcast((stretches, known, context.absences))
        edges = facts.mapInArrow(lambda batches: edges_within(*shared.value, batches), EDGES)
        edges = edges.repartition(facts.sparkSession.sparkContext.defaultParallelism,
                                  "history", "stretch")  # fmt: skip
        tangles = edges.mapInArrow(tangles_in, TOLD).toArrow().to_pylist()
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
