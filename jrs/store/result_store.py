"""JobResultStore: the durable record of how every job ended (FLIP-194, without its holes).

A result is written once, under ``results/<job>``. Its commit creates a marker ``dirty/<job>``, too,
which `mark_clean` deletes. So a result never moves, and dirty ones are a key range of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    InvalidInput,
    NoSuchResult,
    OutcomeUnknown,
    ResultExists,
    ResultExpired,
    ResultIsDirty,
    Unavailable,
)
from jrs.contract.inputs import check_is, member_or_none
from jrs.contract.limits import check_range
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Record
from jrs.contract.read_back import still_unknown
from jrs.records import keys
from jrs.records.checks import check_job_id
from jrs.records.codec import encode
from jrs.records.model import JobResult, JobResultEntry, JobStatus, ResultState, Tombstone
from jrs.store import applications, cluster_format, expiry, result_index, result_order
from jrs.store.cluster_history import recording_expired
from jrs.store.historian import reason, submitter
from jrs.store.stored_result import check_certain, result_in, stored_entry, stored_form


class JobResultStore:
    """The results of one cluster. Stateless: all instances, in all processes, agree."""

    def __init__(self, backend: Backend, *, now: Clock = time.time) -> None:
        check_is(backend, "backend", Backend, hint="jrs.open_backend(url) returns one")
        self._backend = backend
        self._now = now

    # -- writing ---------------------------------------------------------------------------

    def create_dirty(
        self, result: JobResult, fence: Fence | None, *, also: tuple[Op, ...] = ()
    ) -> None:
        """Record how a job ended. Durable, idempotent: repeating the same result is a no-op.

        `also` are further operations of the same commit, for records that end with the job.

        Raises:
            ResultExists: another result of the job is durable, or was expired.
            Conflict: the condition of one of `also` did not hold; nothing was changed.
            Fenced: a newer epoch exists.
            InvalidInput: `result` is not a `JobResult`, or a FAILED one without a failure.
            TooLarge: the payload is over `MAX_PAYLOAD`. Other large parts are left out of the
                stored result: first the arguments and settings of its spec, then the summaries of
                attempts, then those of stages, then the failure's detail.
            Unavailable: nothing was changed.
            OutcomeUnknown: unknown even after reading back. Do not clean up; repeat the call.
        """
        try:
            self._commit_dirty(result, fence, also)
        except Fenced:
            # An earlier try may have stored the result and closed the attempt's fence with it.
            if not also or not self._stored(result):
                raise
        except OutcomeUnknown as unknown:
            with still_unknown(unknown):
                stored = self._stored(result)
            if not stored:
                # The Creates guard a second try, so the commit cannot be applied twice.
                try:
                    self._commit_dirty(result, fence, also)
                except (CorruptRecord, Unavailable) as error:
                    raise unknown from error

    def create_dirty_async(self, result: JobResult, fence: Fence | None) -> Future[None]:
        """Run `create_dirty` without waiting, but without its read-back.

        An existing result fails with `Conflict`, as does a format of the cluster that is raised at
        this moment; an unknown outcome stays unknown. Call `create_dirty` with the same result to
        resolve each of them.
        """
        return self._backend.commit_async(*self._dirty_ops(result), fence=fence)

    def mark_clean(self, job_id: str, fence: Fence | None, *, also: tuple[Op, ...] = ()) -> bool:
        """Record that every resource of the job is cleaned up. Idempotent; one atomic commit.

        `also` are further operations of the same commit. Return whether they are known to be done.

        Raises:
            NoSuchResult: the job has no result.
            Conflict: the condition of one of `also` did not hold; the result is still dirty.
            CorruptRecord: the entry cannot be read and has no dirty marker.
            Fenced, Unavailable, OutcomeUnknown: as `create_dirty`; repeating the call is harmless.
        """
        check_job_id(job_id)
        marker = Delete(keys.DIRTY + job_id)
        try:
            self._backend.commit(marker, *also, fence=fence)
            return True
        except Conflict as conflict:
            refused = conflict
        except OutcomeUnknown as unknown:
            with still_unknown(unknown):
                if self._state(job_id) is ResultState.DIRTY:
                    raise
            return False
        entry = self.get(job_id)
        if entry is None:
            raise NoSuchResult(f"job {job_id!r} has no result to mark clean")
        if entry.state is not ResultState.DIRTY:
            return False
        if refused.op != marker:
            raise refused
        # The marker was missing and now exists: the result was written in between.
        try:
            self._backend.commit(marker, *also, fence=fence)
            return True
        except Conflict as conflict:
            if conflict.op != marker:
                raise
            if entry.problem:
                raise CorruptRecord(entry.problem) from None
            return False

    def mark_clean_async(self, job_id: str, fence: Fence | None) -> Future[None]:
        """Run `mark_clean` without waiting. A result that is not dirty fails with `Conflict`."""
        check_job_id(job_id)
        return self._backend.commit_async(Delete(keys.DIRTY + job_id), fence=fence)

    def delete(self, job_id: str, fence: Fence | None = None) -> None:
        """Replace a clean result by a tombstone. Idempotent.

        Args:
            fence: of the leader that does it; None: a user does it, who needs no leader.

        Raises:
            Fenced: a newer leader exists.
            NoSuchResult: the job has no result.
            ResultIsDirty: the job's cleanup has not ended.
            WrongState: the job's application has not ended, and may need the result again.
        """
        check_job_id(job_id)
        while True:
            record = self._backend.get(keys.RESULTS + job_id)
            if record is None:
                if self._tombstone(job_id):
                    return
                raise NoSuchResult(f"job {job_id!r} has no result to delete")
            try:
                self._backend.commit(*self._deletion_ops(record, fence), fence=fence)
                return
            except Conflict as conflict:
                if conflict.op.key.startswith(keys.DIRTY):
                    raise ResultIsDirty(
                        f"the result of job {job_id!r} is dirty: its cleanup has not ended"
                    ) from None
                if self._tombstone(job_id):
                    return
                if not conflict.op.key.startswith((keys.ENDED, keys.TAGGED, *keys.TOLD)):
                    raise
                # It is being indexed at this moment, or its history written: read again.
            except OutcomeUnknown as unknown:
                with still_unknown(unknown):
                    if not self._tombstone(job_id):
                        raise
                return

    def expire(self, older_than: float, keep: int = 0) -> list[str]:
        """Delete the clean results of jobs that ended over `older_than` seconds ago.

        Returns the ids. The `keep` newest of all clean results stay whatever their age, and so do
        those of jobs whose application has not ended: its main may ask for them again. Dirty and
        unreadable entries are never touched, nor those with a record that is held because of
        damage, nor those without a `finished_at`. An interrupted call is harmless: repeat it.
        """
        return sorted(self.expiring(older_than, keep))

    def expiring(self, older_than: float, keep: int = 0) -> Iterator[str]:
        """Do what `expire` does, page by page, in O(page) memory, the newest ends first; yield each
        id once it is gone. Below format 5 all results are read first.

        Raises:
            InvalidInput: at once, for an age or a number that cannot be one.
            Unavailable: from the backend; what was yielded is gone.
        """
        expiry.check(older_than, keep)
        gone = expiry.expire(self._backend, self._now, self._now() - older_than, keep, self.delete)
        return recording_expired(self._backend, gone, self._now)

    # -- reading ---------------------------------------------------------------------------

    def get(self, job_id: str) -> JobResultEntry | None:
        """Return the job's entry, or None if it has no result. Works in any process.

        An unreadable entry is returned with `problem`, never raised.
        """
        check_job_id(job_id)
        return stored_entry(self._backend, job_id)

    def has_dirty(self, job_id: str) -> bool:
        """Return whether the job has a result whose cleanup has not ended. Raises `CorruptRecord`
        as `has_entry`."""
        return self._state(job_id) is ResultState.DIRTY

    def has_clean(self, job_id: str) -> bool:
        """Return whether the job's result is clean. Raises `CorruptRecord` as `has_entry`."""
        return self._state(job_id) is ResultState.CLEAN

    def has_entry(self, job_id: str) -> bool:
        """Return whether the job has ended: its result is dirty, clean or expired.

        Raises:
            CorruptRecord: the disk has lost the result, or there never was one.
        """
        return self._state(job_id) is not None

    def dirty(self) -> Iterator[JobResultEntry]:
        """Yield the dirty entries in the order of their ids, without reading clean ones."""
        return result_order.dirty(self._backend)

    def list(
        self,
        *,
        state: ResultState | str | None = None,
        status: JobStatus | str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobResultEntry]:
        """Yield dirty and clean entries in the order of their ids, in O(page) memory.

        `state` and `status` filter; the list begins behind the job id `after`. Expired entries are
        yielded only for ``state=ResultState.EXPIRED``.

        Raises:
            InvalidInput: at once, for a filter of the wrong type or a `limit` below zero.
        """
        state = member_or_none(ResultState, state, "state")
        status = member_or_none(JobStatus, status, "status")
        check_range(keys.RESULTS, after, limit)
        wanted = (
            entry
            for entry in result_order.by_id(self._backend, state, after)
            if status is None or (entry.result is not None and entry.result.status is status)
        )
        return islice(wanted, limit)

    def by_end(
        self,
        *,
        status: JobStatus | str | None = None,
        tag: str | None = None,
        since: float | None = None,
        until: float | None = None,
        after: str | None = None,
    ) -> Iterator[JobResultEntry]:
        """Yield the entries of readable results, dirty and clean, the newest end first.

        O(page) in time and memory. In a cluster of a format below 5, all results are read first.

        Args:
            status: only results with this status.
            tag: only results of jobs with this tag.
            since, until: only results of jobs that ended then, in seconds since 1970, both
                included.
            after: begin behind this job, which must have a result.

        Raises:
            InvalidInput: at once, for a filter of the wrong type or form.
            NoSuchResult: the job `after` has no result.
        """
        status = member_or_none(JobStatus, status, "status")
        result_order.check_filters(tag, since, until)
        if after is not None:
            check_job_id(after)
        return result_order.by_end(
            self._backend, status=status, tag=tag, since=since, until=until, after=after
        )

    def wait(self, job_id: str, timeout: float | None = None) -> JobResult:
        """Wait until the job has a result, and return it; a dirty one is final, too.

        Raises:
            TimeoutError: no result within `timeout` seconds.
            ResultExpired, CorruptRecord: it was expired, or cannot be read.
        """
        result = self._wait(job_id, timeout, threading.Event())
        assert result is not None
        return result

    async def await_(self, job_id: str, timeout: float | None = None) -> JobResult:
        """Wait like `wait`, for asyncio, in a thread of its own. Cancelling the task ends it."""
        from jrs.contract.own_thread import in_own_thread  # Loads asyncio, which takes 4 MB.

        result = await in_own_thread(partial(self._wait, job_id, timeout), f"jrs-await-{job_id}")
        assert result is not None
        return result

    # -- inside ----------------------------------------------------------------------------

    def _wait(
        self, job_id: str, timeout: float | None, canceled: threading.Event
    ) -> JobResult | None:
        check_job_id(job_id)
        deadline = Deadline.of_wait(timeout)
        with self._backend.watch(keys.RESULTS + job_id) as watch:
            while not canceled.is_set():
                entry = self.get(job_id)
                if entry is not None:
                    if entry.result is not None:
                        return entry.result
                    if entry.problem:
                        raise CorruptRecord(entry.problem)
                    raise ResultExpired(f"the result of job {job_id!r} was expired")
                if deadline.expired:
                    raise TimeoutError(f"job {job_id!r} has no result after {timeout:g} s")
                # One second at most, so that a canceled wait ends soon.
                watch.wait(min(1.0, deadline.remaining()))
        return None

    def _commit_dirty(self, result: JobResult, fence: Fence | None, also: tuple[Op, ...]) -> None:
        while True:
            try:
                self._backend.commit(*self._dirty_ops(result), *also, fence=fence)
                return
            except Conflict as conflict:
                if conflict.op.key != keys.FORMAT:
                    self._explain_existing(result, conflict)
                    return
                # The format was raised at this moment: the result needs its index now.

    def _dirty_ops(self, result: JobResult) -> tuple[Op, ...]:
        check_is(result, "result", JobResult)
        if result.status is JobStatus.FAILED and result.failure is None:
            raise InvalidInput(f"the FAILED result of job {result.job_id!r} has no failure")
        job_id = result.job_id
        form, data = self._form(result)
        below = cluster_format.stays_below(self._backend, result_index.SINCE_FORMAT)
        return (
            Create(keys.RESULTS + job_id, data),
            Create(keys.DIRTY + job_id, b""),
            Absent(keys.TOMBSTONES + job_id),
            *(result_index.create_ops(form) if below is None else (below,)),
        )

    def _deletion_ops(self, record: Record, fence: Fence | None) -> tuple[Op, ...]:
        by, why = ("", "") if fence is not None else (submitter(), reason())
        job_id, now = keys.job_of(record.key), self._now()
        under = (Check(record.key, record.version), Absent(keys.DIRTY + job_id))
        try:
            result = result_in(record)
        except CorruptRecord:
            # The caller has decided to delete a damaged entry; the job must still not run again.
            tombstone = encode(Tombstone(job_id, JobStatus.FAILED, 0.0, now, by=by, reason=why))
            index: tuple[Op, ...] = tuple(map(Delete, result_index.of_job(self._backend, job_id)))
        else:
            applications.check_unneeded(self._backend, result)
            tombstone = expiry.tombstone_of(result, now, by, why)
            index = result_index.delete_ops(self._backend, result)
        # Last: it may remove a part of the history at once.
        told = expiry.history_removal(self._backend, job_id, under, fence)
        return expiry.deletion_ops(record, tombstone, (*index, *told))

    def _explain_existing(self, result: JobResult, conflict: Conflict) -> None:
        """Return if the stored result is `result`; else raise `ResultExists`, or the conflict if
        the job has no result: its operation was another one of the commit."""
        if self._stored(result):
            return
        state = self._state(result.job_id)
        if state is None:
            raise conflict
        raise ResultExists(result.job_id, state.value) from None

    def _stored(self, result: JobResult) -> bool:
        record = self._backend.get(keys.RESULTS + result.job_id)
        return record is not None and record.value == self._form(result)[1]

    def _form(self, result: JobResult) -> tuple[JobResult, bytes]:
        return stored_form(result, self._backend.capabilities.max_value)

    def _state(self, job_id: str) -> ResultState | None:
        entry = self.get(job_id)
        check_certain(entry)
        return None if entry is None else entry.state

    def _tombstone(self, job_id: str) -> bool:
        return self._backend.get(keys.TOMBSTONES + job_id) is not None
