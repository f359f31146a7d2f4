"""Finding the jobs that a leader holds, however many others have not ended.

Few kinds of records hold a job, so that most jobs are passed over by a look at one of theirs. What
is found so may be held: as for any job, `Explainer` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain, islice, tee

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobSpec, StopMode, StopRecord
from jrs.store import restores
from jrs.store.job_views import JobView
from jrs.store.jobs import JobCatalog
from jrs.store.stored_result import result_in

from ..rules.decision import Action
from .explain import Explainer

_MAY_BE_LOST = (
    *(keys.JOBS, keys.APPLICATIONS, keys.RESTORES, keys.STOPS, keys.CANCEL),
    *(keys.RESULTS, keys.TOMBSTONES),
)
"""The records that hold a job if the disk has perhaps lost them."""
_TOGETHER = 64
"""Jobs whose records are read by one request."""


class Holds:
    """Finds the jobs that a leader holds. Safe for many threads.

    Each record is decoded once: the versions of those that hold no job are remembered until the
    next look. A look then costs a scan of the specs, attempts, stops and dirty results.

    Raises:
        Unavailable: from each method, if the backend did not answer.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._harmless: dict[str, int] = {}
        """The versions of the records that hold no job, by key."""

    def views(self, without: Container[str] = ()) -> Iterator[JobView]:
        """Yield all stored data of each job that is held, each once, in no order.

        Args:
            without: ids of jobs that are passed over.
        """
        jobs, explainer = JobCatalog(self._backend), Explainer(self._backend, queue=False)
        suspects = (job_id for job_id in self._suspects() if job_id not in without)
        views, read = tee(jobs.views(suspects))
        for view, explained in zip(views, explainer.explain_all(read), strict=True):
            if explained.action is Action.HOLD:
                yield view

    def _suspects(self) -> Iterator[str]:
        """Yield the id of each job that one of its records may hold, each once."""
        known, self._harmless = self._harmless, {}
        seen = set[str]()
        for job_id in chain(self._alone(known), self._dirty(known), self._perhaps_lost()):
            if job_id not in seen:
                seen.add(job_id)
                yield job_id

    def _alone(self, known: dict[str, int]) -> Iterator[str]:
        for prefix, holds in _HOLDS.items():
            for record in self._backend.scan(prefix):
                if self._may_hold(record, holds, known):
                    yield keys.job_of(record.key)

    def _dirty(self, known: dict[str, int]) -> Iterator[str]:
        marked = (keys.job_of(record.key) for record in self._backend.scan(keys.DIRTY))
        for some in _pages(marked):
            results = self._backend.get_many([keys.RESULTS + job_id for job_id in some])
            for job_id, result in zip(some, results, strict=True):
                # A marker without its result is damage, unless the job was just cleaned up.
                if not isinstance(result, Record) or self._may_hold(result, _result, known):
                    yield job_id

    def _perhaps_lost(self) -> Iterator[str]:
        """Yield the jobs of which the disk has perhaps lost a record: no scan shows that."""
        if not self._backend.capabilities.may_omit:
            return
        jobs = JobCatalog(self._backend)
        for some in _pages(chain(jobs.begun_ids(), jobs.unfinished_ids())):
            names = [prefix + job_id for job_id in some for prefix in _MAY_BE_LOST]
            for key, found in zip(names, self._backend.get_many(names), strict=True):
                if isinstance(found, CorruptRecord):
                    yield keys.job_of(key)

    def _may_hold(
        self, record: Record, holds: Callable[[Record], bool], known: dict[str, int]
    ) -> bool:
        """Return whether a record may hold its job: it does, or it cannot be read."""
        if known.get(record.key) != record.version:
            try:
                if holds(record):
                    return True
            except CorruptRecord:
                return True
        self._harmless[record.key] = record.version
        return False


def _pages(ids: Iterable[str]) -> Iterator[list[str]]:
    left = iter(ids)
    while some := list(islice(left, _TOGETHER)):
        yield some


def _stop(record: Record) -> bool:
    return decode(StopRecord, record.value, record.key).mode is StopMode.HOLD


def _attempt(record: Record) -> bool:
    return decode(AttemptRecord, record.value, record.key).could_not_start


def _spec(record: Record) -> bool:
    if not restores.took_place_of(record):
        decode(JobSpec, record.value, record.key)
    return False


def _result(record: Record) -> bool:
    result_in(record)
    return False


_HOLDS = {keys.STOPS: _stop, keys.ATTEMPTS: _attempt, keys.JOBS: _spec}
"""Whether a record of each kind holds its job. What cannot be read raises `CorruptRecord`."""
