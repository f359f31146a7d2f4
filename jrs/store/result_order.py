"""Listing results: by job id, and by the end of the job."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, NoSuchResult
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.checks import check_moment
from jrs.records.model import JobResult, JobResultEntry, JobStatus, ResultState
from jrs.records.tags import check_tags
from jrs.store import result_index
from jrs.store.result_index import Entry
from jrs.store.stored_result import entry_of, expired_entry_of, result_in

_PAGE = 256
"""Results per read."""
FIRST_END = 0.001
"""The earliest end by which a result has an age: an end of 0 is unknown."""
_LISTED = 1000
"""Results whose markers are read at once: the page size of a scan."""


def by_id(
    backend: Backend, state: ResultState | None, after: str | None
) -> Iterator[JobResultEntry]:
    """Yield the entries in the order of their ids; see `JobResultStore.list`."""
    if state is ResultState.DIRTY:
        yield from (entry for entry in dirty(backend) if after is None or entry.job_id > after)
        return
    prefix = keys.TOMBSTONES if state is ResultState.EXPIRED else keys.RESULTS
    behind = None if after is None else prefix + after
    if state is ResultState.EXPIRED:
        yield from map(expired_entry_of, backend.scan(prefix, after=behind))
        return
    results = backend.scan(prefix, after=behind)
    while page := list(islice(results, _LISTED)):
        # Read the results before the markers: a marker is created with its result and removed
        # once, so a result whose marker is missing afterwards is clean.
        marked = _marked(backend, after, keys.job_of(page[-1].key))
        for record in page:
            job_id = keys.job_of(record.key)
            if job_id not in marked:
                yield entry_of(record, ResultState.CLEAN)
            elif state is not ResultState.CLEAN:
                yield entry_of(record, ResultState.DIRTY)
        after = keys.job_of(page[-1].key)


def _marked(backend: Backend, after: str | None, last: str) -> set[str]:
    """Return the job ids behind `after`, up to and including `last`, with a dirty marker."""
    behind = None if after is None else keys.DIRTY + after
    markers = (keys.job_of(one.key) for one in backend.scan(keys.DIRTY, after=behind))
    return set(takewhile(lambda job_id: job_id <= last, markers))


def dirty(backend: Backend) -> Iterator[JobResultEntry]:
    """Yield the dirty entries in the order of their ids, without reading clean ones."""
    markers = backend.scan(keys.DIRTY)
    while page := [keys.job_of(marker.key) for marker in islice(markers, _PAGE)]:
        results = backend.get_many([keys.RESULTS + job_id for job_id in page])
        for job_id, result in zip(page, results, strict=True):
            if isinstance(result, CorruptRecord):
                yield JobResultEntry(job_id, ResultState.DIRTY, None, str(result))
            elif result is not None:
                yield entry_of(result, ResultState.DIRTY)
            elif backend.get(keys.DIRTY + job_id) is not None:
                lone = f"{keys.DIRTY}{job_id} exists without its result"
                yield JobResultEntry(job_id, ResultState.DIRTY, None, lone)


def check_filters(tag: str | None, since: float | None, until: float | None) -> None:
    """Raise `InvalidInput` for a tag or a moment by which no list can be filtered."""
    if tag is not None:
        check_tags((tag,))
    check_moment(since, "since")
    check_moment(until, "until")


def by_end(
    backend: Backend,
    *,
    status: JobStatus | None = None,
    tag: str | None = None,
    since: float | None = None,
    until: float | None = None,
    after: str | None = None,
) -> Iterator[JobResultEntry]:
    """Yield the entries of readable results, the newest end first; see `JobResultStore.by_end`."""
    begin = None if after is None else place_of(backend, after)
    found = places(backend, status, tag, since, until, begin)
    while page := [entry.job_id for entry in islice(found, _PAGE)]:
        for entry in entries_of(backend, page):
            result = entry.result
            if result is None or status not in (None, result.status):
                continue
            if tag is None or (result.spec is not None and tag in result.spec.tags):
                yield entry


def place_of(backend: Backend, job_id: str) -> Entry:
    """Return the place of a job among the ended ones.

    Raises:
        NoSuchResult: it has none.
        CorruptRecord: its result cannot be read.
    """
    record = backend.get(keys.RESULTS + job_id)
    if record is None:
        raise NoSuchResult(f"job {job_id!r} has no result that a list could continue after")
    return place_in(result_in(record))


def place_in(result: JobResult) -> Entry:
    """Return the place of a result among the ended ones."""
    return Entry(f"{keys.inverted(result.finished_at)}/{result.job_id}")


def places(
    backend: Backend,
    status: JobStatus | None,
    tag: str | None,
    since: float | None,
    until: float | None,
    after: Entry | None,
) -> Iterator[Entry]:
    """Yield the places of results; without the index, all results are read first."""
    if result_index.is_complete(backend):
        return result_index.entries(
            backend, status=status, tag=tag, since=since, until=until, after=after
        )
    # An older cluster: every result is read, and only the places are kept.
    first = "" if until is None else keys.inverted(until)
    last = "~" if since is None else f"{keys.inverted(since)}/~"
    places = (
        place_in(result)
        for result in _all(backend)
        if status in (None, result.status)
        and (tag is None or (result.spec is not None and tag in result.spec.tags))
    )
    kept = (
        place
        for place in places
        if first <= place.place <= last and (after is None or place > after)
    )
    return iter(sorted(kept))


def _all(backend: Backend) -> Iterator[JobResult]:
    for record in backend.scan(keys.RESULTS):
        try:
            yield result_in(record)
        except CorruptRecord:
            continue  # fsck names it.


def entries_of(backend: Backend, job_ids: list[str]) -> Iterator[JobResultEntry]:
    """Yield the entries of jobs; an index entry whose result has just gone yields nothing."""
    # Read the results before the markers: a marker is created with its result and removed once, so
    # a result whose marker is missing afterwards is clean.
    results = backend.get_many([keys.RESULTS + job_id for job_id in job_ids])
    markers = backend.get_many([keys.DIRTY + job_id for job_id in job_ids])
    for record, marker in zip(results, markers, strict=True):
        if isinstance(record, Record):
            yield entry_of(record, ResultState.CLEAN if marker is None else ResultState.DIRTY)
