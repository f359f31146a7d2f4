"""Connection: one server after the other until one answers, a deadline on every call, typed errors.

Each member has a channel of its own, so that it is known which one failed, and a certificate is
checked against the name of its own member. A request that certainly reached nobody is tried on the
next member; one that may have been carried out is `OutcomeUnknown`, and never repeated here.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from jrs.backends.address import Address, Tls
from jrs.backends.etcd._etcd3 import grpc, rpc
from jrs.clock import Deadline
from jrs.errors import (
    AccessDenied,
    InvalidInput,
    JrsError,
    NotFound,
    OutcomeUnknown,
    TooLarge,
    Unavailable,
)

ATTEMPT = 1.5
"""Seconds for one member: longer than an election among them takes, during which requests hang."""

_PAUSE = 0.05
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
]
_NEVER_SENT = ("failed to connect", "connections to all backends failing", "dns resolution failed")
_EXPIRED = ("invalid auth token", "auth revision in the header is old", "revision of auth store")
_DENIED = (
    "authentication failed",
    "user name is empty",
    "permission denied",
    "user name not found",
)

Method = Callable[["Stubs"], Callable[..., Any]]


class Stubs:
    """The services of one member."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.kv = rpc.KVStub(channel)
        self.lease = rpc.LeaseStub(channel)
        self.watch = rpc.WatchStub(channel)
        self.auth = rpc.AuthStub(channel)
        self.maintenance = rpc.MaintenanceStub(channel)


