"""Masks: the values of secrets in texts and in streams."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jrs.contract import masks
from jrs.contract.texts import bounded, printable
from jrs.recovery.attempt.runners import AttemptExit

KEY = "-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----\n"
VALUES = ("hunter2", 'a "quoted" \\ one', KEY, "hunter2-and-more")


@pytest.fixture(autouse=True)
def hidden() -> Iterator[None]:
    """The values of two jobs, which have one in common."""
    ends = [masks.hide(VALUES), masks.hide(["hunter2"])]
    yield
    for end in ends:
        end()
    assert masks.masked("hunter2") == "hunter2"


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_masked_however_it_is_written(value: str) -> None:
    """U17: as it is, as JSON, as a literal of Python, in how an attempt ended and on a terminal."""
    for form in (value, json.dumps(value), repr(value), repr(value.encode())):
        for shown in (masks.masked(form), bounded(form), printable(form)):
            assert "***" in shown
            assert "hunter2" not in shown
            assert "abcdefgh" not in shown
    ended = AttemptExit(f"ValueError: {value}", detail=f"Traceback\n{value}")

    assert "***" in ended.message
    assert value not in ended.detail


def test_a_value_stays_hidden_while_one_job_has_it() -> None:
    """U17: the end of one job does not show the secret of another one."""
    masks.hide(["hunter2"])()

    assert masks.masked("hunter2") == "***"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_a_stream_is_masked_wherever_it_is_cut(sizes: list[int]) -> None:
    """U17: no part that is passed on shows a value, and everything else is passed on."""
    text = b"a hunter2 b hunter2-and-more c hunt" * 3
    stream, passed, at = masks.Stream(), b"", 0
    for size in sizes:
        passed += stream.feed(text[at : at + size])
        at += size
        assert b"hunter2" not in passed
    passed += stream.feed(text[at:]) + stream.rest()

    assert b"hunter2" not in passed
    assert passed.replace(b"***", b"") == b"a  b  c hunt" * 3 or b"***-and-more" in passed
