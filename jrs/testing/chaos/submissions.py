"""The client of a chaos run: submits its jobs over the time of the faults, and sees them end."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import DuplicateJob, InvalidInput, OutcomeUnknown, Unavailable
from jrs.records import keys
from jrs.records.model import JobResult, JobSpec
from jrs.records.policies import RestartPolicy, check_count
from jrs.store.jobs import JobCatalog
from jrs.store.result_store import JobResultStore
from jrs.testing.chaos.outputs import contents, places, with_texts

LASTING = RestartPolicy(attempts=10_000, delay=0.1, max_delay=1.0, on_exception=True)
"""For jobs that must finish however often they are killed."""
_TURN = 0.2
"""Seconds between two looks at what has ended."""
_PAGE = 200
"""Jobs that are looked at by one read."""


@attrs.define
class Submission:
    """A job of the run.

    Attributes:
        due: seconds of the monotonic clock at which it is submitted.
        copy_of: the id that the user gave.
    """

    spec: JobSpec
    due: float
    copy_of: str
    is_acknowledged: bool = False
    result: JobResult | None = None


def copies_of(spec: JobSpec, copies: int) -> list[JobSpec]:
    """Return the specs of the copies of a job, in which ``{id}`` is the id of each.

    Raises:
        InvalidInput: that is no number of copies.
    """
    check_count("copies", copies)
    ids = [spec.job_id] if copies == 1 else [f"{spec.job_id}-{n + 1}" for n in range(copies)]
    return [
        attrs.evolve(
            spec, job_id=job_id, arguments=with_texts(spec.arguments, partial(_with_id, job_id))
        )
        for job_id in ids
    ]


def _with_id(job_id: str, text: str) -> str:
    return text.replace("{id}", job_id)


class Submissions:
    """Submits jobs when they are due, in a thread of its own. Safe for use by many threads."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._catalog = JobCatalog(backend)
        self._store = JobResultStore(backend)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._all: list[Submission] = []
        self._hurry = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="jrs-chaos-client", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def refuse_known(self, ids: Sequence[str]) -> None:
        """Raise `InvalidInput` if a job has one of these ids, or its copies were given it."""
        known = {id for each in self.all() for id in (each.spec.job_id, each.copy_of)}
        for id in ids:
            if id in known:
                raise InvalidInput(f"{id!r} is submitted already: give the job another id")

    def add(self, submission: Submission) -> None:
        with self._lock:
            self._all.append(submission)

    def check(self) -> None:
        """Raise what the thread has broken with, if it has."""
        if self.failure is not None:
            raise self.failure

    def hurry(self) -> None:
        """Submit the rest without waiting."""
        self._hurry = True

    def all(self) -> list[Submission]:
        with self._lock:
            return list(self._all)

    def unfinished(self) -> list[str]:
        """Return the ids of the jobs that have not ended."""
        return [each.spec.job_id for each in self.all() if each.result is None]

    def ended(self, output: Path) -> dict[str, Any]:
        """Return how the jobs have ended whose results are in the store, or were there, by ids.

        Args:
            output: the folder below which arguments name what a job that was submitted has written.
        """
        files = {each.spec.job_id: _files(each.spec, output) for each in self.all()}
        results = {each.spec.job_id: each.result for each in self.all()}
        results |= {one.job_id: one.result for one in self._store.list() if one.result is not None}
        return {
            job_id: {
                "status": result.status.value,
                "payload": result.payload,
                "files": files.get(job_id, []),
            }
            for job_id, result in results.items()
            if result is not None
        }

    def _run(self) -> None:
        try:
            while not self._stop.wait(_TURN):
                try:
                    self._submit()
                    self._look()
                except (Unavailable, OutcomeUnknown):
                    continue  # Tried again with the next turn.
        except BaseException as error:
            self.failure = error

    def _submit(self) -> None:
        now = time.monotonic()
        for each in self.all():
            if not each.is_acknowledged and (self._hurry or each.due <= now):
                try:
                    self._catalog.submit(each.spec)
                except DuplicateJob:
                    pass  # It was stored, although nobody learned of it.
                each.is_acknowledged = True

    def _look(self) -> None:
        open_jobs = [each for each in self.all() if each.is_acknowledged and each.result is None]
        for first in range(0, len(open_jobs), _PAGE):
            some = open_jobs[first : first + _PAGE]
            found = self._backend.get_many([keys.RESULTS + each.spec.job_id for each in some])
            for each, record in zip(some, found, strict=True):
                entry = None if record is None else self._store.get(each.spec.job_id)
                if entry is not None:
                    each.result = entry.result


def _files(spec: JobSpec, output: Path) -> list[Any]:
    """Return what a job has written below a folder, as far as its arguments name it."""
    return [contents(place) for place in places(spec.arguments, output)]
