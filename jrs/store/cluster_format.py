"""The format of a cluster: the form of its records, and which versions of jrs may write them.

Two versions of jrs share a cluster while it is upgraded, master by master. So a newer version
writes nothing in a new form until an operator raises the cluster's format. Raising is refused
while a master runs that does not know the new format. Afterwards older versions refuse to open the
cluster.

A field added to a record is not a new form, because an older version may ignore the field (see
`jrs.records.stored`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import attrs

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    UnsupportedVersion,
    WrongState,
)
from jrs.contract.formats import NEWEST_FORMAT, OLDEST_FORMAT
from jrs.contract.operations import Op, Record, create_or_update, unchanged
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import FormatRecord, MasterInfo
from jrs.store import result_index
from jrs.store.masters import GONE_AFTER, Registry


@attrs.frozen
class ClusterFormat:
    """The format of a cluster."""

    version: int
    """The format in force."""
    newest: int = NEWEST_FORMAT
    """The newest format that this version of jrs supports."""


def format_of(backend: Backend) -> int:
    """Return the format in force. Records of a newer form must not be written.

    Raises:
        CorruptRecord: the record of the format cannot be read.
        Unavailable: the backend did not answer.
    """
    return _version_in(backend.get(keys.FORMAT), backend)


def _version_in(stored: Record | None, backend: Backend) -> int:
    if stored is None:
        return backend.marked_format
    return max(backend.marked_format, decode(FormatRecord, stored.value, stored.key).version)


def is_at_least(backend: Backend, version: int) -> bool:
    """Return whether records of that format may be written. Raises as `format_of`."""
    return backend.marked_format >= version or format_of(backend) >= version


def too_old(backend: Backend, version: int, what: str) -> str | None:
    """Return why the cluster's format is too old for `what`, and the remedy; None if it is not.
    Raises as `format_of`."""
    if backend.marked_format >= version:
        return None
    found = format_of(backend)
    if found >= version:
        return None
    return (
        f"{what} needs format {version} of cluster {backend.cluster!r}, which has {found}: "
        "jrs cluster-format --raise"
    )


def stays_below(backend: Backend, version: int) -> Op | None:
    """Return the condition that the format is not raised to `version` before a commit; None if it
    has that format already. Raises as `format_of`."""
    if backend.marked_format >= version:
        return None
    stored = backend.get(keys.FORMAT)
    if _version_in(stored, backend) >= version:
        return None
    return unchanged(keys.FORMAT, stored)


def ensure_supported(backend: Backend, *, convert: bool, now: Clock = time.time) -> None:
    """Check that this version of jrs supports the cluster's format.

    Args:
        convert: convert a cluster of format 1.

    Raises:
        UnsupportedVersion: the cluster's format is newer than this jrs.
        WrongState: the cluster has format 1, and masters still run or `convert` is False.
        Unavailable: the backend did not answer.
    """
    if backend.marked_format < OLDEST_FORMAT:
        if not convert:
            raise WrongState(
                f"cluster {backend.cluster!r} at {backend.url} was made by an older jrs: stop its "
                "masters, then start a master of this version to convert it"
            )
        running = Registry(backend, now=now).heard()
        if running:
            raise WrongState(
                f"cluster {backend.cluster!r} at {backend.url} was made by an older jrs, and its "
                f"masters still run ({_named(running)}): stop all of them first; a killed master "
                f"counts as running for {GONE_AFTER:g} s"
            )
        backend.mark_format(OLDEST_FORMAT)
    try:
        found = format_of(backend)
    except UnsupportedVersion:
        raise
    except CorruptRecord:
        return  # The caller reports and repairs it.
    if found > NEWEST_FORMAT:
        raise UnsupportedVersion(
            f"cluster {backend.cluster!r} at {backend.url} has format {found}; this jrs reads up "
            f"to {NEWEST_FORMAT}: upgrade it"
        )


def raise_format(
    backend: Backend,
    version: int = NEWEST_FORMAT,
    *,
    now: Clock = time.time,
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Raise the cluster's format to `version`, permanently; return the previous format.

    Durable, idempotent; repeat a call that was interrupted. Afterwards versions of jrs that do not
    know the format refuse the cluster. Indexes the existing results, in O(all).

    Args:
        progress: called with the number of results that have been looked at so far.

    Raises:
        InvalidInput: this jrs does not know the format.
        WrongState: a running master does not know the format. Nothing was changed.
        Unavailable, OutcomeUnknown: from the backend; repeat the call.
    """
    if not OLDEST_FORMAT <= version <= NEWEST_FORMAT:
        raise InvalidInput(
            f"this jrs knows the formats {OLDEST_FORMAT} to {NEWEST_FORMAT}, not {version}"
        )
    before = format_of(backend)
    behind = []
    if before < version:
        behind = Registry(backend, now=now).heard(lambda info: info.reads_format < version)
    if behind:
        raise WrongState(
            f"the format cannot be raised to {version}: these masters read up to "
            f"{min(info.reads_format for info in behind)}: {_named(behind)}; upgrade them first"
        )
    if before < version:
        stored = backend.get(keys.FORMAT)
        raised = attrs.evolve(_record(stored), version=version, raised_at=now())
        op = create_or_update(keys.FORMAT, encode(raised), stored and stored.version)
        try:
            commit_and_read_back(backend, op)
        except Conflict:
            raise WrongState(
                "another process has just changed the format: check it with jrs cluster-format"
            ) from None
    if version >= result_index.SINCE_FORMAT:
        result_index.build(backend, progress)
    # Last: readers rely on what older clusters lack from now on.
    backend.mark_format(version)
    if backend.marked_format < version:
        _complete(backend, version)  # All clusters of a folder share its marker.
    return before


def arrival_ops(backend: Backend, now: float) -> tuple[Op, ...]:
    """Return the operations that record the newest format, for the commit that completes a copy of
    a cluster that has this format throughout. Raises as `format_of`."""
    if backend.marked_format >= NEWEST_FORMAT:
        return ()
    stored = backend.get(keys.FORMAT)
    record = attrs.evolve(_record(stored), version=NEWEST_FORMAT, complete=NEWEST_FORMAT)
    value = encode(attrs.evolve(record, raised_at=record.raised_at or now))
    return (create_or_update(keys.FORMAT, value, stored and stored.version),)


def _complete(backend: Backend, version: int) -> None:
    """Record that what was written before the raise has the format, too."""
    while True:
        stored = backend.get(keys.FORMAT)
        record = _record(stored)
        if record.complete >= version:
            return
        value = encode(attrs.evolve(record, complete=version))
        with suppress(Conflict):  # Another process has completed it, or raises it further.
            commit_and_read_back(
                backend, create_or_update(keys.FORMAT, value, stored and stored.version)
            )


def _record(stored: Record | None) -> FormatRecord:
    return FormatRecord(0) if stored is None else decode(FormatRecord, stored.value, stored.key)


def _named(masters: list[MasterInfo]) -> str:
    return ", ".join(f"{info.name} on {info.host}, pid {info.pid}" for info in masters)
