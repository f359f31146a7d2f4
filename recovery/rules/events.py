"""Events: what a leader reports to observers. No decision depends on them."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable

import attrs

from jrs.contract.texts import bounded, printable

_log = logging.getLogger("jrs.events")
logging.getLogger("jrs").addHandler(logging.NullHandler())  # A library prints nothing by itself.


class EventKind(enum.StrEnum):
    """The kinds of events."""

    ATTEMPT = "attempt"
    """An attempt of a job starts."""
    BATCH = "batch-committed"
    """A stream has committed batches."""
    CLEAN = "clean"
    """The resources of a job are gone, and its result is clean."""
    CLEANUP = "cleanup"
    """A cleanup left something; it is tried again, or given up."""
    DAMAGED = "damaged"
    """A checkpoint or a snapshot is damaged, and the leader skips it."""
    DECISION = "decision"
    """The decision about a job has changed: the message says what happens to it, with the action in
    brackets. Not emitted for a job that just runs."""
    DEPOSED = "deposed"
    """A master that lost the leadership ends its process, since attempts may still run in it."""
    DIED = "died"
    """An attempt died."""
    DROPPED = "dropped"
    """Reports of an attempt were dropped, because its master read them too slowly."""
    ELECTED = "elected"
    """A master was elected, and recovers the jobs before it leads."""
    ERROR = "error"
    """Something failed, and is tried again."""
    EXPORT = "export"
    """OpenLineage accepts events again."""
    HELD = "held"
    """A job is held until an operator decides."""
    LEADING = "leading"
    """A master leads: it decided about the jobs that ran and the dirty results; others follow."""
    LEFT = "left"
    """Something of a job was left behind when the leader stepped down."""
    LOST = "lost"
    """A master lost the leadership."""
    ORPHANS = "orphans"
    """Processes of an earlier attempt were found and killed."""
    PREPARE = "prepare"
    """A master with `--prepare` makes the archive of Spark's classes, or says why it does not."""
    PUBLISHED = "published"
    """The output of a stage was published."""
    RESIGNED = "resigned"
    """A master handed the leadership over."""
    RESTORED = "restored"
    """A job was restored from a snapshot."""
    RETENTION = "retention"
    """The leader removed things that ended jobs had left, for their age or size."""
    SNAPSHOT = "snapshot"
    """A snapshot was taken, or could not be."""
    STAGE_BEGUN = "stage-begun"
    """A stage begins."""
    STAGE_FINISHED = "stage-finished"
    """A stage has finished, durably."""
    STAGE_SKIPPED = "stage-skipped"
    """A stage is skipped, because an earlier attempt finished it."""
    SUSPECT = "suspect"
    """A job may have killed the leader in whose process it ran."""
    SUSPENDED = "suspended"
    """A job is suspended."""
    WARM = "warm"
    """A warm process is ready for the next attempt of a job, or was lost."""
    WAITING = "waiting"
    """A master or a job waits for something that passes, or that an operator has to fix."""


_WARNINGS = {
    EventKind.DAMAGED,
    EventKind.DEPOSED,
    EventKind.DIED,
    EventKind.ERROR,
    EventKind.HELD,
    EventKind.LOST,
    EventKind.SUSPECT,
}
"""The kinds that are logged as warnings; all others are for information."""


def _line(text: str) -> str:
    return printable(bounded(text))


@attrs.frozen
class Event:
    """One step of a leader, reported to people."""

    kind: EventKind = attrs.field(converter=EventKind)
    """What happened; docs/concepts.md lists all kinds."""
    job_id: str
    """The job that it is about; empty if it is about the master."""
    message: str = attrs.field(converter=_line)
    """One printable line: it cannot forge another line or send commands to a terminal."""
    epoch: int
    """The epoch of the leadership; 0 before the first."""
    at: float
    """Seconds since 1970, by the clock of the process that reports it."""
    stage: str = ""
    """The stage that it is about; empty if it is about none."""


Report = Callable[[Event], None]


def notify(report: Report, event: Event) -> None:
    """Log the event as ``jrs.events`` and call `report`.

    The log record has the attributes ``kind``, ``job_id``, ``epoch`` and ``stage``. An exception of
    `report`, or of a logging filter or handler, is ignored: it must not harm a job.
    """
    about = {
        "kind": event.kind.value,
        "job_id": event.job_id,
        "epoch": event.epoch,
        "stage": event.stage,
    }
    level = logging.WARNING if event.kind in _WARNINGS else logging.INFO
    about_job = f"{event.job_id}: " if event.job_id else ""
    _try(lambda: _log.log(level, "%s%s", about_job, event.message, extra=about))
    _try(lambda: report(event))


def _try(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        pass
    except SystemExit:
        # In the main thread, it may be a signal's handler that ends the program.
        if threading.current_thread() is threading.main_thread():
            raise
