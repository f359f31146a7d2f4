"""Orphans: the end of what earlier attempts of a job have left running, here and on a cluster."""

from __future__ import annotations

from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, JobHeld, Unavailable
from jrs.records.model import AttemptRecord
from jrs.store import attempt_fence

from ..processes import left_running
from ..rules.events import EventKind
from .attempt_records import AttemptRecords
from .context import LeaderContext
from .take_over import take_over

KILL = 30.0
"""Seconds in which processes have to die after SIGKILL."""

_led: set[tuple[str, str, int]] = set()
"""The backend, the cluster and the epoch of each leadership of this process. Host and pid do not
tell: in a container that starts again, both may be those of the process before."""


class Orphans:
    """What earlier attempts have left, for one leader."""

    def __init__(self, context: LeaderContext, records: AttemptRecords) -> None:
        self._backend = context.backend
        self._storage = context.storage
        self._fence = context.fence
        self._emit = context.emit
        self._records = records
        _led.add(self._leadership(context.fence.epoch))

    def end(self, job_id: str) -> None:
        """Ensure that no earlier attempt of the job can do harm any more.

        Raises:
            JobHeld: its files are of an epoch that the backend has not reached, or the head of a
                stream cannot be read.
            Unavailable: its files cannot be taken over now; the call may be repeated.
        """
        problem: JobHeld | Unavailable | None = None
        # Shut out, then read: from here on no older attempt commits anything.
        attempt_fence.shut_out(self._backend, job_id, self._fence)
        try:
            # The files first: from here on no older attempt can publish, dead or not.
            take_over(self._backend, self._storage, job_id, self._fence)
        except (JobHeld, Unavailable) as error:
            problem = error  # The processes that are ended below may be what it is about.
        except Fenced:
            if not self._backend.is_current(self._fence):
                raise
            # No newer leader exists, so the folder predates the backend: only this job is affected.
            folder = self._storage.folder(job_id)
            problem = JobHeld(
                f"{folder} has files of a later epoch than {self._fence.epoch}, from before the "
                f"backend was new; restore the job: jrs snapshot restore --from {folder}/snapshots/"
                f"NUMBER; or move the folder away"
            )
        orphans = left_running.end(
            self._backend, job_id, Deadline.after(KILL), up_to_epoch=self._fence.epoch
        )
        if orphans:
            self._emit(EventKind.ORPHANS, job_id, f"killed {len(orphans)} left-over processes")
        before, _ = self._records.newest(job_id)
        spark = None if before is None or self._ran_here(before) else before.spark
        if spark is not None:
            from ..processes import left_on_cluster  # A client of HTTP, which takes 2 MB.

            if said := left_on_cluster.end(spark):
                self._emit(EventKind.ORPHANS, job_id, said)
        if problem is not None:
            raise problem

    def _ran_here(self, attempt: AttemptRecord) -> bool:
        """Return whether an attempt ran in this process, whose other jobs share its session."""
        return attempt.in_thread and self._leadership(attempt.epoch) in _led

    def _leadership(self, epoch: int) -> tuple[str, str, int]:
        return self._backend.url, self._backend.cluster, epoch
