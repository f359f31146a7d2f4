"""Decisions: the newest decision about each job, recorded with what the leader then does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress

from jrs.contract.errors import CorruptRecord, OutcomeUnknown, Unavailable
from jrs.contract.operations import Fence, Op
from jrs.records.field_types import Json
from jrs.records.history import HistoryKind
from jrs.store.historian import Historian, Why
from jrs.store.history import fold_if_many

from ..rules.decision import RULES, Action, Facts


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

    def recorded(
        self,
        job_id: str,
        kind: HistoryKind,
        text: str,
        *,
        about: Mapping[str, Json] | None = None,
        repeatable: bool = False,
    ) -> AbstractContextManager[tuple[Op, ...]]:
        """Have an event recorded with the decision; see `Historian.recorded`."""
        return self._historian.recorded(
            job_id, kind, text, why=self._why(job_id), about=about, repeatable=repeatable
        )

    def folding(
        self, job_id: str, kind: HistoryKind, text: str, *, about: Mapping[str, Json] | None = None
    ) -> tuple[Op, ...]:
        """Return the operations that record an event and fold all others of the job with it; see
        `Historian.folding`."""
        return self._historian.folding(
            job_id, self._fence, kind, text, why=self._why(job_id), about=about
        )

    def fold(self, job_id: str) -> None:
        """Fold the oldest events of a job that has many, as far as that is possible now.

        Raises:
            Fenced: a newer leader exists.
        """
        with suppress(CorruptRecord, Unavailable, OutcomeUnknown):
            fold_if_many(self._historian.backend, job_id, self._fence)

    def _why(self, job_id: str) -> Why | None:
        with self._lock:
            found = self._newest.get(job_id)
        if found is None:
            return None
        action, facts = found
        return Why(action.value, RULES, facts.to_plain())
