"""Opening a cluster in ZooKeeper's tree: finds it, creates it, or refuses foreign znodes.

The `format` znode of a cluster is its marker.
"""

from __future__ import annotations

import json

from jrs.contract.clock import Deadline
from jrs.contract.errors import InvalidInput, NoSuchCluster, OutcomeUnknown, Refused, Unavailable
from jrs.contract.formats import NEWEST_FORMAT, read_marker

from .layout import Layout
from .protocol import codec
from .protocol.access import Access
from .protocol.connection import Connection
from .protocol.multi_read import read
from .protocol.request import refusal

_DEFAULT_ROOT = "jrs"


def open_cluster(
    connection: Connection, access: Access, cluster: str, deadline: Deadline, *, create: bool
) -> tuple[Layout, set[str], int]:
    """Return the cluster's layout, the names of its directories, and its marker's format.

    Raises:
        InvalidInput: the root does not exist, or another program uses the path.
        NoSuchCluster: without `create`, the cluster does not exist.
        UnsupportedVersion: a newer jrs made the cluster.
        AccessDenied: the cluster belongs to another user.
    """
    layout = Layout(f"/{access.address.prefix or _DEFAULT_ROOT}", cluster)
    while True:
        marker, directories = read(
            connection, (codec.get_data(layout.format), codec.get_children(layout.map)), deadline
        )
        if isinstance(marker, codec.Node):
            version = _format_in(marker.value, layout, access)
            return layout, set(directories) if isinstance(directories, list) else set(), version
        if _is_absent(connection, layout, access, deadline, create=create):
            _create(connection, layout, access, deadline)


def mark_format(
    connection: Connection, layout: Layout, access: Access, version: int, deadline: Deadline
) -> int:
    """Raise the marker's format to at least `version`; return its format. Idempotent.

    Raises:
        Refused: the cluster was removed.
    """
    while True:
        (marker,) = read(connection, [codec.get_data(layout.format)], deadline)
        if not isinstance(marker, codec.Node):
            raise removed(layout, connection.where)
        found = _format_in(marker.value, layout, access)
        if found >= version:
            return found
        _write(
            connection, [codec.set_data(layout.format, _marker(version), marker.version)], deadline
        )


def removed(layout: Layout, where: str) -> Refused:
    """Return the error of a handle whose cluster is gone."""
    return Refused(
        f"there is no jrs cluster {layout.cluster!r} at {where} any more: it was removed while it "
        "was open; nothing was changed"
    )


def _marker(version: int) -> bytes:
    return json.dumps({"format": "jrs", "version": version}).encode()


def _format_in(data: bytes, layout: Layout, access: Access) -> int:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("format") != "jrs":
        raise _foreign(layout.home, access)
    return read_marker(found.get("version"), f"{layout.home} at {access.where}")


def _foreign(path: str, access: Access) -> InvalidInput:
    return InvalidInput(
        f"{path} at {access.where} is in use by another program: name an empty or a new path"
    )


def _is_absent(
    connection: Connection, layout: Layout, access: Access, deadline: Deadline, *, create: bool
) -> bool:
    """Return whether the cluster has to be created; raise if that is not possible."""
    root, names, home, marker = read(
        connection,
        [
            codec.get_data(layout.root),
            codec.get_children(layout.root),
            codec.get_data(layout.home),
            codec.get_data(layout.format),
        ],
        deadline,
    )
    if isinstance(marker, codec.Node):
        return False  # Another process has just created it.
    if not isinstance(root, codec.Node) and access.address.prefix:
        hosts = access.address.hosts
        raise InvalidInput(
            f"{layout.root} does not exist at {access.where}; to create it: "
            f"zkCli.sh -server {hosts} create {layout.root}"
        )
    if isinstance(home, codec.Node):
        raise _foreign(layout.home, access)
    if isinstance(names, list) and names:
        formats = [codec.get_data(Layout(layout.root, name).format) for name in names]
        # A marker that cannot be read counts, too: it belongs to a cluster of another user.
        if all(one == codec.NO_NODE for one in read(connection, formats, deadline, refused=True)):
            raise _foreign(layout.root, access)
    if not create:
        raise NoSuchCluster(
            f"there is no jrs cluster {layout.cluster!r} at {access.where}; jrs master or jrs "
            "submit creates it"
        )
    return True


def _create(connection: Connection, layout: Layout, access: Access, deadline: Deadline) -> None:
    """Create the cluster in one write; the first process wins."""
    acl = access.acl
    if not access.address.prefix:
        _write(connection, [codec.create(layout.root, b"", acl)], deadline)
    _write(
        connection,
        [
            codec.create(layout.home, b"", acl),
            codec.create(layout.format, _marker(NEWEST_FORMAT), acl),
            codec.create(layout.latch, b"", acl),
            codec.create(layout.map, b"", acl),
        ],
        deadline,
    )


def _write(connection: Connection, ops: list[bytes], deadline: Deadline) -> None:
    try:
        request = connection.write(ops, deadline)
    except OutcomeUnknown as unknown:
        if deadline.expired:
            raise Unavailable(f"{connection.where}: no answer within the deadline") from unknown
        return  # The caller reads again.
    assert request.reply is not None
    failed = codec.failure(*request.reply)
    if failed is not None and failed[1] not in (codec.NODE_EXISTS, codec.BAD_VERSION):
        raise refusal(failed[1], connection.where)
