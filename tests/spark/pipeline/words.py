"""What the jobs' functions on the executors use."""

from __future__ import annotations

import importlib.util
import os


def shout(word: str) -> str:
    return word.upper()


def whereabouts(_: object) -> tuple[int, bool]:
    """Return the user, and whether jrs can be imported."""
    return os.getuid(), importlib.util.find_spec("jrs") is not None
