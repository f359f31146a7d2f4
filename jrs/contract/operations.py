"""The parts of a commit: records, operations with their conditions, and the fence."""

from __future__ import annotations

from typing import final

import attrs

EPOCH_KEY = "leader/epoch"
"""The record whose version is the fence. Only `Backend.campaign` writes it."""


@final
@attrs.frozen
class Record:
    """One key and its value.

    `version` grows with every write of the key, and is in the order of the commits for different
    keys, too; the records of one commit may share it. Only compare it.
    """

    key: str
    """Its name in the backend."""
    value: bytes
    """What is stored under it."""
    version: int


@attrs.frozen
class Create:
    """Write `value`; refused if the key is present."""

    key: str
    """The key that it makes."""
    value: bytes


@attrs.frozen
class Update:
    """Replace the value; refused unless the key is at `version`."""

    key: str
    """The key whose value it replaces."""
    value: bytes
    """The new value, in bytes."""
    version: int


@attrs.frozen
class Delete:
    """Remove the key; refused if it is absent, or not at `version` if one is given."""

    key: str
    """The key that it removes."""
    version: int | None = None


@attrs.frozen
class Check:
    """Write nothing; refused unless the key is at `version`."""

    key: str
    """The key that it reads."""
    version: int


@attrs.frozen
class Absent:
    """Write nothing; refused if the key is present."""

    key: str
    """The key that must not be there."""


Op = Create | Update | Delete | Check | Absent


def unchanged(key: str, record: Record | None) -> Check | Absent:
    """Return the condition that a key is as it was read; `record` is None if it was absent."""
    return Absent(key) if record is None else Check(key, record.version)


def create_or_update(key: str, value: bytes, version: int | None) -> Create | Update:
    """Return the operation that writes `value` if the key is still as it was read: at `version`, or
    absent if that is None."""
    return Create(key, value) if version is None else Update(key, value, version)


@attrs.frozen
class Fence:
    """The condition "my epoch is still the newest", plus "I was not shut out" for an attempt.

    The backend checks the fence in the same atomic commit as the write, so it trusts no clock.
    """

    epoch: int
    """The epoch of the leadership."""
    version: int
    """Of the record of that epoch: the fence holds while the record is at it."""
    attempt: Check | None = None
    """Checks that the record that lets an attempt write is unchanged; None for a leader."""

    def check(self) -> Check:
        return Check(EPOCH_KEY, self.version)
