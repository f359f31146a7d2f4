"""Access: the servers, the credentials, and the owner of created znodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import attrs

from jrs.contract.errors import InvalidInput

from ...remote.address import Address, Tls, check_spelling
from ...remote.tls import CurrentContext, current_context
from . import codec

_PORT = 2181
_ALL = 31
_SCHEMES = ("digest", "sasl")


@attrs.frozen
class Access:
    """Everything that a connection needs.

    Attributes:
        scheme: how a user logs in. With ``digest`` ZooKeeper accepts any name and password, and
            only compares them with those of a znode's owner. With ``sasl`` (DIGEST-MD5) the server
            checks them against its own list of users.
        tls: the context of the address's certificates, as they are now.
    """

    address: Address
    scheme: str = "digest"
    tls: CurrentContext | None = attrs.field(default=None, repr=False, eq=False)

    @classmethod
    def parse(cls, url: str, environment: Mapping[str, str] = os.environ) -> Self:
        """Parse a URL, whose option ``auth`` (or `JRS_BACKEND_AUTH`) is one of the schemes.

        Raises:
            InvalidInput: the URL cannot be used; the message contains no secret.
        """
        check_spelling(url)
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        spelled = [value for name, value in options if name == "auth"]
        if spelled:
            rest = urlencode([option for option in options if option[0] != "auth"])
            url = urlunsplit((parts.scheme, parts.netloc, parts.path, rest, ""))
        address = Address.parse(url, default_port=_PORT, environment=environment)
        scheme = (spelled or [environment.get("JRS_BACKEND_AUTH", "digest")])[-1]
        if scheme not in _SCHEMES:
            raise InvalidInput(f"option auth of {address.url} must be {' or '.join(_SCHEMES)}")
        if scheme == "sasl" and address.user is not None:
            _check_sasl()
        return cls(address, scheme, _current(address))

    @property
    def where(self) -> str:
        """The servers' URL, for messages."""
        return self.address.url

    @property
    def auth_data(self) -> list[tuple[str, str]]:
        """The credentials that are sent with each connection."""
        user = self.address.user
        if user is None or self.scheme != "digest":
            return []
        return [("digest", f"{user}:{self.address.password}")]

    @property
    def sasl_options(self) -> dict[str, str] | None:
        if self.address.user is None or self.scheme != "sasl":
            return None
        return {
            "mechanism": "DIGEST-MD5",
            "username": self.address.user,
            "password": self.address.password or "",
            "service": "zookeeper",
        }

    @property
    def acl(self) -> bytes:
        """The ACL of created znodes: for their creator alone, or for everyone."""
        if self.address.user is None:
            return codec.acl(_ALL, "world", "anyone")
        return codec.acl(_ALL, "auth", "")

    def config(self) -> dict[str, Any]:
        """Return the access as JSON, including its secrets."""
        tls = self.address.tls
        files = None if tls is None else {
            name: None if path is None else str(path)
            for name, path in attrs.asdict(tls).items()
        }  # fmt: skip
        return {
            "url": self.address.url,
            "endpoints": self.address.endpoints,
            "user": self.address.user,
            "password": self.address.password,
            "scheme": self.scheme,
            "tls": files,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        files = config["tls"]
        tls = None if files is None else Tls(**{
            name: None if path is None else Path(path) for name, path in files.items()
        })  # fmt: skip
        address = Address(
            url=config["url"],
            endpoints=tuple((host, port) for host, port in config["endpoints"]),
            user=config["user"],
            password=config["password"],
            tls=tls,
        )
        return cls(address, config["scheme"], _current(address))


def _current(address: Address) -> CurrentContext | None:
    return None if address.tls is None else current_context(address.tls, address.url)


def _check_sasl() -> None:
    try:
        import puresasl  # noqa: F401 - only whether it is installed
    except ImportError:
        raise InvalidInput("auth=sasl needs the package pure-sasl: pip install pure-sasl") from None
