"""The format of a cluster: what its records look like, and which versions of jrs may write them.

Two versions of jrs share a cluster while it is upgraded, master by master. So a newer version
writes nothing in a new form until an operator has raised the cluster's format, which is refused as
long as a master runs that does not know it. From then on older versions refuse to open the cluster.

A field added to a record is no new form: an older version may ignore it (see
`jrs.records.stored`).
"""

from __future__ import annotations

import time

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock
from jrs.contract.errors import Conflict, CorruptRecord, InvalidInput, UnsupportedVersion
from jrs.contract.formats import NEWEST_FORMAT, OLDEST_FORMAT
from jrs.contract.operations import Create, Update
from jrs.contract.read_back import commit_and_read_back
from jrs.records import keys
from jrs.records.codec import decode, encode
from jrs.records.model import FormatRecord, MasterInfo
from jrs.store.masters import GONE_AFTER, Registry


def format_of(backend: Backend) -> int:
    """Return the format in force: nothing of a newer form may be written.

    Raises:
        CorruptRecord: its record cannot be read.
        Unavailable: the backend did not answer.
    """
    stored = backend.get(keys.FORMAT)
    if stored is None:
        return backend.marked_format
    return max(backend.marked_format, decode(FormatRecord, stored.value, stored.key).version)


def ensure_supported(backend: Backend, *, convert: bool, now: Clock = time.time) -> None:
    """Check that this version of jrs works with the cluster's format; convert format 1 if told so.

    Raises:
        UnsupportedVersion: the cluster's format is newer than this jrs.
        InvalidInput: it is of format 1, and masters still run, or `convert` is not given.
        Unavailable: the backend did not answer.
    """
    if backend.marked_format < OLDEST_FORMAT:
        if not convert:
            raise InvalidInput(
                f"cluster {backend.cluster!r} at {backend.url} was made by an older jrs: stop its "
                "masters, then start one of this version, which converts it"
            )
        running = Registry(backend, now=now).running()
        if running:
            raise InvalidInput(
                f"cluster {backend.cluster!r} at {backend.url} was made by an older jrs, and its "
                f"masters still run ({_named(running)}): stop all of them first; one that was "
                f"killed counts for {GONE_AFTER:g} s"
            )
        backend.mark_format(OLDEST_FORMAT)
    try:
        found = format_of(backend)
    except UnsupportedVersion:
        raise
    except CorruptRecord:
        return  # To be named, and mended, by what was opened for.
    if found > NEWEST_FORMAT:
        raise UnsupportedVersion(
            f"cluster {backend.cluster!r} at {backend.url} has format {found}; this jrs reads up "
            f"to {NEWEST_FORMAT}: upgrade it"
        )


def raise_format(backend: Backend, version: int = NEWEST_FORMAT, *, now: Clock = time.time) -> int:
    """Raise the cluster's format to `version`, durably and for good; return the one before.

    Idempotent. From now on versions of jrs that do not know the format refuse the cluster.

    Raises:
        InvalidInput: this jrs does not know the format, or a master runs that does not. Nothing
            was changed.
        Unavailable, OutcomeUnknown: from the backend; repeat it.
    """
    if not OLDEST_FORMAT <= version <= NEWEST_FORMAT:
        raise InvalidInput(
            f"this jrs knows the formats {OLDEST_FORMAT} to {NEWEST_FORMAT}, not {version}"
        )
    before = format_of(backend)
    behind = [info for info in Registry(backend, now=now).running() if info.reads_format < version]
    if behind and before < version:
        raise InvalidInput(
            f"the format cannot be raised to {version}: these masters read up to "
            f"{min(info.reads_format for info in behind)}: {_named(behind)}; upgrade them first"
        )
    if before < version:
        value = encode(FormatRecord(version, now()))
        stored = backend.get(keys.FORMAT)
        op = (
            Create(keys.FORMAT, value)
            if stored is None
            else Update(keys.FORMAT, value, stored.version)
        )
        try:
            commit_and_read_back(backend, op)
        except Conflict:
            raise InvalidInput("somebody else raised the format in this moment; look again") from (
                None
            )
    backend.mark_format(version)
    return before


def _named(masters: list[MasterInfo]) -> str:
    return ", ".join(f"{info.name} on {info.host}, pid {info.pid}" for info in masters)
