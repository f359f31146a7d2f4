"""JobHandle: one job of a cluster, and what is done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jrs.client.connection import Connection, entry_point_of
from jrs.client.snapshots import JobSnapshots
from jrs.contract.errors import InvalidInput, NoSuchResult, WrongState
from jrs.records.model import JobResult, JobStatus, StopMode, StopRecord
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.transfer import Progress, silent
from jrs.recovery.inspect.explain import Explanation, explain
from jrs.recovery.inspect.history import HistoryEntry, history
from jrs.recovery.snapshots.restore import Restored
from jrs.recovery.spark import rescaling
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

    def history(self) -> tuple[HistoryEntry, ...]:
        """Return what the present records tell of the job's past, in the order of time.

        It is no log: of the attempts the records name the first and the newest, of the stops and
        the restores the present one, and of the snapshots those that are listed. Once the job is
        cleaned up, only its result is left. The times are of several hosts' clocks. `explain` tells
        what has no time: the deaths of attempts, and the progress of a cleanup.

        Raises:
            NoSuchJob: the cluster knows nothing of the job.

        Example::

            for entry in job.history():
                print(time.ctime(entry.at), entry.kind.value, entry.text)
        """
        return history(self._connection.backend, self.view())

    # -- changing ----------------------------------------------------------------------------

    def cancel(self, reason: str = "") -> None:
        """Request that the job be canceled; the leader does it. Durable, idempotent.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended.
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
            WrongState: it has ended, is suspended, or another stop is under way.
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
            WrongState: draining was refused; the message names the stage. The job keeps running.
            NotFound: the job was resumed.
        """
        return self._connection.stops.wait(self.id, timeout, progress)

    def resume(self) -> None:
        """Have a suspended or held job started again. Durable.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended, or is not suspended.
        """
        self._connection.stops.resume(self.id)

    def rescale(self, partitions: int) -> None:
        """Request that the state of the job's streams be spread over `partitions` partitions.

        The job is suspended, its state is rewritten, and it is started again. Durable.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended, or a stop is under way.
            InvalidInput: the number makes no sense; or, where the job's files are on this host, a
                stream has a state store that cannot be rescaled.
            JobHeld: a checkpoint cannot be read.
        """
        self._check_state_stores()
        self._connection.stops.reconfigure(self.id, partitions=partitions)

    def upgrade(self, entry: str | Callable[..., Any]) -> None:
        """Request that another version of its code continue from the job's state. Durable.

        Args:
            entry: as in `Client.submit`.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended, or a stop is under way.
        """
        self._connection.stops.reconfigure(self.id, entry_point=entry_point_of(entry))

    def sign(self) -> None:
        """Sign the job's spec as it is stored now, with the client's key. Durable, idempotent.

        Raises:
            NoSuchJob: it was not submitted, or has ended.
            InvalidInput: the client has no key.
            WrongState: the job is being restored, or changed at the same moment.
            CorruptRecord: the spec cannot be read.
        """
        self._connection.jobs.sign(self.id)

    def fork(self, as_id: str, *, progress: Progress = silent) -> Restored:
        """Start a new job from the state that this one has now; this one keeps running.

        Args:
            progress: called with the number of files that are done, and the number of all files.

        Raises:
            NoSuchJob: the job has neither records nor files.
            DuplicateJob: the new id is taken.
            InvalidInput: no storage is known.
            CorruptRecord: the job could not be restarted from what is stored.
        """
        return self._connection.snapshots().fork(self.id, as_id, progress=progress)

    # -- cleaning up -------------------------------------------------------------------------

    def left(self) -> dict[str, list[str]]:
        """Return what the ended job has left, by resource. Changes nothing.

        It is what is found from this host, and what the leader's journal names of resources that
        only masters know.

        Raises:
            NoSuchResult: the job has not ended.
            InvalidInput: no storage is known.
        """
        return self._cleanup().left(self.id)

    def retry_cleanup(self) -> bool:
        """Have the leader retry a failed cleanup at once; return whether one was left. Durable.

        Raises:
            NoSuchResult: the job has not ended.
            InvalidInput: no storage is known.
        """
        return self._cleanup().retry(self.id)

    def force_cleanup(self) -> dict[str, list[str]]:
        """Mark the job's result clean whatever is left, and return that: the last resort. Durable.

        Raises:
            NoSuchResult: the job has not ended.
            WrongState: its result is not dirty.
            InvalidInput: no storage is known.
        """
        cleanup = self._cleanup()
        if not self._connection.results.has_dirty(self.id):
            raise WrongState(f"the result of job {self.id!r} is not dirty")
        return cleanup.force(self.id)

    # -- inside ------------------------------------------------------------------------------

    def _cleanup(self) -> JobCleanup:
        backend = self._connection.backend
        cleanup = JobCleanup(backend, default_resources(backend, self._connection.storage()))
        if not self._connection.results.has_entry(self.id):
            raise NoSuchResult(f"job {self.id!r} has no result; there is nothing to clean up")
        return cleanup

    def _check_state_stores(self) -> None:
        storage = self._connection.known_storage()
        if storage is None:
            return
        for checkpoint in sorted(storage.folder(self.id).glob("e*/streams/*/ck")):
            why = rescaling.check(checkpoint)
            if why is not None:
                raise InvalidInput(f"stage {checkpoint.parent.name!r} of job {self.id!r}: {why}")
