"""The tables of a cluster: what its records say, as rows for queries over many jobs.

A table reads no more than its jobs need: they are found by key, or by the index of results where
the time of their end is given, or a status that is rare.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise, takewhile
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.checks import NAME
from jrs.records.codec import decode
from jrs.records.model import JobResultEntry, Json, ResultState
from jrs.records.snapshots import SnapshotRecord
from jrs.store import feed, streams
from jrs.store.job_views import JobView
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.store.streams import StreamStatus

from .history import history, row_of
from .table_jobs import LAST, TERMINAL, Wanted

Row = tuple[Any, ...]
_SMALL = 1000
"""Results that are read in one range."""
_CHOICE = 4
"""Prefixes of ids for each range that is wanted: the more, the more alike the ranges are."""


@attrs.frozen
class Table:
    """One table: its columns, and how its rows are read."""

    columns: str
    """Names and types, as Spark writes a schema. Rows have times in seconds since 1970; every
    value may be None."""
    rows: Callable[[Backend, Wanted], Iterator[Row]]
    in_ranges: bool = True
    """Whether jobs of a range of ids are found without reading the others, and the jobs can be
    chosen by how and when they ended."""


def ranges(backend: Backend, table: Table, wanted: Wanted, most: int) -> list[Wanted]:
    """Return what is wanted in up to `most` parts, each a range of job ids.

    The parts are alike if the ids are spread evenly over the characters in which they differ first.
    A cluster of few results is read in one part, and so is what the index of results finds.
    """
    if most == 1 or wanted.job is not None or wanted.by_index or not table.in_ranges:
        return [wanted]
    if sum(1 for _ in backend.scan(keys.RESULTS + wanted.prefix, limit=_SMALL)) < _SMALL:
        return [wanted]
    starts = [
        start
        for start in _starts(backend, wanted.prefix, most)
        if wanted.first < start < wanted.end
    ]
    cuts = {starts[number * len(starts) // most] for number in range(1, most)} if starts else set()
    bounds = [wanted.first, *sorted(cuts), wanted.end]
    return [attrs.evolve(wanted, low=low, below=below) for low, below in pairwise(bounds)]


def _starts(backend: Backend, prefix: str, most: int) -> list[str]:
    """Return prefixes of the ids that have results and begin with `prefix`, in order: some for each
    of `most` ranges."""
    prefixes = [prefix]
    while len(prefixes) < _CHOICE * most:
        longer = [child for one in prefixes for child in _longer(backend, one)]
        if not longer:
            break
        prefixes = longer
    return prefixes


def _longer(backend: Backend, prefix: str) -> Iterator[str]:
    """Yield the prefixes that are longer by one character. Reads one record for each."""
    behind = prefix
    while True:
        below = backend.scan(keys.RESULTS + prefix, after=keys.RESULTS + behind, limit=1)
        found = next(below, None)
        if found is None:
            return
        longer = keys.job_of(found.key)[: len(prefix) + 1]
        yield longer
        behind = longer + LAST


# -- what is read ---------------------------------------------------------------------------------


def _entries(backend: Backend, wanted: Wanted) -> Iterator[JobResultEntry]:
    """Yield the results that are wanted, but for expired ones."""
    store = JobResultStore(backend)
    found: Iterable[JobResultEntry | None]
    if wanted.job is not None:
        found = [store.get(wanted.job)]
    elif wanted.by_index:
        statuses = sorted(wanted.terminal) if wanted.terminal != TERMINAL else [None]
        found = chain.from_iterable(
            store.by_end(status=status, since=wanted.since, until=wanted.until)
            for status in statuses
        )
    else:
        found = _range(store, wanted)
    for entry in found:
        if entry is None or entry.state is ResultState.EXPIRED:
            continue
        if wanted.has(entry.job_id, entry.status, entry.finished_at):
            yield entry


def _range(store: JobResultStore, wanted: Wanted) -> Iterator[JobResultEntry]:
    """Yield the results whose ids are in the range that is wanted."""
    first = wanted.first or None
    if first is not None and not NAME.fullmatch(first):
        return  # No id begins so.
    if first is not None and (entry := store.get(first)) is not None:
        yield entry
    yield from takewhile(lambda entry: entry.job_id < wanted.end, store.list(after=first))


def _views(backend: Backend, wanted: Wanted, *, whole: bool = False) -> Iterator[JobView]:
    """Yield the jobs that are wanted, each once: first those that have not ended.

    Args:
        whole: whether all records of a job that has ended are read, and not its result alone.
    """
    catalog, running = JobCatalog(backend), set()
    if wanted.can_be_unfinished:
        ids = catalog.unfinished_ids(prefix=wanted.prefix) if wanted.job is None else [wanted.job]
        in_range = takewhile(lambda job_id: job_id < wanted.end, ids)
        for view in catalog.views(job_id for job_id in in_range if wanted.first <= job_id):
            # Those that are being cleaned up have a result, and come below.
            if view.entry is None and wanted.has(view.job_id, view.status):
                running.add(view.job_id)
                yield view
    if not wanted.terminal:
        return
    ended = (entry for entry in _entries(backend, wanted) if entry.job_id not in running)
    yield from catalog.views(entry.job_id for entry in ended) if whole else map(_ended, ended)


def _ended(entry: JobResultEntry) -> JobView:
    """Return a job that has ended, as far as its result tells."""
    return JobView(
        entry.job_id, entry.status, None, entry, None, (), None, None, None,
        application=entry.result.main if entry.result else None,
        problems=(entry.problem,) if entry.problem else (),
    )  # fmt: skip


# -- the tables -----------------------------------------------------------------------------------


def _results(backend: Backend, wanted: Wanted) -> Iterator[Row]:
    for entry in _entries(backend, wanted):
        result = entry.result
        if result is None:
            yield (entry.job_id, entry.state.value, *[None] * 11, entry.problem)
            continue
        failure = result.failure
        yield (
            entry.job_id, entry.state.value, result.status.value, _json(result.payload),
            failure and failure.kind, failure and failure.message, result.attempt, result.epoch,
            result.started_at or None, result.finished_at or None, result.code or None,
            result.application or None, len(result.stages) + result.stages_left_out, None,
        )  # fmt: skip


def _jobs(backend: Backend, wanted: Wanted) -> Iterator[Row]:
    for view in _views(backend, wanted):
        spec, entry = view.submitted, view.entry
        result = entry.result if entry else None
        newest = view.attempts[-1] if view.attempts else result
        arguments = spec and _json(spec.arguments)
        if view.spec is None and result is not None and result.arguments_left_out:
            arguments = None
        application = (spec and spec.application) or (result and result.application)
        started_at = result.started_at if result else view.attempt and view.attempt.first_started_at
        yield (
            view.job_id, view.status and view.status.value, entry and entry.state.value,
            spec and spec.entry_point, arguments, spec and spec.tags, spec and spec.priority,
            spec and spec.slots, application or None, (spec and spec.submitted_at) or None,
            (spec and spec.submitted_by) or None, newest and newest.attempt,
            newest and newest.epoch, started_at or None, (entry and entry.finished_at) or None,
            view.problems,
        )  # fmt: skip


def _stages(backend: Backend, wanted: Wanted) -> Iterator[Row]:
    for view in _views(backend, wanted):
        result = view.entry.result if view.entry else None
        stages = result.stages if result else [stage.summary() for stage in view.stages]
        # What is recorded of streams is removed while the job is cleaned up.
        found = () if view.entry else streams.of_job(backend, view.job_id, with_finished=True)
        running = {stream.stage: stream for stream in found}
        for stage in stages:
            yield (
                view.job_id, stage.name, stage.attempt, stage.epoch, stage.seconds,
                stage.finished_at or None, *_progress(running.pop(stage.name, None)),
            )  # fmt: skip
        for stream in running.values():
            if not stream.problem:
                yield (view.job_id, stream.stage, None, None, None, None, *_progress(stream))


def _progress(stream: StreamStatus | None) -> Row:
    """Return the columns of a stream; None in each for another stage."""
    found = stream.progress if stream is not None else None
    return (
        stream and stream.batch, stream and stream.batch_at,
        found and found.rows_per_second, found and found.processed_per_second,
        found and found.offsets_behind, found and found.files_behind, found and found.watermark,
        found and found.state_rows, found and found.state_bytes,
    )  # fmt: skip


def _attempts(backend: Backend, wanted: Wanted) -> Iterator[Row]:
    for view in _views(backend, wanted):
        for one in view.attempts:
            spark = one.spark
            yield (
                view.job_id, one.attempt, one.epoch, one.master or None, one.host or None,
                one.started_at or None, one.ended_at or None, one.ended or None,
                spark and spark.id, spark and spark.master,
            )  # fmt: skip


def _snapshots(backend: Backend, wanted: Wanted) -> Iterator[Row]:
    of_job = keys.snapshots(wanted.job) if wanted.job else keys.SNAPSHOTS + wanted.prefix
    for record in backend.scan(of_job):
        job_id = keys.job_of(record.key)
        if not wanted.has(job_id, None):
            continue
        try:
            one = decode(SnapshotRecord, record.value, record.key)
        except CorruptRecord as error:
            yield (job_id, *[None] * 11, str(error))
            continue
        yield (
            job_id, one.number, one.name, one.format.value, one.created_at or None, one.files,
            one.bytes, one.new_bytes, one.parent, one.at_end, one.taken_by.value, one.storage, None,
        )  # fmt: skip


def _history(backend: Backend, wanted: Wanted) -> Iterator[Row]:
    for view in _views(backend, wanted, whole=True):
        entries = history(backend, view)
        # Read last: an event has its place from its commit on.
        cursors = feed.cursors(backend, view.job_id)
        for entry in entries:
            yield row_of(attrs.evolve(entry, cursor=cursors.get(entry.id, "")))


def _json(value: Json) -> str:
    return json.dumps(value)


TABLES = {
    "results": Table(
        "job_id string, state string, status string, payload string, failure string, "
        "message string, attempt bigint, epoch bigint, started_at timestamp, "
        "finished_at timestamp, code string, application string, stages bigint, problem string",
        _results,
    ),
    "jobs": Table(
        "job_id string, status string, state string, entry_point string, arguments string, "
        "tags array<string>, priority bigint, slots bigint, application string, "
        "submitted_at timestamp, submitted_by string, attempt bigint, epoch bigint, "
        "started_at timestamp, finished_at timestamp, problems array<string>",
        _jobs,
    ),
    "stages": Table(
        "job_id string, stage string, attempt bigint, epoch bigint, seconds double, "
        "stage_finished_at timestamp, batch bigint, batch_at timestamp, rows_per_second double, "
        "processed_per_second double, offsets_behind bigint, files_behind bigint, "
        "watermark timestamp, state_rows bigint, state_bytes bigint",
        _stages,
    ),
    "attempts": Table(
        "job_id string, attempt bigint, epoch bigint, master string, host string, "
        "started_at timestamp, ended_at timestamp, ended string, spark_application string, "
        "spark_master string",
        _attempts,
    ),
    "snapshots": Table(
        "job_id string, number bigint, name string, format string, created_at timestamp, "
        "files bigint, bytes bigint, new_bytes bigint, parent bigint, at_end boolean, "
        "taken_by string, storage string, problem string",
        _snapshots,
        in_ranges=False,
    ),
    "history": Table(
        "job_id string, at timestamp, kind string, text string, by string, epoch bigint, "
        "attempt bigint, action string, id string, facts string, about string, "
        "cursor string",
        _history,
    ),
}
