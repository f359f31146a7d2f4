"""Client: one connection to a cluster, for submitting jobs and for everything done with them.

    with jrs.connect("etcd://localhost:2379", cluster="etl") as client:
        job = client.submit("etl.jobs:nightly", id="nightly-2026-11-20", day="2026-11-20")
        print(job.result(timeout=3600).payload)

A client needs no leader: every request is durable when its call returns, and the process that leads
next carries it out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jrs.contract.backend import Backend
from jrs.contract.errors import DuplicateJob, InvalidInput
from jrs.records.model import (
    JobResult,
    JobSpec,
    JobStatus,
    MasterInfo,
    RunnerKind,
    StopMode,
    StopRecord,
    check_job_id,
)
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.signing import SpecKey
from jrs.records.snapshots import RestoreRecord, SnapshotFormat, SnapshotRecord
from jrs.recovery.attempt import entry_point as entry_points
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.inspect.explain import Explanation, explain
from jrs.recovery.snapshot_catalog import SnapshotCatalog
from jrs.recovery.snapshots.restore import Restored
from jrs.store.jobs import JobCatalog, JobView
from jrs.store.masters import Registry
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.store.stops import JobStops


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
        storage: the folder in which masters keep the files of jobs. Only snapshots need it; the
            file backend has a default.
        create: whether the cluster is created if it does not exist.
        spec_key: signs what is submitted, where masters ask for signed specs.

    Raises:
        InvalidInput: an unknown scheme, a package that is not installed, or a URL, folder or
            cluster id that cannot be used, or (without `create`) a cluster that does not exist.
        AccessDenied: a wrong user or password, or no permission.
        UnsupportedVersion: a newer jrs is needed.
        Unavailable: the backend does not answer.

    Example::

        with jrs.connect("file:///var/lib/jrs") as client:
            for job in client.jobs(status=jrs.JobStatus.FAILED):
                print(job.id)
    """
    opened = open_backend(url, cluster=cluster, create=create)
    return Client(opened, storage=storage, spec_key=spec_key)


class Client:
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
        self.backend = backend
        self.results = JobResultStore(backend)
        """The results of all jobs."""
        self._catalog = JobCatalog(backend, spec_key=spec_key)
        self._stops = JobStops(backend, spec_key=spec_key)
        self._storage = storage
        self._spec_key = spec_key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
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
        runner: RunnerKind = RunnerKind.PROCESS,
        partitions: int | None = None,
        exist_ok: bool = False,
        **arguments: Any,
    ) -> JobHandle:
        """Submit a job, durably; the leader starts it. Return a handle on it.

        Args:
            entry: ``"module:function"``, ``"/path/file.py:function"``, or a function at the top
                level of a module that the masters can import. It is called as
                ``function(job, **arguments)``.
            id: identifies the job for good: an id that was used is refused forever.
            restart: how often a job that dies is started; three times by default.
            snapshots: which snapshots the leader takes of its streams.
            runner: a process of its own, or a thread of the master.
            partitions: over how many partitions the state of its streams is spread.
            exist_ok: whether an id that was submitted before gives a handle on that job.
            arguments: JSON; submit a `JobSpec` by `submit_spec` if one has the name of an option.

        Raises:
            InvalidInput: an argument is not JSON, or the function is not at the top level.
            DuplicateJob: the id is taken; `.state` says by what. Nothing was changed.
            TooLarge: the arguments are over 256 KiB of JSON.
            Unavailable, OutcomeUnknown: from the backend; submitting again is safe with `exist_ok`.

        Example::

            job = client.submit("etl.jobs:nightly", id="nightly-2026-11-20", day="2026-11-20")
        """
        spec = JobSpec(
            job_id=id,
            entry_point=entry_points.absolute(entry) if isinstance(entry, str) else _name_of(entry),
            arguments=arguments,
            runner=runner,
            restart=RestartPolicy() if restart is None else restart,
            partitions=partitions,
            snapshots=SnapshotPolicy() if snapshots is None else snapshots,
        )
        return self.submit_spec(spec, exist_ok=exist_ok)

    def submit_spec(self, spec: JobSpec, *, exist_ok: bool = False) -> JobHandle:
        """Submit a job that is described whole; see `submit`."""
        try:
            self._catalog.submit(spec)
        except DuplicateJob:
            if not exist_ok:
                raise
        return JobHandle(self, spec.job_id)

    def job(self, id: str) -> JobHandle:
        """Return a handle on a job, whether the cluster knows it or not.

        Raises:
            InvalidInput: not a job id.
        """
        return JobHandle(self, check_job_id(id))

    def jobs(self, *, status: JobStatus | None = None, prefix: str = "") -> Iterator[JobHandle]:
        """Yield a handle on each job, in the order of their ids.

        Args:
            status: only jobs of that status.
            prefix: only jobs whose id begins so.
        """
        for id in self._catalog.ids():
            if id.startswith(prefix):
                job = JobHandle(self, id)
                if status is None or job.view().status is status:
                    yield job

    def masters(self) -> list[MasterInfo]:
        """Return the masters that were heard of lately; for people, nothing is decided by it."""
        return list(Registry(self.backend).masters())

    # -- inside ------------------------------------------------------------------------------

    def _snapshots(self) -> SnapshotCatalog:
        root = self._storage or self.backend.default_storage
        if root is None:
            raise InvalidInput("say where jobs keep their files: jrs.connect(…, storage=DIR)")
        storage = JobStorage(Path(root).absolute(), self.backend.cluster)
        return SnapshotCatalog(self.backend, storage, spec_key=self._spec_key)


