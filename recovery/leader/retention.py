"""Retention: the leader removes what ended jobs have left for longer than its policy says.

Each kind of things has its turn, for a page of them, and pauses follow. It keeps a page of results
and a bounded number of names in memory. Of a job that has ended it remembers when, and looks at it
again once something of it may be due. What cannot be removed keeps nothing else from being
removed. Ages are judged by the leader's `AgeClock`.
Before each removal it checks the fence. What it removes belongs to a job with a clean or expired
result, which never runs again; so an interruption at any point leaves only work for the next pass.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    Fenced,
    NoSuchResult,
    ResultIsDirty,
    SnapshotInUse,
    Unavailable,
)
from jrs.contract.operations import Record
from jrs.contract.texts import error_text
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobSpec
from jrs.records.snapshots import SnapshotRecord
from jrs.store import expiry
from jrs.store.cluster_history import recording_expired
from jrs.store.history import drop_older
from jrs.store.result_store import JobResultStore

from ..cleanup.object_garbage import ObjectGarbage
from ..files import logs
from ..rules.events import EventKind
from ..rules.retention import DAY, Kind, Now, RetentionPolicy, is_due, shortest_age
from ..snapshots import delete
from ..snapshots.index import SnapshotIndex
from ..snapshots.references import jobs_in_use
from ..storage.objects import Objects
from .context import LeaderContext
from .ended_jobs import EndedJobs
from .leader_task import Upkeep

_MOST_SAID = 20
"""Problems of one pass that are reported."""
_SHORTEST, _LONGEST = 5.0, 3600.0
"""Seconds between two passes: a tenth of the shortest age, within these."""
_OBJECTS = 300.0
"""Seconds between two passes, at most, where the storage has objects."""
_PAUSE = 0.01
"""Seconds between two removals of files, and between two turns."""
_PAGE = 256
"""Things of one kind that are looked at in one turn."""
_NAMES = 1000
"""The jobs that are remembered at once, for their logs to be removed for their size."""

_Turns = Generator[object, None, None]
"""The removal of one kind of things; it yields after each one that it has looked at."""


class Retention(Upkeep):
    """The retention task of one leadership.

    Args:
        context: of the leadership.
        policy: what is kept for how long.
    """

    def __init__(self, context: LeaderContext, policy: RetentionPolicy) -> None:
        shortest = shortest_age(policy)
        pause = _LONGEST if shortest is None else min(_LONGEST, max(_SHORTEST, shortest / 10))
        if context.storage.objects is not None:
            pause = min(pause, _OBJECTS)
        super().__init__(
            context, "retention", "retention failed", first=min(pause, 60.0), pause=pause
        )
        self._policy = policy
        self._emit = context.emit
        self._backend = context.backend
        self._storage = context.storage
        self._results = JobResultStore(context.backend, now=context.runtime.now)
        self._snapshots = SnapshotIndex(context.backend, context.storage)
        self._objects = context.storage.objects
        self._ended = EndedJobs(context.backend)
        self._oldest: dict[str, float] = {}
        """When the oldest events of jobs that have not ended happened, as far as known."""
        self._lent: dict[str, str] = {}
        """Results that stay, with the applications that may need them."""
        self._problems: dict[str, None] = {}
        """Of this pass."""
        self._reported: dict[str, float] = {}
        """Those of the pass before, and when each was reported, on the monotonic clock."""

    def run_once(self) -> Counter[Kind]:
        """Do one pass; return how many things of each kind were removed.

        Each kind is retained by itself. A problem of one is reported, and again each day while it
        lasts; the next pass tries again.

        Raises:
            Fenced: a newer leader exists.
        """
        removed: Counter[Kind] = Counter()
        self._problems = {}
        with self._noting():
            if self._take_turns(self._kinds(self._context.ages.now(), removed)):
                self._ended.end_pass()
        self._report_problems()
        return +removed

    # -- inside ----------------------------------------------------------------------------

    def _run(self) -> None:
        with suppress(Exception):  # A pass reports it.
            self._context.ages.now()  # So that it has heard other masters by the first pass.
        super()._run()

    def _work(self) -> bool:
        removed = self.run_once()
        if removed:
            what = ", ".join(f"{count} {kind.value}" for kind, count in removed.items())
            self._emit(EventKind.RETENTION, "", f"removed {what}")
        return not self._problems

    def _report_problems(self) -> None:
        now, reported = self._context.runtime.clock(), self._reported
        self._reported = {}
        for why in self._problems:
            at = reported.get(why)
            if at is None or now >= at + DAY:
                self._emit(EventKind.ERROR, "", f"retention failed: {why}; trying again")
                at = now
            self._reported[why] = at

    def _kinds(self, now: Now, removed: Counter[Kind]) -> list[_Turns]:
        """Return what removes each kind of things in one pass."""
        policy = self._policy
        kinds = [self._retain_logs(now, removed)]
        if policy.snapshots is not None or policy.outputs is not None:
            kinds.append(self._retain_folders(now, removed))
        if policy.results is not None:
            kinds.append(self._retain_results(now.before(policy.results), removed))
        if policy.history is not None:
            kinds.append(self._retain_history(now.before(policy.history), removed))
        if self._objects is not None:
            kinds.append(self._sweep_objects(self._objects))
        return kinds

    def _take_turns(self, kinds: list[_Turns]) -> bool:
        """Have each kind removed, a page of it in each of its turns; return whether that was
        completed."""
        try:
            while kinds:
                for kind in tuple(kinds):
                    looked_at = 0
                    with self._noting():
                        for _ in islice(kind, _PAGE):
                            looked_at += 1
                            if self._is_over():
                                return False
                    if looked_at < _PAGE:
                        kinds.remove(kind)
                    self._over.wait(_PAUSE)
            return True
        finally:
            for kind in kinds:
                kind.close()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note an error for the end of the pass, and continue."""
        try:
            yield
        except Fenced:
            raise
        except Exception as error:
            self._note(error_text(error))

    def _note(self, problem: str) -> None:
        if len(self._problems) < _MOST_SAID:
            self._problems[problem] = None

    def _check_fence(self) -> None:
        self._backend.check_current(self._context.fence, "retention stops here")

    def _retain_folders(self, now: Now, removed: Counter[Kind]) -> _Turns:
        """Remove snapshots that are due, then outputs that are, and that none of the rest names."""
        if self._policy.snapshots is not None:
            with self._noting():
                yield from self._retain_snapshots(now, removed)
        if self._policy.outputs is not None:
            yield from self._retain_outputs(now, removed)

    def _retain_snapshots(self, now: Now, removed: Counter[Kind]) -> _Turns:
        """Go through all snapshots: remove those of ended jobs that are due, that jrs took and
        that no restore needs."""
        stored = self._backend.scan(keys.SNAPSHOTS)
        while page := list(islice(stored, _PAGE)):
            due, gone = self._due_snapshots(page, now), set[str]()
            try:
                entries = delete.Entries.of(self._backend, due.values())
            except CorruptRecord:
                return  # It is unknown what restores need: all stay. `jrs fsck` names it.
            for one in page:
                yield one
                if one.key in due:
                    with self._noting():
                        if self._remove_snapshot(due[one.key], entries, removed):
                            gone.add(due[one.key].job_id)
            for job_id in sorted(gone):
                with self._noting():
                    self._sweep_ended(job_id, now)

    def _due_snapshots(self, page: Iterable[Record], now: Now) -> dict[str, SnapshotRecord]:
        """Return those of the entries whose snapshots may go for their age."""
        systems = dict[str, SnapshotRecord]()
        for one in page:
            with suppress(CorruptRecord):  # `jrs fsck` names it.
                record = decode(SnapshotRecord, one.value, one.key)
                if record.is_systems:
                    systems[one.key] = record
        ended = dict(self._ended.in_pages({record.job_id: None for record in systems.values()}))
        return {
            key: record
            for key, record in systems.items()
            if (job := ended[record.job_id]) and is_due(self._policy, Kind.SNAPSHOTS, job, now)
        }

    def _remove_snapshot(
        self, record: SnapshotRecord, entries: delete.Entries, removed: Counter[Kind]
    ) -> bool:
        """Remove a snapshot, unless a restore needs it; return whether it is gone."""
        try:
            delete.remove(self._backend, self._storage, record, self._context.fence, entries)
        except (CorruptRecord, SnapshotInUse, Unavailable):
            return False  # It is needed or damaged, or its storage is not mounted: next time.
        self._count(Kind.SNAPSHOTS, removed)
        return True

    def _retain_outputs(self, now: Now, removed: Counter[Kind]) -> _Turns:
        """Go through the ended jobs that have a folder: remove outputs that are due, unless
        something needs them."""
        with_output = list[str]()
        with self._noting():
            for job_id, job in self._ended.in_pages(self._storage.jobs()):
                yield job_id
                if job is not None and is_due(self._policy, Kind.OUTPUTS, job, now):
                    with self._noting():
                        if self._has_output(job_id):
                            with_output.append(job_id)
        if with_output:
            used = jobs_in_use(self._snapshots)  # If this raises, all outputs stay.
            for job_id in with_output:
                if job_id not in used:
                    with self._noting():
                        self._remove_output(job_id, removed)
                yield job_id

    def _sweep_ended(self, job_id: str, now: Now) -> None:
        """Remove the objects that only snapshots named that are gone, unless all output goes."""
        job = self._ended.of(job_id)
        if self._objects is None or job is None or is_due(self._policy, Kind.OUTPUTS, job, now):
            return
        garbage = ObjectGarbage(self._backend, self._objects)
        with suppress(CorruptRecord):  # It is not known what the output is: all of it stays.
            garbage.sweep_unnamed(job_id, now.here, ended=True, dry_run=False)

    def _has_output(self, job_id: str) -> bool:
        if self._objects is not None:
            return next(iter(self._objects.under(job_id)), None) is not None
        return (self._storage.folder(job_id) / "out").is_dir()

    def _remove_output(self, job_id: str, removed: Counter[Kind]) -> None:
        self._check_fence()
        if self._objects is not None:
            garbage = ObjectGarbage(self._backend, self._objects)
            if not garbage.sweep_output(job_id, dry_run=False):
                return  # Snapshots name all that is left.
        else:
            self._storage.discard(job_id, self._storage.folder(job_id) / "out")
            self._storage.remove_empty(job_id)
        self._count(Kind.OUTPUTS, removed)

    def _sweep_objects(self, objects: Objects) -> _Turns:
        """Remove what the streams of unfinished jobs have replaced in objects."""
        garbage = ObjectGarbage(self._backend, objects)
        for record in self._backend.scan(keys.JOBS):
            yield record
            try:
                garbage.sweep_replaced(keys.job_of(record.key), self._context.fence)
            except Conflict:
                continue  # A snapshot is being taken: the next pass sweeps.
            except CorruptRecord:
                continue  # The job is held, and says why.

    def _retain_results(self, horizon: float, removed: Counter[Kind]) -> _Turns:
        """Expire the clean results of jobs that ended before `horizon`."""
        fence = self._context.fence

        def delete(job_id: str) -> None:
            try:
                self._results.delete(job_id, fence)
            except (NoSuchResult, ResultIsDirty):
                raise  # A user was faster, or an operator has it cleaned up once more.
            except expiry.STAYS as error:
                self._note(f"the result of job {job_id!r} stays: {error}")
                raise

        now = self._context.runtime.now
        gone = expiry.expire(self._backend, now, horizon, 0, delete, fence, self._lent)
        for job_id in recording_expired(self._backend, gone, fence=fence):
            removed[Kind.RESULTS] += 1
            yield job_id

    def _retain_history(self, horizon: float, removed: Counter[Kind]) -> _Turns:
        """Drop the events before `horizon` of jobs that have not ended."""
        known, self._oldest = self._oldest, {}
        for record in self._backend.scan(keys.JOBS):
            yield record
            job_id = keys.job_of(record.key)
            oldest = known.get(job_id, 0.0)
            with suppress(CorruptRecord):  # `jrs fsck` names it.
                if not oldest:
                    oldest = decode(JobSpec, record.value, record.key).submitted_at
                if oldest < horizon:
                    dropped = drop_older(self._backend, job_id, self._context.fence, horizon)
                    oldest = dropped.since
                    removed[Kind.HISTORY] += dropped.count
                self._oldest[job_id] = oldest

    def _retain_logs(self, now: Now, removed: Counter[Kind]) -> _Turns:
        """Remove logs for their age, then the oldest ones for their size."""
        ages = [age for age in (self._policy.logs, self._policy.failed_logs) if age is not None]
        horizon = now.before(min(ages)) if ages else 0.0
        total = 0
        for job_id, folder in logs.folders(self._storage.root):
            yield job_id
            with self._noting():
                # The job has not ended before its newest line: no record needs to be read.
                if logs.newest(folder) <= horizon:
                    job = self._ended.of(job_id)
                    if job is not None and is_due(self._policy, Kind.LOGS, job, now):
                        self._remove_logs(job_id, folder, removed)
                        continue
                total += logs.size(folder)
        while total > self._policy.limits.cluster:
            before, oldest = total, list[tuple[float, str, int]]()
            yield from self._find_oldest_logs(oldest)
            for _, job_id, size in sorted(oldest, reverse=True):
                if total <= self._policy.limits.cluster:
                    return
                with self._noting():
                    self._remove_logs(job_id, self._storage.folder(job_id) / "logs", removed)
                    total -= size
                yield job_id
            if len(oldest) < _NAMES or total == before:
                return  # The others are of jobs that have not ended, or cannot be removed.

    def _find_oldest_logs(self, oldest: list[tuple[float, str, int]]) -> Iterator[object]:
        """Find the ended jobs with the oldest logs: when the newest of these was written, negated,
        and the job and its bytes, as a heap."""
        for job_id, folder in logs.folders(self._storage.root):
            yield job_id
            found = -logs.newest(folder), job_id, logs.size(folder)
            is_older = len(oldest) < _NAMES or found > oldest[0]
            if is_older and self._ended.of(job_id) is not None:
                # The newest of them is given up when there are too many.
                heapq.heappush(oldest, found)
                if len(oldest) > _NAMES:
                    heapq.heappop(oldest)

    def _remove_logs(self, job_id: str, folder: Path, removed: Counter[Kind]) -> None:
        self._check_fence()
        self._storage.discard(job_id, folder)
        self._storage.remove_empty(job_id)
        self._count(Kind.LOGS, removed)

    def _count(self, kind: Kind, removed: Counter[Kind]) -> None:
        removed[kind] += 1
        self._over.wait(_PAUSE)
