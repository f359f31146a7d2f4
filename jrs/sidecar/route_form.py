"""The form of the table of routes: each one names the call of the client that it stands for."""

from __future__ import annotations

import enum
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from jrs.client.client import Client
from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.texts import shown

MOST_WHOLE = 2**31 - 1
MOST_SECONDS = 1e9
_DEEPEST = 100
"""Levels of a body."""
_MARKS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[][{}]', re.DOTALL)
"""A text in quotes, or a bracket."""
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}


class Role(enum.StrEnum):
    """What a caller may do."""

    READ = "read"
    OPERATE = "operate"
    """Also what changes something."""


class Kind(enum.StrEnum):
    """The type of a parameter, by its name in JSON Schema."""

    TEXT = "string"
    WHOLE = "integer"
    NUMBER = "number"
    FLAG = "boolean"
    TEXTS = "array"
    OBJECT = "object"


_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.TEXT: (str,),
    Kind.WHOLE: (int,),
    Kind.NUMBER: (int, float),
    Kind.FLAG: (bool,),
    Kind.TEXTS: (list,),
    Kind.OBJECT: (dict,),
}


@attrs.frozen
class Param:
    """A parameter of a route: in its path, in its query, or a field of its body."""

    name: str
    said: str
    kind: Kind = Kind.TEXT
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    def from_text(self, text: str) -> Any:
        """Return the value that a text of a path or a query stands for.

        Raises:
            InvalidInput: it stands for none.
        """
        if self.kind is Kind.TEXT:
            return self.checked(text)
        if self.kind is Kind.FLAG:
            if text not in ("true", "false", "1", "0"):
                raise InvalidInput(f"{self.name} must be true or false, not {shown(text)}")
            return text in ("true", "1")
        try:
            return self.checked(int(text) if self.kind is Kind.WHOLE else float(text))
        except ValueError as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"{self.name} must be a number, not {shown(text)}") from None

    def checked(self, value: Any) -> Any:
        """Return a value of JSON if the parameter may have it.

        Raises:
            InvalidInput: it may not.
        """
        right = isinstance(value, _TYPES[self.kind])
        if not right or (isinstance(value, bool) and self.kind is not Kind.FLAG):
            raise InvalidInput(f"{self.name} must be a JSON {self.kind.value}, not {shown(value)}")
        if self.choices and value not in self.choices:
            allowed = ", ".join(self.choices)
            raise InvalidInput(f"{self.name} must be one of {allowed}, not {shown(value)}")
        if self.kind is Kind.TEXTS and not all(isinstance(one, str) for one in value):
            raise InvalidInput(f"{self.name} must be a list of texts, not {shown(value)}")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self._check_range(value)
        return value

    def _check_range(self, value: float) -> None:
        least, most = self._range
        if not least <= value <= most:  # Nor is it nan, then.
            raise InvalidInput(
                f"{self.name} must be from {least:g} to {most:g}, not {shown(value)}"
            )

    @property
    def _range(self) -> tuple[float, float]:
        top = MOST_WHOLE if self.kind is Kind.WHOLE else MOST_SECONDS * 10
        return (0 if self.least is None else self.least), (top if self.most is None else self.most)

    def schema(self) -> dict[str, Any]:
        """Return its JSON Schema."""
        found: dict[str, Any] = {"type": self.kind.value}
        if self.kind is Kind.TEXTS:
            found["items"] = {"type": "string"}
        if self.kind in (Kind.WHOLE, Kind.NUMBER):
            found["minimum"], found["maximum"] = self._range
        if self.choices:
            found["enum"] = list(self.choices)
        if self.default is not None:
            found["default"] = self.default
        return found


