"""Publishing in objects, at a place of the user's own: copies of the files, and then one pointer.

The place is the name of the pointer, which lists the files; they lie next to it, in a folder that
no other publication has. The pointer is written last, and only if nothing is there. All names and
contents follow from the stage's record alone: each process that completes it writes the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import attrs

from jrs.contract.errors import InvalidInput, JobHeld, StorageRefused, Unavailable
from jrs.contract.texts import is_printable, printable, shown
from jrs.records.objects import OutputManifest, StoredFile
from jrs.records.stages import StageRecord

from .objects import Objects
from .packed_copies import in_threads, read_record
from .probe import probe_conditions

FORMAT = 1
"""Of the pointer."""

_LONGEST = 1024
"""Bytes of a name in a bucket: no store takes a longer one."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check(objects: Objects, job_id: str, target: str) -> None:
    """Raise `InvalidInput`, with the reason, unless output can be published at a URL. For that, an
    empty object is written next to it, and deleted.

    Raises:
        InvalidInput: it is no place in the bucket of the storage, or not outside of the jobs' own;
            something is there; a permission is missing; or the store ignores conditions.
        Unavailable: from the store; the call may be repeated.
    """
    if problem := _problem(objects, target):
        raise InvalidInput(f"nothing can be published at {printable(target)}: {problem}")
    bucket, name = objects.bucket(), _name(target)
    try:
        probe_conditions(objects)
        if bucket.stat(name) is not None or any(True for _ in bucket.under(name)):
            problem = "something is there already; move it away, or name another place"
            raise InvalidInput(f"nothing can be published at {target}: {problem}")
        trial = f"{name}.{_digest(objects.url, job_id)}.probe"
        bucket.put(trial, b"")
        bucket.delete([trial])
    except StorageRefused as error:
        raise InvalidInput(f"nothing can be published at {target}: {error}") from None


def check_files(target: str, paths: Iterable[str]) -> None:
    """Raise `InvalidInput`, with the reason, if one of the files that are published at a URL can
    have no copy there: once the stage is recorded, it has to be completed.

    Args:
        paths: of the files, below what is published.
    """
    folder = f"{_name(target)}.{_digest(target)}"  # Another digest, of the same length.
    for path in paths:
        if problem := _unfit(f"{folder}/{path}"):
            raise InvalidInput(f"nothing can be published at {target}: {shown(path)} {problem}")


def is_there(objects: Objects, target: str) -> bool:
    """Return whether there is a pointer at a URL. Raises as `Objects.stat`."""
    return objects.bucket().stat(_name(target)) is not None


def complete(objects: Objects, record: StageRecord, go_ahead: Callable[[], None]) -> None:
    """Copy what a record publishes, and write its pointer, unless that is there. Idempotent: a
    repeat copies what is missing.

    Args:
        go_ahead: called before the pointer is written; what it raises the call raises.

    Raises:
        JobHeld: something else was put there meanwhile. The copies are removed.
        InvalidInput: the store takes no object of the name of a copy.
        CorruptRecord: what is to be published is missing, or was changed.
        Unavailable, StorageRefused: from the store; the call may be repeated.
    """
    one, bucket = _Publication.by(objects, record), objects.bucket()
    if one.is_complete(bucket):
        return

    def copying(source: StoredFile, target: str) -> Callable[[], None]:
        return lambda: bucket.copy(objects.in_bucket(source.object), target, source.size)

    # A copy has its size at once. What another call has copied is there.
    known = {copy.name: copy.size for copy in bucket.under(one.folder)}
    in_threads([
        copying(source, target)
        for source, target in one.copies
        if known.get(target) != source.size
    ])  # fmt: skip
    go_ahead()
    if not bucket.create(one.name, one.pointer) and not one.is_complete(bucket):
        raise Unavailable(f"the pointer at {record.target} changes")


@attrs.frozen
class _Publication:
    """What a record publishes."""

    target: str
    name: str
    """Of the pointer, in the bucket."""
    folder: str
    """Of the copies, in the bucket."""
    copies: tuple[tuple[StoredFile, str], ...]
    """Each file, and where in the bucket its copy is."""
    pointer: bytes

    @classmethod
    def by(cls, objects: Objects, record: StageRecord) -> _Publication:
        """Return what a record publishes; nothing but it, and the manifest that it names, says so.

        Raises:
            CorruptRecord: the manifest is missing, or was changed.
            Unavailable: from the store.
        """
        assert record.target is not None
        assert record.manifest is not None
        files = read_record(objects, OutputManifest, record.manifest).files
        own = _digest(objects.url, record.job_id, record.name, record.manifest.sha256)
        folder = f"{record.target}.{own}"
        shown = [
            {
                "name": one.path,
                "size": one.size,
                "sha256": one.sha256,
                "url": f"{folder}/{one.path}",
            }
            for one in sorted(files, key=lambda one: one.path)
        ]
        pointer = {
            "format": FORMAT,
            "job": record.job_id,
            "stage": record.name,
            "finished_at": record.finished_at,
            "folder": folder,
            "files": shown,
        }
        name = _name(record.target)
        copies = tuple((one, f"{name}.{own}/{one.path}") for one in files)
        content = json.dumps(pointer, indent=1).encode() + b"\n"
        return cls(record.target, name, f"{name}.{own}", copies, content)

    def is_complete(self, bucket: Objects) -> bool:
        found = bucket.get(self.name)
        if found is None or found == self.pointer:
            return found is not None
        bucket.delete(copy for _, copy in self.copies)
        raise JobHeld(
            f"{self.target} cannot be published: something else was put there meanwhile; move it "
            "away and resume the job, or cancel the job"
        )


def _problem(objects: Objects, target: str) -> str:
    """Return why a URL is no place to publish at; empty if it is one."""
    own = objects.url.rpartition("/")[0]  # The jobs of all clusters.
    home = urlsplit(own)
    try:
        parts = urlsplit(target)
    except ValueError as error:
        return str(error)
    if (parts.scheme, parts.netloc) != (home.scheme, home.netloc):
        return f"it has to be in the bucket of the storage: {home.scheme}://{home.netloc}/…"
    if parts.query or parts.fragment or "?" in target or "#" in target:
        return "a place has no options; those of the storage count"
    names = parts.path.split("/")[1:]
    if not names or {"", ".", ".."} & set(names) or not is_printable(target):
        return f"it is not of the form {home.scheme}://{home.netloc}/WHERE/NAME"
    if f"{target}/".startswith(f"{own}/") or own.startswith(f"{target}/"):
        return "jobs keep their own files there"
    problem = _unfit(f"{_name(target)}.{_digest(target)}.probe")
    return f"its name {problem}" if problem else ""


def _unfit(name: str) -> str:
    """Return why no object can have a name; empty if one can."""
    try:
        size = len(name.encode())
    except UnicodeError:
        return "is no text in UTF-8"
    if _CONTROL.search(name):
        return "has a control character"
    if size > _LONGEST:
        return f"is too long: {size:,} bytes with the place, and {_LONGEST:,} are possible"
    return ""


def _name(target: str) -> str:
    return urlsplit(target).path.lstrip("/")


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
