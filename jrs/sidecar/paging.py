"""Pages of lists: each is bounded in number and in bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

MOST_BYTES = 2 << 20
"""Bytes of the JSON of a page, but for its last item: several are made at once."""


def page_of(
    items: Iterable[T], limit: int, plain: Callable[[T], Any]
) -> tuple[list[Any], T | None]:
    """Return the first of some items as JSON, at least one of them, and the last one that is
    returned if others come after it.

    Args:
        limit: the most items.
        plain: returns an item as JSON. Nothing else is kept of an item.
    """
    found: list[Any] = []
    last, size = None, 0
    for item in items:
        if len(found) >= limit or size >= MOST_BYTES:
            return found, last
        found.append(plain(item))
        size += len(json.dumps(found[-1]))
        last = item
    return found, None
