"""The codec of ZooKeeper's protocol, for requests that kazoo does not support or encodes slowly.

A write is a *multi*: operations that are applied in order, all or none. A read is a *multi-read*
(ZooKeeper 3.6 and newer): many znodes as they were at one moment, in one request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import attrs

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA = 1, 2, 3, 4, 5
GET_CHILDREN, SYNC, CHECK, MULTI, MULTI_READ = 8, 9, 13, 14, 22
AUTH, CLOSE = 100, -11
_ERROR, _END = -1, -1

OK, NO_NODE, NO_AUTH, BAD_VERSION, NODE_EXISTS = 0, -101, -102, -103, -110
ROLLED_BACK, NOT_TRIED = 0, -2
"""The codes of the operations before and behind the operation that failed."""

ANY = -1
"""Matches any version."""
NEVER = 2**31 - 1
"""A version that no znode has."""

_INT = struct.Struct("!i")
_HEADER = struct.Struct("!i?i")
_REQUEST = struct.Struct("!iii")
_STAT = struct.Struct("!qqqqiiiqiiq")


@attrs.frozen
class Node:
    """A znode as it was read.

    Attributes:
        created, modified: the transactions that created it and wrote it last; they only grow.
        version: how often it was written since it was created.
        owner: the session that it ends with, or 0.
        below: the transaction that created or deleted one of its children last.
    """

    value: bytes
    created: int
    modified: int
    version: int
    owner: int
    children: int
    below: int


Read = Node | list[str] | int
"""The answer to a part of a multi-read: a znode, the names of its children, or an error's code."""


# -- writing -----------------------------------------------------------------------------------


def text(value: str) -> bytes:
    data = value.encode()
    return _INT.pack(len(data)) + data


def create(path: str, value: bytes, acl: bytes, *, ephemeral: bool = False) -> bytes:
    return b"".join((
        _CREATE, text(path), _INT.pack(len(value)), value, acl, _INT.pack(1 if ephemeral else 0)
    ))  # fmt: skip


def delete(path: str, version: int = ANY) -> bytes:
    return _DELETE + text(path) + _INT.pack(version)


def set_data(path: str, value: bytes, version: int = ANY) -> bytes:
    return b"".join((_SET_DATA, text(path), _INT.pack(len(value)), value, _INT.pack(version)))


def check(path: str, version: int = ANY) -> bytes:
    return _CHECK + text(path) + _INT.pack(version)


def acl(permissions: int, scheme: str, identity: str) -> bytes:
    """Return an ACL of one entry."""
    return _INT.pack(1) + _INT.pack(permissions) + text(scheme) + text(identity)


def get_data(path: str) -> bytes:
    return _GET_DATA + text(path) + b"\0"


def get_children(path: str) -> bytes:
    return _GET_CHILDREN + text(path) + b"\0"


def frame(xid: int, kind: int, body: bytes) -> bytes:
    """Return a request in its network form."""
    return _REQUEST.pack(len(body) + 8, xid, kind) + body


def multi(parts: Iterable[bytes]) -> bytes:
    """Put the operations of a write, or the parts of a read, into one request."""
    return b"".join((*parts, END))


END = _HEADER.pack(_END, True, -1)
"""An empty multi, and the end of every other multi."""
_CREATE = _HEADER.pack(CREATE, False, -1)
_DELETE = _HEADER.pack(DELETE, False, -1)
_SET_DATA = _HEADER.pack(SET_DATA, False, -1)
_CHECK = _HEADER.pack(CHECK, False, -1)
_GET_DATA = _HEADER.pack(GET_DATA, False, -1)
_GET_CHILDREN = _HEADER.pack(GET_CHILDREN, False, -1)


# -- reading -----------------------------------------------------------------------------------


def failure(reply: bytes, at: int) -> tuple[int, int] | None:
    """Return the index and the code of the operation that failed; None if the write succeeded."""
    index = 0
    while True:
        kind, done, _ = _HEADER.unpack_from(reply, at)
        if done or kind != _ERROR:
            return None
        (code,) = _INT.unpack_from(reply, at + _HEADER.size)
        if code not in (ROLLED_BACK, NOT_TRIED):
            return index, code
        at += _HEADER.size + _INT.size
        index += 1


def versions(reply: bytes, at: int) -> list[int]:
    """Return the new versions from the `set_data` operations of a successful write, in order."""
    found: list[int] = []
    while True:
        kind, done, _ = _HEADER.unpack_from(reply, at)
        at += _HEADER.size
        if done:
            return found
        if kind == CREATE:
            (length,) = _INT.unpack_from(reply, at)
            at += _INT.size + length
        elif kind == SET_DATA:
            found.append(_STAT.unpack_from(reply, at)[4])
            at += _STAT.size


def modified(reply: tuple[bytes, int] | None) -> int:
    """Return the transaction that wrote a znode last, from the reply to `EXISTS`; 0 if absent."""
    return 0 if reply is None else int(_STAT.unpack_from(*reply)[1])


def parts(reply: bytes, at: int) -> list[Read]:
    """Return the answers to the parts of a multi-read."""
    found: list[Read] = []
    while True:
        kind, done, _ = _HEADER.unpack_from(reply, at)
        at += _HEADER.size
        if done:
            return found
        (number,) = _INT.unpack_from(reply, at)
        at += _INT.size
        if kind == GET_DATA:
            value = reply[at : at + number] if number >= 0 else b""
            at += max(number, 0)
            created, modified, _, _, version, _, _, owner, _, children, below = _STAT.unpack_from(
                reply, at
            )
            at += _STAT.size
            found.append(Node(value, created, modified, version, owner, children, below))
        elif kind == GET_CHILDREN:
            names = []
            for _ in range(number):
                (length,) = _INT.unpack_from(reply, at)
                at += _INT.size
                names.append(reply[at : at + length].decode())
                at += length
            found.append(names)
        else:
            found.append(number)
