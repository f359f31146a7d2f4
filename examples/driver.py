"""A driver that survives its own death. Start it twice, with one backend:

    python examples/driver.py file:///tmp/jrs-driver 2026-11-20 &
    python examples/driver.py file:///tmp/jrs-driver 2026-11-20

One replica leads and runs `main`. Kill it with kill -9: `main` begins again on the other, and each
`driver.run` that had ended returns its stored result at once. Both print the same answer. Another
day is another run.
"""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

import jrs


def load(job: jrs.Job, n: int) -> dict[str, Any]:
    """A job of one stage: its output stays, its result is what the next job needs."""

    def write(stage: jrs.Stage) -> int:
        job.spark.range(n).selectExpr("id", "id % 10 AS bucket").write.parquet(
            str(stage.output / "rows")
        )
        return n

    written = job.stage("write", write)
    return {"rows": written.result(), "path": str(written.output / "rows")}


def count(job: jrs.Job, path: str) -> dict[str, int]:
    """A job without stages: it runs from its beginning if its leader dies, and once if not."""
    counts = job.spark.read.parquet(path).groupBy("bucket").count().orderBy("bucket").collect()
    return {str(row["bucket"]): row["count"] for row in counts}


def main(driver: jrs.Driver, day: str) -> dict[str, Any]:
    """Run the jobs in order. The job ids make them the same jobs after a failover."""
    loaded = driver.run(f"load-{day}", load, n=100_000)
    counted = driver.run(f"count-{day}", count, path=loaded["path"])
    return {"rows": loaded["rows"], "buckets": counted}


if __name__ == "__main__":
    backend = sys.argv[1] if len(sys.argv) > 1 else "file:///tmp/jrs-driver"
    day = sys.argv[2] if len(sys.argv) > 2 else str(datetime.date.today())
    found = jrs.run(main, backend, name=f"example-{day}", arguments={"day": day}, cluster="driver")
    print(json.dumps(found))
