"""Certificates of clients: the name of their owner, from the connection to each request of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

_OWNER = "jrs_owner"


class NamingProtocol(H11Protocol):
    """HTTP over a connection that tells each request who owns the client's certificate.

    uvicorn does not tell the application about it.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app, name = self.app, name_in(transport.get_extra_info("peercert") or {})

        async def named(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, _OWNER: name}, receive, send)

        self.app = named


def owner_of(scope: Scope) -> str:
    """Return the name of who owns the certificate of a request; empty if it has none."""
    return str(scope.get(_OWNER, ""))


def name_in(certificate: Mapping[str, Any]) -> str:
    """Return the name of a certificate's owner: the common name of its subject, else its first
    alternative name, else its serial number; empty if there is no certificate.

    Args:
        certificate: as `ssl.SSLSocket.getpeercert` returns it, once it is verified.
    """
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for kind, value in subject if kind == "commonName"]
    names += [value for _, value in certificate.get("subjectAltName", ())]
    names += [certificate[name] for name in ("serialNumber",) if name in certificate]
    return str(names[0]) if names else ""
