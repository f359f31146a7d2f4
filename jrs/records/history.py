"""HistoryEvent: one thing that happened to a job or the cluster, stored in the commit that did it.

Each process that writes about a job numbers its events, and each event has the digest of the one
before it. So an event that is missing from the middle, or was changed, is noticed.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping

import attrs

from jrs.contract.masks import masked
from jrs.records.checks import a_job_id, a_job_id_or_none, size_of_json
from jrs.records.field_types import Json
from jrs.records.stored import Stored

MOST_FACTS = 2048
"""Bytes of the facts of one event."""
MOST_FOLDED = 256
"""Characters of its text that an event keeps when it is shortened."""
CUT = "cut"
"""The mark among facts that were cut: how many of them were shortened or left out. Versions that do
not know it take it for a fact of a newer version, so that none judges a decision by such facts."""
_LENGTHS = (1024, 512, 256, 128, 64, 32)
"""Characters that are left of a longer text: the most with which all facts fit."""
_ELLIPSIS = "…"
_in_order = json.JSONEncoder(sort_keys=True).encode
"""What digests are of: the same text for the same value."""


class HistoryKind(enum.StrEnum):
    """What happened to a job, or to the cluster."""

    SUBMITTED = "submitted"
    ATTEMPT = "attempt"
    """An attempt was started."""
    DIED = "died"
    """An attempt ended without a result."""
    INTERRUPTED = "interrupted"
    """An attempt ended without a result, through no fault of the job: it is not counted."""
    STREAM = "stream"
    """A streaming stage was first started."""
    BATCHES = "batches"
    """A stream has committed its 10th or 100th batch, or another thousand."""
    STAGE_BEGUN = "stage_begun"
    """A batch stage was begun."""
    STAGE = "stage"
    """A stage has finished."""
    SNAPSHOT = "snapshot"
    """A snapshot was taken or deleted."""
    STOP = "stop"
    """A suspend or a drain was requested or refused, or the job was held."""
    HELD = "held"
    """A leader cannot continue the job: a record of it cannot be read, or its host lacks what the
    job needs."""
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    """A suspended or held job was resumed."""
    CHANGED = "changed"
    """The job was rescaled or upgraded."""
    CANCEL = "cancel"
    """A cancel was requested."""
    RESTORE = "restore"
    """The job was restored, or a restore was begun and has not ended."""
    ENDED = "ended"
    """The job ended, with a result."""
    CLEANUP = "cleanup"
    """A pass of the cleanup left something."""
    CLEAN = "clean"
    """The cleanup has ended."""
    EXPIRED = "expired"
    """The result was expired."""
    ELECTED = "elected"
    """A master was elected."""
    RESIGNED = "resigned"
    """A master gave its leadership up."""
    LOST = "lost"
    """A master lost its leadership."""
    PAUSED = "paused"
    """The cluster was paused."""
    UNPAUSED = "unpaused"
    """The pause of the cluster was ended."""
    SWITCHOVER = "switchover"
    """A switchover was requested."""
    UPKEEP = "upkeep"
    """An operator accepted damage, restored a record of the cluster, raised its format, or adopted
    a storage."""
    OTHER = "other"
    """A newer version of jrs has recorded it, under a name that this one does not know."""


@attrs.frozen
class WholeEvent(Stored):
    """What an event was before its text was shortened."""

    digest: str
    full: str
    """Its digest, and its full digest, by which others name it."""
    short: str
    """The full digest of what is left of it, by which a change to that is noticed."""


@attrs.frozen
class HistoryEvent(Stored):
    """One thing that happened to a job or to the cluster."""

    job_id: str = attrs.field(validator=a_job_id_or_none)
    """The job; empty for an event of the cluster."""
    id: str
    """``WRITER.NUMBER``: which process wrote it, by a random name, and as its how many-th."""
    kind: str
    """A `HistoryKind`, or what a newer version knows."""
    at: float
    """Seconds since 1970, by the clock of its writer."""
    by: str = ""
    """Who did it: a user as ``user@host``, or a master by its name; empty if it is not known."""
    text: str = ""
    epoch: int = 0
    """Of the leader that did it, itself or by an attempt; 0 for a user."""
    attempt: int = 0
    """The attempt that did it; 0 for a leader or a user."""
    action: str = ""
    """What the leader had decided about the job, if it acted by a decision."""
    rules: int = 0
    """The version of the rules that decided; see `jrs.recovery.rules.decision.RULES`."""
    facts: dict[str, Json] | None = None
    """The facts of that decision, without those that have their default; of a leadership its host,
    its pid and its ttl."""
    previous: str = ""
    """The digest of its writer's event before it; empty for the first one."""
    about: dict[str, Json] | None = None
    """What belongs to it, by its kind: of an attempt its host, of a death the exit status."""
    request: str = ""
    """What asked for it: the command of a user, as ``jrs cancel nightly``, or the id of a request
    to the API as ``request ID``."""
    whole: WholeEvent | None = None
    """What it was before it was shortened; None if it was not."""

    def digest(self) -> str:
        """Return the digest by which the next event of its writer names it: of all that the first
        version knew. It does not change when the event is shortened."""
        return self._own_digest() if self.whole is None else self.whole.digest

    def full_digest(self) -> str:
        """Return the digest of all that it says; every version that keeps it returns the same. It
        does not change when the event is shortened."""
        return self._own_full_digest() if self.whole is None else self.whole.full

    @property
    def is_sound(self) -> bool:
        """Whether what is left of it is as it was written; True if it was not shortened."""
        return self.whole is None or self.whole.short == self._own_full_digest()

    def shortened(self) -> HistoryEvent:
        """Return the event with the begin of its text, which says that it was shortened, if that is
        long; others still name it by its digest."""
        if self.whole is not None or len(self.text) <= MOST_FOLDED:
            return self
        cut = len(self.text) - MOST_FOLDED
        text = f"{self.text[:MOST_FOLDED]}{_ELLIPSIS} [{cut} characters cut]"
        short = attrs.evolve(self, text=text)
        whole = WholeEvent(self.digest(), self.full_digest(), short.full_digest())
        return attrs.evolve(short, whole=whole)

    def _own_digest(self) -> str:
        said = [self.job_id, self.id, self.kind, self.at, self.by, self.text, self.epoch,
                self.attempt, self.action, self.rules, self.facts, self.previous]  # fmt: skip
        return hashlib.sha256(_in_order(said).encode()).hexdigest()[:16]

    def _own_full_digest(self) -> str:
        later = {"about": self.about, "request": self.request, **(self.unknown or {})}
        said = {name: value for name, value in later.items() if value}
        if not said:
            return self._own_digest()
        text = f"{self._own_digest()}{_in_order(said)}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def is_routine(self) -> bool:
        """Whether a leader recorded it of its own accord, and does so again and again: of a long
        history, what else happened is worth more, such as snapshots that fail."""
        if self.known_kind is HistoryKind.SNAPSHOT:
            return self.epoch > 0 and "failures" not in (self.about or {})
        return self.epoch > 0 and self.known_kind is HistoryKind.BATCHES

    @property
    def known_kind(self) -> HistoryKind:
        """Its kind, as far as this version knows it."""
        try:
            return HistoryKind(self.kind)
        except ValueError:
            return HistoryKind.OTHER


