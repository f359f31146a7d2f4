"""fsck: damage, records that cannot be read, and left-overs without an owner. Changes nothing."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, Unavailable
from jrs.contract.texts import counted
from jrs.records import keys
from jrs.records.applications import ApplicationRecord
from jrs.records.cluster import (
    ClosedRecord,
    MigrationRecord,
    PauseRecord,
    StorageRecord,
    SwitchoverRecord,
)
from jrs.records.codec import decode
from jrs.records.exports import ExportRecord
from jrs.records.heads import JobGeneration, StreamHead, StreamPlan
from jrs.records.history import ClusterHistory
from jrs.records.lineage import Descendant
from jrs.records.model import (
    AttemptRecord,
    CancelRequest,
    CleanupJournal,
    EpochRecord,
    FormatRecord,
    JobResult,
    JobSpec,
    MasterInfo,
    StageRecord,
    StopRecord,
    StreamRecord,
    Tombstone,
)
from jrs.records.objects import ClosedInput, JobReferences
from jrs.records.snapshots import RestoreRecord, SnapshotRecord
from jrs.store import (
    applications,
    attempt_fence,
    cluster_history,
    history_checks,
    restores,
    result_index,
)
from jrs.store.cluster_format import is_at_least
from jrs.store.jobs import JobCatalog
from jrs.store.masters import Registry
from jrs.store.result_store import JobResultStore

from ..cleanup.records_left import half_published, records_left
from ..files.disk_errors import check_answers
from ..files.job_folders import JobStorage
from ..files.storage_identity import StorageIdentity
from ..rules.decision import Action
from ..snapshots import find_orphans
from . import object_check
from .explain import Explainer
from .history import wrong_decisions

_KINDS: dict[str, type] = {
    keys.JOBS: JobSpec,
    keys.APPLICATIONS: ApplicationRecord,
    keys.RESULTS: JobResult,
    keys.TOMBSTONES: Tombstone,
    keys.ATTEMPTS: AttemptRecord,
    keys.STAGES: StageRecord,
    keys.STREAMS: StreamRecord,
    keys.HEADS: StreamHead,
    keys.GENERATIONS: JobGeneration,
    keys.PLANS: StreamPlan,
    keys.INPUTS: ClosedInput,
    keys.REFERENCES: JobReferences,
    keys.STOPS: StopRecord,
    keys.CANCEL: CancelRequest,
    keys.CLEANUP: CleanupJournal,
    keys.LEFT: CleanupJournal,
    keys.EXPORTS: ExportRecord,
    keys.LINEAGE: Descendant,
    keys.MASTERS: MasterInfo,
    keys.FORMAT: FormatRecord,
    keys.STORAGE: StorageRecord,
    keys.PAUSE: PauseRecord,
    keys.SWITCHOVER: SwitchoverRecord,
    keys.CLOSED: ClosedRecord,
    keys.MIGRATION: MigrationRecord,
    keys.CLUSTER_HISTORY: ClusterHistory,
    keys.SNAPSHOTS: SnapshotRecord,
    keys.RESTORES: RestoreRecord,
}
"""The kind of each record. Those of jobs' histories are checked job by job."""


@attrs.frozen
class FsckReport:
    """What is wrong with a cluster, one line for each thing."""

    damaged: tuple[str, ...]
    """Damage of the backend, records that cannot be read, and what could not be checked."""
    left_over: tuple[str, ...]
    """Records, files and folders without an owner, and entries of an index that do not fit."""
    held: tuple[str, ...] = ()
    """Jobs that wait for an operator, and why."""
    nobody_leads: str = ""
    """That no master leads, and since when; empty while one leads. That is no problem of what is
    stored."""


def fsck(backend: Backend, folders: JobStorage | None) -> FsckReport:
    """Check the whole cluster; change nothing.

    Args:
        folders: where jobs keep their files; without it, only records are checked.

    Raises:
        Unavailable: the backend did not answer. What cannot be read of the storage is reported.
    """
    damaged = list(backend.check())
    left: list[str] = []
    held: list[str] = []

    def alone(check: Iterator[str]) -> Iterator[str]:
        """Yield what a check finds; what ends it ends no other one, and is damage."""
        try:
            yield from check
        except CorruptRecord as error:
            if str(error) not in damaged:
                damaged.append(str(error))
        except (Unavailable, OSError) as error:
            check_answers(backend)
            damaged.append(f"could not be checked: {error}")

    checks = [(damaged, unreadable(backend))]
    if folders is not None:
        checks.append((damaged, StorageIdentity(backend, folders).problems()))
        checks.append((damaged, object_check.missing(backend, folders)))
    checks.append((damaged, wrong_histories(backend)))
    checks.append((left, left_over(backend, folders, alone)))
    checks.append((left, _index(backend)))
    checks.append((held, _held(backend)))
    checks.append((held, _given_up(backend)))
    for found, check in checks:
        found.extend(alone(check))
    leader = Registry(backend).leading()
    nobody = "" if leader.leader is not None else str(leader)
    return FsckReport(tuple(damaged), tuple(left), tuple(held), nobody)


def _index(backend: Backend) -> Iterator[str]:
    """Yield the entries of the index of results that are missing, or have no result."""
    build = "the index of results is repaired by: jrs cluster-format --raise"
    if not result_index.is_complete(backend):
        if is_at_least(backend, result_index.SINCE_FORMAT):
            yield "the format was raised, but not completely: repeat jrs cluster-format --raise"
    else:
        yield from (f"{key}: missing; {build}" for key in result_index.missing(backend))
        yield from (f"{key}: has no result; {build}" for key in result_index.stale(backend))


