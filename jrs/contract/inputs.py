"""Checks of what callers give: that a value has its type, and which member of an enum it names."""

from __future__ import annotations

import enum
from typing import TypeVar

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown

E = TypeVar("E", bound=enum.StrEnum)


def check_is(value: object, name: str, *kinds: type, hint: str = "") -> None:
    """Raise `InvalidInput` unless `value` is of one of the types.

    Args:
        name: of the parameter or the field; empty if the caller says it.
        hint: how to get such a value, for the message.
    """
    if not isinstance(value, kinds):
        wanted = " or ".join(with_article(kind.__name__) for kind in kinds)
        end = f"; {hint}" if hint else ""
        raise InvalidInput(f"{name} must be {wanted}, not {shown(value)}{end}".lstrip())


def check_text(value: object, name: str) -> None:
    """Raise `InvalidInput` unless `value` is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{name} must be a text that is not empty, not {shown(value)}")


def check_call(value: object, name: str) -> None:
    """Raise `InvalidInput` unless `value` can be called."""
    if not callable(value):
        raise InvalidInput(f"{name} must be a function, not {shown(value)}")


def member_of(kind: type[E], value: object, name: str) -> E:
    """Return the member of an enum that a caller gave, by itself or by its text.

    Args:
        name: as in `check_is`.

    Raises:
        InvalidInput: it is not a member.
    """
    for each in kind:
        if isinstance(value, str) and value == each.value:
            return each
    known = ", ".join(repr(each.value) for each in kind)
    wanted = f"{with_article(kind.__name__)}, one of {known}"
    raise InvalidInput(f"{name} must be {wanted}, not {shown(value)}".lstrip())


def member_or_none(kind: type[E], value: object, name: str) -> E | None:
    """Return what `member_of` does; None for None."""
    return None if value is None else member_of(kind, value, name)


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article."""
    return f"{'an' if noun[:1].lower() in tuple('aeiou') else 'a'} {noun}"
