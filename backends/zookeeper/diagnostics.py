"""Diagnostics: checks of ZooKeeper's members and sessions for ``jrs doctor``."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from jrs.contract.backend import Diagnostic
from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable

from ..remote.diagnostics import plain_connection
from .protocol.access import Access
from .protocol.handshake import shortest_session

_PATIENCE = 3.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OLDEST = (3, 6)


def diagnostics(access: Access, *, granted: float, ttl: float) -> Iterator[Diagnostic]:
    """Yield the diagnostics; `granted` is the longest granted session, in seconds."""
    shortest = 0.0
    for host, port in access.address.endpoints:
        where = f"{host}:{port}"
        alone = attrs.evolve(access, address=attrs.evolve(
            access.address, endpoints=((host, port),)))  # fmt: skip
        try:
            shortest = max(shortest, shortest_session(alone, Deadline.after(_PATIENCE)))
        except Unavailable as error:
            why = str(error).removeprefix(f"{alone.where}: ")
            yield Diagnostic("member", why, "start it, or remove it from the URL")
            continue
        yield _member(where, {} if access.address.tls else _srvr(host, port))
    address = access.address
    if address.tls is not None:
        yield Diagnostic("encryption", "TLS" + (", mutual" if address.tls.cert else ""))
    elif all(host in _LOOPBACK for host, _ in address.endpoints):
        yield Diagnostic("encryption", "none, on this host")
    else:
        yield Diagnostic("encryption", "none", "use TLS: ?ca=FILE in the URL")
    if address.user is None:
        yield Diagnostic("user", "none: every client of the ensemble can read and write the data")
    else:
        yield Diagnostic(
            "user", f"{address.user}, by {access.scheme}; no other user can read or write"
        )
    fits = shortest <= ttl <= granted
    yield Diagnostic(
        "session",
        f"ttls of {shortest:g} to {granted:g} s are granted",
        None
        if fits
        else "choose a ttl in that range, or widen minSessionTimeout and "
        "maxSessionTimeout of every server",
    )


def _member(where: str, said: dict[str, str]) -> Diagnostic:
    version = said.get("zookeeper version", "").partition("-")[0]
    if not version:
        return Diagnostic(
            "member", f"{where}: answers (its version is unknown: srvr is not allowed)"
        )
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    return Diagnostic(
        "member",
        f"{where}: ZooKeeper {version}, {said.get('mode', '?')}",
        "3.6 or newer is needed: upgrade it" if numbers < _OLDEST else None,
    )


def _srvr(host: str, port: int) -> dict[str, str]:
    """Return the server's answer to ``srvr``; empty if that command is not allowed."""
    try:
        with plain_connection(host, port, Deadline.after(_PATIENCE)) as connected:
            connected.settimeout(_PATIENCE)
            connected.sendall(b"srvr")
            answer = b""
            while part := connected.recv(4096):
                answer += part
    except OSError:
        return {}
    pairs = (line.partition(":") for line in answer.decode(errors="replace").splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
