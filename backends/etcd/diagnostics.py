"""Diagnostics: checks of etcd's members, encryption and leases for ``jrs doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from jrs.contract.backend import Diagnostic
from jrs.contract.clock import Deadline

from ..remote.address import Address
from ..remote.diagnostics import diagnose
from ._etcd3 import rpc
from .cluster import MEND, version_of
from .connection import Connection

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def members(connection: Connection, timeout: float) -> Iterator[Diagnostic]:
    """Yield the condition of each member."""
    address = connection.address
    answers = connection.each(lambda stubs: stubs.maintenance.Status, rpc.StatusRequest(), timeout)
    etcd = 0
    for (host, port), answer in zip(address.endpoints, answers, strict=True):
        where = f"{host}:{port}"
        if isinstance(answer, Exception):
            deadline = Deadline.after(timeout)
            why = diagnose(host, port, address.tls, deadline) or "it does not answer"
            yield Diagnostic("member", f"{where}: {why}", "start it, or remove it from the URL")
            continue
        yield Diagnostic(
            "member",
            f"{where}: etcd {answer.version}, {answer.dbSize / 1e6:.1f} MB stored"
            + (", leads" if answer.leader == answer.header.member_id else ""),
            None if answer.leader else "it knows no leader: most members are down; start them",
        )
        etcd = etcd or answer.header.cluster_id
        if answer.header.cluster_id not in (0, etcd):
            yield Diagnostic("member", f"{where}: of another etcd than those before it", MEND)
        if (3, 4) <= version_of(answer) < (3, 4, 24):
            yield Diagnostic(
                "version",
                f"{where}: etcd before 3.4.24 is slow at transactions next to writes; it works",
            )


def encryption(address: Address) -> Diagnostic:
    """Return whether the connections to the members are encrypted."""
    if address.tls is not None:
        return Diagnostic("encryption", "TLS" + (", mutual" if address.tls.cert else ""))
    if all(host in _LOOPBACK for host, _ in address.endpoints):
        return Diagnostic("encryption", "none, on this host")
    return Diagnostic("encryption", "none", "use TLS: ?ca=FILE in the URL")


def session(ttl: float, granted: float, seconds: float) -> Diagnostic:
    """Return whether a lease of `ttl` seconds, which took `seconds` to grant, got its ttl."""
    return Diagnostic(
        "session",
        f"lease of {granted} s granted and revoked in {seconds:.3f} s",
        None if granted <= ttl + 1 else f"the actual ttl is {granted} s",
    )
