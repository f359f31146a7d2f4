"""Opening a cluster in etcd: reaches a member, finds the cluster, creates it, or refuses it.

The key `format` of a cluster is its marker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Protocol

from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    InvalidInput,
    NoSuchCluster,
    OutcomeUnknown,
    Refused,
    Unavailable,
    WrongAddress,
)
from jrs.contract.formats import NEWEST_FORMAT, read_marker

from ..remote.address import Address
from ..remote.diagnostics import look_at_each
from ._etcd3 import rpc
from .connection import Connection, behind
from .many_gets import ManyGets

_OLDEST = (3, 4)

MEND = (
    "remove each member from the URL that was created or restored as an etcd of its own, or wipe "
    "it and add it to the others"
)

_AT_FIRST = 1.0
"""Seconds to wait for an answer before the cause of the silence is examined."""

_OTHERS = 0.3
"""Seconds for each member to say which etcd it belongs to. A member that hangs must not delay
every command; if it answers later, its answers are checked then."""


def reach(connection: Connection, deadline: Deadline) -> Any:
    """Return the status of a member, without useless waiting.

    Waits until the deadline for a server that starts, hangs or is cut off. Reports a wrong name,
    port or certificate as soon as it is found.
    """
    address = connection.address

    def ask(until: Deadline) -> Any:
        return connection.read(lambda stubs: stubs.maintenance.Status, rpc.StatusRequest(), until)

    try:
        return ask(Deadline.after(min(_AT_FIRST, deadline.remaining() / 2)))
    except Unavailable:
        # Half of the time, so that the rest is left for the server.
        until = Deadline.after(deadline.remaining() / 2)
        faults = look_at_each(address.endpoints, address.tls, until)
    why = "; ".join(dict.fromkeys(fault.what for fault in faults if fault))
    if all(fault and fault.wrong for fault in faults):
        raise WrongAddress(f"{address.url} cannot be reached: {why}")
    if all(fault and fault.lasting for fault in faults):
        raise Unavailable(f"{address.url} cannot be reached: {why}")
    try:
        return ask(deadline)
    except Unavailable as error:
        if not why:
            raise
        raise Unavailable(f"{address.url} cannot be reached: {why}") from error


def check_version(status: Any, address: Address) -> None:
    """Raise `InvalidInput` if a member with this status is too old."""
    if version_of(status) < _OLDEST:
        raise InvalidInput(
            f"{address.url} is etcd {status.version}; 3.4 or newer is needed: upgrade it"
        )


def version_of(status: Any) -> tuple[int, ...]:
    """Return the version of a member with this status."""
    numbers = status.version.partition("-")[0].split(".")
    return tuple(int(number) if number.isdigit() else 0 for number in numbers)


def check_members(connection: Connection) -> None:
    """Raise `Unavailable` if members belong to different etcds: each would have its own leader."""
    hosts = connection.address.hosts.split(",")
    if len(hosts) == 1:
        return
    answers = connection.each(lambda stubs: stubs.maintenance.Status, rpc.StatusRequest(), _OTHERS)
    found = {
        host: answer.header.cluster_id
        for host, answer in zip(hosts, answers, strict=True)
        if not isinstance(answer, Exception) and answer.header.cluster_id
    }
    if len(set(found.values())) > 1:
        each = ", ".join(f"{host} of cluster id {etcd:x}" for host, etcd in found.items())
        raise Unavailable(
            f"{connection.address.url} names members of different etcds: {each}; {MEND}"
        )


_PAGE = 1000
"""Keys that are listed at once where a cluster is looked for below a prefix."""
_PAGES = 20
"""Such lists, at most: another program may have many keys."""


class Read(Protocol):
    """Reads a range of keys."""

    def __call__(self, key: bytes, deadline: Deadline, **fields: Any) -> Any: ...


class Marker:
    """The marker of one cluster.

    Args:
        root: the prefix of the cluster's keys.
        read: reads keys, after every write of the handle that may still be late was shut out.
        gets: reads other clusters' markers.
    """

    def __init__(
        self, connection: Connection, cluster: str, root: bytes, read: Read, gets: ManyGets
    ) -> None:
        self._connection = connection
        self._root = root
        self._prefix = root.removesuffix(f"{cluster}/".encode())
        self._key = root + b"format"
        self._read, self._gets = read, gets
        self._cluster = cluster
        self._url = connection.address.url

    def find(self, deadline: Deadline, *, create: bool) -> int:
        """Return the cluster's format, after creating the cluster if necessary.

        Raises:
            InvalidInput: another program uses the prefix.
            NoSuchCluster: without `create`, the cluster does not exist.
            UnsupportedVersion: a newer jrs made the cluster.
            Unavailable: no answer within the deadline.
        """
        found = self._read(self._key, deadline)
        if not found.kvs:
            inside = self._read(self._root, deadline, range_end=behind(self._root), limit=1)
            # Another process may have created the cluster meanwhile; the marker is created first.
            found = self._read(self._key, deadline)
            if inside.kvs and not found.kvs:
                raise self._foreign(self._root)
            if not found.kvs:
                self._check_prefix(deadline)
        if not found.kvs:
            if not create:
                raise NoSuchCluster(
                    f"there is no cluster {self._cluster!r} at {self._url}: start a master, or "
                    "check the prefix and the cluster's name"
                )
            absent = rpc.Compare(
                result=rpc.Compare.EQUAL,
                target=rpc.Compare.CREATE,
                key=self._key,
                create_revision=0,
            )
            self._write(NEWEST_FORMAT, absent, deadline)
            found = self._read(self._key, deadline)
        return self._format_in(found.kvs[0].value)

    def raise_to(self, version: int, deadline: Deadline) -> int:
        """Raise the marker's format to at least `version`; return its format. Idempotent.

        Raises:
            Refused: the cluster was removed.
        """
        while True:
            kvs = self._read(self._key, deadline).kvs
            if not kvs:
                raise Refused(
                    f"there is no cluster {self._cluster!r} at {self._url} any more: it was "
                    "removed while it was open; nothing was changed"
                )
            (found,) = kvs
            marked = self._format_in(found.value)
            if marked >= version:
                return marked
            unchanged = rpc.Compare(
                result=rpc.Compare.EQUAL,
                target=rpc.Compare.MOD,
                key=self._key,
                mod_revision=found.mod_revision,
            )
            self._write(version, unchanged, deadline)

    def _write(self, version: int, condition: Any, deadline: Deadline) -> None:
        value = json.dumps({"jrs": "cluster", "version": version}).encode()
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=self._key, value=value))
        request = rpc.TxnRequest(compare=[condition], success=[put])
        try:
            self._connection.write(lambda stubs: stubs.kv.Txn, request, deadline)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error  # The next call finds the marker or writes it.

    def _format_in(self, value: bytes) -> int:
        try:
            form = json.loads(value)
            kind, version = form["jrs"], form["version"]
        except (ValueError, TypeError, KeyError):
            raise self._foreign(self._root) from None
        if kind != "cluster" or type(version) is not int:
            raise self._foreign(self._root)
        return read_marker(version, f"cluster {self._cluster!r} at {self._url}")

    def _check_prefix(self, deadline: Deadline) -> None:
        """Raise `InvalidInput` if there are keys below the prefix, and none is of a cluster.

        A cluster may be further below, with a prefix in this one.
        """
        start, end = self._prefix, behind(self._prefix)
        for _ in range(_PAGES):
            found = self._read(start, deadline, range_end=end, limit=_PAGE, keys_only=True).kvs
            if not found:
                if start == self._prefix:
                    return
                break
            if self._has_marker([each.key for each in found], deadline):
                return
            last = found[-1].key
            name, slash, _ = last[len(self._prefix) :].partition(b"/")
            start = behind(self._prefix + name + b"/") if slash else last + b"\0"
        raise self._foreign(self._prefix)

    def _has_marker(self, keys: Sequence[bytes], deadline: Deadline) -> bool:
        """Return whether a folder that one of the keys is in, below the prefix, is of a cluster."""
        inner = (key[: at.end()] for key in keys for at in re.finditer(b"/", key))
        folders = dict.fromkeys(one for one in inner if len(one) > len(self._prefix))
        # A marker is created first, so that what was found can have one.
        found = self._gets.each([folder + b"format" for folder in folders], deadline)
        return any(one is not None and _is_marker(one.value) for one in found)

    def _foreign(self, place: bytes) -> InvalidInput:
        return InvalidInput(
            f"{place.decode()} at {self._url} is in use by another program: choose another prefix"
        )


def _is_marker(value: bytes) -> bool:
    try:
        return bool(json.loads(value)["jrs"] == "cluster")
    except (ValueError, TypeError, KeyError):
        return False
