"""The history of a chaos run: what each process asked of the store, and what it was answered.

Every process appends to a file of its own, a JSON object on each line. An operation has two events
with the same process and number: ``invoke``, and then ``ok``, ``fail`` (nothing was changed) or
``info`` (nobody knows). An operation whose process died has only the first one. The times are those
of the host's monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.errors import InvalidInput

COLUMNS = (
    *("process", "seq", "type", "f", "key", "value", "version", "epoch", "t", "error"),
)  # fmt: skip
"""The columns of a history, in files and in tables."""


class Kind(enum.StrEnum):
    """What an event says of its operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    """Nothing was changed."""
    INFO = "info"
    """It is unknown whether anything was changed; or the event is no operation."""


class Verb(enum.StrEnum):
    """What was asked for."""

    GET = "get"
    GET_MANY = "get_many"
    SCAN = "scan"
    COMMIT = "commit"
    CAMPAIGN = "campaign"
    WATCH = "watch"
    NOTICE = "notice"
    """A watch reported changes."""
    OVERDUE = "overdue"
    """A call of a watch has not returned when its time is over."""
    UNWATCH = "unwatch"
    ALIVE = "alive"
    """A sign of life of a process."""
    STRIKE = "strike"
    """A nemesis did its harm."""
    HEAL = "heal"
    """It undid the harm."""


class Part(enum.IntEnum):
    """What a part of an operation is: one of a commit's, or a record that was read."""

    READ = enum.auto()
    CREATE = enum.auto()
    UPDATE = enum.auto()
    DELETE = enum.auto()
    CHECK = enum.auto()
    ABSENT = enum.auto()
    NAMED = enum.auto()
    """A watch has reported this name; an empty one, that anything may have changed."""


@attrs.frozen
class Event:
    """One line of a history.

    Attributes:
        process: the name of the process, which no other one has: ``NAME.PID-RANDOM``.
        seq: the number of the operation in its process.
        f: the `Verb`.
        key: the key, the prefix of a scan or a watch, or the job.
        value: of a read, the digest of the value or None; of a commit, its parts, a list each,
            where a list of the prefix `LISTS` stands in the place of its digest:
            ``["create", KEY, DIGEST]``, ``["update", KEY, DIGEST, VERSION]``,
            ``["delete", KEY, VERSION]``, ``["check", KEY, VERSION]`` and ``["absent", KEY]``; of a
            scan and of many reads, ``[KEY, VERSION, DIGEST]`` for each record.
        version: of the record that was read, or of the fence; of a call that is overdue, for how
            many nanoseconds.
        epoch: of the fence.
        t: nanoseconds of the monotonic clock.
        error: the name of the error, and behind it the key of the condition that did not hold.
    """

    process: str
    seq: int
    type: Kind
    f: Verb
    t: int
    key: str = ""
    value: Any = None
    version: int | None = None
    epoch: int | None = None
    error: str = ""

    def to_line(self) -> bytes:
        """Return the line, with its end."""
        return json.dumps([getattr(self, name) for name in COLUMNS]).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Event:
        given = dict(zip(COLUMNS, json.loads(line), strict=True))
        return cls(**{**given, "type": Kind(given["type"]), "f": Verb(given["f"])})


LISTS = "lists/"
"""The prefix of the keys whose values are lists: elements without spaces, and a space between two.
A history has them whole."""


def digest(value: bytes) -> str:
    """Return what a history has in the place of a value."""
    return blake2b(value, digest_size=8).hexdigest()


def as_recorded(key: str, value: bytes) -> str:
    """Return what a history has in the place of the value of a key: a list itself, or a digest."""
    if key.startswith(LISTS):
        return value.decode(errors="backslashreplace")
    return digest(value)


def events_of(folder: Path) -> list[Event]:
    """Return the events of all processes, in the order of their times.

    The last line of a process that was killed may be cut off; it is left out.

    Raises:
        InvalidInput: a process could not record all that it did, or a line is none of a history.
    """
    found: list[Event] = []
    for path in files_in(folder):
        *whole, _ = path.read_bytes().split(b"\n")
        for number, line in enumerate(whole, 1):
            try:
                found.append(Event.from_line(line))
            except (ValueError, TypeError) as error:
                raise InvalidInput(f"line {number} of {path}: {error}") from None
    found.sort(key=lambda event: event.t)
    return found


INCOMPLETE = ".incomplete"
"""The suffix of the file of a process that could not record all that it did."""


def files_in(folder: Path) -> list[Path]:
    """Return the files of a history, one for each process.

    Raises:
        InvalidInput: a process could not record all that it did: nothing can be said of the run.
    """
    if lost := sorted(folder.glob(f"*{INCOMPLETE}")):
        raise InvalidInput(f"the history is incomplete: {lost[0].stem} could not write to {folder}")
    return sorted(folder.glob("*.jsonl"))


OPERATIONS = (Verb.GET, Verb.GET_MANY, Verb.SCAN, Verb.COMMIT, Verb.CAMPAIGN)
"""What begins and ends, and may change something in between."""

FOREVER = (1 << 63) - 1
"""The end of an operation that was never answered."""


@attrs.frozen
class Call:
    """An operation: its events as one.

    Attributes:
        begun, ended: its first and last moment; `FOREVER` if it was not answered, or if it is
            unknown whether it took effect: then it may still take effect.
        type: ``OK``, ``FAIL`` or ``INFO``.
    """

    process: str
    seq: int
    f: Verb
    begun: int
    ended: int
    type: Kind
    key: str = ""
    value: Any = None
    version: int | None = None
    epoch: int | None = None
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.process}#{self.seq}"


def calls_of(events: Iterable[Event]) -> Iterator[Call]:
    """Yield the operations of a history, in the order in which they ended; those without an answer
    come last. Events that are no operations are left out."""
    open_calls: dict[tuple[str, int], Event] = {}
    for event in events:
        if event.f not in OPERATIONS:
            continue
        operation = event.process, event.seq
        if event.type is Kind.INVOKE:
            open_calls[operation] = event
        elif (begun := open_calls.pop(operation, None)) is not None:
            yield _call(begun, event)
    for begun in open_calls.values():
        yield _call(begun, None)


def _call(begun: Event, ended: Event | None) -> Call:
    known = ended is not None and ended.type is not Kind.INFO
    # What was asked is in the first event, but for reads, whose answer has the rest.
    answer = begun if ended is None or begun.value is not None else ended
    return Call(
        process=begun.process,
        seq=begun.seq,
        f=begun.f,
        begun=begun.t,
        ended=ended.t if ended is not None and known else FOREVER,
        type=Kind.INFO if ended is None else ended.type,
        key=begun.key,
        value=answer.value,
        version=answer.version if begun.version is None else begun.version,
        epoch=answer.epoch if begun.epoch is None else begun.epoch,
        error="" if ended is None else ended.error,
    )
