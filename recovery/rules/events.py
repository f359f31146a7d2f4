"""Events: what a leader tells whoever watches. Nothing is decided by them."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from jrs.contract.texts import bounded, printable


def _line(text: str) -> str:
    return printable(bounded(text))


@attrs.frozen
class Event:
    """Something a person who watches wants to know."""

    kind: str
    """``decision``, ``attempt``, ``died``, ``clean``, ``cleanup``, ``leading``, ``lost``, …"""
    job_id: str
    message: str = attrs.field(converter=_line)
    """One line, whatever it was made of: it forges no other line and commands no terminal."""
    epoch: int
    at: float


Report = Callable[[Event], None]


def notify(report: Report, event: Event) -> None:
    """Call `report`; what it raises is its own affair and harms no job."""
    try:
        report(event)
    except Exception:
        pass
