"""Jobs with streams that share one SparkSession: their driver's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from . import events
from .support import BOUND

SCRIPT = Path(__file__).with_name("sharing.py")


def test_two_jobs_name_their_stages_alike(tmp_path: Path) -> None:
    """Two jobs of one driver, at work at once, may give their stages the same names."""
    rows = events.write(tmp_path / "in", 3)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), (tmp_path / "store").as_uri(), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=BOUND,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [len(rows)] * 2
