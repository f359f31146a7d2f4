"""Expiring results: a clean result and its index entries are replaced by a tombstone.

Many results go in one commit, and the commits of a page are under way while the next page is read.
A commit that is refused because of one of its results is made again without that one, which is then
deleted by itself. One that cannot be deleted stays, and keeps no other one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import islice

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    NoSuchResult,
    OutcomeUnknown,
    ResultIsDirty,
    Unavailable,
    WrongState,
)
from jrs.contract.operations import Absent, Create, Delete, Fence, Op, Record
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.codec import encode, encode_plain, plain_of
from jrs.records.model import JobResult, JobStatus, ResultState, Tombstone
from jrs.records.policies import LONGEST
from jrs.store import applications, history, result_index, result_order
from jrs.store.historian import reason, submitter
from jrs.store.result_index import Entry

STAYS = (NoSuchResult, ResultIsDirty, WrongState, Conflict, CorruptRecord)
"""What deleting one result may raise that says nothing of the others."""
_PAGE = 256
"""Results that are read at once."""
_MOST_LENT = 100_000
"""Results that are remembered from one call to the next."""
_AHEAD = 1
"""Pages whose commits may be under way while the next one is read."""


def check(older_than: float, keep: int) -> None:
    """Raise `InvalidInput` for an age or a number of results that cannot be one."""
    if type(older_than) not in (int, float) or not 0 <= older_than <= LONGEST:
        raise InvalidInput(f"older_than must be from 0 to {LONGEST}, not {shown(older_than)}")
    if type(keep) is not int or keep < 0:
        raise InvalidInput(f"keep must be a whole number, not {shown(keep)}")


def deletion_ops(record: Record, tombstone: bytes, also: tuple[Op, ...]) -> tuple[Op, ...]:
    """Return the operations that replace a clean result by its tombstone."""
    job_id = keys.job_of(record.key)
    return (
        Delete(record.key, record.version),
        Absent(keys.DIRTY + job_id),
        Create(keys.TOMBSTONES + job_id, tombstone),
        *also,
    )


def tombstone_of(result: JobResult, now: float, by: str, reason: str) -> bytes:
    """Return the record of what is left of an expired result."""
    return encode(
        Tombstone(
            result.job_id,
            result.status,
            result.finished_at,
            now,
            submitted_at=result.spec.submitted_at if result.spec is not None else 0.0,
            started_at=result.started_at,
            by=by,
            reason=reason,
        )
    )


def expire(
    backend: Backend,
    now: Clock,
    horizon: float,
    keep: int,
    delete: Callable[[str], None],
    fence: Fence | None = None,
    lent: dict[str, str] | None = None,
) -> Iterator[str]:
    """Expire old clean results page by page; yield each id once it is gone. A result with a record
    that is held because of damage stays, and so does one whose end is unknown.

    Args:
        horizon: only those of jobs that ended until then, in seconds since 1970.
        keep: so many of the newest clean results stay.
        delete: removes one result whatever happens to it at the same moment.
        lent: the results that stay as long as their application runs, with the application of each,
            as far as earlier calls have read them: they are not read again. The call keeps it.
        fence: of the leader that expires them; None: a user does.

    Raises:
        Fenced: a newer leader exists.
        Unavailable: from the backend; what was yielded is gone.
    """
    who = (submitter(), reason()) if fence is None else ("", "")
    after = _last_kept(backend, keep) if keep else None
    if keep and after is None:
        return
    old = result_order.places(backend, None, None, result_order.FIRST_END, horizon, after)
    runs, lent = applications.running(backend), {} if lent is None else lent
    stay: dict[str, str] = {}
    commits = _Commits(backend, delete, fence)
    sent: list[list[_Sent]] = []
    while page := [entry.job_id for entry in islice(old, _PAGE)]:
        known = {one: lent[one] for one in page if one in lent and runs(lent[one])}
        stay.update(known)
        clean = list[_Old]()
        for old_one in _clean(backend, [one for one in page if one not in known]):
            if not old_one.application or not runs(old_one.application):
                clean.append(old_one)
            elif len(stay) < _MOST_LENT:
                stay[old_one.job_id] = old_one.application
        if clean:
            few, others = _deletions(backend, clean, now(), who)
            sent.append(commits.send(few))
            yield from commits.apiece(others)
        if len(sent) > _AHEAD:
            yield from commits.settled(sent.pop(0))
    lent.clear()  # Others may have expired some of them.
    lent.update(stay)
    for each in sent:
        yield from commits.settled(each)


def _last_kept(backend: Backend, keep: int) -> Entry | None:
    """Return the place of the last of the `keep` newest clean results; None if there are fewer."""
    places = result_order.places(backend, None, None, result_order.FIRST_END, None, None)
    while page := [entry.job_id for entry in islice(places, _PAGE)]:
        for entry in result_order.entries_of(backend, page):
            if entry.state is ResultState.CLEAN and entry.result is not None:
                keep -= 1
                if keep == 0:
                    return result_order.place_in(entry.result)
    return None


# -- reading -------------------------------------------------------------------------------


@attrs.frozen
class _Old:
    """What expiring needs to know of a clean result: little of it, and only that is decoded."""

    record: Record
    job_id: str
    status: JobStatus
    finished_at: float
    started_at: float
    submitted_at: float
    application: str
    tags: tuple[str, ...]

    @classmethod
    def of(cls, record: Record) -> _Old | None:
        """Return that of a record; None if the record cannot be read."""
        try:
            plain = plain_of(JobResult, record.value, record.key)
            spec = plain.get("spec") or {}
            old = cls(
                record, plain["job_id"], JobStatus(plain["status"]),
                _number(plain.get("finished_at", 0.0)), _number(plain.get("started_at", 0.0)),
                _number(spec.get("submitted_at", 0.0)), plain.get("application", ""),
                tuple(spec.get("tags", ())),
            )  # fmt: skip
        except (CorruptRecord, KeyError, ValueError, TypeError, AttributeError, OverflowError):
            return None  # It has no age; fsck names it.
        texts = type(old.application) is str and all(type(tag) is str for tag in old.tags)
        fits = old.job_id == keys.job_of(record.key) and old.status.is_globally_terminal
        return old if texts and fits else None

    def tombstone(self, now: float, by: str, reason: str) -> bytes:
        """Return the record of what is left of it, as `tombstone_of` does."""
        fields = {
            "job_id": self.job_id,
            "status": self.status.value,
            "finished_at": self.finished_at,
            "expired_at": now,
            "submitted_at": self.submitted_at,
            "started_at": self.started_at,
            "by": by,
            "reason": reason,
        }
        return encode_plain(Tombstone, fields)

    def indexed(self) -> list[str]:
        """Return the keys of its entries in the index."""
        return result_index.keys_for(self.job_id, self.status, self.finished_at, self.tags)


def _number(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]  # What is no number came first.
        raise TypeError(f"{value!r} is not a number")
    return float(value)  # type: ignore[arg-type]  # As above.


def _clean(backend: Backend, job_ids: Sequence[str]) -> list[_Old]:
    """Return what can be read of the clean results of jobs."""
    # Read the results before the markers: a marker is created with its result and removed once, so
    # a result whose marker is missing afterwards is clean.
    records = backend.get_many([keys.RESULTS + job_id for job_id in job_ids])
    markers = backend.get_many([keys.DIRTY + job_id for job_id in job_ids])
    read = (
        _Old.of(record)
        for record, marker in zip(records, markers, strict=True)
        if isinstance(record, Record) and marker is None
    )
    return [one for one in read if one is not None]


def _deletions(
    backend: Backend, clean: Sequence[_Old], now: float, who: tuple[str, str]
) -> tuple[list[_Deletion], list[str]]:
    """Return what replaces each of some clean results by its tombstone, and the ids of the others,
    of whose history there is more than one commit removes.

    Args:
        who: expires them, and why.
    """
    job_ids = [one.job_id for one in clean]
    index = result_index.clean_delete_ops(backend, {one.job_id: one.indexed() for one in clean})
    told = history_removals(backend, job_ids)
    few = [
        _Deletion(one.job_id, deletion_ops(one.record, one.tombstone(now, *who), (*ops, *also)))
        for one, ops, also in zip(clean, index, told, strict=True)
        if also is not None
    ]
    return few, [job_id for job_id, also in zip(job_ids, told, strict=True) if also is None]


# -- histories -----------------------------------------------------------------------------


def history_removals(backend: Backend, job_ids: Sequence[str]) -> list[tuple[Delete, ...] | None]:
    """Return for each of some ended jobs the operations that remove its history as it is now; None
    for one whose history is more than one commit removes: see `history_removal`."""
    folds = backend.get_many([keys.history_fold(job_id) for job_id in job_ids])
    removed = list[tuple[Delete, ...] | None]()
    for fold, live in zip(folds, _first_of_each(backend, job_ids), strict=True):
        own = [Delete(fold.key, fold.version)] if isinstance(fold, Record) else []
        removed.append((*own, *live) if len(live) <= history.MANY else None)
    return removed


def history_removal(
    backend: Backend, job_id: str, under: Sequence[Op] = (), fence: Fence | None = None
) -> tuple[Op, ...]:
    """Return the operations that remove what is left of the history of an ended job, after removing
    all that is more than one commit takes.

    Args:
        under: the conditions under which it may be removed.

    Raises:
        Conflict: one of the conditions does not hold.
        Fenced, Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
    """
    while (left := history_removals(backend, [job_id])[0]) is None:
        try:
            backend.commit(*under, *_first(backend, job_id, history.MANY), fence=fence)
        except Conflict as conflict:
            if conflict.op in under:
                raise
            # Another process removes it, too.
    return left


def _first_of_each(backend: Backend, job_ids: Sequence[str]) -> Iterator[list[Delete]]:
    """Yield for each of some jobs what removes its first live events: all of them, or more than
    one commit takes."""
    # An ended job has few, and jobs that end together are often neighbours: one scan, of fewer
    # records than there are jobs, reads what most of them have.
    names = [keys.history(job_id) for job_id in job_ids]
    most = len(names) - 1
    near = list(backend.scan(keys.HISTORY, after=min(names), limit=most))
    whole_before = keys.history(keys.job_of(near[-1].key)) if near else ""
    for job_id, name in zip(job_ids, names, strict=True):
        if len(near) < most or name < whole_before:
            yield [Delete(one.key, one.version) for one in near if one.key.startswith(name)]
        else:
            yield _first(backend, job_id, history.MANY + 1)


def _first(backend: Backend, job_id: str, most: int) -> list[Delete]:
    """Return what removes the first live events of a job, in the order of their keys."""
    found = backend.scan(keys.history(job_id), limit=most)
    return [Delete(record.key, record.version) for record in found]


# -- committing ----------------------------------------------------------------------------


@attrs.frozen
class _Deletion:
    """The operations that replace a clean result by its tombstone."""

    job_id: str
    ops: tuple[Op, ...]


_Sent = tuple[Sequence[_Deletion], "Future[None]"]
"""Some deletions, and the one commit of them all."""


@attrs.define
class _Commits:
    """Commits deletions, as many at once as one commit takes."""

    backend: Backend
    delete: Callable[[str], None]
    fence: Fence | None
    apart: bool = False
    """Whether each commit waits for the one before. ZooKeeper refuses commits that are under way
    while another one deletes next to them."""

    def send(self, deletions: Iterable[_Deletion]) -> list[_Sent]:
        """Commit deletions without waiting."""
        most, batches, room = self.backend.capabilities.max_ops, list[list[_Deletion]](), 0
        for one in deletions:
            if room < len(one.ops):
                batches.append([])
                room = most
            batches[-1].append(one)
            room -= len(one.ops)
        return [(batch, self._commit(batch)) for batch in batches]

    def settled(self, sent: Sequence[_Sent]) -> Iterator[str]:
        """Yield the id of each result that is gone, once the commits have ended."""
        while sent:
            refused, left, alone = 0, list[_Deletion](), list[_Deletion]()
            for batch, commit in sent:
                try:
                    commit.result()
                except Conflict as conflict:
                    # A result has changed, or its index; or nothing has: see `apart`.
                    refused += 1
                    key = conflict.op.key
                    blamed = [one for one in batch if any(op.key == key for op in one.ops)]
                    alone += blamed or batch
                    left += [one for one in batch if one not in blamed] if blamed else []
                except (CorruptRecord, OutcomeUnknown, Unavailable):
                    alone += batch  # A held record does not say whose it is.
                else:
                    yield from (one.job_id for one in batch)
            self.apart = self.apart or 2 * refused > len(sent) > 1
            yield from self.apiece(one.job_id for one in alone)
            sent = self.send(left)

    def apiece(self, job_ids: Iterable[str]) -> Iterator[str]:
        """Delete results each by itself; yield the id of each one that is gone."""
        for job_id in job_ids:
            try:
                self.delete(job_id)
            except STAYS:
                continue  # fsck names what is damaged.
            yield job_id

    def _commit(self, batch: Sequence[_Deletion]) -> Future[None]:
        ops = (op for one in batch for op in one.ops)
        sent = self.backend.commit_async(*ops, fence=self.fence)
        if self.apart:
            sent.exception()
        return sent
