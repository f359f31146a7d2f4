"""Ages, sizes and retention policies, as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from jrs import LogLimits, RetentionPolicy
from jrs.contract.errors import InvalidInput
from jrs.contract.moments import seconds_of
from jrs.contract.texts import shown

_SIZE = re.compile(r"([0-9]+)([KMG]?)")
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

AGES = {
    name.replace("_", "-"): name
    for name in ("results", "outputs", "snapshots", "logs", "failed_logs", "history")
}
SIZES = {f"log-bytes-per-{field.name}": field.name for field in attrs.fields(LogLimits)}
"""The names of the limits of logs, and the fields of `LogLimits`."""


def age(text: str) -> float:
    """Return the seconds of an age such as ``90s``, ``30m``, ``12h`` or ``7d``."""
    seconds = seconds_of(text)
    if seconds is None:
        raise InvalidInput(f"not an age: {shown(text)}; write 90s, 30m, 12h or 7d")
    return seconds


def size(text: str) -> int:
    """Return the bytes of a size such as ``64M``."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"not a size: {shown(text)}; write a number of bytes, or 512K, 16M or 4G"
        )
    return int(match[1]) * _FACTORS[match[2]]


def retention(given: Mapping[str, Any]) -> RetentionPolicy:
    """Return the policy of named ages and sizes; ``never`` removes nothing for its age."""
    ages: dict[str, float | None] = {}
    sizes: dict[str, int] = {}
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidInput(f'retention of {name}: write text such as "30d", not {shown(value)}')
        if name in AGES:
            ages[AGES[name]] = None if value == "never" else age(value)
        elif name in SIZES:
            sizes[SIZES[name]] = size(value)
        else:
            raise InvalidInput(
                f"no retention of {shown(name)}; there are {', '.join((*AGES, *SIZES))}"
            )
    return RetentionPolicy(limits=LogLimits(**sizes), **ages)


def pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Return the names and values of ``NAME=VALUE`` texts."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"not a retention: {shown(text)}; write --retain results=30d")
        found[name] = value
    return found
