"""JobHandle: one job of a cluster, and what is done with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jrs.client.connection import Connection, entry_point_of
from jrs.records.model import JobResult, JobStatus, StopMode, StopRecord
from jrs.records.snapshots import RestoreRecord, SnapshotFormat, SnapshotRecord
from jrs.recovery.inspect.explain import Explanation, explain
from jrs.recovery.snapshots.restore import Restored
from jrs.store.jobs import JobView


class JobHandle:
    """One job of a cluster. Made by `Client.submit` and `Client.job`.

    Attributes:
        id: of the job.
        snapshots: its snapshots.
    """

    def __init__(self, connection: Connection, id: str) -> None:
        self.id = id
        self.snapshots = JobSnapshots(connection, id)
        self._connection = connection

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    # -- reading -----------------------------------------------------------------------------

    def view(self) -> JobView:
        """Return everything the cluster knows of the job.

        Raises:
            NoSuchJob: it knows nothing of it.
        """
        return self._connection.jobs.view(self.id)

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
        return self._connection.results.wait(self.id, timeout)

    def explain(self) -> Explanation:
        """Return what a leader does with the job now, and why.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.
        """
        return explain(self._connection.backend, self.view())

    # -- changing ----------------------------------------------------------------------------

    def cancel(self, reason: str = "") -> None:
        """Request that the job be canceled; the leader does it. Durable, idempotent.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended.
        """
        self._connection.jobs.cancel(self.id, reason)

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
        self._connection.stops.request(self.id, StopMode.SUSPEND, reason=reason, grace=grace)

    def drain(self, *, reason: str = "", grace: float = 30.0) -> None:
        """Request that the job process what its streams have read, flush every window, and finish.

        Durable and idempotent; `wait_suspended` or `result` waits for it.

        Raises:
            As `suspend`.
        """
        self._connection.stops.request(self.id, StopMode.DRAIN, reason=reason, grace=grace)

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
        return self._connection.stops.wait(self.id, timeout, progress)

    def resume(self) -> None:
        """Have a suspended or held job started again. Durable.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended, or is not suspended.
        """
        self._connection.stops.resume(self.id)

    def rescale(self, partitions: int) -> None:
        """Request that the state of the job's streams be spread over `partitions` partitions.

        The job is suspended, its state is rewritten, and it is started again. Durable.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended, a stop is under way, or the number makes no sense.
        """
        self._connection.stops.reconfigure(self.id, partitions=partitions)

    def upgrade(self, entry: str | Callable[..., Any]) -> None:
        """Request that another version of its code continue from the job's state. Durable.

        Args:
            entry: as in `Client.submit`.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: it has ended, or a stop is under way.
        """
        self._connection.stops.reconfigure(self.id, entry_point=entry_point_of(entry))

    def sign(self) -> None:
        """Sign the job's spec as it is stored now, with the client's key. Durable, idempotent.

        Raises:
            NoSuchJob: it was not submitted, or has ended.
            InvalidInput: the client has no key, the job is being restored, or it changed at the
                same moment.
            CorruptRecord: the spec cannot be read.
        """
        self._connection.jobs.sign(self.id)

    def fork(self, as_id: str) -> JobHandle:
        """Start a new job from the state that this one has now; this one keeps running.

        Raises:
            NoSuchJob: the job has neither records nor files.
            DuplicateJob: the new id is taken.
            InvalidInput: no storage is known.
            CorruptRecord: the job could not be restarted from what is stored.
        """
        self._connection.snapshots().fork(self.id, as_id)
        return JobHandle(self._connection, as_id)


class JobSnapshots:
    """The snapshots of one job; see `JobHandle.snapshots`."""

    def __init__(self, connection: Connection, id: str) -> None:
        self._connection = connection
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
        return self._connection.snapshots().create(self._id, name=name, format=format)

    def list(self) -> list[SnapshotRecord]:
        """Return the job's snapshots, oldest first."""
        return self._connection.snapshots().list(self._id)

    def verify(self, which: int | str) -> SnapshotRecord:
        """Return a snapshot, given by number or name, if every byte of it is as it was.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            DamagedSnapshot: it is not what it was; `.problems` names each file.
        """
        return self._connection.snapshots().verify(self._id, which)

    def delete(self, which: int | str) -> None:
        """Delete a snapshot, given by number or name.

        Raises:
            NoSuchSnapshot: the job has no such snapshot.
            SnapshotInUse: the job would continue from it, or it is being read.
        """
        self._connection.snapshots().delete(self._id, which)

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
        catalog = self._connection.snapshots()
        source = which if isinstance(which, Path) else catalog.get(self._id, which)
        return catalog.restore(source, as_job=self._id)

    def fork(self, which: int | str | Path, as_id: str) -> JobHandle:
        """Start a new job from a snapshot of this one.

        Raises:
            NoSuchSnapshot, DamagedSnapshot: it cannot be restored.
            DuplicateJob: the new id is taken.
            OutcomeUnknown: the new job may be held until this is repeated.
        """
        catalog = self._connection.snapshots()
        source = which if isinstance(which, Path) else catalog.get(self._id, which)
        catalog.restore(source, as_job=as_id, fork=True)
        return JobHandle(self._connection, as_id)

    def pending_restore(self) -> RestoreRecord | None:
        """Return the restore of the job that is under way, or was cut off."""
        return self._connection.snapshots().pending_restore(self._id)
