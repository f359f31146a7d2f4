"""TLS contexts: by our rules, and of the files as they are now.

Certificates are renewed while a master runs. A handle that kept the old ones would be refused by
every server at its next connection.
"""

from __future__ import annotations

import ssl
from typing import TypeAlias

from jrs.contract.errors import InvalidInput
from jrs.host.reloading import Reloaded

from .address import Tls


class KeyEncrypted(ValueError):
    """The private key needs a passphrase, for which OpenSSL would prompt on the terminal."""


def load(tls: Tls) -> ssl.SSLContext:
    """Return the context of a client; if `tls` has a `ca`, only that authority is trusted.

    Raises:
        OSError: a file cannot be read, or contains no valid certificate or key.
        KeyEncrypted: the key is encrypted.
    """
    return _with_certificate(ssl.create_default_context(cafile=tls.ca), tls)


def _with_certificate(context: ssl.SSLContext, tls: Tls) -> ssl.SSLContext:
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key, password=_refuse_password)
    return context


def _refuse_password() -> str:
    raise KeyEncrypted("the key is encrypted")


def tls_context(tls: Tls, where: str) -> ssl.SSLContext:
    """Return what `load` returns.

    Raises:
        InvalidInput: a file contains no valid certificate or key.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except ssl.SSLError:
        raise InvalidInput(
            f"the ca file {str(tls.ca)!r} for {where} contains no certificate"
        ) from None
    try:
        return _with_certificate(context, tls)
    except (ssl.SSLError, ValueError):
        raise InvalidInput(
            f"the cert file {str(tls.cert)!r} and the key file {str(tls.key)!r} for {where} "
            "are not a certificate and its unencrypted key"
        ) from None


CurrentContext: TypeAlias = Reloaded[ssl.SSLContext]
"""The context of files as they are now."""


def current_context(tls: Tls, where: str) -> CurrentContext:
    """Return the context of the files as they are at each connection.

    Raises:
        InvalidInput: as `tls_context`.
    """
    return Reloaded(tls.files, lambda: tls_context(tls, where))
