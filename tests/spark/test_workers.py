"""What Spark's Python workers have to import."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_imports_the_sink_and_little_else() -> None:
    """Each batch starts Python workers that import the sink: they load no catalogue, no backend."""
    code = "import sys, jrs.recovery.spark.sink; print(*(m for m in sys.modules if 'jrs' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())
    assert "jrs.recovery.spark.sink" in loaded
    assert (
        loaded
        & {
            "jrs.contract.backend",
            "jrs.records.codec",
            "jrs.records.model",
            "jrs.recovery.snapshots",
        }
        == set()
    )
