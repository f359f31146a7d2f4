"""The stored types of snapshots: entries of the catalogue and the manifest in a snapshot's folder.

A snapshot is one consistent state of a job, pinned under a number. All its file names are relative,
so that its folder can be anywhere.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from itertools import pairwise

import attrs

from jrs.contract.errors import InvalidInput
from jrs.records.checks import a_job_id, check_path, check_stage_name
from jrs.records.objects import StoredObject
from jrs.records.stored import Stored

_SHA256 = re.compile(r"[0-9a-f]{64}")


class TakenBy(enum.StrEnum):
    """Who took a snapshot. jrs deletes by itself only what it has taken by itself."""

    USER = "user"
    SYSTEM = "system"
    UNKNOWN = ""
    """An older version took it. It counts as the system's if it has no name."""


class SnapshotFormat(enum.StrEnum):
    """How a snapshot holds its files; docs/snapshots.md compares them."""

    LINK = "link"
    """Hard links: takes milliseconds and no space, on the same filesystem only."""
    FULL = "full"
    """Copies: shares nothing with the job, on any filesystem."""
    CAS = "cas"
    """Blobs named by their content, which the snapshots of a cluster share."""
    LOGICAL = "logical"
    """The state's rows as Parquet, for reading only: it cannot be restored."""

    @property
    def is_restorable(self) -> bool:
        return self is not SnapshotFormat.LOGICAL


def _name(instance: object, attribute: object, value: str | None) -> None:
    if value is not None:
        check_snapshot_name(value)


def check_snapshot_name(name: str) -> str:
    """Return `name`, or raise `InvalidInput`: the rules of job ids, and not only digits."""
    if isinstance(name, str) and name.isdigit():
        raise InvalidInput(f"not a snapshot's name: {name!r} would be read as a number")
    try:
        return check_stage_name(name)
    except InvalidInput as error:
        raise InvalidInput(str(error).replace("stage name", "snapshot's name", 1)) from None


def _check_below(path: str, folders: tuple[str, ...]) -> None:
    """Raise `InvalidInput` unless a path of a snapshot is below one of `folders`."""
    first, _, rest = path.partition("/")
    if first not in folders or not rest:
        raise InvalidInput(f"the path {path!r} is not below {'/, '.join(folders)}/")


def _take(path: str, places: set[str]) -> None:
    if path in places:
        raise InvalidInput(f"the path {path!r} is named twice")
    places.add(path)


@attrs.frozen
class SnapshotStage(Stored):
    """A streaming stage in a snapshot."""

    name: str
    """The name of the stage."""
    batch: int | None
    """The batch it was pinned at; None if it had committed none and starts from the beginning."""
    query: str | None = None
    """The id of its streaming query."""


@attrs.frozen
class SnapshotFile(Stored):
    """One file of a snapshot."""

    path: str
    """Relative to the job: ``streams/<stage>/ck/…``, ``out/<stage>/…`` or ``tmp/<stage>/…``."""
    size: int
    """In bytes."""
    sha256: str
    """Of its content, in hexadecimal digits."""
    mtime_ns: int
    """When it was last changed: nanoseconds since 1970, by its filesystem."""
    inode: int = 0
    """The inode of a hard link: with size and time it proves that a file was hashed before."""

    def check(self) -> None:
        """Raise `InvalidInput` if the path could leave the snapshot, or the digest is invalid."""
        check_path(self.path, "the snapshot")
        if not _SHA256.fullmatch(self.sha256) or self.size < 0:
            raise InvalidInput(f"the entry of {self.path!r} has no valid digest or size")


def as_text(stored: bytes) -> str:
    """Return a record as manifests have it. Each byte comes back, also those of a damaged one."""
    return stored.decode("ascii", "surrogateescape")


def as_stored(text: str) -> bytes:
    """Return a record as the backend had it; see `as_text`."""
    return text.encode("ascii", "surrogateescape")


