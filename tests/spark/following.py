"""A query that copies the history of a cluster to files as it is committed, until a file exists."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jrs


def main(url: str, folder: Path) -> None:
    from plain import session  # type: ignore[import-not-found]  # It lies next to this file.

    spark = session()
    jrs.register_format(spark)
    query = (
        spark.readStream.format("jrs")
        .options(backend=url, table="history")
        .load()
        .writeStream.format("json")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "rows"))
    )
    while not (folder / "enough").exists():
        if (error := query.exception()) is not None:
            raise error
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
    rows = spark.read.json(str(folder / "rows"))
    rows.coalesce(1).write.json(str(folder / "all"))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
