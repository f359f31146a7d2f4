"""The forms of a segment, and which one the next segment gets."""

from __future__ import annotations

import json
from enum import IntEnum

from jrs.records import keys

BATCHES_SINCE = 3
"""The first cluster format whose segments begin in the form `BATCHES`."""

LEVELS_SINCE = 7
"""The first cluster format whose segments begin in the form `LEVELS`."""


class Form(IntEnum):
    """The form of a segment; the numbers are stored. They are not those of cluster formats."""

    LINES = 2
    """A log of lines, and a base in two files: before cluster format 3."""
    BATCHES = 3
    """A log of batches, and a base of one run: since cluster format 3."""
    LEVELS = 4
    """A log of batches, and a base of several runs: since cluster format 7."""


VERSION_KEY = keys.FORMAT


def form_in(version: int) -> Form:
    """Return the form in which a segment begins in a cluster of that format."""
    if version >= LEVELS_SINCE:
        return Form.LEVELS
    return Form.BATCHES if version >= BATCHES_SINCE else Form.LINES


def form_at(value: bytes | None) -> Form:
    """Return the form of the segment behind a seal, given the value of `VERSION_KEY` at the seal
    (None: absent)."""
    try:
        stored = json.loads(value or b"{}")
        return form_in(int(stored["body"]["version"]))
    except (ValueError, TypeError, KeyError):
        return Form.LINES
