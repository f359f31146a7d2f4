"""Error mapping: what a gRPC error means, and whether to try again.

etcd explains most errors in words, which have not changed since 3.4. The mapping decides whether a
write may have happened; if that cannot be excluded, the outcome is unknown.
"""

from __future__ import annotations

from typing import Any

from jrs.contract.errors import (
    AccessDenied,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    Refused,
    TooLarge,
    Unavailable,
)

from ._etcd3 import grpc

_DOWN = (
    # gRPC: the request has not left this process.
    "failed to connect",
    "connections to all backends failing",
    "dns resolution failed",
)
_NEVER_DONE = (
    *_DOWN,
    # etcd: the server rejected the request before it was proposed to the members.
    "etcdserver: no leader",
    "too many requests",
    "not capable",
    "not supported for learner",  # UNAVAILABLE, and since 3.6 FAILED_PRECONDITION
)
_TOO_LARGE = (
    "too large",
    "too many operations",
    # The server's gRPC, before etcd sees the request. That the server cannot *send* a message that
    # is larger than its limit would say nothing about a write.
    "received message larger than max",
)
_EXPIRED = ("invalid auth token",)
_OUTDATED = ("revision of auth store is old", "revision in header is old")
_DENIED = (
    "authentication failed",
    "user name is empty",
    "permission denied",
    "user name not found",
)
_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ALREADY_EXISTS,
)
_SILENT = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)


class OutOfSpace(OutcomeUnknown):
    """The outcome is unknown but final: the answered request will not be carried out later."""


class Compacted(Unavailable):
    """The requested revision is no longer kept."""


class NeverSent(grpc.RpcError):  # type: ignore[misc]
    """A step before the request failed, so the request itself was never sent."""

    def __init__(self, what: str, cause: Any) -> None:
        self._what = what
        self._cause = cause

    def code(self) -> Any:
        return self._cause.code()

    def details(self) -> str:
        return f"{self._what}: {words(self._cause)}"


class OtherEtcd(grpc.RpcError):  # type: ignore[misc]
    """A member of another etcd has answered: ours has not got the request.

    Args:
        member: its address.
        found: the cluster id of its etcd.
        ours: that of the etcd that the handle uses.
    """

    def __init__(self, member: str, found: int, ours: int) -> None:
        self._what = (
            f"{member} is not of this etcd any more (cluster id {found:x}, not {ours:x}): if it "
            "was made again, wipe it and add it as a member, or remove it from the URL; if etcd "
            "was restored, restart this process"
        )

    def code(self) -> Any:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self._what


def words(error: Any) -> str:
    """Return the message of gRPC or the server."""
    return str(error.details() or error.code().name)


def is_down(error: Any) -> bool:
    """Return whether there was no connection to the member."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and _says(words(error).lower(), _DOWN)


def expired(error: Any) -> bool:
    """Return whether the server rejected the token, which it checks before doing anything."""
    unknown = error.code() is grpc.StatusCode.UNAUTHENTICATED
    return unknown or _says(words(error).lower(), _EXPIRED)


def outdated(error: Any) -> bool:
    """Return whether users or roles, of whomever, have changed since the server received the
    request, or since it issued the token. It checks that before doing anything."""
    return _says(words(error).lower(), _OUTDATED)


def answered(error: Any) -> bool:
    """Return whether the error came from a member that is up and has a leader."""
    if _says(words(error).lower(), _NEVER_DONE):
        return False
    return expired(error) or outdated(error) or error.code() not in _SILENT


def translate_error(error: Any, where: str, *, wrote: bool) -> str:
    """Return the reason to try again, or raise the error for the caller.

    Args:
        where: the URL, for messages.
        wrote: whether the request would have changed something.
    """
    code, details = error.code(), words(error)
    said = details.lower()
    if isinstance(error, (NeverSent, OtherEtcd)):
        return details
    if expired(error) or code is grpc.StatusCode.PERMISSION_DENIED or _says(said, _DENIED):
        raise AccessDenied(f"{where}: {_denied(details)}") from error
    if "database space exceeded" in said:
        # The request that reaches the limit is carried out, but gets the same error.
        why = f"{where} is out of space: compact, defragment, then 'etcdctl alarm disarm'"
        if wrote:
            raise OutOfSpace(f"{why}; the write may or may not have happened") from error
        raise Unavailable(why) from error
    if _says(said, _TOO_LARGE):
        raise TooLarge(f"{where}: {details}") from error
    if code is grpc.StatusCode.NOT_FOUND:
        raise NotFound(f"{where}: {details}") from error
    if code is grpc.StatusCode.OUT_OF_RANGE:
        raise Compacted(f"{where}: {details}") from error
    if code is grpc.StatusCode.UNIMPLEMENTED:
        raise InvalidInput(
            f"{where} does not speak etcd's API of version 3.4 or newer: {details}"
        ) from error
    never_done = _says(said, _NEVER_DONE)
    if code in _REFUSED and not never_done:
        raise Refused(f"{where}: {details}") from error
    if wrote and not never_done:
        raise OutcomeUnknown(
            f"{where}: {details}: the write may or may not have happened; read it back"
        ) from error
    return details


def auth_is_off(error: Any) -> bool:
    """Return whether a member refused a log-in because its etcd has authentication turned off."""
    return "authentication is not enabled" in words(error).lower()


def not_logged_in(error: Any, where: str, user: str) -> NeverSent:
    """Return the error after which to try again, or raise if the user or password is wrong."""
    said = words(error).lower()
    if auth_is_off(error):
        raise AccessDenied(
            f"{where} has authentication turned off, but a user was given: turn it on, or remove "
            "the user"
        ) from error
    if _says(said, _DENIED):
        raise AccessDenied(f"{where}: user {user!r} or the password is wrong") from error
    return NeverSent("logging in", error)


def _says(said: str, parts: tuple[str, ...]) -> bool:
    return any(part in said for part in parts)


def _denied(details: str) -> str:
    detail = details.removeprefix("etcdserver: ")
    if "user name is empty" in detail:
        return "it requires a user: give a user in the URL, and set JRS_BACKEND_PASSWORD"
    return f"{detail}: give the user read and write permission on the prefix"
