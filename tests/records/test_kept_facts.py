"""How much of the facts of a decision an event keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.contract import masks
from jrs.records.checks import size_of_json
from jrs.records.history import CUT, MOST_FACTS, kept_facts
from jrs.recovery.rules.decision import Facts

TEXTS = st.text(max_size=40) | st.integers(0, 3000).map("é".__mul__)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
)


@given(st.dictionaries(TEXTS.filter(lambda name: name != CUT), VALUES, max_size=20))
def test_they_fit_and_are_marked_if_they_are_not_whole(facts: dict[str, Any]) -> None:
    kept = kept_facts(facts)
    assert size_of_json(kept) <= MOST_FACTS
    if size_of_json(facts) <= MOST_FACTS:
        assert kept == facts
    else:
        same = [name for name in facts if name in kept and kept[name] == facts[name]]
        assert kept[CUT] == len(facts) - len(same) > 0


def test_long_texts_are_shortened_before_anything_is_left_out() -> None:
    facts = {"spec": "readable", "why": "x" * 9000, "seen": ["y" * 9000, {"z": "z" * 9000}]}
    kept = kept_facts(facts)
    assert kept == {
        "spec": "readable",
        "why": "x" * 512 + "…",
        "seen": ["y" * 512 + "…", {"z": "z" * 512 + "…"}],
        CUT: 2,
    }


def test_then_the_largest_are_left_out() -> None:
    kept = kept_facts({"numbers": [*range(900)], "few": [*range(90)], "spec": "readable"})
    assert kept == {"few": [*range(90)], "spec": "readable", CUT: 1}


def test_no_part_of_a_secret_is_left() -> None:
    """A text is cut where it is masked: what is left of a secret would not be recognized."""
    reveal = masks.hide(["s" * 40])
    try:
        kept = kept_facts({"why": "x" * 1000 + "s" * 40 + "y" * 5000})
    finally:
        reveal()
    assert "s" not in str(kept["why"])


def test_the_mark_is_no_fact() -> None:
    """So that what is left of facts is never taken for all of them."""
    with pytest.raises(ValueError, match="unknown facts: cut"):
        Facts.from_plain({CUT: 1})
