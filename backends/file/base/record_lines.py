"""The lines of a run, of which some may be damaged: no state and no I/O.

::

    <crc> <version> <key> <value>     a record
    <crc> -2 <key>                    a deletion, in a run that lies on others
    <crc> -1 <key>                    holds this key, because its state is unknown
    ???????? 0 <key>                  holds the keys around it
"""

from __future__ import annotations

from jrs.contract.limits import is_key
from jrs.contract.operations import Record

from ..format.lines import checked, sealed, unescape

UNREADABLE = b"\0damaged"
"""The value, in a page, of a record whose key alone is readable: every decoder refuses it."""

HELD = -1
"""The version of a held key: a commit that may have written it cannot be evaluated."""

DELETED = -2
"""The version of a key that a run deletes from the runs below it."""

ABOVE_ALL = b"\x7f"
"""Above every byte of a key."""


def record_line(version: int, key: bytes, value: bytes = b"") -> bytes:
    """Return the line of a record; `value` is already escaped."""
    return sealed(b"%d\t%s\t%s" % (version, key, value))


def held_line(key: bytes) -> bytes:
    """Return a line that holds `key`, whose state is unknown."""
    return b"????????\t0\t%s\t\n" % key


def key_in(line: bytes) -> bytes | None:
    """Return the key of a sound line (without newline); None if the line is damaged."""
    body = checked(line)
    return None if body is None else body.split(b"\t", 2)[1]


def record_in(line: bytes) -> Record | None:
    """Return the record of a sound line; None if the line is damaged or belongs to another file."""
    body = checked(line)
    if body is None:
        return None
    try:
        version, key, value = body.split(b"\t", 2)
        return Record(key.decode(), unescape(value), int(version))
    except ValueError:
        return None


def salvaged(line: bytes) -> Record | None:
    """Return what is readable in a damaged line: its key and version, with `UNREADABLE`. None if
    the damage has hit the key so that it is none: no caller of a scan could read such a key."""
    if line.startswith(b"?"):
        return None  # The line only marks held keys around it.
    try:
        _, version, key, _ = line.split(b"\t", 3)
        name = key.decode("ascii")
        return Record(name, UNREADABLE, int(version)) if is_key(name) else None
    except ValueError:
        return None


def check_of(line: bytes) -> bytes:
    """Return the checksum that a line contains, or zeros if it contains none."""
    try:
        return bytes.fromhex(line[:8].decode())
    except ValueError:
        return bytes(4)
