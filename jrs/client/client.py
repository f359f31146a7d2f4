"""Client: one connection to a cluster, for submitting jobs and for everything done with them.

    with jrs.connect("etcd://localhost:2379", cluster="etl") as client:
        job = client.submit("etl.jobs:nightly", id="nightly-2026-11-20", day="2026-11-20")
        print(job.result(timeout=3600).payload)

A client needs no leader: every request is durable when its call returns, and the process that leads
next carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from jrs.client.cluster_history import ClusterHistory
from jrs.client.connection import Connection, entry_point_of
from jrs.client.job import JobHandle
from jrs.client.listing import JobOrder, Listing
from jrs.client.same_call import warn_of_another
from jrs.client.snapshots import behind_links
from jrs.client.steering import ClusterSteering
from jrs.client.unfinished import UnfinishedJobs
from jrs.client.upkeep import ClusterUpkeep
from jrs.contract.backend import Backend, Diagnostic
from jrs.contract.errors import DuplicateJob, NoSuchCluster
from jrs.contract.inputs import check_is, member_of
from jrs.contract.texts import redacted
from jrs.records.checks import check_folder, check_job_id, merged
from jrs.records.model import EpochRecord, JobSpec, JobStatus, ResultState, RunnerKind
from jrs.records.on_result import OnResult
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.settings import JobSettings
from jrs.records.signing import SpecKey
from jrs.records.snapshots import SnapshotRecord
from jrs.records.tags import tags_of
from jrs.records.time_limits import TimeLimits, limits_of
from jrs.recovery.attempt.entry_point import check_arguments
from jrs.recovery.files.job_folders import storage_place
from jrs.recovery.files.transfer import Progress, silent
from jrs.recovery.inspect.doctor import examine, examine_storage
from jrs.recovery.snapshots.restore import Restored
from jrs.store.job_views import JobView
from jrs.store.masters import LeaderView, MasterView, Registry, newest_epoch
from jrs.store.opening import open_backend


def connect(
    url: str,
    *,
    cluster: str = "default",
    storage: str | Path | None = None,
    create: bool = True,
    spec_key: SpecKey | None = None,
) -> Client:
    """Connect to a cluster.

    Args:
        url: of the backend: ``file:///var/lib/jrs``, ``etcd://host:2379`` or
            ``zookeeper://host:2181``.
        cluster: the id of the cluster in it.
        storage: where masters keep the files of jobs, a folder or the URL of objects: for logs,
            files, retries, snapshots. By default `JRS_STORAGE`, else what the cluster has recorded.
        create: whether the cluster is created if it does not exist.
        spec_key: signs what is submitted, where masters ask for signed specs.

    Raises:
        InvalidInput: an unknown scheme, a package that is not installed, or a URL, folder or
            cluster id that cannot be used.
        NoSuchCluster: without `create`, the cluster does not exist.
        AccessDenied: a wrong user or password, or no permission.
        UnsupportedVersion: a newer jrs is needed.
        Unavailable: the backend does not answer.

    Example::

        with jrs.connect("file:///var/lib/jrs") as client:
            for job in client.jobs(status=jrs.JobStatus.FAILED):
                print(job.id)
    """
    opened = open_backend(url, cluster=cluster, create=create)
    try:
        return Client(opened, storage=storage, spec_key=spec_key)
    except BaseException:
        opened.close()
        raise


def diagnose(
    url: str,
    *,
    cluster: str = "default",
    storage: str | Path | None = None,
    ttl: float = 15.0,
    create: bool = False,
) -> Iterator[Diagnostic]:
    """Check whether a backend is fit for use from this host; yield what each check finds.

    A check that fails has a remedy. Safe next to running masters: it writes one key of its own, and
    never campaigns. If the cluster does not exist, it checks only whether it could be created.

    Args:
        url, cluster, storage: as in `connect`.
        ttl: the ttl of the masters, in seconds.
        create: whether the cluster is created if it does not exist, to check it whole.

    Raises:
        As `connect`, when the first diagnostic is asked for.
    """
    check_is(url, "url", str)
    what = f"cluster {cluster!r} at {redacted(url)}"
    try:
        opened = open_backend(url, cluster=cluster, create=create)
    except NoSuchCluster as absent:
        if absent.obstacle:
            yield Diagnostic("open", f"{what} does not exist yet", absent.obstacle)
        else:
            yield Diagnostic("open", f"{what} does not exist yet; it is checked once it does")
        yield from examine_storage(storage_place(None, storage), cluster)
        return
    with opened as backend, open_backend(url, cluster=cluster, create=create) as other:
        yield Diagnostic("open", what)
        yield from examine(backend, other, ttl=ttl, storage=storage)


class Client(UnfinishedJobs, ClusterSteering, ClusterHistory, ClusterUpkeep):
    """The jobs of one cluster. Safe for many threads; use it as a context manager.

    Args:
        backend: open already; closed with the client.
        storage, spec_key: as in `connect`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        storage: str | Path | None = None,
        spec_key: SpecKey | None = None,
    ) -> None:
        self._connection = Connection.to(backend, storage, spec_key)
        self.backend = backend
        self.results = self._connection.results
        """The results of all jobs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent. Later calls raise `HandleClosed`."""
        self.backend.close()

    # -- jobs --------------------------------------------------------------------------------

    def submit(
        self,
        entry: str | Callable[..., Any],
        /,
        *,
        id: str,
        restart: RestartPolicy | None = None,
        snapshots: SnapshotPolicy | None = None,
        runner: RunnerKind | str = RunnerKind.PROCESS,
        partitions: int | None = None,
        priority: int = 0,
        slots: int = 1,
        tags: Iterable[str] = (),
        timeout: TimeLimits | float | None = None,
        settings: JobSettings | None = None,
        on_result: OnResult | None = None,
        exist_ok: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> JobHandle:
        """Submit a job, durably; the leader starts it. Return a handle on it.

        Args:
            entry: ``"module:function"``, ``"/path/file.py:function"``, or a function at the top
                level of a module that masters can import; in a program, what calls `submit` is
                below ``if __name__ == "__main__"``. It is called as ``function(job, **arguments)``.
                Its arguments are checked; a name is not imported: `check_entry` does that.
            id: identifies the job for good: an id that was used is refused forever.
            restart: how often a job that dies is started; three times by default.
            snapshots: which snapshots the leader takes of its streams.
            runner: a process of its own, or a thread of the master.
            partitions: over how many partitions the state of its streams is spread.
            priority: of waiting jobs a higher one starts first. No running job is stopped for it.
            slots: how many of a master's slots the job takes, in a process of its own.
            tags: at most 32 texts to find the job by, such as ``team=sales``.
            timeout: how long the job may run, in seconds over all attempts; see `TimeLimits`.
            settings: Spark's configuration, files, the interpreter, environment and secrets.
            on_result: what jrs runs when the job has a result.
            exist_ok: if the id was submitted before, return a handle on that job. If the job has
                another entry point or other arguments, a warning is logged.
            arguments: arguments of the function, as JSON, also with the names of options above.
            more: all other arguments of the function, as JSON.

        Raises:
            InvalidInput: an argument is not JSON, given twice, missing or unknown, an option cannot
                be used, or the function is no plain one that its module and name lead to.
            WrongState: the cluster's format is too old for settings, time limits and on_result.
            DuplicateJob: the id is taken; `.state` says by what. Nothing was changed.
            TooLarge: the arguments are over 256 KiB of JSON.
            Unavailable, OutcomeUnknown: from the backend; submitting again is safe with `exist_ok`.

        Example::

            job = client.submit("etl.jobs:nightly", id="nightly-2026-11-20", day="2026-11-20")
        """
        spec = JobSpec(
            job_id=id,
            entry_point=entry_point_of(entry),
            arguments=merged(arguments, more),
            runner=member_of(RunnerKind, runner, "runner"),
            restart=RestartPolicy() if restart is None else restart,
            partitions=partitions,
            snapshots=SnapshotPolicy() if snapshots is None else snapshots,
            priority=priority,
            slots=slots,
            tags=tags_of(tags),
            timeout=limits_of(timeout),
            settings=JobSettings() if settings is None else settings,
            on_result=on_result,
        )
        if not isinstance(entry, str):
            check_arguments(entry, spec.entry_point, spec.arguments)
        return self.submit_spec(spec, exist_ok=exist_ok)

    def submit_spec(self, spec: JobSpec, *, exist_ok: bool = False) -> JobHandle:
        """Submit a job by its whole spec; see `submit`."""
        try:
            self._connection.jobs.submit(spec)
        except DuplicateJob:
            if not exist_ok:
                raise
            warn_of_another(self._connection.jobs.view(spec.job_id), spec)
        return JobHandle(self._connection, spec.job_id)

    def job(self, id: str) -> JobHandle:
        """Return a handle on a job, whether the cluster knows it or not.

        Raises:
            InvalidInput: not a job id.
        """
        return JobHandle(self._connection, check_job_id(id))

    def jobs(
        self,
        *,
        status: JobStatus | str | None = None,
        state: ResultState | str | None = None,
        prefix: str = "",
        after: str = "",
        tag: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: JobOrder | str | None = None,
    ) -> Iterator[JobHandle]:
        """Yield a handle on each job. docs/reference.md says what each filter costs.

        Args:
            status: only jobs of that status.
            state: only jobs whose result has that state. Jobs whose result was expired are yielded
                only for ``ResultState.EXPIRED``.
            prefix: only jobs whose id begins with this.
            after: begin after this job, in the order of the list; in a list by the end, after
                ``unfinished:ID`` for one that had not ended then: `JobOrder.after` returns it.
            tag: only jobs with this tag.
            since, until: only jobs that ended then, in seconds since 1970, both included.
            order: by id, or by the end of the jobs, the newest first. The default is by end if
                `since` or `until` is given, else by id.

        Raises:
            InvalidInput: a filter has the wrong type or form.
            NoSuchResult: a list by end cannot continue after a job that has no result any more.

        Example::

            day = 24 * 3600
            for job in client.jobs(status=jrs.JobStatus.FAILED, since=time.time() - day):
                print(job.id, job.result().failure)
        """
        listing = Listing(status, state, prefix, after, tag, since, until, order)
        if listing.is_by_id_alone:
            ids = self._connection.jobs.ids(prefix=prefix, after=after)
            return (JobHandle(self._connection, id) for id in ids)
        views = listing.views(self._connection)
        return (JobHandle(self._connection, view.job_id) for view in views)

    def views(
        self,
        *,
        status: JobStatus | str | None = None,
        state: ResultState | str | None = None,
        prefix: str = "",
        after: str = "",
        tag: str | None = None,
        since: float | None = None,
        until: float | None = None,
        order: JobOrder | str | None = None,
    ) -> Iterator[JobView]:
        """Yield everything the cluster knows of each job, as `jobs` and `JobHandle.view` do. Jobs
        are read in batches, by a few requests for each batch."""
        listing = Listing(status, state, prefix, after, tag, since, until, order)
        return listing.views(self._connection)

    def snapshots(self, *, after: str = "") -> Iterator[SnapshotRecord]:
        """Yield the snapshots of all jobs, in the order of the jobs' ids, a job's oldest first.

        Args:
            after: begin after the snapshots of this job.

        Raises:
            InvalidInput: no storage is known.
            CorruptRecord: a record cannot be read.
        """
        catalog = self._connection.snapshots()
        return (record for id in catalog.jobs(after) for record in catalog.list(id))

    def restore(
        self,
        folder: str | Path,
        *,
        as_id: str | None = None,
        claim: bool = False,
        accept_published: bool = False,
        progress: Progress = silent,
    ) -> Restored:
        """Restore a job from the folder of an exported snapshot, of this or another cluster.

        Args:
            as_id: the id of a new job; by default the job gets the id that it had.
            claim: use the folder up; by default it stays.
            accept_published: as in `JobSnapshots.restore`.
            progress: called with the number of files that are done, and the number of all files.

        Raises:
            As `JobSnapshots.restore`.
        """
        return self._connection.snapshots_to_change().restore(
            behind_links(check_folder(folder)), as_job=as_id, claim=claim,
            accept_published=accept_published, progress=progress,
        )  # fmt: skip

    # -- the cluster -------------------------------------------------------------------------

    def masters(self) -> list[MasterView]:
        """Return the masters that registered in the last hour, and what each of them does."""
        return Registry(self.backend).views()

    def leader(self) -> LeaderView:
        """Return which master leads, or since when none does, as far as the heartbeats tell.

        The heartbeat of a master that was killed counts for up to 15 seconds.

        Example::

            if client.leader().leader is None:
                print(client.leader())
        """
        return Registry(self.backend).leading()

    def epoch(self) -> EpochRecord | None:
        """Return the newest epoch; None if no master has ever led, or its record cannot be read."""
        return newest_epoch(self.backend)
