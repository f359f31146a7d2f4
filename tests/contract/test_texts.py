"""Texts from elsewhere: bounded where they are stored, harmless where they are printed."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.contract.texts import LIMIT, MAP_LIMIT, bounded, fitting_map, one_line, printable, shown

anything = st.text(st.characters(exclude_categories=()))


def stored(text: str) -> int:
    return len(json.dumps(text)) - 2


def test_one_line() -> None:
    assert one_line(" two\n\tlines  and\u2028a third ") == "two lines and a third"


@given(anything, st.integers(64, 200))
def test_bounded(text: str, limit: int) -> None:
    """B3: a text is kept if it fits, else its end is, and what was cut is counted."""
    kept = bounded(text, limit)

    assert stored(kept) <= limit
    assert bounded(kept, limit) == kept
    if stored(text) <= limit:
        assert kept == text
    else:
        note, _, end = kept.partition("] ")
        assert text.endswith(end)
        assert note == f"[{len(text) - len(end)} characters cut"


@pytest.mark.parametrize("letter", ["x", "é", "\0", "\ud800", "😀", '"'], ids=ascii)
def test_bounded_is_as_long_as_it_may_be(letter: str) -> None:
    """B3: 600,000 characters of any kind are bounded, to no less than the limit allows."""
    kept = bounded(letter * 600_000)

    assert LIMIT - 2 * stored(letter) - 8 <= stored(kept) <= LIMIT


@given(st.dictionaries(st.text(max_size=20), anything, max_size=30), st.integers(100, 3000))
def test_fitting_map(texts: dict[str, str], limit: int) -> None:
    """B3: named texts fit together, each one's end is kept, and bounding again changes nothing."""
    kept = fitting_map(texts, limit)

    assert len(json.dumps(kept)) <= limit + 2
    assert list(kept) == list(texts)[: len(kept)]
    assert fitting_map(kept, limit) == kept


@pytest.mark.parametrize("number", [1, 5, 100, 4000, 100_000])
def test_many_long_texts(number: int) -> None:
    """B3: however many long texts there are, they fit together; a few of them are all kept."""
    kept = fitting_map(dict.fromkeys((f"stage-{n}" for n in range(number)), "x" * 600_000))

    assert len(json.dumps(kept)) <= MAP_LIMIT
    assert len(kept) == number or len(kept) >= 1000


@given(anything)
def test_printable(text: str) -> None:
    """X1: what is printed is one line without a control character, and can be encoded."""
    line = printable(text)

    assert line.splitlines() in ([], [line])
    assert line.encode().decode() == line
    assert not any(unicodedata.category(char) in ("Cc", "Cs") for char in line)
    if text.isalnum():
        assert line == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x85\x9b\x7f\u2028", "\\x85\\x9b\\x7f\\u2028"),
        ("\ud800 \udcff", "\\ud800 \\udcff"),
        ("\u202eevil", "\\u202eevil"),
        ("größer 😀 C:\\n", "größer 😀 C:\\n"),
    ],
)
def test_what_is_escaped(text: str, line: str) -> None:
    """X1: an escaped character looks as it would in a Python literal; all others stay."""
    assert printable(text) == line


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [10**5000, [10**5000], Hostile(), "x" * 10**6, "\x1b\n\ud800", None],
    ids=["huge", "in a list", "hostile", "long", "controls", "none"],
)
def test_shown(value: Any) -> None:
    """D8: whatever is refused can be named in a message: short, in one line."""
    text = shown(value)

    assert len(text) < 200
    assert printable(text) == text
