"""The lines of a log: text with one checksum each, no state and no I/O.

::

    ~~                                            begins every appended batch
    <crc> C <fence> <op> <op> …                   a commit; fence is KEY:VERSION, or -
    <crc> R <key> <value>                         an unconditional write; only fsck writes it
    <crc> S                                       the seal: the segment ends here

In a log of format 3 a batch begins with a head that vouches for the batches before it
(`jrs.backends.file.format.batches`); in a log of format 2 it begins with ``~~`` alone.

Fields are separated by tabs; ``<op>`` is one of ``+key value`` (create), ``=key version value``
(update), ``-key version`` (delete; version ``-``: any), ``?key version`` (check) and ``!key``
(absent). Values are raw bytes with backslash, tab, newline, NUL and ~ escaped, so the codec's JSON
stays readable.

A batch begins with ``~~`` and a newline, because of crashes. With a newline alone, the next writer
would complete a line that was cut off just before its own newline, after its writer had reported
the line as lost. With ``~~``, a line that was cut off anywhere ends in ``~~``, which no valid line
contains. So an invalid line that ends in ``~~`` is the remnant of a crash; any other invalid line
was valid once and is damaged. One ``~`` is not enough: a flipped bit in the last byte of a line can
produce it (``n`` and ``~`` differ in one bit), and such damage must never pass for a crash and hide
an acknowledged commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from zlib import crc32

from jrs.contract.operations import Check, Create, Delete, Op, Update

MARK = b"~~"
BATCH = MARK + b"\n"
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_BACK = {b"\\": b"\\", b"t": b"\t", b"n": b"\n", b"0": b"\0", b"w": b"~"}


def sealed(body: bytes) -> bytes:
    """Return a line: `body` behind its checksum, and a newline."""
    return b"%08x\t%s\n" % (crc32(body), body)


SEAL = b"S"


def escape(value: bytes) -> bytes:
    if b"\\" in value:
        value = value.replace(b"\\", b"\\\\")
    if b"\t" in value:
        value = value.replace(b"\t", b"\\t")
    if b"\n" in value:
        value = value.replace(b"\n", b"\\n")
    if b"\0" in value:
        value = value.replace(b"\0", b"\\0")
    if b"~" in value:
        value = value.replace(b"~", b"\\w")
    return value


def unescape(value: bytes) -> bytes:
    if b"\\" not in value:
        return value
    return _ESCAPED.sub(lambda match: _BACK[match.group(1)], value)


Commit = tuple[bytes, list[str]]
"""The body of a commit's line, and all keys that evaluation needs, including the fence's key."""


def commit(ops: tuple[Op, ...], fence: tuple[str, int] | None) -> Commit:
    """Return the body of one commit's line and its keys."""
    fields = [b"C", b"-" if fence is None else b"%s:%d" % (fence[0].encode(), fence[1])]
    keys = [] if fence is None else [fence[0]]
    for op in ops:
        keys.append(op.key)
        key = op.key.encode()
        if type(op) is Create:
            fields += (b"+" + key, escape(op.value))
        elif type(op) is Update:
            fields += (b"=" + key, b"%d" % op.version, escape(op.value))
        elif type(op) is Delete:
            fields += (b"-" + key, b"-" if op.version is None else b"%d" % op.version)
        elif type(op) is Check:
            fields += (b"?" + key, b"%d" % op.version)
        else:
            fields.append(b"!" + key)
    return b"\t".join(fields), keys


def size(commit: Commit) -> int:
    """Return about how many bytes a commit has in the log."""
    return len(commit[0])


ANY = -1
"""Any version; the key must be present."""


def conditions(body: bytes) -> list[tuple[str, int | None]]:
    """Return each key of a commit with its required version; None for a key that must be absent.

    The fence's key comes first; its name is empty if the commit has no fence."""
    fields = body.split(b"\t")
    name, _, version = fields[1].decode().rpartition(":")
    found: list[tuple[str, int | None]] = [(name, int(version) if name else None)]
    for kind, key, rest in _operations(fields):
        if kind in b"+!":
            found.append((key, None))
        else:
            found.append((key, ANY if rest == b"-" else int(rest)))
    return found


def written(body: bytes) -> list[str]:
    """Return the keys that a commit writes or deletes."""
    return [key for kind, key, _ in _operations(body.split(b"\t")) if kind in b"+-="]


def creating(prefix: str) -> re.Pattern[bytes]:
    """Return the pattern of an operation that creates a key under a prefix; its group is that."""
    return re.compile(rb"\t\+(%s[^\t\n]*)\t" % re.escape(prefix.encode()))


def _operations(fields: list[bytes]) -> Iterator[tuple[bytes, str, bytes]]:
    """Yield the kind, the key and the field after the key."""
    index = 2
    while index < len(fields):
        kind, key = fields[index][:1], fields[index][1:].decode()
        yield kind, key, fields[index + 1] if kind != b"!" else b""
        index += {b"=": 3, b"!": 1}.get(kind, 2)


def overwrite(key: str, value: bytes) -> Commit:
    """Return an unconditional write of a record; an operator's last resort."""
    return b"R\t%s\t%s" % (key.encode(), escape(value)), []


def checked(line: bytes) -> bytes | None:
    """Return the body of a line (without newline), or None if its checksum does not match."""
    body = line[9:]
    return body if line[:9] == b"%08x\t" % crc32(body) else None


def lost_its_newline(line: bytes) -> bool:
    """Return whether the last line of a log is complete except for its damaged newline.

    A zero or the next batch's mark in place of the newline means that a crash tore the line.
    """
    return line[-1:] not in (b"", b"\0", b"~") and checked(line[:-1]) is not None


def is_remnant(line: bytes) -> bool:
    """Return whether an invalid line is the remnant of a crash, not damage.

    A crash leaves a part of a line, or zeros where data never reached the disk. A complete line
    that is joined to the next batch by a damaged newline is damage, unless the newline is a zero,
    which no single flipped bit makes of a newline. A single zero elsewhere is damage, because a
    crash leaves runs of zeros.
    """
    if line.endswith(b"\0~"):
        return True  # Only the mark's first byte was lost, at the edge of a sector.
    if line.endswith(MARK):
        rest = line.rstrip(b"~")  # Several torn marks may follow each other.
        return rest.endswith(b"\0") or checked(rest[:-1]) is None
    return b"\0\0" in line
