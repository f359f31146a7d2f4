"""Manifests: which objects hold the files of a job whose storage is an object store.

An object is written once, under a name that nobody else uses, and never changes. What counts is
what a record of the cluster names: a stage's record its `OutputManifest`, the head of a stream its
newest `BatchManifest`. The manifests are objects themselves.
"""

from __future__ import annotations

import re

import attrs

from jrs.contract.errors import InvalidInput
from jrs.records.checks import a_job_id, check_path
from jrs.records.stored import Stored

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}/data(/[A-Za-z0-9][A-Za-z0-9._=-]*){2,}")


def _an_object(_instance: object, _attribute: object, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise InvalidInput(f"{value!r} is not the name of an object of a job")


def _a_digest(_instance: object, _attribute: object, value: str) -> None:
    if not _SHA256.fullmatch(value):
        raise InvalidInput(f"{value!r} is not a digest")


def _a_path(_instance: object, _attribute: object, value: str) -> None:
    check_path(value, "the job's folder")


def _not_negative(_instance: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 0:
        raise InvalidInput(f"{attribute.name} is negative: {value}")


@attrs.frozen
class StoredObject(Stored):
    """An object, as a record or a manifest names it."""

    name: str = attrs.field(validator=_an_object)
    """Below the cluster's objects: ``<job>/data/<place>/…``. Each attempt has its own place."""
    size: int = attrs.field(validator=_not_negative)
    """In bytes."""
    sha256: str = attrs.field(validator=_a_digest)
    """Of its content, in hexadecimal digits."""


@attrs.frozen
class StoredFile(Stored):
    """A file, and the object that holds its content, or holds it among others."""

    path: str = attrs.field(validator=_a_path)
    """Relative to the folder that the manifest is of."""
    object: str = attrs.field(validator=_an_object)
    size: int = attrs.field(validator=_not_negative)
    sha256: str = attrs.field(validator=_a_digest)
    """Of the file's own content."""
    offset: int = attrs.field(default=0, validator=_not_negative)
    """Where its content begins in the object, in bytes."""


@attrs.frozen
class OutputManifest(Stored):
    """The files of a finished batch stage."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    files: tuple[StoredFile, ...] = ()


@attrs.frozen
class InputListing(Stored):
    """The files of a closed input, as they were listed when its stage was first started."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    links: dict[str, str] = attrs.field(factory=dict)
    """Where each file of the input leads to, by its path in the input's folder."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for path in self.links:
            check_path(path, "the folder of the input")


@attrs.frozen
class ClosedInput(Stored):
    """A closed input of a streaming stage: the same files for every attempt, on every host."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    source: str
    """The folder that it was made of."""
    listing: StoredObject
    """The `InputListing`."""


@attrs.frozen
class JobReferences(Stored):
    """Counts what has changed which objects of a job are named; see `jrs.store.object_order`."""

    job_id: str = attrs.field(validator=a_job_id)
    changes: int = 0


@attrs.frozen
class BatchFiles(Stored):
    """The files with the rows of one batch."""

    batch: int
    files: tuple[StoredFile, ...] = ()


@attrs.frozen
class EarlierBatches(Stored):
    """A range of batches, and the manifest that has them."""

    first: int
    last: int
    level: int
    """0: a `BatchManifest`. Above: a `MergedBatches`."""
    manifest: StoredObject


@attrs.frozen
class BatchManifest(Stored):
    """One batch of a stream: its rows, those of all batches before it, and its checkpoint."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    generation: int
    batch: int
    files: tuple[StoredFile, ...] = ()
    """With the rows of this batch; none if it has no rows, or if its rows go elsewhere."""
    checkpoint: tuple[StoredFile, ...] = ()
    """What a query needs to run this batch, or the next one if this one is complete there."""
    earlier: tuple[EarlierBatches, ...] = ()
    """All batches before it that have rows, oldest first."""

    def has(self, path: str) -> bool:
        """Return whether its checkpoint has a file at a path."""
        return any(one.path == path for one in self.checkpoint)


@attrs.frozen
class MergedBatches(Stored):
    """The rows of a range of batches: those files themselves, or the manifests that have them."""

    job_id: str = attrs.field(validator=a_job_id)
    stage: str
    batches: tuple[BatchFiles, ...] = ()
    earlier: tuple[EarlierBatches, ...] = ()


@attrs.frozen
class OutputIndex(Stored):
    """The output of a job that has ended: what its records named before they were removed."""

    job_id: str = attrs.field(validator=a_job_id)
    stages: dict[str, StoredObject] = attrs.field(factory=dict)
    """The manifests of finished batch stages, by the name of the stage."""
    streams: dict[str, StoredObject] = attrs.field(factory=dict)
    """The manifests of the newest batches of streams, by the name of the stage."""
    whole: bool = True
    """Whether it names all output. False after a record could not be read: then all objects of the
    job are kept."""
