"""Ending the session of a dead master: the guardian's module for ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jrs.contract.clock import Deadline

from ..remote.guardian import Ender
from .protocol.access import Access
from .protocol.connection import Connection


def ender(config: Mapping[str, Any]) -> Ender:
    """Return a function that takes over the session of a secret and closes it.

    If the session is already gone, the function only opens and closes a session of its own.
    """
    access = Access.from_config(config)

    def end(secret: bytes, deadline: Deadline) -> None:
        session = (int.from_bytes(secret[:8], "big", signed=True), secret[8:])
        connection = Connection(access, timeout=60.0, name="jrs-guardian", session=session)
        connection.start(deadline)
        connection.end_session()

    return end


def secret_of(session: tuple[int, bytes]) -> bytes:
    """Return a session's id and password in one value."""
    return session[0].to_bytes(8, "big", signed=True) + session[1]
