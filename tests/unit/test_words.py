"""One word for one thing, and plain English: words that are kept out of the code.

docs/concepts.md has the words that are used. The documentation has a test of its own.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for top in ("jrs", "backends", "recovery")
    for path in (ROOT / top).rglob("*.py")
    if path.relative_to(ROOT).parts[:2] not in (("jrs", "backends"), ("jrs", "recovery"))
)

PROSE = (
    "anew",
    "be it",
    "belongs? into",
    "can not",
    "for ever",
    "go on",
    "goes on",
    "in peace",
    "its like",
    "leaves? word",
    "somebody",
    "warden",
    "whoever",
)
"""What docstrings, comments and messages do without."""

NAMES = (
    "findings",
    "make_usable",
    "sights",
    "stand",
    "standing",
    "STANDS",
    "tenure",
    "Tracked",
    "warden",
    "Which",
    "Wish",
)
"""Names that the field has another word for."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_plain_words(path: Path) -> None:
    """No word that is avoided is in the prose or the names of a module."""
    prose, names = [], set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            prose.append(" ".join(token.string.split()))
        elif token.type == tokenize.NAME:
            names.add(token.string)
    avoided = re.compile(rf"\b(?:{'|'.join(PROSE)})\b", re.IGNORECASE)

    assert [found[0] for text in prose for found in avoided.finditer(text)] == []
    assert names & set(NAMES) == set()
