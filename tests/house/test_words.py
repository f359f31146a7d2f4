"""One word for one thing, and plain English: words that are kept out of the code.

docs/concepts.md has the words that are used. The documentation has a test of its own.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for top in ("jrs", "backends", "recovery")
    for path in (ROOT / top).rglob("*.py")
    if path.relative_to(ROOT).parts[:2] not in (("jrs", "backends"), ("jrs", "recovery"))
)
AROUND = sorted(
    path for top in ("tests", "examples", "benchmarks") for path in (ROOT / top).rglob("*.py")
)
"""What is not the product. Its texts may have any word: they are data of tests."""

PROSE = (
    "anew",
    "be it",
    "beside",
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


def avoided(text: str) -> list[str]:
    """Return the words of a text that are avoided."""
    return re.findall(rf"\b(?:{'|'.join(PROSE)})\b", " ".join(text.split()), re.IGNORECASE)


def tokens(source: str) -> tuple[list[str], list[str], set[str]]:
    """Return the strings, the comments and the names of a module."""
    strings, comments, names = [], [], set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING:
            strings.append(token.string)
        elif token.type == tokenize.COMMENT:
            comments.append(token.string)
        elif token.type == tokenize.NAME:
            names.add(token.string)
    return strings, comments, names


def described(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, and the names of its functions as words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
        elif isinstance(node, ast.FunctionDef):
            yield node.name.replace("_", " ")


def prose(path: Path) -> tuple[Iterable[str], set[str]]:
    """Return the strings and the comments of a module, and its names."""
    strings, comments, names = tokens(path.read_text())
    return (*strings, *comments), names


def prose_around(path: Path) -> tuple[Iterable[str], set[str]]:
    """Return the docstrings and the comments of what is not the product, and its names."""
    source = path.read_text()
    _, comments, names = tokens(source)
    return (*comments, *described(source)), names


@pytest.mark.parametrize(
    ("paths", "read"), [(SOURCES, prose), (AROUND, prose_around)], ids=["product", "around"]
)
def test_plain_words(
    paths: Sequence[Path], read: Callable[[Path], tuple[Iterable[str], set[str]]]
) -> None:
    """No word that is avoided is in the prose or the names of a module."""
    found = {}
    for path in paths:
        texts, names = read(path)
        words = [*(word for text in texts for word in avoided(text)), *(names & set(NAMES))]
        if words:
            found[str(path.relative_to(ROOT))] = words

    assert found == {}
