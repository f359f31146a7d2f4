"""What retention knows of the jobs that have ended. It asks once for each, and for many at once.

When and how a clean job ended never changes, so that no clock counts here. The others are asked for
again in each pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from jrs.contract.backend import Backend
from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Record
from jrs.records.codec import decode
from jrs.records.model import ResultState, Tombstone
from jrs.store.stored_result import ENTRY, Stored, entry_in

from ..rules.retention import CleanJob

_MOST = 100_000
"""Jobs that are remembered, of some 300 bytes each. What exceeds them is read in each pass."""
_PAGE = 256
"""Jobs that are asked for at once."""


class EndedJobs:
    """The ended jobs that the passes of one leadership have looked at."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, CleanJob] = {}
        """Of the last whole pass."""
        self._seen: dict[str, CleanJob] = {}
        """Of this pass."""

    def in_pages(self, job_ids: Iterable[str]) -> Iterator[tuple[str, CleanJob | None]]:
        """Yield jobs with what is known of them; None for one that is not clean, or is damaged: an
        operator decides about it.

        Raises:
            Unavailable: from the backend.
        """
        left = iter(job_ids)
        while page := list(islice(left, _PAGE)):
            yield from zip(page, self._of(page), strict=True)

    def of(self, job_id: str) -> CleanJob | None:
        """Return a job, as `in_pages` does."""
        (found,) = self._of([job_id])
        return found

    def end_pass(self) -> None:
        """Forget the jobs that the pass has not come across: their files are gone."""
        self._known, self._seen = self._seen, {}

    # -- inside ----------------------------------------------------------------------------

    def _of(self, page: Sequence[str]) -> list[CleanJob | None]:
        known = {one: found for one in page if (found := self._remembered(one)) is not None}
        asked = [one for one in page if one not in known]
        if asked:
            stored = self._backend.get_many([prefix + one for one in asked for prefix in ENTRY])
            for at, job_id in enumerate(asked):
                job = _clean_job(job_id, stored[at * len(ENTRY) : (at + 1) * len(ENTRY)])
                if job is not None:
                    known[job_id] = job
        for job_id, found in known.items():
            if job_id in self._seen or len(self._seen) < _MOST:
                self._seen[job_id] = found
        return [known.get(one) for one in page]

    def _remembered(self, job_id: str) -> CleanJob | None:
        return self._seen.get(job_id) or self._known.get(job_id)


def _clean_job(job_id: str, stored: Sequence[Stored]) -> CleanJob | None:
    try:
        entry, tombstone = entry_in(job_id, *stored), stored[-1]
        if entry is None or entry.state is ResultState.DIRTY:
            return None
        if entry.result is not None:
            return CleanJob(job_id, entry.result.status, entry.result.finished_at)
        if not isinstance(tombstone, Record):
            return None
        gone = decode(Tombstone, tombstone.value, tombstone.key)
    except CorruptRecord:
        return None
    return CleanJob(job_id, gone.status, gone.finished_at)
