"""The version of the code that makes a result."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from jrs.contract.texts import printable
from jrs.records.field_types import Json

from .entry_point import unwrapped

VARIABLE = "JRS_CODE_VERSION"
_LONGEST = 200
"""Characters of a version."""


def code_version(function: Callable[..., Any]) -> str:
    """Return the version of a function's code: ``JRS_CODE_VERSION`` of this process, else a digest
    of the function's file; empty if that cannot be read."""
    module = sys.modules.get(getattr(unwrapped(function), "__module__", None) or "")
    return _given() or _digest(getattr(module, "__file__", None))


def code_version_of(entry_point: str) -> str:
    """Return the version for an entry point without importing it: ``JRS_CODE_VERSION``, else a
    digest of the entry point's own module, even if the function is defined in another."""
    return _given() or _digest(_file_of(entry_point.rpartition(":")[0]))


def about_code(code: str) -> dict[str, Json]:
    """Return what the history says of the version of a job's code, if that is known."""
    return {"code": code} if code else {}


def _given() -> str:
    return printable(os.environ.get(VARIABLE, ""))[:_LONGEST]


def _digest(path: str | None) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if path else ""
    except (OSError, ValueError):
        return ""


def _file_of(place: str) -> str | None:
    """Return the file of a module, or of a path; None if it is not found."""
    if place.endswith(".py"):
        return place
    if (loaded := sys.modules.get(place)) is not None:
        return getattr(loaded, "__file__", None)
    inside: list[str] | None = None
    found: ModuleSpec | None = None
    for number, part in enumerate(place.split(".")):
        if number and inside is None:
            return None  # What is around it is no package.
        try:
            # Not importlib's own find_spec, which imports the packages that the module is in. The
            # part alone finds the same there, and nothing looks for a package around it.
            found = PathFinder.find_spec(part, inside)
        except (ImportError, OSError, ValueError):
            return None
        places = None if found is None else found.submodule_search_locations
        inside = None if places is None else list(places)
    return None if found is None else found.origin
