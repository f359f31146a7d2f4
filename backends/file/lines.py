"""The lines of a log and of a base: text, one checksum each, no state and no I/O.

::

    ~~                                            begins every batch that is appended
    <crc> C <fence> <op> <op> …                   a commit; fence is KEY:VERSION, or -
    <crc> R <key> <value>                         a record, whatever it was; written by fsck alone
    <crc> S                                       the seal: the segment ends here
    <crc> <version> <key> <value>                 a line of a base

In a log of format 3 a batch begins with a head that vouches for what is in front of it
(`jrs.backends.file.batches`); in one of format 2, with ``~~`` alone.

Fields are separated by tabs; ``<op>`` is one of ``+key value`` (create), ``=key version value``
(update), ``-key version`` (delete; version ``-``: any), ``?key version`` (check) and ``!key``
(absent). Values are the bytes as they are, with backslash, tab, newline, NUL and ~ escaped: the
codec's JSON reads as itself.

Why a batch begins with ``~~`` and a newline, not with a newline alone: a line that was cut off just
before its own newline would be completed by the next writer's, after its own writer had been told
that it was lost. Cut off anywhere, it now ends in ``~~``, which no valid line holds. So an invalid
line that ends in ``~~`` is the remnant of a crash; any other invalid line was valid once and has
been damaged since. Two of them, because one can come from a flipped bit in the last byte of a line
(``n`` is ``~`` but for one), which must never pass for a crash and so hide what was acknowledged.
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
"""The body of a commit's line, and every key that it cannot be judged without, its fence's
included."""


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


ANY = -1
"""Whatever the version is, if the key is present."""


def conditions(body: bytes) -> list[tuple[str, int | None]]:
    """Return the version that each key of a commit must have, the fence's first (with no key, if
    there is none); None for a key that must be absent."""
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


def _operations(fields: list[bytes]) -> Iterator[tuple[bytes, str, bytes]]:
    """Yield kind, key and what follows the key."""
    index = 2
    while index < len(fields):
        kind, key = fields[index][:1], fields[index][1:].decode()
        yield kind, key, fields[index + 1] if kind != b"!" else b""
        index += {b"=": 3, b"!": 1}.get(kind, 2)


def overwrite(key: str, value: bytes) -> Commit:
    """Return what writes a record whatever it was; an operator's last resort."""
    return b"R\t%s\t%s" % (key.encode(), escape(value)), []


def base_line(version: int, key: bytes, value: bytes) -> bytes:
    """Return a line of a base; `value` is escaped already."""
    return sealed(b"%d\t%s\t%s" % (version, key, value))


def held_line(key: bytes) -> bytes:
    """Return a line of a base that holds `key`, of which nothing can be told."""
    return b"????????\t0\t%s\t\n" % key


def checked(line: bytes) -> bytes | None:
    """Return a line's body (given without its newline), or None if its checksum does not fit."""
    body = line[9:]
    return body if line[:9] == b"%08x\t" % crc32(body) else None


def lost_its_newline(line: bytes) -> bool:
    """Return whether the last line of a log, which has no newline, is whole but for that.

    With a zero or the next batch's mark in its place it was torn, not damaged.
    """
    return line[-1:] not in (b"", b"\0", b"~") and checked(line[:-1]) is not None


def is_remnant(line: bytes) -> bool:
    """Return whether an invalid line is what a crash leaves behind, rather than damage.

    A crash leaves a part of a line, or zeros where data never reached the disk. A whole line that
    only its damaged newline joins to the next batch is no part (unless that is a zero, which no
    single flipped bit makes of a newline), and a single zero elsewhere (no line holds one) no run.
    """
    if line.endswith(b"\0~"):
        return True  # Only the mark's first byte was lost, at the edge of a sector.
    if line.endswith(MARK):
        rest = line.rstrip(b"~")  # Marks may have been torn, too, one behind the other.
        return rest.endswith(b"\0") or checked(rest[:-1]) is None
    return b"\0\0" in line
