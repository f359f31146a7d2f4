"""Sweep: the leader removes what interrupted deletions, gone masters and earlier leaders left."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jrs.contract.errors import Fenced, SnapshotInUse
from jrs.contract.texts import error_text
from jrs.records import keys
from jrs.store.masters import Registry

from ..files import epoch_folders
from ..rules.events import EventKind
from ..snapshots import delete, deletion_notes
from .context import LeaderContext
from .leader_task import Upkeep

_FIRST, _PAUSE = 60.0, 3600.0
"""Seconds before the first pass, and between two."""
_MOST_SAID = 5
"""Problems that one report has."""


class Sweep(Upkeep):
    """The sweeping of one leadership.

    What stays of one kind keeps nothing else from being removed.
    """

    def __init__(self, context: LeaderContext) -> None:
        super().__init__(context, "sweep", "left-overs stay", first=_FIRST, pause=_PAUSE)
        self._registry = Registry(context.backend, now=context.runtime.now)
        self._problems: list[str] = []
        self._reported: list[str] = []

    def _work(self) -> bool:
        self._problems = []
        for part in (self._snapshots, self._trash, self._registry.forget_gone, self._bars):
            self._try(part)
        if self._problems and self._problems != self._reported:
            said = "; ".join(self._problems[:_MOST_SAID])
            self._context.emit(EventKind.ERROR, "", f"left-overs stay: {said}; trying again")
        self._reported = self._problems
        return not self._problems

    def _try(self, part: Callable[[], object]) -> None:
        if self._is_over():
            return
        try:
            part()
        except (Fenced, SnapshotInUse):
            pass  # A newer leader does it; or the process that works on it, or the next pass.
        except Exception as error:
            self._problems.append(error_text(error))

    def _snapshots(self) -> None:
        """Remove the files of snapshots whose deletion, or listing, was interrupted."""
        backend, until = self._context.backend, self._context.runtime.now() - _PAUSE
        for left in deletion_notes.noted(self._context.storage):
            if left.is_older(until) and left.counts(backend):
                self._context.backend.check_current(self._context.fence, "the sweep stops here")
                self._try(partial(delete.complete, backend, left))

    def _trash(self) -> None:
        self._problems += self._context.storage.empty_trash()

    def _bars(self) -> None:
        """Remove what bars attempts of much older epochs from making their folders again."""
        for record in self._context.backend.scan(keys.JOBS):
            if self._is_over():
                return
            folder = self._context.storage.folder(keys.job_of(record.key))
            self._try(partial(epoch_folders.sweep_bars, folder, self._context.fence.epoch))
