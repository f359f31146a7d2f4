"""Tags: texts by which jobs are found."""

from __future__ import annotations

from collections.abc import Iterable

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import is_printable, shown

MAX_TAGS = 32
_MAX_TAG = 128


def tags_of(given: Iterable[str]) -> tuple[str, ...]:
    """Return the tags that a caller gives in any iterable, or raise `InvalidInput`: a text is one
    tag, and not its letters."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"tags must be a list or another iterable of texts, not {shown(given)}")
    return tuple(given)


def check_tags(tags: tuple[str, ...]) -> None:
    """Raise `InvalidInput` unless these are tags: at most 32 different ones, each of 1 to 128
    printable characters, such as ``nightly`` or ``team=sales``."""
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"a job has at most {MAX_TAGS} tags, not {len(tags)}")
    for tag in tags:
        fits = isinstance(tag, str) and 1 <= len(tag) <= _MAX_TAG
        if not fits or not tag.isprintable() or not is_printable(tag):
            raise InvalidInput(
                f"not a tag: {shown(tag)}; write 1 to {_MAX_TAG} printable characters, such as "
                "nightly or team=sales"
            )
    if len({*tags}) < len(tags):
        raise InvalidInput("a tag is given twice")
