"""Signing certificates for tests, with the package `cryptography`."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=2)
_BOTH_USES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
"""Of each certificate: etcd's JSON gateway is a client with the server's certificate."""

Signer = tuple[x509.Name, ec.EllipticCurvePrivateKey]


class Signing:
    """Writes certificates and their keys into a folder.

    Args:
        hosts: what they are for, besides the loopback.
    """

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._folder = folder
        self._names = [*_names(("localhost", "127.0.0.1", "::1", *hosts))]
        self._now = datetime.datetime.now(datetime.UTC)

    def write(self, name: str, issuer: Signer | None) -> Signer:
        """Write ``<name>.pem`` and ``<name>.key``; without an issuer, those of an authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"jrs test {name}")])
        signer, signing_key = issuer or (subject, key)
        builder = self._described(subject, signer, key, signing_key, authority=issuer is None)
        if issuer is not None:
            alternatives = x509.SubjectAlternativeName(self._names)
            builder = builder.add_extension(alternatives, critical=False)
            builder = builder.add_extension(x509.ExtendedKeyUsage(_BOTH_USES), critical=False)
        certificate = builder.sign(signing_key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        (self._folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
        secret = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self._folder / f"{name}.key").write_bytes(secret)
        return subject, key

    def _described(
        self,
        subject: x509.Name,
        signer: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        signing_key: ec.EllipticCurvePrivateKey,
        *,
        authority: bool,
    ) -> x509.CertificateBuilder:
        of_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        of_signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(signer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(hours=1))
            .not_valid_after(self._now + _LIFETIME)
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(of_key, critical=False)
            .add_extension(of_signer, critical=False)
            .add_extension(_usage(authority), critical=True)
        )


def _names(hosts: Sequence[str]) -> Iterator[x509.GeneralName]:
    for host in hosts:
        try:
            yield x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            yield x509.DNSName(host)


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
