"""Address: a server's endpoints and the credentials for it, from a URL and the environment.

::

    etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…][/PREFIX][?OPTION=VALUE&…]

Do not put a password in a URL, because lists of processes show it. Use the environment instead:
`JRS_BACKEND_USER`, `JRS_BACKEND_PASSWORD`, `JRS_BACKEND_CA`, `JRS_BACKEND_CERT`, `JRS_BACKEND_KEY`.
If both give a value, the URL wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import misspelled, redacted

_PREFIX = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_MIN_TIMEOUT, _MAX_TIMEOUT = 0.1, 600.0


@attrs.frozen
class Tls:
    """The PEM files of a TLS connection.

    Attributes:
        ca: the trusted certificate authorities; None for those of the system.
        cert, key: the client's certificate, if the server requires one; both or none.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @property
    def files(self) -> tuple[Path | None, ...]:
        """All of them."""
        return self.ca, self.cert, self.key


@attrs.frozen
class Address:
    """A parsed backend URL.

    Attributes:
        url: without user, password and options. All clients of a cluster have the same one,
            whatever the order of their endpoints.
        endpoints: in the given order.
        prefix: without leading and trailing slashes; empty if the URL has no path.
        timeout: seconds that a call without a deadline may take.
    """

    url: str
    endpoints: tuple[tuple[str, int], ...]
    prefix: str = ""
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    tls: Tls | None = None
    timeout: float = 10.0

    @classmethod
    def parse(
        cls, url: str, *, default_port: int, environment: Mapping[str, str] = os.environ
    ) -> Self:
        """Parse a URL, complete it from the environment, and check that its files are readable.

        Raises:
            InvalidInput: the URL cannot be used; the message contains no secret.
        """
        check_spelling(url)
        try:
            parts = urlsplit(url)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
        except ValueError:
            options = {}
            parts = urlsplit(url.partition("?")[0])
            if "?" in url and not url.endswith("?"):
                raise InvalidInput(
                    f"the options of {redacted(url)} are not OPTION=VALUE&…"
                ) from None
        # First, because the other messages name the hosts.
        endpoints = _endpoints(parts, default_port)
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        unknown = sorted(options.keys() - {"ca", "cert", "key", "tls", "timeout"})
        if unknown:
            raise InvalidInput(
                f"unknown option {unknown[0]!r} of {where}; known: ca, cert, key, tls, timeout"
            )
        prefix = unquote(parts.path).strip("/")
        if prefix and not _PREFIX.fullmatch(prefix):
            raise InvalidInput(
                f"not a path: {parts.path!r} of {where} (names of A-Z a-z 0-9 . _ - joined by /)"
            )
        user, password = _credentials(parts, where, environment)
        names = ",".join(sorted(f"{_bracketed(host)}:{port}" for host, port in endpoints))
        return cls(
            url=f"{parts.scheme}://{names}" + (f"/{prefix}" if prefix else ""),
            endpoints=endpoints,
            prefix=prefix,
            user=user,
            password=password,
            tls=_tls(options, where, environment),
            timeout=_timeout(options, where),
        )

    @property
    def hosts(self) -> str:
        """The endpoints as ``HOST:PORT,HOST:PORT``."""
        return ",".join(f"{_bracketed(host)}:{port}" for host, port in self.endpoints)


def check_spelling(url: str) -> None:
    """Check that the parts of a URL can be told from each other.

    Raises:
        InvalidInput: they cannot; the message does not quote the URL, which may have a password.
    """
    scheme = url.partition(":")[0]
    try:
        urlsplit(url)
    except ValueError:
        raise InvalidInput(
            f"the host in the {scheme} URL cannot be read; escape [ and ] in the user and the "
            "password as %5B and %5D"
        ) from None
    if misspelled(url):
        raise InvalidInput(
            f"the {scheme} URL has an @ behind a / ? or #: escape these in the user and the "
            "password as %2F, %3F and %23, or set JRS_BACKEND_USER and JRS_BACKEND_PASSWORD"
        )


def _endpoints(parts: SplitResult, default_port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for name in parts.netloc.rpartition("@")[2].split(","):
        try:
            one = urlsplit(f"//{name}")
            host, port = one.hostname if one.netloc == name else None, one.port
        except ValueError:
            host, port = None, 0
        if not host or port == 0:
            # Where a host is missing, a part of a password may stand where the port should.
            spelled = name.partition(":")[0] + (":…" if ":" in name else "")
            raise InvalidInput(f"not a host and port: {spelled!r} in the {parts.scheme} URL")
        found.append((host, default_port if port is None else port))
    if len(set(found)) != len(found):
        raise InvalidInput(f"an endpoint is named twice in the {parts.scheme} URL")
    return tuple(found)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _credentials(
    parts: SplitResult, where: str, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    spelled, at, _ = parts.netloc.rpartition("@")
    user, colon, password = spelled.partition(":")
    name = unquote(user) if at else environment.get("JRS_BACKEND_USER")
    secret = unquote(password) if colon else environment.get("JRS_BACKEND_PASSWORD")
    if secret is not None and not name:
        raise InvalidInput(f"a password without a user for {where}: set JRS_BACKEND_USER, too")
    if name and secret is None:
        raise InvalidInput(
            f"user {name!r} without a password for {where}: set JRS_BACKEND_PASSWORD"
        )
    return name or None, secret if name else None


def _tls(options: Mapping[str, str], where: str, environment: Mapping[str, str]) -> Tls | None:
    wanted = options.get("tls", "").lower()
    if wanted not in ("", "true", "false"):
        raise InvalidInput(f"option tls of {where} must be true or false")
    files: dict[str, Path] = {}
    for name in ("ca", "cert", "key"):
        path = options.get(name) or environment.get(f"JRS_BACKEND_{name.upper()}")
        if path:
            if not os.access(path, os.R_OK):
                raise InvalidInput(f"the {name} file {path!r} for {where} cannot be read")
            files[name] = Path(path)
    if ("cert" in files) != ("key" in files):
        raise InvalidInput(f"{where}: a client certificate needs both 'cert' and 'key'")
    if wanted == "false":
        return None
    return Tls(**files) if files or wanted == "true" else None


def _timeout(options: Mapping[str, str], where: str) -> float:
    try:
        seconds = float(options.get("timeout", "10"))
    except ValueError:
        seconds = float("nan")
    if not _MIN_TIMEOUT <= seconds <= _MAX_TIMEOUT:
        raise InvalidInput(
            f"option timeout of {where} must be {_MIN_TIMEOUT:g} to {_MAX_TIMEOUT:g} seconds"
        )
    return seconds
