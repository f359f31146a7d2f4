"""Diagnostics: find out with one plain connection why a server cannot be reached.

Client libraries report a wrong host, a wrong port and a wrong certificate all as "unavailable".
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any

import attrs

from jrs.contract.clock import Deadline
from jrs.contract.pool import ThreadPool
from jrs.contract.runtime import JrsThread

from .address import Tls
from .tls import KeyEncrypted, load

_TIMEOUT = 2.0
_QUIET = 0.2
"""Seconds to wait after TLS 1.3's handshake for a server's refusal of the certificate."""


@attrs.frozen
class Fault:
    """The reason why a member cannot be reached.

    Attributes:
        what: the reason, in a phrase.
        lasting: whether an operator has to act, so that a retry within the same call is useless.
        wrong: whether the address or the certificates are wrong. Otherwise a server may still be
            started there.
    """

    what: str
    lasting: bool = True
    wrong: bool = False


def diagnose(host: str, port: int, tls: Tls | None, deadline: Deadline) -> str | None:
    """Return in a phrase why `host` cannot be reached; None if no fault is found."""
    fault = look((host, port), tls, deadline)
    return None if fault is None else fault.what


def look_at_each(
    endpoints: Sequence[tuple[str, int]], tls: Tls | None, deadline: Deadline
) -> list[Fault | None]:
    """Return the fault of each member, or None; checks all members in parallel."""
    with ThreadPool(len(endpoints), "jrs-diagnosis") as pool:
        return list(pool.map(lambda endpoint: look(endpoint, tls, deadline), endpoints))


def look(endpoint: tuple[str, int], tls: Tls | None, deadline: Deadline) -> Fault | None:
    """Return the fault of one member; None if no fault is found."""
    host, port = endpoint
    where = f"{host}:{port}"
    timeout = max(0.1, min(_TIMEOUT, deadline.bounded()))
    try:
        plain = plain_connection(host, port, Deadline.after(timeout))
    except NameTimeout as error:
        return Fault(f"{host}: {error}", lasting=False)
    except NoHostName:
        return Fault(f"{host!r} is not a host name", wrong=True)
    except socket.gaierror as error:
        return Fault(
            f"the host {host!r} is not known ({error.strerror})",
            lasting=error.errno != socket.EAI_AGAIN,
            wrong=error.errno != socket.EAI_AGAIN,
        )
    except ConnectionRefusedError:
        return Fault(f"no server listens at {where}")
    except TimeoutError:
        return Fault(
            f"no answer from {where}: check the address, and whether a firewall is in between",
            lasting=False,
        )
    except OSError as error:
        return Fault(f"{where}: {error.strerror or error}", lasting=False)
    with plain:
        plain.settimeout(timeout)
        if tls is not None:
            return _tls(plain, host, where, tls)
        what = _plaintext(plain, host, where)
    return Fault(what, wrong=True) if what else None


class NameTimeout(TimeoutError):
    """The resolver did not answer in time."""


class NoHostName(OSError):
    """No host can have that name."""


def resolve(host: str, port: int, deadline: Deadline) -> list[tuple[str, int]]:
    """Return the numeric addresses of a host within the deadline; the resolver has none.

    Raises:
        NameTimeout: the resolver did not answer in time.
        OSError: the host is unknown.
    """
    found: list[Any] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:
            found.append(NoHostName(f"{host!r} is not a host name"))
        except OSError as error:
            found.append(error)

    asking = JrsThread(target=ask, name="jrs-resolve", daemon=True)
    try:
        asking.start()
    except RuntimeError:
        ask()  # At the limit of threads an answer without a time limit is better than none.
    else:
        asking.join(deadline.bounded())
    if not found:
        raise NameTimeout("its name could not be resolved in time")
    if isinstance(found[0], OSError):
        raise found[0]
    return [(answer[4][0], answer[4][1]) for answer in found[0]]


def plain_connection(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Return a connection to the first address that answers within the deadline.

    Raises:
        OSError: none does, or `resolve` raises it.
    """
    problem: OSError | None = None
    addresses = resolve(host, port, deadline)
    for number, address in enumerate(addresses):
        turn = max(0.1, deadline.remaining() / (len(addresses) - number))
        try:
            return socket.create_connection(address, turn)
        except OSError as error:
            problem = error
    raise problem or OSError("it has no address")


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
        context = load(tls)
    except KeyEncrypted:
        return Fault(f"the key file {str(tls.key)!r} is encrypted: decrypt it", wrong=True)
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
        return None  # The server waits for a request, as it should.
    except ssl.SSLError as error:
        said = str(error).lower()
        if "alert" in said and ("certificate" in said or "handshake failure" in said):
            asks = "does not accept the client certificate" if tls.cert else (
                "asks for a client certificate: add ?cert=FILE&key=FILE to the URL"
            )  # fmt: skip
            return Fault(f"{where} {asks}", wrong=True)
        # A proxy whose server is down may also close the connection without an alert.
        silent = isinstance(error, ssl.SSLEOFError)
        return Fault(f"{where} does not speak TLS: remove tls from the URL", wrong=not silent)
    except OSError:
        return Fault(f"{where} does not speak TLS: remove tls from the URL")
    return None