class JobHandle:
    """One job of a cluster. Made by `Client.submit` and `Client.job`.

    Attributes:
        id: of the job.
        snapshots: its snapshots.
    """

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self.snapshots = JobSnapshots(client, id)
        self._client = client

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    # -- reading -----------------------------------------------------------------------------

    def view(self) -> JobView:
        """Return everything the cluster knows of the job.

        Raises:
            NoSuchJob: it knows nothing of it.
        """
        return self._client._catalog.view(self.id)

    def status(self) -> JobStatus | None:
        """Return the job's status; None if it cannot be told, as that of a job that is held for a
        record that cannot be read, or whose result has expired.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
        """
        return self.view().status

    def result(self, timeout: float | None = None) -> JobResult:
        """Wait for the job's result and return it, whatever its status.

        It is returned as soon as it is durable; cleanup may still run. A job that was not submitted
        yet is waited for, too.

        Args:
            timeout: seconds; None waits forever.

        Raises:
            TimeoutError: not within `timeout`.
            NoSuchResult: the result was expired.
            CorruptRecord: the result cannot be read.

        Example::

            result = client.job("nightly-2026-11-20").result(timeout=3600)
            if result.status is not jrs.JobStatus.FINISHED:
                raise jrs.JobNotFinished(result)
        """
        return self._client.results.wait(self.id, timeout)

    def explain(self) -> Explanation:
        """Return what a leader does with the job now, and why.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
        """
        return explain(self._client.backend, self.view())

    # -- changing ----------------------------------------------------------------------------

    def cancel(self, reason: str = "") -> None:
        """Request that the job be canceled; the leader does it. Durable, idempotent.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended.
        """
        self._client._catalog.cancel(self.id, reason)

    def suspend(self, *, reason: str = "", grace: float = 30.0) -> None:
        """Request that the job be suspended at a batch boundary; resume it with `resume`.

        Durable and idempotent; `wait_suspended` waits for it.

        Args:
            grace: seconds after which an attempt that has not reached a batch boundary is ended.
                The job later resumes from its newest committed batch.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended, is suspended, or another stop is under way.
        """
        self._client._stops.request(self.id, StopMode.SUSPEND, reason=reason, patience=grace)

    def drain(self, *, reason: str = "", grace: float = 30.0) -> None:
        """Request that the job process what its streams have read, flush every window, and finish.

        Durable and idempotent; `wait_suspended` or `result` waits for it.

        Raises:
            As `suspend`.
        """
        self._client._stops.request(self.id, StopMode.DRAIN, reason=reason, patience=grace)

    def wait_suspended(
        self,
        timeout: float | None = None,
        progress: Callable[[StopRecord], None] = lambda stop: None,
    ) -> StopRecord | None:
        """Wait until the job is suspended; return its stop, or None if it has ended instead.

        Args:
            timeout: seconds; None waits forever.
            progress: called with the stop each time it has changed.

        Raises:
            TimeoutError: not within `timeout`. The request stays.
            InvalidInput: draining was refused; the message names the stage. The job keeps running.
            NotFound: the job was resumed.
        """
        return self._client._stops.wait(self.id, timeout, progress)

    def resume(self) -> None:
        """Have a suspended or held job started again. Durable.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended, or is not suspended.
        """
        self._client._stops.resume(self.id)

    def rescale(self, partitions: int) -> None:
        """Request that the state of the job's streams be spread over `partitions` partitions.

        The job is suspended, its state is rewritten, and it is started again. Durable.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended, a stop is under way, or the number makes no sense.
        """
        self._client._stops.reconfigure(self.id, partitions=partitions)

    def upgrade(self, entry: str | Callable[..., Any]) -> None:
        """Request that another version of its code continue from the job's state. Durable.

        Args:
            entry: as in `Client.submit`.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended, or a stop is under way.
        """
        name = entry_points.absolute(entry) if isinstance(entry, str) else _name_of(entry)
        self._client._stops.reconfigure(self.id, entry_point=name)

    def sign(self) -> None:
        """Sign the job's spec as it is stored now, with the client's key. Durable, idempotent.

        Raises:
            NoSuchJob: it was not submitted, or has ended.
            InvalidInput: the client has no key, or the job changed at the same moment.
            CorruptRecord: the spec cannot be read, or the job is being restored.
        """
        self._client._catalog.sign(self.id)

    def fork(self, as_id: str) -> JobHandle:
        """Start a new job from the state that this one has now; this one keeps running.

        Raises:
            NoSuchJob: the job has neither records nor files.
            DuplicateJob: the new id is taken.
            InvalidInput: no storage is known.
            CorruptRecord: the job could not be restarted from what is stored.
        """
        self._client._snapshots().fork(self.id, as_id)
        return JobHandle(self._client, as_id)


