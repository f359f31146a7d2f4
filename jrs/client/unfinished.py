"""What a leader does with the jobs that have not ended, from a client."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from jrs.client.connection import Connection
from jrs.contract.backend import Backend
from jrs.recovery.inspect.explain import Explainer, Explanation
from jrs.recovery.inspect.queue import queue
from jrs.store.job_views import JobView


class UnfinishedJobs:
    """The calls of a `Client` that are about the jobs that have not ended; its base class."""

    backend: Backend
    _connection: Connection

    def unfinished(self, *, begun: bool = False, without: Container[str] = ()) -> Iterator[JobView]:
        """Yield everything the cluster knows of each job that is not cleaned up yet, in the order
        of the ids: jobs that have not ended, or whose cleanup has not. They are read in batches.

        Args:
            begun: leave out the jobs that wait for their first attempt.
            without: the ids of jobs to leave out.

        Raises:
            Unavailable: the backend did not answer.
        """
        jobs = self._connection.jobs
        ids = jobs.begun_ids() if begun else jobs.unfinished_ids()
        return jobs.views(job_id for job_id in ids if job_id not in without)

    def held(self, *, without: Container[str] = ()) -> Iterator[JobView]:
        """Yield everything the cluster knows of each job that a leader holds, in no order.

        However many jobs wait, it finds those that are held: it looks at the spec, the stop and the
        newest attempt of each job that has not ended, and reads no more of those that these do not
        hold. A client decodes a record once, and later only those that have changed.

        Args:
            without: the ids of jobs to leave out.

        Raises:
            Unavailable: the backend did not answer.
        """
        return self._connection.holds.views(without)

    def explanations(self, views: Iterable[JobView]) -> Iterator[Explanation]:
        """Yield what a leader does with each of these jobs now, as `JobHandle.explain` does; what
        concerns the whole cluster is read once, and jobs are read in batches."""
        return Explainer(self.backend).explain_all(views)

    def queue(self) -> tuple[str, ...]:
        """Return the ids of the jobs that wait for the leader's slots, the next one first.

        Advisory: the leader decides. Reads the records of all unfinished jobs.

        Raises:
            Unavailable: the backend did not answer.
        """
        return queue(self.backend)
