"""Opening the folder of a file backend: creates, converts or refuses it."""

from __future__ import annotations

import os
from pathlib import Path

from jrs.contract.errors import InvalidInput, NoSuchCluster, Unavailable, WrongState
from jrs.contract.formats import NEWEST_FORMAT

from . import segments
from .conversion import convert
from .format.folder import (
    MARKER,
    check_filesystem,
    format_of,
    make_folder,
    marker,
    publish,
    sync_folder,
)


def open_folder(root: Path, cluster: str, *, create: bool) -> tuple[Path, int]:
    """Return the cluster's folder and the format that the marker names.

    Args:
        create: create the folder if it does not exist, and convert a folder of format 1.

    Raises:
        InvalidInput: not a jrs folder, no permission, or an unsupported filesystem.
        NoSuchCluster: without `create`, the folder does not exist.
        WrongState: a folder of an older jrs that cannot be converted now.
        UnsupportedVersion: a newer jrs made the folder.
        Unavailable: a file operation failed, or the log's folder is empty.
    """
    folder = root / "clusters" / cluster
    try:
        if not create and not folder.is_dir():
            format_of(root)
            others = sorted(os.listdir(folder.parent)) if folder.parent.is_dir() else []
            there = f"; there are {', '.join(others[:9])}" if others else ""
            raise NoSuchCluster(
                f"there is no jrs cluster {cluster!r} at {root}{there}; jrs master or jrs submit "
                "creates it",
                obstacle=_obstacle(folder),
            )
        if create:
            _make_durable(root)
        check_filesystem(root)
        if format_of(root) == 1:
            if not create:
                raise WrongState(
                    f"{root} was made by an older jrs: stop all processes of the older jrs, then "
                    "start a master of this version to convert it"
                )
            convert(root)
        if create:
            if not (root / MARKER).exists():
                publish(root / MARKER, marker(NEWEST_FORMAT))
            for part in (root / "clusters", folder, folder / "leader"):
                make_folder(part)
                sync_folder(part.parent)
            _make_log(folder / "log", format_of(root) or NEWEST_FORMAT)
        if os.statvfs(folder / "log").f_flag & os.ST_RDONLY:
            raise InvalidInput(
                f"{root} is mounted read-only, but even readers open the log for writing: mount it "
                "for writing, or name a copy of it"
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
        raise Unavailable(
            f"the folder {root} cannot be made or opened: {error.strerror}; nothing was changed"
        ) from error
    return folder, format_of(root) or NEWEST_FORMAT


def _obstacle(folder: Path) -> str:
    """Return why this process could not create a folder; empty if it could."""
    try:
        check_filesystem(folder)
        above = next(each for each in folder.parents if os.path.lexists(each))
        if not above.is_dir():
            return f"{above} is not a folder"
        if os.statvfs(above).f_flag & os.ST_RDONLY:
            return f"{above} is mounted read-only"
    except InvalidInput as error:
        return str(error)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if not os.access(above, os.W_OK | os.X_OK):
        return f"no permission for {above}: run as its owner, or choose another folder"
    return ""


def _make_durable(root: Path) -> None:
    """Create a folder, and those above it that are missing. Durable, idempotent."""
    missing = [each for each in (root, *root.parents) if not each.exists()]
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def _make_log(log: Path, version: int) -> None:
    """Create the log's folder. Since format 3 it appears atomically with its first segment."""
    form = segments.form_in(version)
    if form == segments.Form.LINES:
        make_folder(log)
        sync_folder(log.parent)
    elif not log.exists():
        segments.create(log, form)
    elif not any(log.iterdir()):
        raise Unavailable(
            f"{log} is empty: another program removed files; restore the folder from a copy"
        )
