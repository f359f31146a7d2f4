"""The hashes of two wide queries, the settings that others see meanwhile, and sinks, as JSON."""

from __future__ import annotations

import json
from typing import Any

from jrs.recovery.spark import queries
from jrs.recovery.spark.plan_hashes import plan_hashes

SETTING = "spark.sql.debug.maxToStringFields"


def main() -> None:
    from plain import session  # type: ignore[import-not-found]  # It lies next to this file.

    spark = session()
    rows = spark.readStream.format("rate").load()
    wide = rows.selectExpr("*", *(f"value + {n} as wide{n}" for n in range(40)))
    seen, real = list[str | None](), queries.printed

    def printed(writer: Any) -> str:
        # What a query gets that another thread starts now.
        seen.append(spark.conf.get(SETTING))
        return real(writer)

    queries.printed = printed
    before = spark.conf.get(SETTING)
    one, other = (
        plan_hashes(wide.selectExpr("*", f"value + {n} as last").writeStream, "/jobs/job")
        for n in (1, 2)
    )
    found = {
        "printed": one.printed == other.printed,
        "query": one.query == other.query,
        "seen": seen,
        "before": before,
        "sinks": [
            (sink.name, sink.path, sink.knows_batches)
            for sink in map(
                queries.sink_of,
                (
                    rows.writeStream.foreachBatch(lambda frame, batch: None),
                    rows.writeStream.foreach(print),
                    rows.writeStream.format("Kafka"),
                    rows.writeStream.option("Path", "hdfs://nn/orders"),
                ),
            )
        ],
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