@attrs.frozen
class FoldSeal(Stored):
    """By which a change to the events of a fold is noticed. An older version keeps it as it is
    when it folds more events."""

    dropped: int
    """How many events had been dropped."""
    behind: str
    """The digest of those events, as far as they were sealed."""
    events: int
    """How many events had ever been folded."""
    all: str
    """The digest of those events, as far as they were sealed; it continues `behind`."""


@attrs.frozen
class HistoryFold(Stored):
    """The older events of a job in one record."""

    job_id: str = attrs.field(validator=a_job_id)
    events: tuple[HistoryEvent, ...] = ()
    """In the order of their commits."""
    dropped: int = 0
    """How many still older events are gone, or among `kept`."""
    closing: HistoryEvent | None = None
    """The event that was committed with this record. It is behind every event whose record has a
    smaller version than this one."""
    seal: FoldSeal | None = None
    """None if an older version has written it."""
    kept: tuple[HistoryEvent, ...] = ()
    """Of the events that were dropped, the newest that are no routine, in order."""
    kept_seal: str = ""
    """Their digest."""


@attrs.frozen
class ClusterHistory(Stored):
    """The newest events of the cluster itself, in one record."""

    events: tuple[HistoryEvent, ...]
    """In the order of their commits. Each one's `previous` is the digest of the one before it."""
    dropped: int = 0
    """How many older events are gone."""
    led: HistoryEvent | None = None
    """The newest of these that is about a leadership: who led is known however much happened since.
    None if there is none, or an older version dropped it."""


def kept_facts(facts: Mapping[str, Json], most: int = MOST_FACTS) -> dict[str, Json]:
    """Return facts in at most `most` stored bytes.

    Long texts are shortened first. If that is not enough, the largest facts are left out.
    """
    found = dict(facts)
    if size_of_json(found) <= most:
        return found
    for length in _LENGTHS:
        found = _marked({name: _shortened(value, length) for name, value in facts.items()}, facts)
        if size_of_json(found) <= most:
            return found
    del found[CUT]
    for name in sorted(found, key=lambda name: size_of_json({name: found[name]}), reverse=True):
        del found[name]
        marked = _marked(found, facts)
        if size_of_json(marked) <= most:
            return marked
    return _marked({}, facts)


def _marked(kept: Mapping[str, Json], facts: Mapping[str, Json]) -> dict[str, Json]:
    """Return what is left of facts, with the mark."""
    changed = sum(1 for name in facts if name not in kept or kept[name] != facts[name])
    return {**kept, CUT: changed}


def _shortened(value: Json, length: int) -> Json:
    if isinstance(value, str):
        # Masked first: nothing would recognize a part of a secret.
        whole = masked(value) if len(value) > length else value
        return whole if len(whole) <= length else whole[:length] + _ELLIPSIS
    if isinstance(value, list):
        return [_shortened(one, length) for one in value]
    if isinstance(value, dict):
        return {name: _shortened(one, length) for name, one in value.items()}
    return value
