"""JobRequests: what a client asks of a job: cancel, suspend, rescale, upgrade, fork, clean up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jrs.client import waiting
from jrs.client.connection import Connection, entry_point_of
from jrs.contract.errors import InvalidInput, NoSuchResult, WrongState
from jrs.records.lineage import Descendant
from jrs.records.model import StopMode, StopRecord, StopState
from jrs.records.policies import MOST_PARTITIONS, check_count
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.transfer import Progress, silent
from jrs.recovery.inspect.explain import Explanation
from jrs.recovery.snapshots.restore import Restored
from jrs.recovery.snapshots.retry import descendants
from jrs.recovery.spark import rescaling


class JobRequests:
    """The calls of a `JobHandle` that change its job, or make another one of it; its base class."""

    _connection: Connection
    id: str

    def cancel(self, *, reason: str = "") -> bool:
        """Request that the job be canceled; the leader does it. Durable, idempotent.

        Return False if it is CANCELED already. A job in a thread of its master ends FINISHED if its
        function returns before it notices: see `Job.check`.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended otherwise.
        """
        return self._connection.jobs.cancel(self.id, reason)

    def suspend(self, *, reason: str = "", grace: float = 30.0) -> bool:
        """Request that the job be suspended at a batch boundary; resume it with `resume`.

        Durable and idempotent; `wait_stopped` waits for it. Return False if it is suspended
        already.

        Args:
            grace: seconds after which an attempt that has not reached a batch boundary is ended.
                The job later resumes from its newest committed batch.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended, is held, or another stop is under way.
        """
        stops = self._connection.stops
        stop = stops.request(self.id, StopMode.SUSPEND, reason=reason, grace=grace)
        return stop.state is not StopState.DONE

    def drain(self, *, reason: str = "", grace: float = 30.0) -> None:
        """Request that the job process the input that exists, flush every window, and finish.

        Durable and idempotent; `wait_stopped` or `result` waits for it.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended, is suspended or held, or another stop is under way.
        """
        self._connection.stops.request(self.id, StopMode.DRAIN, reason=reason, grace=grace)

    def wait_stopped(
        self,
        timeout: float | None = None,
        progress: Callable[[StopRecord], None] = lambda stop: None,
        *,
        notify: Callable[[Explanation], None] | None = None,
    ) -> StopRecord | None:
        """Wait until the job is suspended or held; return its stop, or None if it has ended.

        A job that is drained ends.

        Args:
            timeout: seconds; None waits forever.
            progress: called with the stop each time it has changed.
            notify: called with what happens to the job, as by `result`.

        Raises:
            TimeoutError: not within `timeout`. The request stays.
            WrongState: draining was refused; the message names the stage. The job keeps running.
            NotFound: the job was resumed.
        """
        if notify is None:
            return self._connection.stops.wait(self.id, timeout, progress)
        return waiting.for_stop(self._connection, self.id, timeout, progress, notify)

    def resume(self) -> bool:
        """Have a suspended or held job started again. Durable, idempotent.

        Return False if it is neither suspended nor held.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended, or is not suspended yet.
        """
        return self._connection.stops.resume(self.id)

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
        check_count("partitions", partitions, MOST_PARTITIONS)
        self._check_state_stores()
        self._connection.stops.reconfigure(self.id, partitions=partitions)

    def upgrade(self, entry: str | Callable[..., Any]) -> None:
        """Request that another version of its code continue from the job's state. Durable.

        Args:
            entry: as in `Client.submit`.

        Raises:
            NoSuchJob: it was not submitted.
            WrongState: it has ended, or a stop is under way.
            InvalidInput: no entry point, or a function that masters could not find by its name.
        """
        self._connection.stops.reconfigure(self.id, entry_point=entry_point_of(entry))

    def sign(self) -> None:
        """Sign the job's spec as it is stored now, with the client's key. Durable, idempotent.

        Raises:
            NoSuchJob: it was not submitted.
            InvalidInput: the client has no key.
            WrongState: the job has ended, is being restored, or changed at the same moment.
            CorruptRecord: the spec cannot be read.
        """
        self._connection.jobs.sign(self.id)

    def fork(self, as_id: str, *, progress: Progress = silent) -> Restored:
        """Start a new job from the state that this one has now; this one keeps running.

        Args:
            progress: called with the number of files that are done, and the number of all files.

        Raises:
            NoSuchJob: the job has neither records nor files.
            WrongState: it has ended, and nothing is left of its state.
            DuplicateJob: the new id is taken.
            InvalidInput: no storage is known.
            CorruptRecord: the job could not be restarted from what is stored.
        """
        return self._connection.snapshots_to_change().fork(self.id, as_id, progress=progress)

    def descendants(self) -> tuple[Descendant, ...]:
        """Return the jobs that were made from this one: retries, forks and restores as new jobs.

        Raises:
            CorruptRecord: a record cannot be read.
        """
        return tuple(descendants(self._connection.backend, self.id))

    # -- cleaning up -------------------------------------------------------------------------

    def left(self) -> dict[str, list[str]]:
        """Return what the ended job has left, by resource. Changes nothing.

        It is what is found from this host, and what the leader's journal names of resources that
        only masters know.

        Raises:
            NoSuchResult: the job has not ended.
            CorruptRecord: the disk has perhaps lost its result.
            InvalidInput: no storage is known.
        """
        return self._cleanup().left(self.id)

    def retry_cleanup(self) -> bool:
        """Have the leader retry a failed cleanup at once; return whether one was left. Durable.

        Raises:
            NoSuchResult: the job has not ended.
            CorruptRecord: the disk has perhaps lost its result.
            InvalidInput: no storage is known.
        """
        return self._cleanup().retry(self.id)

    def force_cleanup(self) -> dict[str, list[str]]:
        """Mark the job's result clean whatever is left, and return that: the last resort. Durable.

        Raises:
            NoSuchResult: the job has not ended.
            CorruptRecord: the disk has perhaps lost its result.
            WrongState: its result is not dirty.
            InvalidInput: no storage is known.
        """
        cleanup = self._cleanup()
        if not self._connection.results.has_dirty(self.id):
            raise WrongState(f"the result of job {self.id!r} is not dirty")
        return cleanup.force(self.id)

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
