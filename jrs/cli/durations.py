"""Durations on the command line: one form for every option, such as ``90s`` or ``30d``."""

from __future__ import annotations

from typing import Any

import click

from jrs.contract.moments import seconds_of


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
            self.fail(
                f"not a duration: {value[:80]!r}; write 90s, 30m, 12h, 7d or a number of "
                "seconds, at most 292 years",
                param, ctx,
            )  # fmt: skip
        if self._above_zero and not seconds:
            self.fail(f"must be above 0, not {value!r}", param, ctx)
        return seconds


DURATION = Duration()
ABOVE_ZERO = Duration(above_zero=True)
