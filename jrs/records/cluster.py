"""What is stored of a cluster as a whole: masters, epoch, format, storage, pause, migrations."""

from __future__ import annotations

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.checks import bounded_text
from jrs.records.stored import Stored

MAX_EPOCH = 10**18 - 1
"""The largest epoch: file names and cursors have room for its digits. An election each millisecond
would take 30 million years to get there, so a larger one is damage."""


@attrs.frozen
class MasterInfo(Stored):
    """A master that registered with the cluster."""

    name: str
    """Its name in the cluster."""
    host: str
    """The host that it runs on."""
    pid: int
    """Its process on that host."""
    started_at: float
    """When it started: seconds since 1970, by its own clock."""
    seen_at: float
    """Its newest heartbeat: seconds since 1970, by its own clock."""
    leading: int | None = None
    """The epoch of its leadership, once it has recovered."""
    reads_format: int = 1
    """The newest cluster format that it works with."""
    max_attempts: int = 0
    """Most attempts in processes of their own that it runs at once while it leads; 0 if unknown."""
    yields: int = 0
    """The newest epoch after which it has let another master lead first; see
    `jrs.recovery.leader.switchover`."""
    led_since: float = 0.0
    """Since when it leads, in seconds since 1970, by its own clock; 0 if it does not, or an older
    version wrote it."""
    application: str | None = None
    """The application of which it is a replica; empty for a master that runs none, None if an older
    version wrote it."""
    held: str = ""
    """Why it must not lead before an operator has repaired something; empty if it may."""


@attrs.frozen
class FormatRecord(Stored):
    """The format of the cluster's records, once it was raised."""

    version: int
    raised_at: float = 0.0
    complete: int = 0
    """The format that what was written before the raise has, too; 0 until the raise has completed
    it. For backends whose marker several clusters share."""


@attrs.frozen
class EpochRecord(Stored):
    """The newest epoch: the value of the fence's record."""

    epoch: int = attrs.field()
    """Grows by one with each leadership; up to `MAX_EPOCH`."""
    candidate: str
    """The master that was elected."""
    token: str = ""
    """Names this leadership among those of its candidate; backends may keep a lock under it."""

    @epoch.validator
    def _check_epoch(self, _attribute: object, value: int) -> None:
        if type(value) is not int or not 0 <= value <= MAX_EPOCH:
            raise InvalidInput(f"an epoch is from 0 to {MAX_EPOCH}, not {shown(value)}")


@attrs.frozen
class StorageRecord(Stored):
    """The storage of the cluster: where its jobs keep their files."""

    id: str
    """Random; the storage's own marker holds the same."""
    path: str
    """The folder, as the newest leader has named it."""
    marked: bool = False
    """Whether the marker was written. Before that, no folder can be told from another one."""
    epoch: int = 0
    """The newest epoch that was written to the marker."""
    recorded_at: float = 0.0
    """When it was recorded: seconds since 1970; 0 if unknown."""
    recorded_by: str = ""
    """The master that recorded the storage first, or the user that adopted it."""
    work: str = ""
    """The folder of each host for copies, where the storage has objects."""
    count: int = 0
    """How often the leaders have counted that jobs had ended; the marker has the same, or one less
    after a crash."""


@attrs.frozen
class StorageMarker(Stored):
    """The marker in a storage: which cluster's storage it is."""

    id: str
    cluster: str
    backend: str
    """The URL under which the master knew the backend, without secrets."""


@attrs.frozen
class PauseRecord(Stored):
    """A pause: while it is stored, no attempt begins."""

    since: float
    """Seconds since 1970, by the clock of the one who asked."""
    by: str = attrs.field(default="", converter=bounded_text)
    """Who paused the cluster: ``user@host``."""
    reason: str = attrs.field(default="", converter=bounded_text)
    """Why, if a reason was given."""

    def __str__(self) -> str:
        """Return the pause for people."""
        why = f": {self.reason}" if self.reason else ""
        return f"the cluster was paused by {self.by}{why}"


@attrs.frozen
class SwitchoverRecord(Stored):
    """The newest request to hand the leadership over. It is over once `epoch` is."""

    epoch: int
    """The leadership that was to end."""
    to: str
    """The master that was to lead next."""
    requested_at: float = 0.0
    """Seconds since 1970, by the clock of the one who asked."""
    by: str = attrs.field(default="", converter=bounded_text)
    """Who requested it: ``user@host``."""
    reason: str = attrs.field(default="", converter=bounded_text)
    """Why, if a reason was given."""

    def __str__(self) -> str:
        """Return the request for people."""
        why = f": {self.reason}" if self.reason else ""
        return f"switchover of epoch {self.epoch} to {self.to}, requested by {self.by}{why}"


@attrs.frozen
class ClosedRecord(Stored):
    """What closes a cluster to every process but ``jrs migrate``: it was moved to another backend,
    or it is a copy that is not complete yet."""

    migration: str
    """The id of the migration, which both backends know."""
    url: str = attrs.field(converter=bounded_text)
    """The other backend, without secrets: where the cluster is now, or where it is copied from."""
    arriving: bool = False
    """Whether this is the copy."""
    run: str = ""
    """Of a copy: names the run of ``jrs migrate`` that may write it. The newest one may."""
    at: float = 0.0
    """Seconds since 1970, by the clock of the one who asked."""
    by: str = attrs.field(default="", converter=bounded_text)
    """Who moves the cluster: ``user@host``."""


@attrs.frozen
class MigrationRecord(Stored):
    """The migrations of a cluster: the one that it came by, and the newest that it was to leave
    by. Nothing is closed by it."""

    came_by: str
    """The id of the migration that brought the cluster to this backend; empty if none did."""
    leaves_by: str
    """The id of the newest migration to another backend that was begun; empty if none was."""
    came_from: str = attrs.field(default="", converter=bounded_text)
    """The backend that it came from, without secrets."""
    came_at: float = 0.0
    leaves_to: str = attrs.field(default="", converter=bounded_text)
    """The backend that it was to leave for, without secrets."""
