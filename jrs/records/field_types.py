"""Field rules: the values that each field of a stored type accepts, by its annotation.

The constructor of a stored value refuses anything that could not be read back, so that no
unreadable record is written. The rules are the rules of the codec's reader.
"""

from __future__ import annotations

import enum
import functools
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Union, get_args, get_origin

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.inputs import check_is, member_of
from jrs.contract.texts import shown

Json = Any
"""A JSON value: None, bool, int, finite float, str, and lists and dicts of those."""

Rule = Callable[[Any], Any]
"""Returns the field's value as it would be read back, or raises `InvalidInput`."""

_FIRST_TOO_LONG = 10**sys.int_info.default_max_str_digits
"""Python by default neither writes nor reads numbers with this many digits."""


def check_fields(value: attrs.AttrsInstance) -> None:
    """Set every field of a new value to the value that would be read back.

    Raises:
        InvalidInput: a field's value does not have the declared type, or has no JSON form.
    """
    for name, at_once, rule in _rules(type(value)):
        before = getattr(value, name)
        if type(before) in at_once:
            continue
        try:
            after = rule(before)
        except InvalidInput as error:
            kind = type(value).__name__
            raise InvalidInput(f"not a valid {kind}: {_at(name, error)}") from None
        if after is not before:
            object.__setattr__(value, name, after)  # The class is frozen.


def as_json(value: Json) -> Json:
    """Return a copy of `value` as JSON would return it (tuples as lists), or raise.

    Raises:
        InvalidInput: not JSON: NaN, infinity, a number with too many digits, a key that is not a
            string, any other type.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise InvalidInput("nested too deeply") from None


def _plain(value: Json) -> Json:
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        if not -_FIRST_TOO_LONG < value < _FIRST_TOO_LONG:
            raise InvalidInput("a number with too many digits has no JSON form")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise InvalidInput(f"{value!r} has no JSON form")
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                raise InvalidInput(f"the key {shown(key)} is not a string")
        return {key: _plain(item) for key, item in value.items()}
    raise InvalidInput(f"a {type(value).__qualname__} has no JSON form")


# -- the rules -----------------------------------------------------------------------------


@functools.cache
def _rules(kind: type[attrs.AttrsInstance]) -> tuple[tuple[str, frozenset[type], Rule], ...]:
    """Return each field's name, the types whose every value is valid, and the rule for others."""
    attrs.resolve_types(kind)
    return tuple(
        (field.name, frozenset(_at_once(field.type)), _rule(field.type))
        for field in attrs.fields(kind)
    )


def _at_once(hint: Any) -> Iterator[type]:
    for each in get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,):
        if each in (str, bool, types.NoneType) or _is_of_ours(each):
            yield each


def _is_of_ours(hint: Any) -> bool:
    return isinstance(hint, type) and (attrs.has(hint) or issubclass(hint, enum.Enum))


def _rule(hint: Any) -> Rule:
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return functools.partial(_member, hint)
    if _is_of_ours(hint):
        return functools.partial(_instance, hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType) and len(inner) == 2 and inner[1] is type(None):
        return functools.partial(_optional, _rule(inner[0]))
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return functools.partial(_tuple, _rule(inner[0]))
    if origin is dict and inner[0] is str:
        return functools.partial(_dict, _rule(inner[1]))
    raise TypeError(f"no rule for a stored field of type {hint}")


def _json(value: Any) -> Any:
    try:
        return as_json(value)
    except InvalidInput as error:
        raise InvalidInput(f"is not JSON: {error}") from None


def _text(value: Any) -> str:
    if type(value) is not str:
        raise InvalidInput(f"must be a string, not {shown(value)}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise InvalidInput(f"must be True or False, not {shown(value)}")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise InvalidInput(f"must be a whole number, not {shown(value)}")
    if not -_FIRST_TOO_LONG < value < _FIRST_TOO_LONG:
        raise InvalidInput("has too many digits for JSON")
    return value


def _number(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise InvalidInput(f"must be a finite number for JSON, not {shown(value)}")


_SIMPLE: dict[Any, Rule] = {Any: _json, str: _text, bool: _flag, int: _whole, float: _number}


def _instance(kind: type, value: Any) -> Any:
    check_is(value, "", kind)
    return value


def _member(kind: type[enum.StrEnum], value: Any) -> Any:
    return member_of(kind, value, "")


def _optional(rule: Rule, value: Any) -> Any:
    return None if value is None else rule(value)


def _tuple(rule: Rule, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list)):
        raise InvalidInput(f"must be a tuple, not {shown(value)}")
    done: list[Any] = []
    try:
        for item in value:
            done.append(rule(item))
    except InvalidInput as error:
        raise InvalidInput(_at(f"[{len(done)}]", error)) from None
    return tuple(done)


def _dict(rule: Rule, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"must be a dict, not {shown(value)}")
    done: dict[str, Any] = {}
    for key, item in value.items():
        try:
            done[_text(key)] = rule(item)
        except InvalidInput as error:
            raise InvalidInput(_at(f"[{shown(key)}]", error)) from None
    return done


def _at(place: str, error: InvalidInput) -> str:
    """Return what is wrong at a field, or at an item of one: ``conf['a'] must be a string``."""
    text = str(error)
    return place + text if text.startswith("[") else f"{place} {text}"
