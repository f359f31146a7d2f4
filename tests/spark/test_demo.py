"""The demo, whole: a user's first command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .support import BOUND


@pytest.mark.timeout(600)
def test_the_demo(tmp_path: Path) -> None:
    """`jrs demo` kills two leaders, recovers, cleans up and skips, says that all results are equal,
    and leaves nothing behind.
    """
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        timeout=2 * BOUND,
    )
    shown = done.stdout

    assert done.returncode == 0, shown + done.stderr
    assert shown.count("kill -9 m") == 2
    for said in (
        "recover   it has no result and no attempt is running",
        "clean up  it has ended, but its resources are not cleaned up",
        "skip      its result is clean; a left-over spec is swept",
        "ingest was finished in attempt 1: skipped",
        "EQUAL: all 3 results",
    ):
        assert said in shown
    assert list(tmp_path.iterdir()) == []


def test_the_demo_without_java(tmp_path: Path) -> None:
    """Without Java the demo says in one line how to get it, exits 2 and leaves nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "jrs", "demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "JAVA_HOME": str(tmp_path)},
        timeout=BOUND,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("jrs: Spark needs Java 17")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
