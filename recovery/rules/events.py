"""Events: what a leader reports to observers. No decision depends on them."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from jrs.contract.texts import bounded, printable


def _line(text: str) -> str:
    return printable(bounded(text))


@attrs.frozen
class Event:
    """One step of a leader, reported to people."""

    kind: str
    """``decision``, ``attempt``, ``died``, ``clean``, ``cleanup``, ``leading``, ``lost``, …"""
    job_id: str
    message: str = attrs.field(converter=_line)
    """One printable line: it cannot forge another line or send commands to a terminal."""
    epoch: int
    at: float


Report = Callable[[Event], None]


def notify(report: Report, event: Event) -> None:
    """Call `report`. An exception of `report` is ignored: it must not harm a job."""
    try:
        report(event)
    except Exception:
        pass
