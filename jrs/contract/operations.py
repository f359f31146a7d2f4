"""What a commit consists of: records, operations with their conditions, and the fence."""

from __future__ import annotations

import attrs

EPOCH_KEY = "leader/epoch"
"""The record whose version is the fence. Written only by `Backend.campaign`."""


@attrs.frozen
class Record:
    """One key and its value. `version` grows with every write of the key; compare it, no more."""

    key: str
    value: bytes
    version: int


@attrs.frozen
class Create:
    """Write `value`; refused if the key is present."""

    key: str
    value: bytes


@attrs.frozen
class Update:
    """Replace the value; refused unless the key is at `version`."""

    key: str
    value: bytes
    version: int


@attrs.frozen
class Delete:
    """Remove the key; refused if it is absent, or not at `version` where one is given."""

    key: str
    version: int | None = None


@attrs.frozen
class Check:
    """Write nothing; refused unless the key is at `version`."""

    key: str
    version: int


@attrs.frozen
class Absent:
    """Write nothing; refused if the key is present."""

    key: str


Op = Create | Update | Delete | Check | Absent


@attrs.frozen
class Fence:
    """The condition "my epoch is still the newest", and of an attempt "I was not shut out".

    The backend checks it in the same atomic commit as the write, so no clock is trusted.
    """

    epoch: int
    version: int
    attempt: Check | None = None
    """The record that lets an attempt write, unchanged; None for a leader's own writes."""

    def check(self) -> Check:
        return Check(EPOCH_KEY, self.version)
