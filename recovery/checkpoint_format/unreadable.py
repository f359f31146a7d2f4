"""The one error of this room, and the checks that all parsers share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from jrs.contract.errors import CorruptRecord

from ..files.disk_errors import is_lost

_VERSION = re.compile(r"v[0-9]+")
_LONG = 1 << 63


class UnreadableCheckpoint(CorruptRecord):
    """A file is not what Spark writes, or jrs does not know its version."""


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Raise `UnreadableCheckpoint` where the block finds that a file is damaged, or that the disk
    has lost it. The error of a file that cannot be read now stays.

    Args:
        what: for the message, which ends with the error.
    """
    try:
        yield
    except CorruptRecord as error:
        raise UnreadableCheckpoint(f"{what}: {error}") from error
    except OSError as error:
        if not is_lost(error):
            raise
        raise UnreadableCheckpoint(f"{what}: {error}") from error


def decode(data: bytes, where: Path) -> str:
    """Return the text in a file.

    Raises:
        UnreadableCheckpoint: the bytes are no text.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableCheckpoint(f"{where}: not a text: {error}") from error


def has_version(line: str) -> bool:
    """Return whether a line is a version, known or not. Each log of Spark begins with one."""
    return _VERSION.fullmatch(line) is not None


def check_version(line: str, known: Sequence[str], what: str, where: Path) -> str:
    """Return the first line of a log, which is its version.

    Raises:
        UnreadableCheckpoint: the line is no version, or jrs does not know it.
    """
    if not has_version(line):
        raise UnreadableCheckpoint(f"{where}: not {what} of Spark: it has no version")
    if line not in known:
        raise UnreadableCheckpoint(
            f"{where}: {what} of version {line}, which this jrs does not know (known: "
            f"{', '.join(known)})"
        )
    return line


def load_object(text: str, what: str, where: Path) -> dict[str, Any]:
    """Return the JSON object in a text.

    Raises:
        UnreadableCheckpoint: the text is anything else.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableCheckpoint(f"{where}: not {what} of Spark: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableCheckpoint(f"{where}: not {what} of Spark: {text[:40]!r} is no object")
    return found


def is_long(value: object) -> TypeGuard[int]:
    """Return whether a JSON value is an integer of 64 bits."""
    return type(value) is int and -_LONG <= value < _LONG


def optional_long(found: dict[str, Any], key: str, what: str, where: Path) -> int | None:
    """Return an integer of a JSON object; None if the object lacks the key.

    Raises:
        UnreadableCheckpoint: the key has another value.
    """
    if key not in found:
        return None
    value = found[key]
    if not is_long(value):
        raise UnreadableCheckpoint(f"{where}: not {what} of Spark: its {key} is {value!r:.40}")
    return value
