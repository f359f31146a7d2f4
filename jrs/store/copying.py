"""Copying the records of a cluster into another backend, and comparing the two, by scan.

It knows no kinds of records. What belongs to a backend itself is listed here, by its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import TooLarge
from jrs.contract.operations import Check, Create, Delete, Op, Record, Update
from jrs.contract.whole_scan import scan_whole
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord

LEFT_BEHIND = (keys.MASTERS, keys.DOCTOR, keys.FEED)
"""The prefixes of what describes processes that use the source, and of the feed, whose order is
that of the versions there. A target to which the cluster returns loses what it has of them: a
cursor from before would be accepted there, and miss what happened elsewhere."""
_OWN = (keys.CLOSED, keys.MIGRATION, keys.FORMAT)
"""The records of a backend itself. Whatever the format was raised from, only a cluster of the
newest one moves, and `Migration` records the format of the target."""

_MOST_BYTES = 256 * 1024
"""Bytes of values after which a batch is written; one value may have more."""
_TOLD_EVERY = 1000
"""Records between two reports of the progress."""


@attrs.frozen
class Contents:
    """What a cluster holds that moves."""

    records: int
    bytes: int
    """Of all values together."""
    by_kind: dict[str, int]
    """The number of records by the first part of their key."""


def _moved_epoch(here: Record, there: Record | None) -> bytes:
    """Return the record of the epoch for the target: epochs only grow, on both backends. A backend
    may keep a lock under the token."""
    newest = decode(EpochRecord, here.value, here.key)
    known = 0 if there is None else decode(EpochRecord, there.value, there.key).epoch
    epoch = max(newest.epoch, known)
    return encode(attrs.evolve(newest, epoch=epoch, token=f"{epoch}-migrated"))


REWRITTEN: dict[str, Callable[[Record, Record | None], bytes]] = {keys.EPOCH: _moved_epoch}
"""The records that hold something of the backend itself, and what the target gets instead: from the
record of the source and the present one of the target. No record holds a version of the backend."""


def moves(key: str) -> bool:
    """Return whether a key moves with its cluster."""
    return key not in _OWN and not key.startswith(LEFT_BEHIND)


def survey(source: Backend, target: Backend | None) -> Contents:
    """Return what of a cluster moves; see `Migration.survey`.

    Args:
        target: None if its limits are not known.

    Raises:
        CorruptRecord: the disk may have lost a record.
    """
    records = size = 0
    by_kind: dict[str, int] = {}
    for record in scan_whole(source, ""):
        if not moves(record.key):
            continue
        if target is not None:
            _check_limits(record, target)
        records += 1
        size += len(record.value)
        kind = record.key.partition("/")[0]
        by_kind[kind] = by_kind.get(kind, 0) + 1
    return Contents(records, size, by_kind)


def sync(
    source: Backend,
    target: Backend,
    copy: Check,
    progress: Callable[[int], None] = lambda compared: None,
) -> int:
    """Compare all records, copy what differs, and remove what the target has kept of what does not
    move; return the number of records that differed.

    Args:
        copy: the condition of every commit to the target.
        progress: called with the number of records that were compared, at the end as well.

    Raises:
        Conflict: the condition does not hold, or another process writes to the target.
        CorruptRecord: the disk of the source may have lost a record.
        TooLarge, Unavailable, OutcomeUnknown: as `Backend.commit`.
    """
    compared = differed = size = 0
    batch: list[Op] = []
    most = target.capabilities.max_ops - 1
    for key, here, there in _pairs(source, target):
        op = _difference(key, here, there)
        if here is not None:
            compared += 1
            if compared % _TOLD_EVERY == 0:
                progress(compared)
        if op is None:
            continue
        differed += 1
        length = len(op.value) if isinstance(op, (Create, Update)) else 0
        if batch and (len(batch) == most or size + length > _MOST_BYTES):
            target.commit(copy, *batch)
            batch, size = [], 0
        batch.append(op)
        size += length
    if batch:
        target.commit(copy, *batch)
    progress(compared)
    return differed


def _check_limits(record: Record, target: Backend) -> None:
    limits = target.capabilities
    for what, length, most in (
        ("bytes", len(record.value), limits.max_value),
        ("characters in its key", len(record.key), limits.max_key),
    ):
        if length > most:
            raise TooLarge(
                f"the record {record.key!r} has {length:,} {what}, and {target.url} takes at most "
                f"{most:,}: remove it, or name another target"
            )


def _pairs(source: Backend, target: Backend) -> Iterator[tuple[str, Record | None, Record | None]]:
    """Yield each key that moves, or that only the target has, with the record on both sides, in
    O(page) memory."""
    ours = (record for record in scan_whole(source, "") if moves(record.key))
    theirs = (record for record in target.scan("") if record.key not in _OWN)
    here, there = next(ours, None), next(theirs, None)
    while here is not None or there is not None:
        if there is None or (here is not None and here.key < there.key):
            assert here is not None
            yield here.key, here, None
            here = next(ours, None)
        elif here is None or there.key < here.key:
            yield there.key, None, there
            there = next(theirs, None)
        else:
            yield here.key, here, there
            here, there = next(ours, None), next(theirs, None)


def _difference(key: str, here: Record | None, there: Record | None) -> Op | None:
    """Return the operation that makes the target's record what it should be; None if it is."""
    if here is None:
        assert there is not None
        return Delete(key, there.version)
    rewritten = REWRITTEN.get(key)
    value = here.value if rewritten is None else rewritten(here, there)
    if there is None:
        return Create(key, value)
    return None if there.value == value else Update(key, value, there.version)
