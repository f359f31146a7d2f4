"""What an application that has ended has left for a leader to do."""

from __future__ import annotations

from collections.abc import Iterator
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
        of_others: whether the first pass of the cleanup of all other jobs of the cluster counts,
            too.

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
        self._tried = set[str]()
        """Jobs of others whose cleanup has left something."""

    def first(self) -> str | None:
        """Return a job for whose end or cleanup waiting may help: none after a minute.

        Raises:
            CorruptRecord: it cannot be read.
            Unavailable: the backend did not answer.
        """
        if self._deadline.expired:
            return None
        # A job whose result is perhaps lost is held: waiting does not help.
        self._unfinished = [one for one in self._unfinished if self._results.get(one) is None]
        return next(iter(self._unfinished), None) or next(self._dirty(), None)

    def _dirty(self) -> Iterator[str]:
        for entry in self._results.dirty():
            own = entry.job_id == self._application or (
                entry.result is not None and entry.result.application == self._application
            )
            counts = own or (self._of_others and entry.job_id not in self._tried)
            if counts and self._may_be_clean_soon(entry, own=own):
                yield entry.job_id

    def _may_be_clean_soon(self, entry: JobResultEntry, *, own: bool) -> bool:
        """Return whether waiting may help: not if the cleanup is held or was given up, nor for a
        job of others once something was left of it. That may be so for days."""
        view = self._catalog.view(entry.job_id)
        journal = view.cleanup
        if not own and journal is not None and journal.problems:
            self._tried.add(entry.job_id)
            return False
        return not view.problems and not (journal and journal.exhausted)


def _unfinished_jobs(backend: Backend, application: str) -> list[str]:
    found = []
    for record in backend.scan(keys.JOBS):
        with suppress(CorruptRecord):
            spec = decode(JobSpec, record.value, record.key)
            if spec.application == application:
                found.append(spec.job_id)
    return found
