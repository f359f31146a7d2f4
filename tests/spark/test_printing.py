"""The hashes of a query's plan, of a real Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .support import BOUND

ROOT = Path(__file__).parents[2]


def test_settings_with_which_a_plan_is_printed() -> None:
    """The whole plan counts, and no query that starts meanwhile gets the settings for it. The sinks
    of real writers are known."""
    program = "tests/spark/printing.py"
    done = subprocess.run(
        [sys.executable, program], cwd=ROOT, capture_output=True, text=True, timeout=BOUND
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])

    assert (found["printed"], found["query"]) == (True, False)
    assert found["seen"] == [found["before"]] * 4
    assert found["sinks"] == [
        ["foreachBatch", "", False],
        ["foreach", "", True],
        ["kafka", "", False],
        ["parquet", "hdfs://nn/orders", True],
    ]
