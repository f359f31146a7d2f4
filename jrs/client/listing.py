"""Listing jobs: which ones, and in which order. Each listing reads no more than it has to."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterator

import attrs

from jrs.client.connection import Connection
from jrs.contract.inputs import check_is, member_or_none
from jrs.records.checks import check_job_id
from jrs.records.model import JobStatus, ResultState
from jrs.store import result_order
from jrs.store.job_views import JobView

_UNFINISHED = "unfinished:"
"""Begins the place behind a job that had not ended, in a list by the end. No job id has a colon."""


class JobOrder(enum.StrEnum):
    """The order of a list of jobs."""

    ID = "id"
    """By job id."""
    ENDED = "ended"
    """First the jobs that have not ended, by id; then the others, the newest end first."""

    def after(self, view: JobView) -> str:
        """Return the value of `after` of `Client.views` with which a list in this order continues
        after a job.

        If the order is by end and the job has not ended, the value says so. Thus the next page
        leaves out no other job, even if this one ends meanwhile. A job that ends meanwhile may be
        listed twice.
        """
        is_unfinished = self is JobOrder.ENDED and not view.has_ended
        return f"{_UNFINISHED}{view.job_id}" if is_unfinished else view.job_id


def _text(_instance: object, attribute: attrs.Attribute[str], value: object) -> None:
    check_is(value, attribute.name, str)


def _status(value: JobStatus | str | None) -> JobStatus | None:
    return member_or_none(JobStatus, value, "status")


def _state(value: ResultState | str | None) -> ResultState | None:
    return member_or_none(ResultState, value, "state")


def _order(value: JobOrder | str | None) -> JobOrder | None:
    return member_or_none(JobOrder, value, "order")


@attrs.frozen
class Listing:
    """What a list of jobs contains.

    Raises:
        InvalidInput: a value has the wrong type or form.
    """

    status: JobStatus | None = attrs.field(default=None, converter=_status)
    state: ResultState | None = attrs.field(default=None, converter=_state)
    prefix: str = attrs.field(default="", validator=_text)
    after: str = attrs.field(default="", validator=_text)
    tag: str | None = None
    since: float | None = None
    until: float | None = None
    order: JobOrder | None = attrs.field(default=None, converter=_order)

    def __attrs_post_init__(self) -> None:
        result_order.check_filters(self.tag, self.since, self.until)
        if self.after:
            check_job_id(self._after_id)

    @property
    def is_timed(self) -> bool:
        """Whether only jobs that have ended can be listed, because of the time of their end."""
        return self.since is not None or self.until is not None

    @property
    def is_by_id_alone(self) -> bool:
        """Whether the ids of jobs are enough for it."""
        return attrs.evolve(self, prefix="", after="") == Listing()

    def views(self, connection: Connection) -> Iterator[JobView]:
        """Yield the jobs.

        Raises:
            NoSuchResult: a list by end cannot continue after a job that has no result any more.
            Unavailable: the backend could not be asked.
        """
        found = self._by_end(connection) if self._is_by_end else self._by_id(connection)
        return filter(self._fits, found)

    # -- inside ------------------------------------------------------------------------------

    @property
    def _is_by_end(self) -> bool:
        default = JobOrder.ENDED if self.is_timed else JobOrder.ID
        return (self.order or default) is JobOrder.ENDED

    @property
    def _is_after_unfinished(self) -> bool:
        return self._is_by_end and self.after.startswith(_UNFINISHED)

    @property
    def _after_id(self) -> str:
        return self.after.removeprefix(_UNFINISHED) if self._is_after_unfinished else self.after

    def _fits(self, view: JobView) -> bool:
        if self.status not in (None, view.status) or not view.job_id.startswith(self.prefix):
            return False
        if self.state not in (None, view.entry and view.entry.state):
            return False
        if self.tag is not None and (view.submitted is None or self.tag not in view.submitted.tags):
            return False
        if not self.is_timed:
            return True
        if view.entry is None or not view.entry.finished_at:
            return False
        at = view.entry.finished_at
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)

    @property
    def _can_be_unfinished(self) -> bool:
        ended = self.status is not None and self.status.is_globally_terminal
        return not ended and not self.is_timed and self.state is None

    @property
    def _can_have_ended(self) -> bool:
        return self.status is None or self.status.is_globally_terminal

    def _by_id(self, connection: Connection) -> Iterator[JobView]:
        return connection.jobs.views(self._ids(connection))

    def _ids(self, connection: Connection) -> Iterator[str]:
        jobs = connection.jobs
        if self.state is ResultState.EXPIRED:
            return jobs.expired_ids(prefix=self.prefix, after=self.after)
        if self.state is ResultState.DIRTY:
            found = (entry.job_id for entry in connection.results.dirty())
            return (job_id for job_id in found if self._is_in_range(job_id))
        if not self._can_have_ended:
            return jobs.unfinished_ids(prefix=self.prefix, after=self.after)
        rare = self.status in (JobStatus.FAILED, JobStatus.CANCELED)
        if self.tag is None and not self.is_timed and not rare:
            return jobs.ids(prefix=self.prefix, after=self.after)
        ended = sorted(
            entry.job_id
            for entry in result_order.places(
                connection.backend, self.status, self.tag, self.since, self.until, None
            )
            if self._is_in_range(entry.job_id)
        )
        if not self._can_be_unfinished:
            return iter(ended)
        unfinished = jobs.unfinished_ids(prefix=self.prefix, after=self.after)
        return _each_once(heapq.merge(ended, unfinished))

    def _by_end(self, connection: Connection) -> Iterator[JobView]:
        jobs, results = connection.jobs, connection.results
        if self.state is ResultState.EXPIRED:
            yield from jobs.views(self._expired_by_end(connection))
            return
        after = None
        if self.after and not self._is_after_unfinished:
            after = results.get(self.after)
        if self._can_be_unfinished and after is None:
            unfinished = jobs.unfinished_ids(prefix=self.prefix, after=self._after_id)
            yield from (view for view in jobs.views(unfinished) if not view.has_ended)
        if self._can_have_ended:
            ended = jobs.views(self._ended(connection, None if after is None else self.after))
            # One whose result has just expired, or cannot be read, has no place among them.
            yield from (view for view in ended if view.entry is not None and view.entry.result)

    def _ended(self, connection: Connection, after: str | None) -> Iterator[str]:
        backend = connection.backend
        begin = None if after is None else result_order.place_of(backend, after)
        found = result_order.places(backend, self.status, self.tag, self.since, self.until, begin)
        return (place.job_id for place in found if place.job_id.startswith(self.prefix))

    def _expired_by_end(self, connection: Connection) -> Iterator[str]:
        entries = connection.results.list(state=ResultState.EXPIRED)
        ordered = sorted((-entry.finished_at, entry.job_id) for entry in entries)
        ids = [job_id for _, job_id in ordered]
        yield from ids[ids.index(self.after) + 1 :] if self.after in ids else ids

    def _is_in_range(self, job_id: str) -> bool:
        return job_id > self.after and job_id.startswith(self.prefix)


def _each_once(ids: Iterator[str]) -> Iterator[str]:
    last = ""
    for job_id in ids:
        if job_id != last:
            yield job_id
        last = job_id
