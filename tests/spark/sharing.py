"""A driver two of whose jobs run at once in its session, with a stage of the same name each.

python sharing.py URL FOLDER
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jrs
from jrs.records.model import Json

url, folder = sys.argv[1], Path(sys.argv[2])
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = "at timestamp, key string, value long"


def count(job: jrs.Job) -> Json:
    session = jrs.spark(job, spark_driver_extraJavaOptions=QUICK, spark_sql_shuffle_partitions="2")

    def build(stage: Any) -> Any:
        rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return rows.json(stage.files(folder / "in")).writeStream.format("jrs")

    stages = [job.stream("rows", build, bounded=True), job.stream("again", build, bounded=True)]
    for stage in stages:
        stage.result()
    return session.read.parquet(str(stages[0].output)).count()


def main(driver: jrs.Driver) -> Json:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda name: driver.run(name, count), ["one", "two"]))


print(json.dumps(jrs.run(main, url, name="main", storage=folder / "files")), flush=True)
