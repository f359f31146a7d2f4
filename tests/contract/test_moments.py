"""Moments as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jrs.contract.errors import InvalidInput
from jrs.contract.moments import moment

NOW = datetime(2026, 11, 20, 14, 3, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90s", "2026-11-20T14:02:00"),
        ("1.5h", "2026-11-20T12:33:30"),
        ("0", "2026-11-20T14:03:30"),
        ("14:03", "2026-11-20T14:03"),
        ("14:03:30", "2026-11-20T14:03:30"),
        ("14:04", "2026-11-19T14:04"),  # It lies ahead today.
        ("00:00", "2026-11-20"),
        ("23:59:59.5", "2026-11-19T23:59:59.5"),
        ("15:03+01:00", "2026-11-20T14:03"),
        ("00:30+11:00", "2026-11-20T13:30"),  # The day has begun there already.
        ("09:03:31-05:00", "2026-11-19T14:03:31"),
        ("2026-11-20", "2026-11-20"),
        ("2026-11-20T18:30", "2026-11-20T18:30"),
        ("2026-11-20T18:30+02:00", "2026-11-20T16:30"),
    ],
)
def test_moments(text: str, meant: str) -> None:
    """Ages, times of day and dates, in UTC unless they name another offset."""
    expected = datetime.fromisoformat(meant).replace(tzinfo=UTC).timestamp()
    assert moment("--at", text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "24:61", "7:5", "14:", "-1h", "14:03 pm", "1403:", "9" * 400, "106752d"],
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"--at is no time: .*write 90s, 12h or 7d, 14:03, "):
        moment("--at", text, NOW)


@pytest.mark.parametrize("text", ["20261129", "1795831459.5"])
def test_a_number_that_is_meant_as_a_date(text: str) -> None:
    """Without a unit it would be an age of months or years."""
    with pytest.raises(InvalidInput, match="would be an age"):
        moment("--since", text, 2e9)
    assert moment("--since", f"{text}s", 2e9) == 2e9 - float(text)
