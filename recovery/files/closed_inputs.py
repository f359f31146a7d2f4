"""Closed inputs: folders of links to the files that a stage found when it first started."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jrs.contract.errors import InvalidInput, Unavailable

from . import permissions
from .disk_errors import reading, unavailable
from .job_folders import JobStorage
from .safe_listing import everything_below, is_folder
from .transfer import sync_folder, sync_tree
from .visible_files import visible_files

PORTABLE_SINCE = 7
"""The first cluster format in which inputs have portable names."""

_COPY = re.compile(rb"^(copies/[^/]+)\.[0-9a-f]{16}(?=/|$)")
"""A copy of a stage's output in objects: the digest is of one manifest."""


def place_of(
    storage: JobStorage, job_id: str, stage: str, source: Path, *, portable: bool = True
) -> Path:
    """Return the folder for the links to the files in `source`; it need not exist.

    Args:
        portable: whether to name a source in the storage by where it is there, so that the input
            has the same name in a copy of the job, and in a storage that was moved. Clusters below
            `PORTABLE_SINCE` name each source by its whole path.
    """
    name = _place_in(storage, job_id, source) if portable else bytes(source)
    return storage.folder(job_id) / "in" / stage / hashlib.sha256(name).hexdigest()[:16]


def close(
    storage: JobStorage, job_id: str, stage: str, source: Path, path: Path | None = None
) -> Path:
    """Return a folder of links to the files in `source` at the first call. Durable.

    Args:
        path: the folder, if another one than `place_of` returns.

    Raises:
        InvalidInput: `source` is not a folder.
        Unavailable: as `links_to` and `make`.
    """
    path = path or place_of(storage, job_id, stage, source)
    if not is_folder(path):
        make(storage, job_id, path, links_to(stage, source))
    return path


def links_to(stage: str, source: Path) -> dict[str, str]:
    """Return where the links to the files in `source` lead to now, by their paths in the input.

    These are the files that Spark would read there. The stage ends when it has read them, so none
    of them may be missing.

    Raises:
        InvalidInput: `source` is not a folder.
        Unavailable: not all of them can be listed now; the call may be repeated.
    """
    with reading(f"listing the input {source} of stage {stage!r}"):
        if not source.is_dir():
            raise InvalidInput(f"stage {stage!r} cannot read {source}: not a folder on this host")
        return dict(visible_files(str(source)))


def links_in(folder: Path) -> dict[str, str]:
    """Return where the links of a closed input lead to, by their paths in its folder.

    Raises:
        Unavailable: not all of them can be read now.
    """
    with reading(f"listing {folder}"):
        links = (path for path in sorted(everything_below(folder)) if path.is_symlink())
        return {str(path.relative_to(folder)): os.readlink(path) for path in links}


def make(storage: JobStorage, job_id: str, path: Path, links: Mapping[str, str]) -> None:
    """Make the folder of a closed input, unless it exists. Durable.

    Raises:
        Unavailable: the disk is full, or a similar error; the call may be repeated.
    """
    whole = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with unavailable(f"the input {path} cannot be closed"):
        try:
            storage.make_folder(whole)
            for name, leads_to in links.items():
                permissions.make((whole / name).parent, parents=True, exist_ok=True)
                (whole / name).symlink_to(leads_to)
            sync_tree(whole)
            storage.put_in_place(job_id, whole, path)
        except BaseException:
            with suppress(Unavailable):  # Each try would leave one on a disk that is full.
                storage.discard(job_id, whole)
            raise
        sync_folder(path.parent)


# -- inside --------------------------------------------------------------------------------


def _place_in(storage: JobStorage, job_id: str, source: Path) -> bytes:
    """Return where a source is in the job's folder, or in the storage; else its path."""
    job = storage.folder(job_id)
    if source.is_relative_to(job):
        inside = bytes(source.relative_to(job))
        return b"job:" + (inside if storage.objects is None else _COPY.sub(rb"\1", inside))
    if source.is_relative_to(storage.root):
        return b"storage:" + bytes(source.relative_to(storage.root))
    return bytes(source)
