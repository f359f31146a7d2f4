"""What Spark's Python workers have to import."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_imports_the_sink_and_nothing_else() -> None:
    """Each batch starts Python workers that import the sink: of jrs they load that one module, what
    syncs a file, and the packages around them, which are empty."""
    code = "import sys, jrs.recovery.spark.sink; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert {name for name in done.stdout.split() if name.split(".")[0] == "jrs"} == {
        "jrs",
        "jrs.recovery",
        "jrs.recovery.files",
        "jrs.recovery.files.sync",
        "jrs.recovery.spark",
        "jrs.recovery.spark.sink",
    }
