"""The index of results: by status and end, and by tag and end, the newest first.

An entry is a key without a value. It is written in the commit of its result and removed in the
commit that removes the result, so that neither exists without the other::

    ended/<STATUS>/<inverted ms>/<job>
    tagged/<tag>/<inverted ms>/<job>

The index exists since cluster format 5. `jrs cluster-format --raise` builds it for older results
and only then marks the cluster, and the record of its format: until then no reader relies on it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord, OutcomeUnknown, Unavailable
from jrs.contract.operations import Absent, Check, Create, Delete, Op, Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import FormatRecord, JobResult, JobStatus
from jrs.store.stored_result import result_in

SINCE_FORMAT = 5
"""The first cluster format with the index."""
ENDED = (JobStatus.CANCELED, JobStatus.FAILED, JobStatus.FINISHED)
"""The statuses in which a job ends, in the order of their keys."""
_PAGE = 256


@attrs.frozen(order=True)
class Entry:
    """One entry of the index. The newest end comes first, then the least job id."""

    place: str
    """``<inverted ms>/<job>``: its position among entries of any status and tag."""

    @property
    def job_id(self) -> str:
        return self.place.partition("/")[2]


def is_complete(backend: Backend) -> bool:
    """Return whether every result of the cluster is in the index."""
    if backend.marked_format >= SINCE_FORMAT:
        return True
    try:
        stored = backend.get(keys.FORMAT)
        record = stored and decode(FormatRecord, stored.value, stored.key)
    except CorruptRecord:
        return False  # Nobody can tell: all results are read.
    return record is not None and record.complete >= SINCE_FORMAT


def keys_of(result: JobResult) -> list[str]:
    """Return the keys of a stored result's entries."""
    tags = result.spec.tags if result.spec is not None else ()
    return keys_for(result.job_id, result.status, result.finished_at, tags)


def keys_for(job_id: str, status: JobStatus, finished_at: float, tags: Sequence[str]) -> list[str]:
    """Return the keys of the entries of a result of which this is known."""
    place = f"{keys.inverted(finished_at)}/{job_id}"
    return [f"{keys.ended(status.value)}{place}", *(f"{keys.tagged(tag)}{place}" for tag in tags)]


def create_ops(result: JobResult) -> tuple[Op, ...]:
    """Return the operations that index a result, for the commit that stores it."""
    return tuple(Create(key, b"") for key in keys_of(result))


def delete_ops(backend: Backend, result: JobResult) -> tuple[Op, ...]:
    """Return the operations that remove a result's entries, and what is kept with it: for the
    commit that removes the result."""
    wanted = [*keys_of(result), keys.LEFT + result.job_id, keys.GENERATIONS + result.job_id]
    present = _present(backend, wanted)  # An entry that is missing must not appear meanwhile.
    return tuple(
        Delete(key) if key in present else Absent(key)
        for key in wanted
        # Generations are kept by a cleanup that has ended, so they cannot appear.
        if key in present or not key.startswith(keys.GENERATIONS)
    )


def clean_delete_ops(backend: Backend, of_jobs: Mapping[str, Sequence[str]]) -> list[list[Op]]:
    """Return the same for each of some results that were clean before this call. Reads little.

    The commit is refused if an entry is missing in the index: then use `delete_ops`.

    Args:
        of_jobs: the keys of each result's entries, by job id.
    """
    # What is kept with a clean result was written when its cleanup ended, and stays.
    kept = set[str]()
    for prefix in (keys.LEFT, keys.GENERATIONS):
        if next(backend.scan(prefix, limit=1), None) is not None:  # Most clusters have none.
            kept |= _present(backend, [prefix + job_id for job_id in of_jobs])
    if is_complete(backend):
        ops = [list[Op](map(Delete, entries)) for entries in of_jobs.values()]
    else:
        present = _present(backend, [key for entries in of_jobs.values() for key in entries])
        ops = [
            [Delete(key) if key in present else Absent(key) for key in entries]
            for entries in of_jobs.values()
        ]
    if kept:
        for job_id, of_job in zip(of_jobs, ops, strict=True):
            of_job += (
                Delete(prefix + job_id)
                for prefix in (keys.LEFT, keys.GENERATIONS)
                if prefix + job_id in kept
            )
    return ops


def _present(backend: Backend, names: Sequence[str]) -> set[str]:
    return {record.key for record in backend.get_many(names) if isinstance(record, Record)}


def entries(
    backend: Backend,
    *,
    status: JobStatus | None = None,
    tag: str | None = None,
    since: float | None = None,
    until: float | None = None,
    after: Entry | None = None,
) -> Iterator[Entry]:
    """Yield the entries of a status or of a tag (not both), the newest end first.

    Args:
        since, until: bounds of the end, in seconds since 1970; both are included.
        after: begin behind this entry.
    """
    if tag is not None:
        prefixes = [keys.tagged(tag)]
    else:
        prefixes = [keys.ended(each.value) for each in ENDED if status in (None, each)]
    begin = "" if until is None else keys.inverted(until)
    if after is not None:
        begin = max(begin, after.place)
    last = "~" if since is None else f"{keys.inverted(since)}/~"  # "~" is after every key.
    found = heapq.merge(*(_places(backend, prefix, begin) for prefix in prefixes))
    for place in found:
        if place > last:
            return
        yield Entry(place)


