"""The members of an etcd: a channel to each, and the services that it offers.

Each member has a channel of its own, so that a failure belongs to one member, and each certificate
is checked against the name of its member.
"""

from __future__ import annotations

import os
import re
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

from jrs.contract.errors import InvalidInput

from ..remote.address import Address, Tls
from ._etcd3 import grpc, rpc

_CONNECT = 1.4
"""Seconds to connect: two round trips, and with TLS three, or four before TLS 1.3. gRPC's own half
of a second kept a client from ever reaching a member over a slow link.

A call waits for the connection. If a write had no more time than this, its outcome would seem to be
unknown when a member drops attempts to connect, although nothing was sent.
"""

_CERTIFICATE = re.compile(f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", re.DOTALL)

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", int(_CONNECT * 1000)),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
]


class Stubs:
    """The services of one member."""

    def __init__(self, target: str, channel: Any) -> None:
        self.target = target
        self.channel = channel
        self.kv = rpc.KVStub(channel)
        self.lease = rpc.LeaseStub(channel)
        self.watch = rpc.WatchStub(channel)
        self.auth = rpc.AuthStub(channel)
        self.maintenance = rpc.MaintenanceStub(channel)
        # One heartbeat and its answer. The stub's stream would start threads, and a process at its
        # limit of threads would lose its leadership.
        self.keep_alive = channel.unary_unary(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=rpc.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=rpc.LeaseKeepAliveResponse.FromString,
        )
        self.answers = False
        """Whether the last call to this member was answered."""
        self.pace = 0.0
        """Seconds that its last answer took; 0 after a failure that took as long."""


def members_of(address: Address) -> list[Stubs]:
    """Return the members of an address, each with a new channel.

    Raises:
        InvalidInput: a certificate or key cannot be read.
    """
    credentials = _credentials(address.tls)
    return [
        Stubs(
            target,
            grpc.insecure_channel(target, _OPTIONS)
            if credentials is None
            else grpc.secure_channel(target, credentials, _OPTIONS),
        )
        for target in address.hosts.split(",")
    ]


def _credentials(tls: Tls | None) -> Any:
    if tls is None:
        return None
    try:
        parts = [path and path.read_bytes() for path in (tls.ca, tls.key, tls.cert)]
    except OSError as error:
        raise InvalidInput(f"{error.filename}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(parts[0] or _authorities(), *parts[1:])


def _authorities() -> bytes | None:
    """Return the certificate authorities of this host; gRPC's own list lacks local additions. None
    if the host has no list, as a small image may not: gRPC then takes its own.

    Raises:
        InvalidInput: there are none where the environment says.
    """
    paths = ssl.get_default_verify_paths()
    context = ssl.create_default_context()
    known = set(context.get_ca_certs(binary_form=True))
    named = {paths.openssl_cafile_env, paths.openssl_capath_env} & os.environ.keys()
    folders = os.environ.get(paths.openssl_capath_env, paths.openssl_capath).split(os.pathsep)
    # OpenSSL reads those of a folder only once a certificate names them.
    for file in sorted(file for one in folders if one for file in Path(one).glob("*.[0-9]")):
        with suppress(OSError, ValueError):
            for text in _CERTIFICATE.findall(file.read_text()):
                authority = ssl.PEM_cert_to_DER_cert(text)
                if authority not in known:  # To load them all takes a third of a second.
                    context.load_verify_locations(cadata=authority)
    found = context.get_ca_certs(binary_form=True)
    if named and not found:
        raise InvalidInput(
            f"{min(named)} names no certificate authorities of this host: name them with ca=FILE"
        )
    return "".join(map(ssl.DER_cert_to_PEM_cert, found)).encode() or None
