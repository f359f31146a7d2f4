"""Events: what a leader tells whoever watches. Nothing is decided by them."""

from __future__ import annotations

from collections.abc import Callable

import attrs


@attrs.frozen
class Event:
    """Something a person who watches wants to know."""

    kind: str
    """``decision``, ``attempt``, ``died``, ``clean``, ``cleanup``, ``leading``, ``lost``, …"""
    job_id: str
    message: str
    epoch: int
    at: float


Report = Callable[[Event], None]


def tell(report: Report, event: Event) -> None:
    """Call `report`; what it raises is its own affair and harms no job."""
    try:
        report(event)
    except Exception:
        pass