class JobSnapshots:
    """The snapshots of one job; see `JobHandle.snapshots`."""

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self._id = id

    def create(
        self, name: str | None = None, *, format: SnapshotFormat = SnapshotFormat.LINK
    ) -> SnapshotRecord:
        """Take a snapshot of the job's newest consistent state, running or not.

        Durable and listed when it returns; each call takes another one.

        Raises:
            NoSuchJob: the job has neither records nor files.
            InvalidInput: the name is taken, or no storage is known.
            CorruptRecord: the job could not be restarted from what is stored.
            Unavailable: the disk is full, or the backend is away; nothing is listed.
            OutcomeUnknown: it may be listed: check.
        """
        return self._client._snapshots().create(self._id, name=name, format=format)

    def list(self) -> list[SnapshotRecord]:
        """Return the job's snapshots, oldest first."""
        return self._client._snapshots().list(self._id)

    def verify(self, which: int | str) -> SnapshotRecord:
        """Return a snapshot, given by number or name, if every byte of it is as it was.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            DamagedSnapshot: it is not what it was; `.problems` names each file.
        """
        return self._client._snapshots().verify(self._id, which)

    def delete(self, which: int | str) -> None:
        """Delete a snapshot, given by number or name.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            SnapshotInUse: the job would continue from it, or it is being read.
        """
        self._client._snapshots().delete(self._id, which)

    def restore(self, which: int | str | Path) -> Restored:
        """Put the suspended job back to a snapshot.

        Args:
            which: a number, a name, or the path of an exported snapshot.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: it cannot be restored.
            JobIsRunning: suspend the job first.
            SnapshotInUse: another restore of the job is under way.
            OutcomeUnknown: the job may be held until the restore is repeated.
        """
        catalog = self._client._snapshots()
        source = which if isinstance(which, Path) else catalog.get(self._id, which)
        return catalog.restore(source, as_job=self._id)

    def fork(self, which: int | str | Path, as_id: str) -> JobHandle:
        """Start a new job from a snapshot of this one.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: it cannot be restored.
            DuplicateJob: the new id is taken.
            OutcomeUnknown: the new job may be held until this is repeated.
        """
        catalog = self._client._snapshots()
        source = which if isinstance(which, Path) else catalog.get(self._id, which)
        catalog.restore(source, as_job=as_id, fork=True)
        return JobHandle(self._client, as_id)

    def pending_restore(self) -> RestoreRecord | None:
        """Return the restore of the job that is under way, or was cut off."""
        return self._client._snapshots().pending_restore(self._id)


def _name_of(function: Callable[..., Any]) -> str:
    """Return the entry point of a function.

    Raises:
        InvalidInput: another process could not import it.
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if not module or not name or "<" in name:
        raise InvalidInput(
            f"{function!r} cannot be found by name: define it at the top level of a module"
        )
    if module == "__main__":
        path = getattr(sys.modules["__main__"], "__file__", None)
        if path is None:
            raise InvalidInput(f"{name} was typed in: save it in a file, which masters can import")
        return entry_points.absolute(f"{path}:{name}")
    return f"{module}:{name}"
