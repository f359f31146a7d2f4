"""What lies behind a leadership on ZooKeeper."""

from __future__ import annotations

from typing import Any

from jrs.backends.shared.lease import LeadershipLease
from jrs.contract.leadership import Leadership


def campaign_of(leadership: Leadership) -> Any:
    """Return the campaign that won a leadership, and ends it."""
    assert isinstance(leadership, LeadershipLease)
    end: Any = leadership._end
    return end.__self__


def session_of(leadership: Leadership) -> tuple[int, bytes]:
    """Return the session that holds a leadership: its number and its password."""
    session: tuple[int, bytes] = campaign_of(leadership).session
    return session
