"""The folder of a file backend: its marker, its permissions, the filesystems it can be on.

::

    <root>/jrs.json                       the marker: format and version
    <root>/clusters/<cluster>/log/        segments, named by the log offset they begin at
    <root>/clusters/<cluster>/leader/     one lock file per leadership
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.formats import NEWEST_FORMAT, read_marker
from jrs.contract.mounts import filesystem_of

MARKER = "jrs.json"

# Appends of two hosts are not atomic there, or locks and syncs are not what they say.
_UNTRUSTED = {
    "9p", "afs", "ceph", "cifs", "coda", "davfs", "gfs", "gfs2", "glusterfs", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs", "vboxsf",
}  # fmt: skip


def root_of(url: str) -> Path:
    """Return the folder that a ``file:///path`` URL names."""
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidInput(f"not a file URL: {url!r}; write file:///absolute/path")
    if parts.query or parts.fragment:
        raise InvalidInput(f"a file URL takes no options: {url!r}")
    return Path(unquote(parts.path))


def open_folder(root: Path, cluster: str, *, create: bool) -> tuple[Path, int]:
    """Return the cluster's folder, made where it does not exist and `create` says so, and the
    format that the marker names.

    Raises:
        InvalidInput: not a jrs folder, no permission, a filesystem that cannot be trusted, or a
            folder of an older jrs that may not be converted now.
        UnsupportedVersion: made by a newer jrs.
    """
    folder = root / "clusters" / cluster
    try:
        if not create and not folder.is_dir():
            _format_of(root)
            raise InvalidInput(
                f"there is no jrs cluster {cluster!r} at {root}; a master or a submit creates it"
            )
        if create:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_filesystem(root)
        if _format_of(root) == 1:
            if not create:
                raise InvalidInput(
                    f"{root} was made by an older jrs: stop all of its processes, then start a "
                    "master of this one, which converts it"
                )
            # Late: what it needs lies above this module.
            from .conversion import convert

            convert(root)
        if create:
            if not (root / MARKER).exists():
                publish(root / MARKER, _marker(NEWEST_FORMAT))
            for part in (root / "clusters", folder, folder / "leader"):
                part.mkdir(mode=0o700, exist_ok=True)
                sync_folder(part.parent)
            _make_log(folder / "log", _format_of(root) or NEWEST_FORMAT)
        if os.statvfs(folder / "log").f_flag & os.ST_RDONLY:
            raise InvalidInput(
                f"{root} is mounted read-only, and the log is opened for writing to be read, too: "
                "mount it for writing, or name a copy of it"
            )
        if not os.access(folder / "log", os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(None, None, str(folder / "log"))
    except PermissionError as error:
        raise InvalidInput(
            f"no permission for {error.filename or root}: run as its owner, or choose another "
            "folder"
        ) from None
    except (NotADirectoryError, FileExistsError):
        raise InvalidInput(f"{root} is not a folder") from None
    except OSError as error:
        raise Unavailable(f"{root}: {error.strerror}; nothing was changed") from error
    return folder, _format_of(root) or NEWEST_FORMAT


def _make_log(log: Path, version: int) -> None:
    """Make the log's folder. In the new form it appears whole, with its first segment."""
    from . import segments

    if segments.form_in(version) == segments.OLD_FORM:
        log.mkdir(mode=0o700, exist_ok=True)
        sync_folder(log.parent)
    elif not log.exists():
        segments.create(log)
    elif not any(log.iterdir()):
        raise Unavailable(
            f"{log} is empty: files were removed by something that is not jrs; restore the folder "
            "from a copy"
        )


def mark_format(root: Path, version: int) -> int:
    """Have the marker name at least `version`, durably; return what it names. Idempotent.

    Raises:
        Unavailable: it cannot be written; nothing was changed.
    """
    try:
        found = _format_of(root) or version
        if found < version:
            publish(root / MARKER, _marker(version), replace=True)
    except OSError as error:
        raise Unavailable(f"{root / MARKER}: {error.strerror}; nothing was changed") from error
    return max(found, version)


def _marker(version: int) -> bytes:
    return json.dumps({"format": "jrs", "version": version}).encode()


def _format_of(root: Path) -> int | None:
    """Return the format that the marker names; None where there is neither marker nor anything
    else.
    """
    marker = root / MARKER
    try:
        data = json.loads(marker.read_bytes())
    except FileNotFoundError:
        # A name that begins with the marker's is one that was being written when we were killed.
        foreign = [p.name for p in _children(root) if not p.name.startswith("." + MARKER)]
        if foreign and marker.exists():
            return _format_of(root)  # Somebody made it between our two looks.
        if foreign:
            raise InvalidInput(
                f"{root} is not a jrs folder (it holds {sorted(foreign)[0]!r} and no {MARKER}); "
                "name an empty or a new one"
            ) from None
        return None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or data.get("format") != "jrs":
        raise InvalidInput(f"{root} is not a jrs folder: {MARKER} cannot be read")
    return read_marker(data.get("version"), str(root))


def _children(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except FileNotFoundError:
        return []


def publish(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a file that appears whole or not at all; the first one wins, unless it is to
    `replace` the one before."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_filesystem(path: Path, mounts: str | None = None) -> None:
    """Refuse a filesystem whose appends, syncs or locks can not be relied on.

    `mounts` is as in `filesystem_of`.
    """
    kind = filesystem_of(path, mounts)
    if kind in _UNTRUSTED or kind.startswith("fuse"):
        raise InvalidInput(
            f"{path} is on {kind}, where appends of several hosts are not atomic: use a local "
            "filesystem, or zookeeper:// or etcd:// for several hosts"
        )
