"""Moving a cluster to another backend, from the host that has both and the storage."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import InvalidInput, NoSuchCluster, WrongState
from jrs.contract.storage_place import place_of
from jrs.contract.texts import redacted
from jrs.host.filesystems import reach_problem
from jrs.records import keys
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.files.storage_identity import StorageIdentity, recorded_storage
from jrs.recovery.files.transfer import Progress, silent
from jrs.store.backend_schemes import opener_of
from jrs.store.before_migration import obstacles, refuse, refuse_to_lose
from jrs.store.copying import Contents, survey
from jrs.store.historian import submitter
from jrs.store.masters import newest_epoch
from jrs.store.migration import Migration
from jrs.store.opening import open_closed


@attrs.frozen
class MigrationReport:
    """What `jrs.migrate` has moved, or would move."""

    cluster: str
    """The id of the cluster."""
    source: str
    """The backend that the cluster leaves, without secrets."""
    target: str
    """The backend where it is then, without secrets."""
    moved: bool
    """Whether the cluster is at the target now; False of a dry run."""
    already: bool
    """Whether it was there before this call."""
    records: int
    """How many records the cluster has."""
    value_bytes: int
    """Of the values of all records."""
    by_kind: dict[str, int]
    """The number of records by the first part of their key."""
    epoch: int
    """The newest epoch; the next leader has a greater one. 0 if no master has ever led."""
    storage: str
    """Where the jobs keep their files, which stay there; empty if no storage is recorded."""
    storage_in_source: bool = False
    """Whether that is inside the folder of the backend that the cluster leaves."""
    first: tuple[str, ...] = ()
    """Of a dry run: what has to be done before the cluster can be moved."""


def migrate(
    source: str,
    target: str,
    *,
    cluster: str = "default",
    storage: str | Path | None = None,
    accept_storage: bool = False,
    dry_run: bool = False,
    progress: Progress = silent,
) -> MigrationReport:
    """Move a paused cluster to another backend; return what was moved.

    Every record is copied and compared. Then the source is closed: each process that still comes to
    it gets `ClusterMoved`, which names the target. The target is paused, too, until `unpause`. The
    files of the jobs stay where they are. A move that was interrupted is repeated by the same call;
    one that is complete is not repeated.

    Args:
        source, target: the URLs of two backends. The cluster must not exist at the target; or it
            was moved from there to the source, and returns.
        cluster: the id of the cluster, which stays.
        storage: where the storage of the jobs is on this host, if it is not where its masters had
            it.
        accept_storage: move although the storage seems to be on this host alone: all masters stay
            on this host, or you know that their hosts share it.
        dry_run: read only, and return what would be moved.
        progress: called with the number of records that were compared, and that of all; at least
            twice all records are compared.

    Raises:
        InvalidInput: a URL or the cluster id cannot be used, both URLs are one backend, or the
            storage is not the cluster's, is not on this host, or is not shared by several hosts.
        NoSuchCluster: the source has no such cluster.
        ClusterMoved: the cluster was moved elsewhere before; `.url` says where.
        WrongState: the cluster is not paused, a master runs, or the target is not empty.
        TooLarge: the target cannot take a record, which the message names.
        CorruptRecord: a record of the source cannot be read from its backend.
        Unavailable, OutcomeUnknown: a backend does not answer; repeat the call.

    Example::

        jrs.migrate("file:///var/lib/jrs", "etcd://h1,h2,h3/jrs", dry_run=True)
    """
    if source == target:
        raise InvalidInput("--from and --to are the same backend: name another one")
    for url in (source, target):
        opener_of(url)  # What is wrong with the second is not worth opening the first.
    with ExitStack() as opened:
        here = opened.enter_context(_lasting(open_closed(source, cluster=cluster, create=False)))
        try:
            there = _lasting(open_closed(target, cluster=cluster, create=False))
        except NoSuchCluster:
            # It is created once nothing speaks against the move.
            _check_storage(here, storage, several=_has_several_hosts(target), ok=accept_storage)
            if dry_run:
                contents = survey(here, None)
                return _report(here, redacted(target), contents, first=tuple(obstacles(here)))
            refuse(obstacles(here))
            there = _lasting(open_closed(target, cluster=cluster, create=True))
        opened.enter_context(there)
        migration = Migration(here, there, by=submitter(), progress=progress)
        complete = migration.check()
        if not complete:
            several = there.capabilities.multi_host
            _check_storage(here, storage, several=several, ok=accept_storage)
        if dry_run:
            first = () if complete else tuple(obstacles(here))
            return _report(here, there.url, migration.survey(), already=complete, first=first)
        contents = migration.carry_out()
        report = _report(there, there.url, contents, moved=True, already=complete, source=here.url)
        return attrs.evolve(report, storage_in_source=_is_inside(here, report.storage))


def abandon_migration(
    source: str, target: str, *, cluster: str = "default", copy_lost: bool = False
) -> bool:
    """End a migration that was begun and is not complete; return whether the source was closed.

    The source is open again, and the copy stays closed: remove it. Durable, idempotent. Until the
    source is closed there is nothing to abandon.

    Args:
        source, target, cluster: as given to `migrate`. The target must answer.
        copy_lost: the target has lost all that it held, for good. The source does not record
            whether the move was completed: whatever the cluster did at the target is lost.

    Raises:
        InvalidInput: a URL or the cluster id cannot be used.
        NoSuchCluster: the source has no such cluster.
        WrongState: the cluster is at the target already; it left for another backend; the target
            holds nothing, without `copy_lost`; or a master leads the source.
        Unavailable, OutcomeUnknown: a backend does not answer; repeat the call.

    Example::

        jrs.abandon_migration("file:///var/lib/jrs", "etcd://h1,h2,h3/jrs")
    """
    for url in (source, target):
        opener_of(url)
    with ExitStack() as opened:
        here = opened.enter_context(_lasting(open_closed(source, cluster=cluster, create=False)))
        try:
            there = _lasting(open_closed(target, cluster=cluster, create=False))
        except NoSuchCluster:
            closed = here.get(keys.CLOSED)
            if closed is None:
                return False
            # Nothing is created where a typo may have led.
            refuse_to_lose(here, closed, redacted(target), copy_lost=copy_lost)
            there = _lasting(open_closed(target, cluster=cluster, create=True))
        opened.enter_context(there)
        return Migration(here, there, by=submitter()).abandon(copy_lost=copy_lost)


def _lasting(backend: Backend) -> Backend:
    if not backend.capabilities.multi_process:
        backend.close()
        raise InvalidInput(
            f"{backend.url} ends with its process: no cluster is moved from or to it"
        )
    return backend


def _has_several_hosts(url: str) -> bool:
    """Return whether masters on several hosts may use a backend that is not open yet."""
    return not url.startswith("file:")


def _check_storage(source: Backend, named: str | Path | None, *, several: bool, ok: bool) -> None:
    """Check that the masters of the target can have the storage.

    Args:
        several: whether the target is for masters on several hosts.
        ok: whether a person has accepted a storage of one host.
    """
    record = recorded_storage(source)
    if record is None:
        _check_none_is_used(source)
        return
    place = place_of(named or record.path)
    storage = JobStorage(place, source.cluster)
    if not place.url and not (storage.root / ".storage").is_dir():
        if ok and named is None:
            return
        raise InvalidInput(
            f"the storage of cluster {source.cluster!r}, {place}, is not on this host: run jrs "
            "migrate where it is, or name it as it is mounted here, with --storage DIR"
        )
    identity = StorageIdentity(source, storage)
    identity.check()
    identity.check_epoch()
    one_host = several and not ok and not place.url
    problem = reach_problem(place.root) if one_host else None
    if problem is not None:
        raise InvalidInput(
            f"the hosts of the target do not share the storage {place}: {problem}. First move it "
            "to a filesystem that all masters mount (docs/storage.md); or, if all masters stay "
            "on this host: --accept-storage"
        )


def _check_none_is_used(source: Backend) -> None:
    root = source.default_storage
    if root is not None and any(JobStorage(root, source.cluster).jobs()):
        raise WrongState(
            f"cluster {source.cluster!r} has recorded no storage, and jobs have files in {root}: "
            "start a master once, so that its storage is known"
        )


def _report(
    backend: Backend,
    target: str,
    contents: Contents,
    *,
    moved: bool = False,
    already: bool = False,
    source: str = "",
    first: tuple[str, ...] = (),
) -> MigrationReport:
    newest, record = newest_epoch(backend), recorded_storage(backend)
    return MigrationReport(
        cluster=backend.cluster,
        source=source or backend.url,
        target=target,
        moved=moved or already,
        already=already,
        records=contents.records,
        value_bytes=contents.bytes,
        by_kind=contents.by_kind,
        epoch=0 if newest is None else newest.epoch,
        storage="" if record is None else record.path,
        storage_in_source=record is not None and _is_inside(backend, record.path),
        first=first,
    )


def _is_inside(backend: Backend, storage: str) -> bool:
    """Return whether a storage is inside the folder of a backend that has one."""
    place, default = place_of(storage) if storage else None, backend.default_storage
    if place is None or place.url or default is None:
        return False
    return place.root.resolve().is_relative_to(default.parent)
