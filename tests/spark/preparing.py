"""Prepare sessions: take one with a configuration that it can have, and one with another, and
discard one.

python preparing.py: prints, as JSON, what became of it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from jrs.recovery.attempt.warm_plan import WarmPlan
from jrs.recovery.processes import marks
from jrs.recovery.spark import configuration, host_configuration, jvm, prepared

PARTITIONS, JOINS = "spark.sql.shuffle.partitions", "spark.sql.autoBroadcastJoinThreshold"


def main() -> None:
    os.environ[marks.MARK] = "mark"
    found = host_configuration.settings_found(os.environ)

    def complete(conf: dict[str, str]) -> dict[str, str]:
        return configuration.complete({"spark.app.name": "jrs job", **conf}, found, shared=False)

    prepared.prepare(WarmPlan({PARTITIONS: "7", JOINS: "-1"}))
    place = Path(os.environ["SPARK_LOCAL_DIRS"], f"jrs-scratch-{os.getuid()}", "attempt-mark")
    first = prepared.take(complete({PARTITIONS: "3"}), found)
    assert first is not None
    usual = first.conf.get(JOINS)
    said = {
        "partitions": first.conf.get(PARTITIONS),
        "joins": usual,
        "rows": first.range(10).count(),
        "scratch": any(place.glob("blockmgr-*")),
        "waiting": prepared.is_waiting(),
    }
    prepared.prepare(WarmPlan({}))
    said["another"] = prepared.take(complete({"spark.driver.memory": "700m"}), found) is None
    said["lives"] = jvm.exit_status() is None
    fresh = configuration.start(
        complete({"spark.driver.memory": "700m"}), found, (place,), shared=False
    )
    said["memory"] = fresh.sparkContext.getConf().get("spark.driver.memory")
    fresh.stop()
    jvm.end()
    prepared.prepare(WarmPlan({}))
    prepared.discard()
    said["discarded"] = jvm.exit_status() is None and not prepared.is_waiting()
    print(json.dumps(said))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
