"""Publications: what a job has begun to publish at URLs of its user's own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord, InvalidInput, JobHeld
from jrs.contract.operations import Fence
from jrs.records.model import StageRecord
from jrs.records.stages import TAKEN_OVER
from jrs.store.jobs import readable_stages

from ..rules.resource import FencedResource, GivenUp
from ..storage import publication
from ..storage.objects import Objects


class Publications(FencedResource):
    """Publications that were committed and whose attempt died before it completed them. They are
    completed, not taken back: an attempt that was shut out may still do so."""

    name = "publications"
    prioritised = True
    """The job's objects, which are copied, are removed afterwards."""

    def __init__(self, backend: Backend, objects: Objects) -> None:
        self._backend = backend
        self._objects = objects

    def clean_fenced(self, job_id: str, fence: Fence | None) -> None:
        given_up = []
        for record in self._begun(job_id):
            try:
                publication.complete(self._objects, record, partial(self._check, fence))
            except (JobHeld, CorruptRecord, InvalidInput) as error:
                given_up.append(f"{record.target} is not published: {error}")
        if given_up:
            raise GivenUp("; ".join(given_up))

    def describe(self, job_id: str) -> list[str]:
        return [
            str(record.target)
            for record in self._begun(job_id)
            if not publication.is_there(self._objects, str(record.target))
        ]

    # -- inside ----------------------------------------------------------------------------

    def _begun(self, job_id: str) -> Iterator[StageRecord]:
        for record in readable_stages(self._backend, job_id):
            is_ours = record.attempt != TAKEN_OVER and not record.is_published
            if is_ours and record.at_url:
                yield record

    def _check(self, fence: Fence | None) -> None:
        self._backend.check_current(fence, "nothing more is published")
