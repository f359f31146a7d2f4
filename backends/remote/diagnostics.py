"""Diagnosis: why a server cannot be spoken to, found out by one plain connection.

Client libraries say "unavailable" to a wrong host, a wrong port and a wrong certificate alike.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs

from jrs.contract.clock import Deadline

from .address import Tls

_TIMEOUT = 2.0
_QUIET = 0.2
"""Seconds in which a server that wants another certificate says so, after TLS 1.3's handshake."""


@attrs.frozen
class Fault:
    """What is wrong with a member.

    Attributes:
        what: in a phrase.
        lasting: whether somebody has to mend it: to try again within the same call is in vain.
        wrong: whether what has to be mended is the address or the certificates. Else a server may
            be started there.
    """

    what: str
    lasting: bool = True
    wrong: bool = False


def diagnose(host: str, port: int, tls: Tls | None, deadline: Deadline) -> str | None:
    """Return in a phrase why `host` cannot be spoken to; None if nothing wrong is seen."""
    fault = look((host, port), tls, deadline)
    return None if fault is None else fault.what


def look_at_each(
    endpoints: Sequence[tuple[str, int]], tls: Tls | None, deadline: Deadline
) -> list[Fault | None]:
    """Return what is wrong with each member; all are looked at at once."""
    with ThreadPoolExecutor(len(endpoints), thread_name_prefix="jrs-diagnosis") as pool:
        return list(pool.map(lambda endpoint: look(endpoint, tls, deadline), endpoints))


def look(endpoint: tuple[str, int], tls: Tls | None, deadline: Deadline) -> Fault | None:
    """Return why a member cannot be spoken to; None if nothing wrong is seen."""
    host, port = endpoint
    where = f"{host}:{port}"
    timeout = max(0.1, min(_TIMEOUT, deadline.bounded()))
    try:
        plain = socket.create_connection((host, port), timeout)
    except socket.gaierror as error:
        return Fault(
            f"the host {host!r} is not known ({error.strerror})",
            lasting=error.errno != socket.EAI_AGAIN,
            wrong=error.errno != socket.EAI_AGAIN,
        )
    except UnicodeError:
        return Fault(f"{host!r} is not a host's name", wrong=True)
    except ConnectionRefusedError:
        return Fault(f"nobody listens at {where}")
    except TimeoutError:
        return Fault(
            f"no answer from {where}: is it the right address, and no firewall in between?",
            lasting=False,
        )
    except OSError as error:
        return Fault(f"{where}: {error.strerror or error}", lasting=False)
    with plain:
        if tls is not None:
            return _tls(plain, host, where, tls)
        what = _plaintext(plain, host, where)
    return Fault(what, wrong=True) if what else None


def _plaintext(plain: socket.socket, host: str, where: str) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with context.wrap_socket(plain, server_hostname=host):
            return f"{where} speaks TLS: add ?tls=true, or ?ca=FILE, to the URL"
    except ssl.SSLError as error:
        if "alert" in str(error).lower():
            return f"{where} speaks TLS: add ?tls=true, or ?ca=FILE, to the URL"
        return None
    except OSError:
        return None


def _tls(plain: socket.socket, host: str, where: str, tls: Tls) -> Fault | None:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (ssl.SSLError, OSError) as error:
        what = f"a certificate or key cannot be used: {error.strerror or error}"
        return Fault(what, wrong=True)
    try:
        with context.wrap_socket(plain, server_hostname=host) as encrypted:
            encrypted.settimeout(_QUIET)
            encrypted.recv(1)
    except ssl.SSLCertVerificationError as error:
        what = f"the certificate of {where} is not trusted: {error.verify_message}"
        return Fault(what, wrong=True)
    except TimeoutError:
        return None  # It waits for us to speak, as it should.
    except ssl.SSLError as error:
        said = str(error).lower()
        if "alert" in said and ("certificate" in said or "handshake failure" in said):
            asks = "does not accept the client certificate" if tls.cert else (
                "asks for a client certificate: add ?cert=FILE&key=FILE to the URL"
            )  # fmt: skip
            return Fault(f"{where} {asks}", wrong=True)
        # An end without a word may be that of a proxy whose server is away.
        silent = isinstance(error, ssl.SSLEOFError)
        return Fault(f"{where} does not speak TLS: leave it out of the URL", wrong=not silent)
    except OSError:
        return Fault(f"{where} does not speak TLS: leave it out of the URL")
    return None