@attrs.frozen
class Call:
    """One request: the client, who asks, and the values of the parameters."""

    client: Client
    who: str
    values: Mapping[str, Any]
    traceparent: str = ""
    """The header of that name."""
    gone: threading.Event = attrs.field(factory=threading.Event, eq=False, repr=False)
    """Set once nobody waits for the reply any more."""

    def check_awaited(self, *_: int) -> None:
        """Raise `Unavailable` if nobody waits for the reply: as `progress` of what takes long."""
        if self.gone.is_set():
            raise Unavailable("the caller has gone")

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@attrs.frozen
class Reply:
    """What a call has returned, as JSON."""

    value: Any
    status: int = 200
    is_final: bool = True
    """False if a caller that asked to wait should wait for more."""


@attrs.frozen
class Route:
    """One route: its method and path, and the call of the client that it stands for."""

    method: str
    path: str
    name: str
    call: Callable[[Call], Reply] | None
    """None for a stream, which `jrs.sidecar.streams` answers."""
    said: str
    stands_for: str
    """The call of the client, for people."""
    query: Sequence[Param] = ()
    body: Sequence[Param] = ()
    statuses: Mapping[int, str] = attrs.field(factory=dict)
    """What each status means, besides those that every route has."""
    produces: str = "application/json"
    on_storage: bool = False
    """Whether its call touches the storage of the jobs, which may hang."""
    is_long: bool = False
    """Whether its call reads every byte of snapshots there, which may take hours."""

    @property
    def role(self) -> Role:
        """Who may call it."""
        return Role.READ if self.method == "GET" else Role.OPERATE

    @property
    def in_path(self) -> list[str]:
        """The names of the parameters in its path."""
        parts = self.path.split("/")
        return [part.strip("{}") for part in parts if part.startswith("{")]


def on_storage(*routes: Route) -> tuple[Route, ...]:
    """Return routes, as those whose calls touch the storage of the jobs."""
    return tuple(attrs.evolve(route, on_storage=True) for route in routes)


def body_values(text: bytes, params: Sequence[Param]) -> dict[str, Any]:
    """Return the values of a body's fields, with defaults for those that are left out.

    Raises:
        BadRequest: it is not JSON, or is nested too deeply.
        InvalidInput: it is no object, or a field has the wrong type or an unknown name.
    """
    try:
        found = _parsed(text) if text.strip() else {}
    except BadRequest:
        raise
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput(f"the body must be a JSON object, not {shown(found)}")
    _check_names(found, params, "field")
    values = {}
    for param in params:
        given = found.get(param.name)
        if given is None and param.required:
            raise InvalidInput(f"{param.name} is missing: {param.said}")
        values[param.name] = param.default if given is None else param.checked(given)
    return values


def _parsed(text: bytes) -> Any:
    """Return what JSON says.

    The depth is known before it is parsed. The parser would go as deep as the interpreter allows,
    and there the garbage collector runs finalizers, of anything in this process, that all fail.

    Raises:
        BadRequest: it is nested too deeply.
        ValueError: it is not JSON.
    """
    decoded = text.decode(json.detect_encoding(text))
    depth = 0
    for mark in _MARKS.finditer(decoded):
        depth += _DEEPER.get(mark[0], 0)
        if depth > _DEEPEST:
            raise BadRequest(f"the body has more than {_DEEPEST} levels")
    return json.loads(decoded)


def query_values(pairs: Sequence[tuple[str, str]], params: Sequence[Param]) -> dict[str, Any]:
    """Return the values of a query, with defaults for those that are left out.

    Raises:
        InvalidInput: one has the wrong form, is unknown, or is given twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidInput("a parameter of the query is given twice")
    _check_names(found, params, "parameter")
    return {
        param.name: param.from_text(found[param.name]) if param.name in found else param.default
        for param in params
    }


def _check_names(found: Mapping[str, Any], params: Sequence[Param], what: str) -> None:
    known = [param.name for param in params]
    for name in found:
        if name not in known:
            there = f"; there are {', '.join(known)}" if known else ""
            raise InvalidInput(f"there is no {what} {shown(name)}{there}")


class BadRequest(InvalidInput):
    """The request cannot be read at all."""