def wrong_histories(backend: Backend) -> Iterator[str]:
    """Yield what is wrong with the histories of jobs and of the cluster: an event that is missing,
    changed or doubled, and a decision that does not follow from its recorded facts."""
    with suppress(CorruptRecord):  # It is among the unreadable records.
        yield from cluster_history.problems(backend)
    for found in history_checks.histories(backend):
        # What is left of the history of an expired job is no whole one.
        if found.suspect and backend.get(keys.TOMBSTONES + found.job_id) is None:
            yield from history_checks.problems(backend, found.job_id)
        yield from wrong_decisions(found.job_id, found.events)


def _held(backend: Backend) -> Iterator[str]:
    """Yield the jobs that a leader holds, by its own decisions."""
    jobs, explainer = JobCatalog(backend), Explainer(backend, queue=False)
    dirty = (entry.job_id for entry in JobResultStore(backend).dirty() if entry.problem)
    views = jobs.views(chain(jobs.unfinished_ids(), dirty))
    found = {}
    for explained in explainer.explain_all(views):
        if explained.action is Action.HOLD:
            job_id = explained.job_id
            found[job_id] = f"job {job_id!r}: {explained.reason}"
    yield from found.values()


def _given_up(backend: Backend) -> Iterator[str]:
    """Yield the jobs whose cleanup was given up: until a leader changes, only an operator has it
    tried again."""
    for stored in backend.scan(keys.CLEANUP):
        with suppress(CorruptRecord):  # It is among the unreadable records.
            journal = decode(CleanupJournal, stored.value, stored.key)
            if journal.exhausted:
                left = "; ".join(f"{name}: {why}" for name, why in journal.problems.items())
                yield (
                    f"job {journal.job_id!r}: its cleanup was given up after "
                    f"{counted(journal.tries, 'try', 'tries')}: {left}; then: "
                    f"jrs cleanup retry {journal.job_id}"
                )


def unreadable(backend: Backend) -> Iterator[str]:
    """Yield the records that cannot be read, one line each."""
    epoch = backend.get(keys.EPOCH)
    if epoch is not None:
        yield from _problem(EpochRecord, epoch.value, epoch.key)
    for prefix, kind in _KINDS.items():
        for record in backend.scan(prefix):
            restore = kind is JobSpec and restores.took_place_of(record)
            yield from _problem(RestoreRecord if restore else kind, record.value, record.key)

    for record in backend.scan(keys.FENCES):
        try:
            attempt_fence.check(record)
        except CorruptRecord as error:
            yield str(error)


def _problem(kind: type, value: bytes, key: str) -> Iterator[str]:
    try:
        decode(kind, value, key)
    except CorruptRecord as error:
        yield str(error)


def _lost_jobs(backend: Backend) -> Iterator[str]:
    """Yield the jobs whose application has ended without them; a leader ends them."""
    for record in backend.scan(keys.JOBS):
        try:
            spec = decode(JobSpec, record.value, record.key)
        except CorruptRecord:
            continue
        job_id, name = spec.job_id, spec.application
        if not name or applications.has_ended(backend, job_id):
            continue
        if applications.has_ended(backend, name):
            ends = "has ended without it; the next leader cancels it"
            yield f"{record.key}: its application {name!r} {ends}"


def _told_of_nobody(backend: Backend, known: Callable[[str], bool]) -> Iterator[str]:
    """Yield the histories of jobs that nothing else is known of."""
    catalog = JobCatalog(backend)
    ids = heapq.merge(catalog.ids(), catalog.expired_ids())
    newest = next(ids, None)
    for job_id in history_checks.job_ids(backend):
        while newest is not None and newest < job_id:
            newest = next(ids, None)
        if newest != job_id and not known(job_id):
            yield f"{keys.history(job_id)}: the history of an unknown job"


def left_over(
    backend: Backend,
    folders: JobStorage | None,
    alone: Callable[[Iterator[str]], Iterator[str]] = iter,
) -> Iterator[str]:
    """Yield what is left over without an owner, one line each.

    Args:
        folders: where jobs keep their files; without it, only records are checked.
        alone: goes through the check of the files of each job; it may end that check alone.
    """

    def known(job_id: str) -> bool:
        return any(
            backend.get(prefix + job_id)
            for prefix in (*keys.UNFINISHED, keys.RESULTS, keys.TOMBSTONES)
        )

    yield from _told_of_nobody(backend, known)
    for record in backend.scan(keys.DIRTY):
        if backend.get(keys.RESULTS + keys.job_of(record.key)) is None:
            yield f"{record.key}: a dirty marker without its result; its job is held"
    yield from _lost_jobs(backend)
    for job_id, names in sorted(records_left(backend).items()):
        whose = "has ended; jrs gc removes it in time" if known(job_id) else "never was"
        yield from (f"{name}: left over by a job that {whose}" for name in names)
        for copy in half_published(backend, folders, job_id):
            yield f"{copy}: half published by job {job_id!r}, which has ended"
    if folders is None:
        return
    yield from find_orphans(backend, folders, alone)
    for job_id in folders.jobs():
        if not known(job_id):
            yield f"{folders.folder(job_id)}: the folder of an unknown job"
        elif not any(backend.get(prefix + job_id) for prefix in (keys.JOBS, keys.DIRTY)):
            yield from alone(_left_in_staging(folders, job_id))


def _left_in_staging(folders: JobStorage, job_id: str) -> Iterator[str]:
    for path in folders.left_in_staging(job_id):
        yield f"{path}: left over by a job that has ended"
