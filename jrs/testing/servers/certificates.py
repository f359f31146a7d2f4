"""Certificates for tests: an authority, a server's certificate and a client's, in PEM files."""

from __future__ import annotations

import ssl
from pathlib import Path

import attrs

from jrs.testing.servers.errors import ServerMissing


@attrs.frozen
class Certificates:
    """Files in PEM. The server's certificate is for ``localhost`` and the loopback addresses.

    Attributes:
        ca: the authority's certificate.
        cert, key: the server's.
        client_cert, client_key: a client's, of the same authority.
    """

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path

    def client_context(self, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client, with the client's certificate or another one."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(cert or self.client_cert, key or self.client_key)
        return context

    def url_options(self, with_client: bool) -> dict[str, str]:
        """Return the options of a backend's URL, with or without the client's certificate."""
        options = {"ca": str(self.ca)}
        if with_client:
            options |= {"cert": str(self.client_cert), "key": str(self.client_key)}
        return options


def make_certificates(folder: Path, *hosts: str) -> Certificates:
    """Make an authority in `folder` that signs certificates for the loopback and for these hosts.

    Raises:
        ServerMissing: the package `cryptography` is not installed.
    """
    try:
        # It imports cryptography, which is in no extra but `dev`.
        from jrs.testing.servers.signing import Signing
    except ImportError as error:
        raise ServerMissing("certificates for tests need: pip install cryptography") from error

    signing = Signing(folder, hosts)
    authority = signing.write("ca", None)
    signing.write("server", authority)
    signing.write("client", authority)
    return Certificates(
        ca=folder / "ca.pem",
        cert=folder / "server.pem",
        key=folder / "server.key",
        client_cert=folder / "client.pem",
        client_key=folder / "client.key",
    )
