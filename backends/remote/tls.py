"""TLS contexts: by our rules, and of the files as they are now.

Certificates are renewed while a master runs. A handle that kept the old ones would be refused by
every server at its next connection.
"""

from __future__ import annotations

import ssl
from contextlib import suppress

import attrs

from jrs.contract.errors import InvalidInput

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


@attrs.define
class CurrentContext:
    """The TLS context of some files, which is made again when the files have changed.

    Files that cannot be loaded, as in the middle of being replaced, change nothing: the last
    context remains, until they can.
    """

    tls: Tls
    where: str
    _stamp: object = attrs.field(init=False)
    _context: ssl.SSLContext = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        # The stamp first: a file that is replaced in between is loaded again.
        self._stamp = self.tls.stamp()
        self._context = tls_context(self.tls, self.where)

    def get(self) -> ssl.SSLContext:
        """Return the context of the files as they are now, or as they last could be loaded."""
        stamp = self.tls.stamp()
        if stamp != self._stamp:
            with suppress(OSError, ValueError):
                self._context = load(self.tls)
                self._stamp = stamp
        return self._context
