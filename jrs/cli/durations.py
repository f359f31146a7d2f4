"""Durations on the command line: one form for every option, such as ``90s`` or ``30d``."""

from __future__ import annotations

import re
from typing import Any

import click

_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> float | None:
    """Return the seconds that a text stands for; None if it is no duration."""
    match = _FORM.fullmatch(text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A number of seconds, or of minutes, hours or days: ``90``, ``90s``, ``30m``, ``12h``, ``7d``.

    Args:
        above_zero: whether no time at all is refused.
    """

    name = "duration"

    def __init__(self, *, above_zero: bool = False) -> None:
        self._above_zero = above_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value  # A default.
        seconds = seconds_of(value)
        if seconds is None:
            self.fail(f"not a duration: {value[:80]!r}; write 90s, 30m, 12h or 7d", param, ctx)
        if self._above_zero and not seconds:
            self.fail(f"must be above 0, not {value!r}", param, ctx)
        return seconds


DURATION = Duration()
ABOVE_ZERO = Duration(above_zero=True)
