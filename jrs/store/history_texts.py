"""What the history says of what happened to a job, or to the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jrs.contract.texts import with_reason
from jrs.records.field_types import Json
from jrs.records.history import HistoryEvent, HistoryKind
from jrs.records.model import StopMode
from jrs.store.stop_transitions import StopStep

_ATTEMPT = re.compile(r"attempt ([1-9][0-9]*) (?:was started|died|was interrupted)\b")


def attempt_started(number: int, left: str = "") -> str:
    """Return what the history says of an attempt that starts.

    Args:
        left: what became of the attempt before it, if nothing else says so.
    """
    return f"attempt {number} was started{left and f'; {left}'}"


def attempt_left(number: int, epoch: int) -> str:
    """Return what the history says of an attempt whose leader ended before the attempt did."""
    return f"attempt {number} was left by the leader of epoch {epoch}"


def attempt_died(number: int, why: str) -> str:
    """Return what the history says of an attempt that ended without a result."""
    return f"attempt {number} died: {why}"


def attempt_interrupted(number: int, why: str) -> str:
    """Return what the history says of an attempt that ended through no fault of its job."""
    return f"attempt {number} was interrupted: {why}"


def attempt_of(event: HistoryEvent) -> int:
    """Return the number of the attempt that an event of a leader is about, or that of the attempt
    that has recorded it; 0 if it names none."""
    found = _ATTEMPT.match(event.text) if event.known_kind in _OF_ATTEMPTS else None
    return event.attempt if found is None else int(found[1])


_OF_ATTEMPTS = (HistoryKind.ATTEMPT, HistoryKind.DIED, HistoryKind.INTERRUPTED)
_HELD = "held"


def hold_text(reason: str) -> str:
    """Return what the history says of a job that is held."""
    return with_reason(_HELD, reason)


def is_held(event: HistoryEvent) -> bool:
    """Return whether an event says that its job is held."""
    said = event.text
    return event.known_kind is HistoryKind.STOP and (said == _HELD or said.startswith(f"{_HELD}:"))


def snapshot_taken(number: int, name: str | None) -> str:
    """Return what the history says of a snapshot."""
    return f"snapshot {number}{f' ({name})' if name else ''} was taken"


def restore_begun(source: str, from_job: str) -> str:
    """Return what the history says of a restore that is begun: from a snapshot, by its number or
    its folder."""
    named = f"snapshot {source}" if source.isdigit() else source
    return f"a restore from {named} of job {from_job!r} was begun"


def restored_from(number: int, job_id: str, *, used_up: bool) -> str:
    """Return what the history says of a restore.

    Args:
        job_id: of the snapshot's job; empty if it is the same.
        used_up: whether the snapshot is deleted with it.
    """
    of = f" of job {job_id}" if job_id else ""
    return f"restored from snapshot {number}{of}{', which is used up' if used_up else ''}"


def of_change(entry_point: str | None, partitions: int | None) -> str:
    """Return what the history says of a change of a job's code or partitions."""
    changes = []
    if partitions is not None:
        changes.append(f"rescaled to {partitions} partitions")
    if entry_point is not None:
        changes.append(f"upgraded to {entry_point}")
    return " and ".join(changes) or "restarted"


def plans_given_up(count: int) -> str:
    """Return what the history says of some of a job's streams before its code is changed."""
    return f"{count} plans of streams are given up for an upgrade that has begun"


def stop_came_to(step: StopStep, mode: StopMode, reason: str) -> tuple[HistoryKind, str]:
    """Return what the history says of a stop's new step."""
    if step is StopStep.NONE:
        return HistoryKind.SUSPENDED, "suspended; it starts again with the changes"
    if step is StopStep.SUSPENDED:
        return HistoryKind.SUSPENDED, "suspended"
    if step is StopStep.REFUSED:
        return HistoryKind.STOP, with_reason(f"the {mode.value} was refused", reason)
    return HistoryKind.STOP, "its streams came to a batch boundary"


def elected(about: Mapping[str, Json]) -> str:
    """Return what the history says of a master that was elected, on its host, with its pid and its
    ttl."""
    return f"elected on {about['host']}, pid {about['pid']}, ttl {about['ttl']:g} s"


def lost_to(master: str) -> str:
    """Return what the history says of a leader that did not resign before another one was
    elected."""
    return f"lost its leadership: it ended or hung, and {master} was elected"


def expired(number: int, some: Sequence[str]) -> str:
    """Return what the history says of results that were expired; `some` are the first of them."""
    if number <= len(some):
        return f"expired: {', '.join(some)}"
    return f"expired: {', '.join(some)} and {number - len(some)} more"
