"""Damaged folders: no answer is wrong, none is missing, and what cannot be told is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.testing.chaos.damage import NEVER, fuzz


def test_damage_gives_no_wrong_answer() -> None:
    """D2, D4: whatever file is damaged in whatever way, each answer is right or refused, each
    departure is named, and no look-up loops or raises what is no error of ours."""
    tally = fuzz(seed=7, cases=range(300))

    assert tally.counts["cases"] == 300
    assert tally.counts["lookups"] >= 7_000
    assert tally.of(NEVER) == dict.fromkeys(NEVER, 0), str(tally)


def test_zeros_up_into_the_newest_commit() -> None:
    """The kit itself: a block of zeros that ends within the newest commit looks like a crash, since
    nothing behind it says which earlier commits had been synced."""
    tally = fuzz(seed=51, cases=range(6027, 6028))

    assert tally.counts["newest_tail"] == 1
    assert tally.of(NEVER) == dict.fromkeys(NEVER, 0), str(tally)


def test_a_run_is_resumed(tmp_path: Path) -> None:
    """The kit itself: what was evaluated before counts, and is not evaluated again."""
    resume = tmp_path / "damage.jsonl"
    first = fuzz(seed=3, cases=range(10), jobs=60, only="flip", resume=resume)
    kept = resume.read_bytes()
    again = fuzz(seed=3, cases=range(10), jobs=60, only="flip", resume=resume)

    assert again == first
    assert first.counts["cases"] == 10
    assert resume.read_bytes() == kept


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_damage_gives_no_wrong_answer_for_long() -> None:
    """D2, D4: the same, 200,000 damaged folders of it."""
    tally = fuzz(seed=1, cases=range(200_000))

    assert tally.of(NEVER) == dict.fromkeys(NEVER, 0), str(tally)
