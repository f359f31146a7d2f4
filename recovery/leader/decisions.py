"""Decisions: what a leader acts by, and what its history says of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from jrs.contract.errors import CorruptRecord
from jrs.contract.operations import Fence, Op
from jrs.records.fields import Json
from jrs.records.history import HistoryKind
from jrs.store.historian import Historian
from jrs.store.history import MANY, fold

from ..rules.decision import Action, Facts


class Decisions:
    """The decisions that one leadership acts by, each with its facts, for the history of its jobs.

    Used from any thread: the dispatcher decides, and its pools act.
    """

    def __init__(self, historian: Historian, fence: Fence) -> None:
        self._historian = historian
        self._fence = fence
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[Action, Facts]] = {}

    def act(self, job_id: str, action: Action, facts: Facts) -> None:
        """Note that an action begins that these facts have led to."""
        with self._lock:
            self._newest[job_id] = action, facts

    def forget(self, job_id: str) -> None:
        """Forget a job that is over."""
        with self._lock:
            self._newest.pop(job_id, None)

    @contextmanager
    def recorded(
        self, job_id: str, kind: HistoryKind, text: str, *, repeatable: bool = False
    ) -> Iterator[tuple[Op, ...]]:
        """Yield the operations that record an event with the decision; see `Historian.recorded`."""
        action, facts = self._why(job_id)
        with self._historian.recorded(
            job_id, kind, text, action=action, facts=facts, repeatable=repeatable
        ) as event:
            yield event

    def folding(self, job_id: str, kind: HistoryKind, text: str) -> tuple[Op, ...]:
        """Return the operations that record an event and fold all others of the job with it; see
        `Historian.folding`."""
        action, facts = self._why(job_id)
        return self._historian.folding(job_id, self._fence, kind, text, action=action, facts=facts)

    def fold(self, job_id: str) -> None:
        """Fold the oldest events of a job that has many; raises as `jrs.store.history.fold`."""
        with suppress(CorruptRecord):  # fsck names it.
            fold(self._historian.backend, job_id, self._fence, leave=MANY)

    def _why(self, job_id: str) -> tuple[str, Mapping[str, Json] | None]:
        with self._lock:
            found = self._newest.get(job_id)
        return ("", None) if found is None else (found[0].value, found[1].to_plain())
