"""A chaos test of a streaming job: the page's example, as a reader would run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.page import run_example, save_examples


@pytest.mark.spark
def test_a_stream(tmp_path: Path) -> None:
    """The leader is killed when a batch is committed; the rows are there, each once."""
    save_examples(tmp_path)
    status, printed = run_example(tmp_path, "test_stream.py")

    assert status == 0, printed