class Connection:
    """The channels to all members, and the token of whoever we are. Safe for many threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        credentials = _credentials(address.tls)
        self._members = [
            Stubs(
                grpc.insecure_channel(target, _OPTIONS)
                if credentials is None
                else grpc.secure_channel(target, credentials, _OPTIONS)
            )
            for target in address.hosts.split(",")
        ]
        # Masters that start together should not all ask the same member.
        self._current = random.randrange(len(self._members))
        self._login = threading.Lock()
        self._token: str | None = None
        self._closed = False

    def read(self, method: Method, request: Any, deadline: Deadline) -> Any:
        """Call what changes nothing, on any member, again and again within the deadline.

        Raises:
            Unavailable: none answered in time.
            AccessDenied, TooLarge, InvalidInput: refused.
        """
        return self._call(method, request, deadline, unknown=None)

    def write(self, method: Method, request: Any, deadline: Deadline) -> Any:
        """Call what changes something, at most once.

        Raises:
            Unavailable: it was certainly not carried out.
            OutcomeUnknown: it may have been.
            AccessDenied, TooLarge, InvalidInput: refused.
        """
        return self._call(method, request, deadline, unknown=OutcomeUnknown)

    def stream(self, method: Method, requests: Any) -> Any:
        """Open a stream to the present member; what it raises are gRPC's own errors."""
        stubs = self._members[self._current]
        return method(stubs)(requests, metadata=self._metadata(stubs, Deadline.after(ATTEMPT)))

    def each(self, method: Method, request: Any, timeout: float) -> list[Any]:
        """Ask every member once; return its answer, or the error instead of it."""
        found: list[Any] = []
        for stubs in self._members:
            try:
                metadata = self._metadata(stubs, Deadline.after(timeout))
                found.append(method(stubs)(request, timeout=timeout, metadata=metadata))
            except (grpc.RpcError, JrsError) as error:
                found.append(error)
        return found

    def next_member(self) -> None:
        """Go on with the next member: the present one does not answer."""
        self._current = (self._current + 1) % len(self._members)

    def close(self) -> None:
        """Close all channels; whatever still waits is told so. Idempotent."""
        self._closed = True
        for stubs in self._members:
            stubs.channel.close()

    # -- inside ----------------------------------------------------------------------------

    def _call(
        self, method: Method, request: Any, deadline: Deadline, unknown: type[JrsError] | None
    ) -> Any:
        why = "no answer within the deadline"
        pause = _PAUSE
        while not deadline.expired:
            if self._closed:
                raise Unavailable(f"{self.address.url}: this handle is closed")
            stubs = self._members[self._current]
            # A write gets all the time there is: a second try is not for us to make.
            limit = ATTEMPT if unknown is None else deadline.bounded()
            try:
                metadata = self._metadata(stubs, deadline)
                return method(stubs)(
                    request, timeout=min(limit, deadline.bounded()), metadata=metadata
                )
            except grpc.RpcError as error:
                why = self._judge(error, unknown, metadata)
            except ValueError as error:
                raise Unavailable(f"{self.address.url}: this handle is closed") from error
            if stubs is self._members[self._current]:
                self.next_member()
            # Members that refuse a connection do so at once: without a pause this would spin.
            time.sleep(min(pause, deadline.remaining()))
            pause = min(2 * pause, 0.5)
        raise Unavailable(f"{self.address.url} can not be reached: {why}; nothing was changed")

    def _judge(
        self, error: Any, unknown: type[JrsError] | None, metadata: list[tuple[str, str]] | None
    ) -> str:
        """Return why another try is right, or raise."""
        code, details = error.code(), str(error.details() or error.code().name)
        said = details.lower()
        where = self.address.url
        if code is grpc.StatusCode.UNAUTHENTICATED or any(part in said for part in _EXPIRED):
            if metadata is None:
                raise AccessDenied(f"{where}: {_denied(details)}") from error
            self._forget(metadata)  # It has expired, which is found out before anything is done.
            return details
        if code is grpc.StatusCode.PERMISSION_DENIED or any(part in said for part in _DENIED):
            raise AccessDenied(f"{where}: {_denied(details)}") from error
        if "database space exceeded" in said:
            raise Unavailable(
                f"{where} is out of space, nothing was changed: compact, defragment, then "
                "'etcdctl alarm disarm'"
            ) from error
        if "too large" in said or "too many operations" in said:
            raise TooLarge(f"{where}: {details}") from error
        if code is grpc.StatusCode.NOT_FOUND:
            raise NotFound(f"{where}: {details}") from error
        if code is grpc.StatusCode.OUT_OF_RANGE:
            raise Compacted(f"{where}: {details}") from error
        if code is grpc.StatusCode.UNIMPLEMENTED:
            raise InvalidInput(
                f"{where} does not speak etcd's API of version 3.4 or newer: {details}"
            ) from error
        if "too many requests" in said or any(part in said for part in _NEVER_SENT):
            return details
        if unknown is not None:
            raise unknown(
                f"{where}: {details}: the write may or may not have happened; read it back"
            ) from error
        if self._closed:
            raise Unavailable(f"{where}: this handle is closed") from error
        return details

    def _metadata(self, stubs: Stubs, deadline: Deadline) -> list[tuple[str, str]] | None:
        if self.address.user is None:
            return None
        with self._login:
            if self._token is None:
                request = rpc.AuthenticateRequest(
                    name=self.address.user, password=self.address.password
                )
                timeout = min(ATTEMPT, deadline.bounded())
                try:
                    answer = stubs.auth.Authenticate(request, timeout=timeout)
                except grpc.RpcError as error:
                    self._refused(error)
                    raise NotLoggedIn(error) from error
                self._token = answer.token
            return [("token", self._token)]

    def _refused(self, error: Any) -> None:
        said = (error.details() or "").lower()
        if "authentication is not enabled" in said:
            raise AccessDenied(
                f"{self.address.url} has authentication turned off, yet a user was given: turn it "
                "on, or leave the user out"
            ) from error
        if any(part in said for part in _DENIED):
            raise AccessDenied(
                f"{self.address.url}: user {self.address.user!r} or the password is wrong"
            ) from error

    def _forget(self, metadata: list[tuple[str, str]]) -> None:
        with self._login:
            if self._token == metadata[0][1]:
                self._token = None


class Compacted(Unavailable):
    """The revision that was asked for is no longer kept."""


class NotLoggedIn(grpc.RpcError):  # type: ignore[misc]
    """Logging in failed, so the request itself was never sent."""

    def __init__(self, cause: Any) -> None:
        self._cause = cause

    def code(self) -> Any:
        return self._cause.code()

    def details(self) -> str:
        return f"failed to connect: logging in: {self._cause.details()}"


def behind(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])  # No key of ours has a byte of 0xff.


def _denied(details: str) -> str:
    detail = details.removeprefix("etcdserver: ")
    if "user name is empty" in detail:
        return "it asks for a user: give one in the URL, and JRS_BACKEND_PASSWORD"
    return f"{detail}: give the user read and write permission on the prefix"


def _credentials(tls: Tls | None) -> Any:
    if tls is None:
        return None
    parts = []
    for path in (tls.ca, tls.key, tls.cert):
        try:
            parts.append(None if path is None else path.read_bytes())
        except OSError as error:
            raise InvalidInput(f"{path}: {error.strerror}") from None
    return grpc.ssl_channel_credentials(*parts)
