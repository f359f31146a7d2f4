"""The folder of a file backend: its marker, its filesystem, and durable writing in it.

::

    <root>/jrs.json                       the marker: format, version and a checksum
    <root>/clusters/<cluster>/log/        segments, named by their offsets in the log
    <root>/clusters/<cluster>/leader/     one lock file per leadership
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.formats import read_marker
from jrs.host.filesystems import NETWORK_FILESYSTEMS, filesystem_of

MARKER = "jrs.json"

_DESCRIPTORS = "/proc/self/fd"
"""Has a path of each open file and folder."""


def mark_format(root: Path, version: int) -> int:
    """Raise the marker's format to at least `version`; return its format. Durable, idempotent.

    Raises:
        Unavailable: the marker cannot be written; nothing was changed.
    """
    try:
        found = format_of(root) or version
        if found < version:
            publish(root / MARKER, marker(version), replace=True)
    except OSError as error:
        raise Unavailable(f"{root / MARKER}: {error.strerror}; nothing was changed") from error
    return max(found, version)


def marker(version: int) -> bytes:
    data: dict[str, object] = {"format": "jrs", "version": version}
    return json.dumps({**data, "crc": _crc_of(data)}).encode()


def _crc_of(data: dict[str, object]) -> str:
    """Return the checksum of the fields of a marker, but for the checksum's own."""
    fields = {name: value for name, value in data.items() if name != "crc"}
    return f"{crc32(json.dumps(fields, sort_keys=True).encode()):08x}"


def format_of(root: Path) -> int | None:
    """Return the format that the marker names; None if the folder is empty or missing.

    Raises:
        InvalidInput: the folder is not a jrs folder, or its marker is damaged.
        UnsupportedVersion: a newer jrs made the folder.
    """
    marker = root / MARKER
    try:
        data = json.loads(marker.read_bytes())
    except FileNotFoundError:
        # A dot and the marker's name begin its temporary files, which a killed process leaves.
        foreign = [p.name for p in children(root) if not p.name.startswith("." + MARKER)]
        if foreign and marker.exists():
            return format_of(root)  # Another process has just created it.
        if foreign:
            raise InvalidInput(
                f"{root} is not a jrs folder (it holds {sorted(foreign)[0]!r} and no {MARKER}); "
                "name an empty or a new folder"
            ) from None
        return None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("format") != "jrs":
        raise InvalidInput(f"{root} is not a jrs folder: {MARKER} cannot be read")
    # Another format is no small matter: what is written in it lacks what the right one promises.
    if "crc" in data and data["crc"] != _crc_of(data):  # Former versions write none.
        raise InvalidInput(
            f"{marker} is damaged (its checksum does not fit): restore it from a copy, or from any "
            "folder with clusters of the same format"
        )
    return read_marker(data.get("version"), str(root))


def children(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except FileNotFoundError:
        return []


def publish(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file atomically and durably. An existing file stays, unless `replace` is True."""
    with published(path, replace=replace) as fd:
        write_all(fd, data)
        os.fsync(fd)
    sync_folder(path.parent)


@contextlib.contextmanager
def published(path: Path, *, replace: bool = False) -> Iterator[int]:
    """Write a file that appears atomically under its name when the block ends without an error.

    The block syncs the file, and its caller syncs the folder.

    Args:
        replace: replace an existing file; otherwise the existing file stays.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            give_to_owner(fd, path.parent)
            yield fd
        finally:
            os.close(fd)
        # The file exists already, or processes in a later segment have swept the temporary file.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            (os.replace if replace else os.link)(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def make_folder(path: Path) -> None:
    """Make a folder that belongs to the owner of the one around it. Idempotent."""
    existed = path.is_dir()
    path.mkdir(mode=0o700, exist_ok=True)
    if not existed:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            give_to_owner(fd, path.parent)
        finally:
            os.close(fd)


def open_or_create(path: Path, flags: int) -> int:
    """Open a file, which is created, for the owner of its folder, if it does not exist.

    A link is not followed: with one, that owner could have root give any file of the host away.
    """
    flags |= os.O_CLOEXEC
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags | os.O_NOFOLLOW)
    give_to_owner(fd, path.parent)
    return fd


def give_to_owner(made: int, folder: Path) -> None:
    """Give what root has just made in a folder, by its descriptor, to the owner of that folder.

    The masters are processes of that owner: without it, one command of root's would take the
    cluster away from them.
    """
    if os.geteuid() != 0:
        return
    owner = folder.stat()
    if owner.st_uid != 0:
        # A root without privileges, as in a container, or on a server that does not trust it.
        with contextlib.suppress(OSError):
            os.fchown(made, owner.st_uid, owner.st_gid)


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write all of `data`, with as many writes as necessary."""
    with memoryview(data) as view:
        written = 0
        while written < len(view):
            written += os.write(fd, view[written:])


def reached_by(fd: int, name: Path) -> Path:
    """Return a path of an open folder, which leads to it whatever name it has.

    Where no /proc is mounted, that is the name by which it was opened.
    """
    path = Path(f"{_DESCRIPTORS}/{fd}")
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(path), os.fstat(fd)):
            return path
    return name


@contextlib.contextmanager
def pinned(folder: Path) -> Iterator[Path]:
    """Yield a path of the folder that has this name now, which leads to no other one later; see
    `reached_by`.

    Raises:
        OSError: the folder cannot be opened.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield reached_by(fd, folder)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that the names in it are durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_filesystem(path: Path, mounts: str | None = None) -> None:
    """Raise `InvalidInput` for a filesystem with unreliable appends, syncs or locks.

    `mounts` is as in `filesystem_of`.
    """
    kind = filesystem_of(path, mounts)
    # There, appends of two hosts are not atomic, or locks and syncs are not reliable.
    if kind in NETWORK_FILESYSTEMS or kind.startswith("fuse"):
        raise InvalidInput(
            f"{path} is on {kind}, where appends of several hosts are not atomic: use a local "
            "filesystem, or zookeeper:// or etcd:// for several hosts"
        )
