"""The arguments of nemeses, checked when a nemesis is made, before a run begins."""

from __future__ import annotations

from collections.abc import Collection

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown


def check_name(what: str, name: object, known: Collection[str]) -> None:
    """Raise `InvalidInput` unless a name is known."""
    if name not in known:
        raise InvalidInput(f"{what} {shown(name)} is unknown: {', '.join(known)}")


def check_seconds(nemesis: str, what: str, number: object) -> None:
    """Raise `InvalidInput` unless an argument of a nemesis is a number of seconds."""
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not number >= 0:
        raise InvalidInput(f"{nemesis}: {what} is a number of seconds, not {shown(number)}")
