"""The version of the code that makes a result."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jrs.contract.texts import printable

VARIABLE = "JRS_CODE_VERSION"
_LONGEST = 200
"""Characters of a version."""


def code_version(function: Callable[..., Any]) -> str:
    """Return the version of a function's code: ``JRS_CODE_VERSION`` of this process, else a digest
    of the function's file; empty if that cannot be read."""
    if given := os.environ.get(VARIABLE):
        return printable(given)[:_LONGEST]
    module = sys.modules.get(getattr(inspect.unwrap(function), "__module__", None) or "")
    path = getattr(module, "__file__", None)
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if path else ""
    except OSError:
        return ""