def _places(backend: Backend, prefix: str, begin: str) -> Iterator[str]:
    records = backend.scan(prefix, after=prefix + begin if begin else None)
    return (record.key.removeprefix(prefix) for record in records)


def build(backend: Backend, progress: Callable[[int], None] = lambda done: None) -> None:
    """Index every result that is not indexed, and remove entries without a result.

    Idempotent; an interrupted call is harmless. The cluster's format must be raised before, so that
    results that are stored meanwhile come with their entries.

    Args:
        progress: called with the number of results that have been looked at so far.
    """
    results, done = backend.scan(keys.RESULTS), 0
    while page := list(islice(results, _PAGE)):
        _commit(
            backend,
            [
                (Check(record.key, record.version), *(Create(key, b"") for key in lacks))
                for record, lacks in _missing(backend, page)
            ],
        )
        done += len(page)
        progress(done)
    left = stale(backend)
    while names := list(islice(left, _PAGE)):
        gone = [(Delete(key), Absent(keys.RESULTS + keys.indexed_job(key))) for key in names]
        _commit(backend, gone)


def _commit(backend: Backend, groups: Sequence[tuple[Op, ...]]) -> None:
    """Commit groups of operations, many in one commit and many commits at once; leave out each
    group that is refused: the result was just expired, or another process was faster; or an entry
    does not fit its result, and fsck names it."""
    batches: list[list[tuple[Op, ...]]] = []
    names = set[str]()
    for group in groups:
        own = {op.key for op in group}
        if not batches or names & own or len(names) + len(own) > backend.capabilities.max_ops:
            batches.append([])
            names = set()
        batches[-1].append(group)
        names |= own
    sent = [backend.commit_async(*(op for group in batch for op in group)) for batch in batches]
    refused = []
    for batch, commit in zip(batches, sent, strict=True):
        try:
            commit.result()
        except (Conflict, CorruptRecord, OutcomeUnknown, Unavailable):
            refused.append(batch)
    # Now nothing is under way: ZooKeeper refuses what is while another process deletes next to it.
    for batch in refused:
        try:
            backend.commit(*(op for group in batch for op in group))
        except (Conflict, CorruptRecord):
            for group in batch:
                with suppress(Conflict):
                    backend.commit(*group)


def missing(backend: Backend) -> Iterator[str]:
    """Yield the keys of entries that are missing, in O(all) time and O(page) memory."""
    results = backend.scan(keys.RESULTS)
    while page := list(islice(results, _PAGE)):
        for record, found in _missing(backend, page):
            stored = backend.get(record.key)  # It may have been expired meanwhile.
            if stored is not None and stored.version == record.version:
                yield from found


def _missing(backend: Backend, page: Sequence[Record]) -> Iterator[tuple[Record, list[str]]]:
    wanted = {record: keys_of(result) for record, result in _decoded(page)}
    names = [key for each in wanted.values() for key in each]
    present = {one.key for one in backend.get_many(names) if isinstance(one, Record)}
    for record, of_result in wanted.items():
        if lacks := [key for key in of_result if key not in present]:
            yield record, lacks


def of_job(backend: Backend, job_id: str) -> Iterator[str]:
    """Yield the keys of a job's entries whatever its result says, in O(all) time."""
    for prefix in (keys.ENDED, keys.TAGGED):
        for record in backend.scan(prefix):
            if keys.indexed_job(record.key) == job_id:
                yield record.key


def stale(backend: Backend) -> Iterator[str]:
    """Yield the keys of entries whose result does not exist, or is indexed under other keys."""
    for prefix in (keys.ENDED, keys.TAGGED):
        found = backend.scan(prefix)
        while page := [record.key for record in islice(found, _PAGE)]:
            names = [keys.RESULTS + keys.indexed_job(key) for key in page]
            for key, record in zip(page, backend.get_many(names), strict=True):
                if isinstance(record, CorruptRecord):
                    continue  # The job is held; nobody can tell.
                fits = record is not None and _names(record, key)
                if not fits and backend.get(key) is not None:  # It may have gone meanwhile.
                    yield key


def _names(record: Record, key: str) -> bool:
    decoded = list(_decoded([record]))
    return not decoded or key in keys_of(decoded[0][1])


def _decoded(records: Sequence[Record]) -> Iterator[tuple[Record, JobResult]]:
    for record in records:
        try:
            yield record, result_in(record)
        except CorruptRecord:
            continue  # fsck names it.
