"""Client: one connection to a cluster, for submitting jobs and for everything done with them.

    with jrs.connect("etcd://localhost:2379", cluster="etl") as client:
        job = client.submit("etl.jobs:nightly", id="nightly-2026-11-20", day="2026-11-20")
        print(job.result(timeout=3600).payload)

A client needs no leader: every request is durable when its call returns, and the process that leads
next carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from jrs.client.connection import Connection, entry_point_of
from jrs.client.job import JobHandle
from jrs.contract.backend import Backend
from jrs.contract.errors import DuplicateJob
from jrs.records.checks import check_job_id
from jrs.records.model import JobSpec, JobStatus, MasterInfo, RunnerKind
from jrs.records.policies import RestartPolicy, SnapshotPolicy
from jrs.records.signing import SpecKey
from jrs.store.masters import Registry
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
        self._connection = Connection.to(backend, storage, spec_key)
        self.backend = backend
        self.results = self._connection.results
        """The results of all jobs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
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
            entry_point=entry_point_of(entry),
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
            self._connection.jobs.submit(spec)
        except DuplicateJob:
            if not exist_ok:
                raise
        return JobHandle(self._connection, spec.job_id)

    def job(self, id: str) -> JobHandle:
        """Return a handle on a job, whether the cluster knows it or not.

        Raises:
            InvalidInput: not a job id.
        """
        return JobHandle(self._connection, check_job_id(id))

    def jobs(self, *, status: JobStatus | None = None, prefix: str = "") -> Iterator[JobHandle]:
        """Yield a handle on each job, in the order of their ids.

        Args:
            status: only jobs of that status.
            prefix: only jobs whose id begins so.
        """
        for id in self._connection.jobs.ids():
            if id.startswith(prefix):
                job = JobHandle(self._connection, id)
                if status is None or job.view().status is status:
                    yield job

    def masters(self) -> list[MasterInfo]:
        """Return the masters that registered lately, for people."""
        return Registry(self.backend).masters()
