"""LineageExport: the leader tells a program that collects lineage of each attempt.

It runs in a thread of its own, so that a receiver which is down or slow delays nothing else. It
reads the feed of the history behind a stored position, sends what that says of attempts, and moves
the position once all of it was taken. A leader that comes next sends what was sent and not yet
recorded once more: the same events, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from jrs.contract.errors import Conflict, Fenced, NotFound
from jrs.contract.operations import create_or_update
from jrs.contract.read_back import commit_and_read_back
from jrs.contract.texts import error_text
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.exports import MOST_OPEN, ExportRecord
from jrs.store import feed

from ..rules import lineage_runs
from ..rules.events import EventKind
from ..rules.lineage_runs import RunEvent
from .context import LeaderContext
from .leader_task import LeaderTask

NAME = "openlineage"
_AT_ONCE = 64
"""Events of the history that are exported before the position is recorded."""
_FIRST, _LONGEST = 0.5, 60.0
"""Seconds before what has failed is tried again; twice as long each time."""


class NotTaken(Exception):
    """The receiver did not take an event. It may take it later."""


class EventRefused(Exception):
    """The receiver refuses an event for good."""


class LineageExport(LeaderTask):
    """The export of one leadership.

    Args:
        send: sends an event, and returns once it was taken.
    """

    def __init__(self, context: LeaderContext, send: Callable[[RunEvent], None]) -> None:
        super().__init__(context, "jrs-openlineage")
        self._backend = context.backend
        self._emit = context.emit
        self._send = send
        self._failed = 0
        self._taken: dict[RunEvent, bool] = {}
        """What was sent behind the recorded position; False: the receiver refused it."""
        self._refuses = False
        self._lost = ""
        """The cursor behind which events were swept; empty if none were."""

    def run_once(self) -> bool:
        """Export a few events, and record that; return whether there are more.

        Raises:
            NotTaken: the receiver did not take one. The position was not moved. (One that it
                refuses for good is left out: it would block all others forever.)
            Fenced: a newer leader exists.
            Unavailable, OutcomeUnknown: from the backend; the call may be repeated.
        """
        record, version = self._stored()
        try:
            page = feed.read(self._backend, record.cursor, _AT_ONCE)
        except NotFound:
            self._say_lost(record.cursor)
            record = attrs.evolve(record, cursor="", gaps=record.gaps + 1)
            page = feed.read(self._backend, "", _AT_ONCE)
        running = dict(record.open)
        for one in page.events:
            for event in lineage_runs.advance(running, one.event):
                if event not in self._taken:
                    self._check_leads()
                    self._taken[event] = self._is_taken(event)
        for job_id in list(running)[: max(0, len(running) - MOST_OPEN)]:
            del running[job_id]
        refused = record.refused + list(self._taken.values()).count(False)
        after = attrs.evolve(record, cursor=page.cursor, open=running, refused=refused)
        if after != record:
            self._move(after, version)
        self._taken.clear()
        return page.more

    # -- inside ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_over():
            try:
                self._follow()
            except Fenced:
                return  # The dispatcher notices it, too.
            except Exception as error:
                self._pause(error)

    def _follow(self) -> None:
        with self._backend.watch(keys.FEED) as watch:
            while not self._is_over():
                more = self.run_once()
                self._context.health.export_works()
                if self._failed:
                    self._failed = 0
                    self._emit(EventKind.EXPORT, "", "OpenLineage takes events again")
                waited = 0.0
                while not (more or self._is_over() or waited >= feed.LOOK or watch.wait(0.5)):
                    waited += 0.5

    def _pause(self, error: Exception) -> None:
        if not self._failed:  # Once for each outage.
            why = error if isinstance(error, NotTaken) else error_text(error)
            said = f"the export to OpenLineage waits: {why}; trying again until it works"
            kind = EventKind.WAITING if isinstance(error, NotTaken) else EventKind.ERROR
            self._emit(kind, "", said)
        self._context.health.export_failed()
        self._over.wait(min(_LONGEST, _FIRST * 2 ** min(self._failed, 10)))
        self._failed += 1

    def _is_taken(self, event: RunEvent) -> bool:
        """Send an event; return False if the receiver refuses it for good."""
        try:
            self._send(event)
        except EventRefused as error:
            if not self._refuses:  # Once for each row of them.
                what = f"{event.state.value} of attempt {event.attempt}"
                said = f"OpenLineage refuses the event {what}: {error}; it is left out, and so is "
                said += "each that follows and is refused, too"
                self._emit(EventKind.ERROR, event.job_id, said)
            self._refuses = True
            self._context.health.export_refused()
            return False
        self._refuses = False
        return True

    def _check_leads(self) -> None:
        if self._is_over():
            raise Fenced(f"epoch {self._context.fence.epoch} is over: the export stops here")
        self._backend.check_current(self._context.fence, "the export stops here")

    def _stored(self) -> tuple[ExportRecord, int | None]:
        stored = self._backend.get(keys.export(NAME))
        if stored is None:
            return ExportRecord(""), None
        return decode(ExportRecord, stored.value, stored.key), stored.version

    def _move(self, after: ExportRecord, version: int | None) -> None:
        op = create_or_update(keys.export(NAME), encode(after), version)
        try:
            commit_and_read_back(self._backend, op, fence=self._context.fence)
        except Conflict:  # Only a leader writes it, or an operator who removes it.
            self._check_leads()

    def _say_lost(self, cursor: str) -> None:
        if self._lost != cursor:
            self._lost = cursor
            said = "events were swept from the feed before they were exported to OpenLineage: it "
            said += "continues with the oldest that is kept"
            self._emit(EventKind.ERROR, "", said)
