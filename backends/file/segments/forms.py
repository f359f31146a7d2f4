"""The forms of a segment, and which one the next segment gets."""

from __future__ import annotations

import json

from jrs.records import keys

OLD_FORM, NEW_FORM, LEVELLED_FORM = 2, 3, 4
"""The levelled form differs from the new one in this: a segment may lie on several runs."""

SINCE_FORMAT = 3
"""The first cluster format whose segments begin in the new form."""

LEVELLED_SINCE = 7
"""The first cluster format whose segments begin in the levelled form."""

VERSION_KEY = keys.FORMAT


def form_in(version: int) -> int:
    """Return the form in which a segment begins in a cluster of that format."""
    if version >= LEVELLED_SINCE:
        return LEVELLED_FORM
    return NEW_FORM if version >= SINCE_FORMAT else OLD_FORM


def form_at(value: bytes | None) -> int:
    """Return the form of the segment behind a seal, given the value of `VERSION_KEY` at the seal
    (None: absent)."""
    try:
        stored = json.loads(value or b"{}")
        return form_in(int(stored["body"]["version"]))
    except (ValueError, TypeError, KeyError):
        return OLD_FORM
