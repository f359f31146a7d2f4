"""The files of a state store: their names, and the parts of a RocksDB snapshot.

State has versions: batch N writes version N + 1. A *base* is a whole version; other files are the
*changes* since the version before. Names of format 2 have a unique id next to the version. A base
of RocksDB is a zip, whose ``metadata`` names files in folders that the bases share. Spark 4.0 gives
this metadata version 2 if the state has format 2; the text is that of version 1.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import attrs

from .unreadable import UnreadableCheckpoint, check_version, decode, load_object

KNOWN = ("v1", "v2")
SHARED = ("SSTs", "logs")
"""The folders of the files that bases of RocksDB share."""

_NAME = re.compile(r"([0-9]{1,18})(?:_([0-9a-fA-F-]{36}))?\.(delta|changelog|snapshot|zip)")
_WHAT = "a snapshot of RocksDB"
_LISTS = (("SSTs", "sstFiles", "dfsSstFileName"), ("logs", "logFiles", "dfsLogFileName"))


@attrs.frozen
class StateFile:
    """The name of a file of state, taken apart."""

    name: str
    version: int
    unique: str | None
    """The id that its writer drew; None in format 1."""
    is_base: bool
    is_zip: bool


def parse_name(name: str) -> StateFile | None:
    """Take a name apart; return None for any other file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind = match[3]
    return StateFile(name, int(match[1]), match[2], kind in ("snapshot", "zip"), kind == "zip")


def parse_zip(data: bytes, where: Path) -> tuple[str, ...]:
    """Return the shared files that a base of RocksDB needs, relative to its folder.

    Raises:
        UnreadableCheckpoint: the file is no such zip, or has an unknown version.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            text = archive.read("metadata")
    except MemoryError:
        raise
    except Exception as error:  # A damaged zip makes zipfile raise errors of many types.
        raise UnreadableCheckpoint(f"{where}: not {_WHAT}: {error}") from error
    return parse_metadata(text, where)


def parse_metadata(data: bytes, where: Path) -> tuple[str, ...]:
    """Return the shared files that the ``metadata`` in a base of RocksDB names.

    Raises:
        UnreadableCheckpoint: the text is something else, or has an unknown version.
    """
    version, _, line = decode(data, where).partition("\n")
    check_version(version, KNOWN, _WHAT, where)
    body = load_object(line, _WHAT, where)
    return tuple(
        f"{folder}/{_name(file, key, where)}"
        for folder, files, key in _LISTS
        for file in _list(body, files, where)
    )


def read_zip(path: Path) -> tuple[str, ...]:
    """Read which shared files a base of RocksDB needs, relative to its folder.

    Raises:
        FileNotFoundError: the zip is missing.
        UnreadableCheckpoint: the file is no such zip, or has an unknown version.
    """
    return parse_zip(path.read_bytes(), path)


# -- inside --------------------------------------------------------------------------------


def _list(body: dict[str, Any], key: str, where: Path) -> list[Any]:
    found = body.get(key)
    if found is not None and not isinstance(found, list):
        raise UnreadableCheckpoint(f"{where}: not {_WHAT}: its {key} are {found!r:.40}")
    return found or []


def _name(file: Any, key: str, where: Path) -> str:
    name = file.get(key) if isinstance(file, dict) else None
    if not isinstance(name, str) or not name.isprintable() or "/" in name or name[:1] in ("", "."):
        raise UnreadableCheckpoint(f"{where}: not {_WHAT}: it names {name!r:.80}")
    return name
