"""The checks of a history find the same on Spark as in plain Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .support import BOUND

SCRIPT = Path(__file__).with_name("chaos_checking.py")


def judged(folder: Path, histories: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(histories)],
        capture_output=True,
        text=True,
        timeout=3 * BOUND,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_verdicts_on_spark_are_those_in_plain_python(tmp_path: Path) -> None:
    """Histories with and without faults, in one job."""
    found = judged(tmp_path, 300)

    assert found["differ"] == []
    assert found["broken"] == 225
    assert len(found["fired"]) == 11, "each check finds something"
    assert found["of_files"] == [
        "linearizable: version 3 of lost was written by nobody",
        "all_ended: d1 had not ended ? s after the faults, with timeout=?",
    ]


@pytest.mark.soak
@pytest.mark.timeout(4 * BOUND)
def test_ten_thousand_verdicts(tmp_path: Path) -> None:
    found = judged(tmp_path, 10_000)

    assert found["differ"] == []
    assert found["broken"] > 6_000
