"""Ending the session of a master that is dead: what its guardian does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jrs.contract.clock import Deadline

from ..remote.guardian import Ender
from .protocol.access import Access
from .protocol.connection import Connection


def ender(config: Mapping[str, Any]) -> Ender:
    """Return what takes over the session of a secret, and closes it.

    If that session is gone already it closes one of its own, and all is well.
    """
    access = Access.from_config(config)

    def end(secret: bytes, deadline: Deadline) -> None:
        session = (int.from_bytes(secret[:8], "big", signed=True), secret[8:])
        connection = Connection(access, timeout=60.0, name="jrs-guardian", session=session)
        connection.start(deadline)
        connection.close()

    return end


def secret_of(session: tuple[int, bytes]) -> bytes:
    """Return a session's id and password as one."""
    return session[0].to_bytes(8, "big", signed=True) + session[1]
