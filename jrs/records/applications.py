"""ApplicationRecord: a driver with several replicas, of which the leader runs `main`."""

from __future__ import annotations

import hashlib
import json

import attrs

from jrs.contract.errors import InvalidInput, TooLarge
from jrs.records.checks import bounded_text, check_job_id, check_json
from jrs.records.field_types import Json
from jrs.records.stored import Stored

LOST_MAIN = "lost-main"
"""The kind of the failure of a job whose application has ended without it."""
MOST_ARGUMENTS = 16 * 1024
"""Largest JSON of the arguments of a `main`, in bytes: its result keeps them."""
_LONGEST_ERROR = 4000
"""Bytes of the text of an exception."""


def _name(instance: object, attribute: object, value: str) -> None:
    check_job_id(value)


def _bounded(text: str) -> str:
    return bounded_text(text, _LONGEST_ERROR)


@attrs.frozen
class ApplicationRecord(Stored):
    """An application that has begun: what its replicas run, and how often `main` has begun.

    It is written when `main` first begins and removed when the application is cleaned up; its
    result keeps a copy.
    """

    name: str = attrs.field(validator=_name)
    """The application's name: the id of its result."""
    entry_point: str
    """Where `main` is: ``module:qualname``, or ``file.py:qualname`` if that file is the program."""
    arguments: dict[str, Json] = attrs.field(factory=dict)
    """What `main` is called with, as JSON."""
    started_by: str = ""
    """``user@host`` of the replica in which `main` first began."""
    started_at: float = 0.0
    """When `main` first began; seconds since 1970, as all times here."""
    attempts: int = 1
    """How often `main` has begun."""
    master: str = ""
    """The replica in which it last began."""
    host: str = ""
    """The host of that replica."""
    pid: int = 0
    """The process of that replica; 0 if unknown."""
    epoch: int = 0
    """The epoch in which that replica led."""
    begun_at: float = 0.0
    """When it last began."""
    error: str = attrs.field(default="", converter=_bounded)
    """The newest exception of `main`, in one line; empty if it never raised."""
    error_host: str = ""
    """The host where `main` raised it."""
    error_at: float = 0.0
    """When it was raised; 0 if `main` never raised."""
    errors: int = 0
    """How often `main` has raised."""

    @arguments.validator
    def _check_arguments(self, attribute: object, value: object) -> None:
        if not isinstance(value, dict):
            raise InvalidInput("the arguments of main must be a JSON object")
        if len(json.dumps(check_json(value, "the arguments of main"))) > MOST_ARGUMENTS:
            raise TooLarge(
                f"the arguments of main are over {MOST_ARGUMENTS:,} bytes of JSON: store the data "
                "where it belongs and give its location instead"
            )

    @property
    def call(self) -> str:
        """A digest of what runs, as `JobSpec.call`."""
        return digest_of(self.entry_point, self.arguments)

    def __str__(self) -> str:
        """Return where `main` last began, for people."""
        return f"main began for the {_ordinal(self.attempts)} time on {self.host} (pid {self.pid})"


def digest_of(entry_point: str, arguments: dict[str, Json]) -> str:
    """Return a digest of an entry point and its arguments."""
    text = json.dumps([entry_point, arguments], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shown_call(entry_point: str, arguments: dict[str, Json]) -> str:
    """Return a call for people; very long arguments are cut."""
    said = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{entry_point}({said[:200]})"


def _ordinal(number: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0)
    return f"{number}{suffix or 'th'}"
