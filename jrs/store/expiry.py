"""Expiring results: a clean result and its index entries are replaced by a tombstone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import (
    Conflict,
    NoSuchResult,
    OutcomeUnknown,
    ResultIsDirty,
    Unavailable,
)
from jrs.contract.operations import Absent, Create, Delete, Op, Record
from jrs.records import keys
from jrs.records.codec import encode
from jrs.records.model import JobResult, ResultState, Tombstone
from jrs.store import applications, history, result_index, result_order
from jrs.store.result_index import Entry
from jrs.store.stored_result import result_in

_PAGE = 256


def burial(record: Record, grave: Tombstone, index: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return the operations that replace a clean result by its tombstone."""
    return (
        Delete(record.key, record.version),
        Absent(keys.DIRTY + grave.job_id),
        Create(keys.TOMBSTONES + grave.job_id, encode(grave)),
        *index,
    )


def grave_of(result: JobResult, now: float) -> Tombstone:
    """Return what is left of an expired result."""
    return Tombstone(
        result.job_id,
        result.status,
        result.finished_at,
        now,
        submitted_at=result.spec.submitted_at if result.spec is not None else 0.0,
        started_at=result.started_at,
    )


def expire(
    backend: Backend,
    now: Clock,
    older_than: float,
    keep: int,
    delete: Callable[[str], None],
) -> Iterator[str]:
    """Expire old clean results page by page; yield each id once it is gone.

    Args:
        delete: removes one result whatever happens to it at the same moment.
    """
    horizon = now() - older_than
    after = _last_kept(backend, keep) if keep else None
    if keep and after is None:
        return
    old = result_order.places(backend, None, None, None, horizon, after)
    needed = applications.need(backend)
    live = functools.cache(functools.partial(history.live_deletes, backend))
    while page := [entry.job_id for entry in islice(old, _PAGE)]:
        clean = [
            one.job_id
            for one in result_order.entries_of(backend, page)
            if one.state is ResultState.CLEAN and one.result and not needed(one.result)
        ]
        if clean:
            yield from _bury(backend, clean, now(), delete, live())


def _last_kept(backend: Backend, keep: int) -> Entry | None:
    """Return the place of the last of the `keep` newest clean results; None if there are fewer."""
    places = result_order.places(backend, None, None, None, None, None)
    while page := [entry.job_id for entry in islice(places, _PAGE)]:
        for entry in result_order.entries_of(backend, page):
            if entry.state is ResultState.CLEAN and entry.result is not None:
                keep -= 1
                if keep == 0:
                    return result_order.place_in(entry.result)
    return None


def _bury(
    backend: Backend,
    job_ids: list[str],
    now: float,
    delete: Callable[[str], None],
    live: Mapping[str, Sequence[Delete]],
) -> Iterator[str]:
    read = backend.get_many([keys.RESULTS + job_id for job_id in job_ids])
    records = [record for record in read if isinstance(record, Record)]
    results = [result_in(record) for record in records]
    index = result_index.delete_ops(backend, results)
    told = history.removals(backend, [result.job_id for result in results], live)
    sent = [
        backend.commit_async(*burial(record, grave_of(result, now), (*ops, *also)))
        for record, result, ops, also in zip(records, results, index, told, strict=True)
    ]
    for result, commit in zip(results, sent, strict=True):
        try:
            commit.result()
        except (Conflict, OutcomeUnknown, Unavailable):
            # ZooKeeper refuses one of many that are under way if another one deletes next to it.
            try:
                delete(result.job_id)
            except (NoSuchResult, ResultIsDirty):
                continue
        yield result.job_id
