"""Durations and moments as people write them; in UTC, as jrs prints times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from threading import TIMEOUT_MAX

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown

_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)([smhd]?)")
_NO_AGE = 1e7
"""Seconds, nearly four months: such a number without a unit is meant as a date, or as seconds since
1970."""
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration such as ``90s`` or ``7d``; None if a text is none, or if it
    is longer than the longest wait of the operating system, 292 years."""
    match = _FORM.fullmatch(text.strip())
    seconds = float("inf") if match is None else float(match[1]) * _UNITS[match[2]]
    return seconds if seconds <= TIMEOUT_MAX else None


def moment(name: str, text: str, now: float) -> float:
    """Return the moment that a text names, in seconds since 1970; 0 for an earlier one.

    Args:
        name: of the option or parameter that has the text.
        text: an age before `now`; the last time of day of that kind; or a date, with or without a
            time. In UTC, unless it names another offset.

    Raises:
        InvalidInput: none of them.
    """
    age = seconds_of(text)
    if age is not None and age >= _NO_AGE and text.strip()[-1] not in "smhd":
        raise InvalidInput(
            f"{name} is no time: {shown(text)} would be an age of {age / 86400:,.0f} days; write "
            f"{text.strip()}s for that, or a date as 2026-11-20 or 2026-11-20T18:30, in UTC"
        )
    if age is not None:
        return max(0.0, now - age)
    try:
        if ":" in text[:3]:
            return _last(time.fromisoformat(text), now)
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{name} is no time: {shown(text)}; write 90s, 12h or 7d, 14:03, 2026-11-20 or "
            "2026-11-20T18:30, in UTC"
        ) from None
    at = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    return max(0.0, at)


def _last(clock: time, now: float) -> float:
    """Return when a clock has shown that time last."""
    at = datetime.combine(datetime.fromtimestamp(now, clock.tzinfo or UTC), clock)
    found = at.replace(tzinfo=clock.tzinfo or UTC)
    return (found if found.timestamp() <= now else found - timedelta(days=1)).timestamp()
