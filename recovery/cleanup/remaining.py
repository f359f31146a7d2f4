"""What an application that has ended has left for a leader to do."""

from __future__ import annotations

from contextlib import suppress

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import JobResultEntry, JobSpec
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore

_PATIENCE = 60.0
"""Seconds for which a replica waits for that."""


class Remaining:
    """The jobs of an ended application that have no result yet, and what is to be cleaned up.

    Args:
        application: its name.
        of_others: whether the cleanup of all other jobs of the cluster counts, too.

    Raises:
        Unavailable: the backend did not answer.
    """

    def __init__(self, backend: Backend, application: str, *, of_others: bool) -> None:
        self._application = application
        self._of_others = of_others
        self._results = JobResultStore(backend)
        self._catalog = JobCatalog(backend)
        self._deadline = Deadline.after(_PATIENCE)
        self._unfinished = _unfinished_jobs(backend, application)

    def is_any(self) -> bool:
        """Return whether something is left for which waiting may help: not after a minute.

        Raises:
            CorruptRecord: it cannot be read.
            Unavailable: the backend did not answer.
        """
        if self._deadline.expired:
            return False
        # A job whose result is perhaps lost is held: waiting does not help.
        self._unfinished = [one for one in self._unfinished if self._results.get(one) is None]
        return bool(self._unfinished) or any(
            self._counts(entry) and self._will_be_cleaned_up(entry)
            for entry in self._results.dirty()
        )

    def _counts(self, entry: JobResultEntry) -> bool:
        if self._of_others or entry.job_id == self._application:
            return True
        return entry.result is not None and entry.result.application == self._application

    def _will_be_cleaned_up(self, entry: JobResultEntry) -> bool:
        """Return whether waiting may help: False if the cleanup is held or was given up."""
        view = self._catalog.view(entry.job_id)
        return not view.problems and not (view.cleanup and view.cleanup.exhausted)


def _unfinished_jobs(backend: Backend, application: str) -> list[str]:
    found = []
    for record in backend.scan(keys.JOBS):
        with suppress(CorruptRecord):
            spec = decode(JobSpec, record.value, record.key)
            if spec.application == application:
                found.append(spec.job_id)
    return found
