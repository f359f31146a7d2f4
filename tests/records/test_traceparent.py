"""The W3C's traceparent: what is malformed is ignored."""

from __future__ import annotations

import pytest

from jrs.records.traceparent import of_job, parts, valid

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (GOOD, GOOD),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"cc-{TRACE}-{SPAN}-01", GOOD),
        (f"cc-{TRACE}-{SPAN}-01-more", GOOD),
        (f"ff-{TRACE}-{SPAN}-01", ""),
        (f"{GOOD}-more", ""),
        (f"{GOOD}\n", ""),
        (GOOD.upper(), ""),
        (f"00-{'0' * 32}-{SPAN}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE}-{SPAN}", ""),
        ("nonsense", ""),
        ("\x1b[31m" * 100, ""),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_what_is_valid(text: object, found: str) -> None:
    """What is not is as if there were none."""
    assert valid(text) == found


def test_the_trace_of_a_job() -> None:
    """It is that of the submitter; else one that only the names of cluster and job decide."""
    named = of_job("", "c", "j")

    assert of_job(GOOD, "c", "j") == GOOD
    assert of_job("nonsense", "c", "j") == of_job("", "c", "j")
    assert valid(named) == named == of_job("", "c", "j")
    assert len({of_job("", *name) for name in [("c", "j"), ("c", "k"), ("d", "j")]}) == 3
    assert parts(GOOD) == (int(TRACE, 16), int(SPAN, 16), 1)