@attrs.frozen
class Manifest(Stored):
    """The contents of a snapshot: the file ``manifest.json`` in its folder."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    number: int
    """The snapshot's number in its job."""
    format: SnapshotFormat
    """How the snapshot holds its files."""
    created_at: float
    """Seconds since 1970, by the clock of the process that took the snapshot."""
    root: str
    """The former path of the job's folder: the prefix of the paths in Spark's file logs, which a
    restore rewrites. jrs never reads from or writes to it."""
    name: str | None = attrs.field(default=None, validator=_name)
    """The snapshot's name; None if it has none."""
    parent: int | None = None
    """The snapshot whose digests of unchanged files were reused. Nothing else depends on it."""
    output: bool = True
    """Whether the snapshot includes the published output."""
    stages: tuple[SnapshotStage, ...] = ()
    """The streaming stages of the job, each at its batch."""
    records: dict[str, str] = attrs.field(factory=dict)
    """The job's records in stored form: ``spec``, ``stages/<name>``, ``streams/<name>``."""
    files: tuple[SnapshotFile, ...] = ()
    """All files of the snapshot."""
    links: dict[str, str] = attrs.field(factory=dict)
    """The closed inputs of its stages: links ``in/<stage>/…`` and the target of each."""
    heads: dict[str, StoredObject] = attrs.field(factory=dict)
    """Where the storage has objects: what the heads of the streams named, by stage. It has no files
    of its own then."""
    plans: dict[str, StoredObject] = attrs.field(factory=dict)
    """The same, for the calls of functions of `foreachBatch`."""
    inputs: dict[str, str] = attrs.field(factory=dict)
    """The records of closed inputs in stored form, by ``<stage>/<input>``."""
    left_out: dict[str, int] | None = None
    """The output that was published and is not in the snapshot: the newest batch in each folder,
    ``out/<stage>`` or ``tmp/<stage>``, and in each table of a file sink below it; -1 in one that
    has no batches. None if all output is in it, or an older version took it."""

    def stored(self, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        """Yield the job's records below a prefix, as the backend had them, with their keys."""
        for key, text in self.records.items():
            if key.startswith(prefix):
                yield key, as_stored(text)

    def check(self) -> None:
        """Raise `InvalidInput` if a path could lead out of the snapshot, or out of the folder of
        the restored job."""
        within = ("streams", "out", "tmp") if self.format.is_restorable else ("state",)
        places: set[str] = set()
        for file in self.files:
            file.check()
            _check_below(file.path, within)
            _take(file.path, places)
        for path in self.links:
            check_path(path, "the snapshot")
            _check_below(path, ("in",))
            _take(path, places)
        for path in self.left_out or ():
            check_path(path, "the snapshot")
            _check_below(path, ("out", "tmp"))
        for above, below in pairwise(sorted(path.split("/") for path in places)):
            if below[: len(above)] == above:
                # If `above` is a link, `below` would be created in the link's target.
                path, folder = "/".join(below), "/".join(above)
                raise InvalidInput(f"the path {path!r} is below {folder!r}, which is not a folder")
        for stage in self.stages:
            check_stage_name(stage.name)
        for key in self.records:
            kind, _, name = key.partition("/")
            if key != "spec" and (kind not in ("stages", "streams") or not check_stage_name(name)):
                raise InvalidInput(f"the record {key!r} does not belong in a snapshot")


@attrs.frozen
class CopyNote(Stored):
    """Says that another job is made from a snapshot by copying, where the storage has objects."""

    place: str
    """The name of the prefix for the copies, in the other job. A repeat finds them there."""
    until: float
    """The snapshot is not deleted before, in seconds since 1970; renewed while a process copies."""


@attrs.frozen
class SnapshotRecord(Stored):
    """A snapshot in the catalogue."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job."""
    number: int
    """Its number in its job, from 1."""
    format: SnapshotFormat
    """How it holds its files."""
    created_at: float
    """Seconds since 1970, by the clock of the process that took it."""
    manifest: str
    """The sha256 of its ``manifest.json``."""
    files: int
    """How many files it has."""
    bytes: int
    """Total size of its files."""
    new_bytes: int
    """Total size of the files that the snapshot before it does not hold."""
    name: str | None = attrs.field(default=None, validator=_name)
    """Its name; None if it has none."""
    parent: int | None = None
    """The snapshot whose digests of unchanged files were reused; None if none were."""
    output: bool = True
    """Whether it includes the published output."""
    stages: tuple[SnapshotStage, ...] = ()
    """The streaming stages of the job, each at its batch."""
    storage: str | None = None
    """The storage it was moved to; None while it is next to its job."""
    copy: str | None = None
    """A storage that may hold a partial copy, from a move that is under way or was cut off."""
    taken_by: TakenBy = TakenBy.UNKNOWN
    """Whether a user took it, or jrs by itself."""
    at_end: bool = False
    """Whether the cleanup of the ended job took it, so that the job can be retried."""
    objects: StoredObject | None = None
    """The object with its manifest, where the storage has objects."""
    for_fork: str = ""
    """The job that a fork makes of it, and then has no need of it; empty for all others."""
    copies: dict[str, CopyNote] = attrs.field(factory=dict, hash=False)
    """The other jobs that are made from it, where the storage has objects. An older version may
    delete the snapshot meanwhile: the copying then fails."""

    def least_reader(self) -> int:
        # Others would look for its folder.
        return 1 if self.objects is None else 2

    @property
    def is_systems(self) -> bool:
        """Whether jrs took it by itself, and may delete it by itself."""
        if self.taken_by is TakenBy.UNKNOWN:
            return self.name is None
        return self.taken_by is TakenBy.SYSTEM

    def __str__(self) -> str:
        named = f" ({self.name})" if self.name else ""
        return f"snapshot {self.number}{named} of job {self.job_id!r}"


@attrs.frozen
class RestoreRecord(Stored):
    """A restore that is under way or was interrupted. It reserves the job: no master starts a
    half-restored job."""

    job_id: str = attrs.field(validator=a_job_id)
    """The id of the job that is restored."""
    source: str
    """The snapshot's number, or the folder of an exported snapshot."""
    from_job: str
    """The job that the snapshot is of."""
    started_at: float
    """Seconds since 1970, by the clock of the one who asked."""
    claim: bool = False
    """Whether the snapshot is deleted once it is restored."""
    fork: bool = False
    """Whether the job is a new one, whose queries get new ids."""
    spec: str | None = None
    """The job's spec, where the restore has taken its place: in clusters before format 4."""
