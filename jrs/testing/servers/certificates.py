"""Certificates for tests: an authority, a server's certificate and a client's, in PEM files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import attrs

from jrs.testing.servers.errors import ServerMissing

_LIFETIME = datetime.timedelta(days=2)


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
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise ServerMissing("certificates for tests need: pip install cryptography") from error

    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    for host in ("127.0.0.1", "::1", *hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))

    def write(
        name: str, issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None
    ) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"jrs test {name}")])
        signer, signing_key = issuer or (subject, key)
        identifier = x509.SubjectKeyIdentifier.from_public_key
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
            .add_extension(identifier(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
                critical=False,
            )
            .add_extension(_usage(issuer is None), critical=True)
        )
        if issuer is not None:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(names), critical=False
            ).add_extension(
                # Each certificate is for both uses: etcd's JSON gateway is a client with the
                # server's certificate.
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
        certificate = builder.sign(signing_key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return subject, key

    def _usage(authority: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=not authority,
            key_cert_sign=authority,
            crl_sign=authority,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )

    authority = write("ca", None)
    write("server", authority)
    write("client", authority)
    return Certificates(
        ca=folder / "ca.pem",
        cert=folder / "server.pem",
        key=folder / "server.key",
        client_cert=folder / "client.pem",
        client_key=folder / "client.key",
    )
