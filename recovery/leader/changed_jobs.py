"""ChangedJobs: the jobs that have changed, page by page.

Between two pages the leader does what is urgent: it hears of a cancel or an attempt's end within
the time of one page, however many jobs there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice

from ..rules.recorded_facts import Stored
from .facts import Gatherer
from .job_memory import SCANNED, JobMemory

PAGE = 64
"""Jobs that are checked together."""

Page = dict[str, dict[str, Stored]]
"""Jobs to check, each with its records that were just read, by prefix."""


class ChangedJobs:
    """Finds the jobs whose records have changed; used by one thread.

    Args:
        facts: lists what has changed.
        jobs: what the leader remembers of each job.
    """

    def __init__(self, facts: Gatherer, jobs: Mapping[str, JobMemory]) -> None:
        self._facts = facts
        self._jobs = jobs
        self._asked = {*SCANNED}
        self._prefixes: set[str] = set()
        self._under_way: Iterator[tuple[str, dict[str, Stored]]] | None = None
        self._checked: set[str] = set()
        self.is_complete = False
        """Whether all jobs were listed at least once."""

    def ask(self, prefixes: Collection[str] = SCANNED) -> None:
        """Have the jobs listed whose records under some of `SCANNED` have changed."""
        self._asked.update(prefixes)

    @property
    def is_due(self) -> bool:
        """Whether a page is to be checked."""
        return bool(self._asked) or self._under_way is not None

    def checked(self, job_ids: Collection[str]) -> None:
        """Note that jobs were checked for another reason: what the listing has read of them may be
        older."""
        if self._under_way is not None:
            self._checked.update(job_ids)

    def step(self, check: Callable[[Page], None]) -> None:
        """Have the next page checked. If that raises, everything is listed again.

        Raises:
            Unavailable: the backend could not be asked.
            CorruptRecord: the records cannot be listed.
        """
        try:
            if self._under_way is None:
                self._prefixes, self._asked = self._asked, set()
                self._under_way = self._facts.changed(self._jobs, self._prefixes)
            page = dict(islice(self._under_way, PAGE))
            check({job_id: {} if self._is_known(job_id) else page[job_id] for job_id in page})
        except BaseException:
            self._asked |= self._prefixes
            self._end()
            raise
        if len(page) < PAGE:
            self.is_complete = self.is_complete or self._prefixes.issuperset(SCANNED)
            self._end()

    def _is_known(self, job_id: str) -> bool:
        return job_id in self._jobs or job_id in self._checked

    def _end(self) -> None:
        self._under_way = None
        self._checked.clear()
