"""Ending the lease of a dead master: the guardian's module for etcd."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jrs.contract.clock import Deadline
from jrs.contract.errors import NotFound

from ..remote.address import Address, Tls
from ..remote.guardian import Ender
from ._etcd3 import rpc
from .connection import Connection


def ender(config: Mapping[str, Any]) -> Ender:
    """Return a connected function that ends a lease; see `jrs.backends.remote.guardian`."""
    tls = config["tls"]
    address = Address(
        url=config["url"],
        endpoints=tuple((host, port) for host, port in config["endpoints"]),
        user=config["user"],
        password=config["password"],
        tls=None if tls is None else Tls(*(path and Path(path) for path in tls)),
    )
    connection = Connection(address)
    connection.each(lambda stubs: stubs.maintenance.Status, rpc.StatusRequest(), 2.0)

    def end(secret: bytes, deadline: Deadline) -> None:
        revoke(connection, int.from_bytes(secret, "big"), deadline)

    return end


def config_of(address: Address) -> dict[str, Any]:
    """Return what `ender` needs; it contains secrets."""
    tls = address.tls
    return {
        "url": address.url,
        "endpoints": address.endpoints,
        "user": address.user,
        "password": address.password,
        "tls": None
        if tls is None
        else [path and str(path) for path in (tls.ca, tls.cert, tls.key)],
    }


def revoke(connection: Connection, lease: int, deadline: Deadline) -> None:
    """End a lease and delete its keys. Idempotent, and repeated until the outcome is known."""
    request = rpc.LeaseRevokeRequest(ID=lease)
    with suppress(NotFound):
        connection.read(lambda stubs: stubs.lease.LeaseRevoke, request, deadline)
