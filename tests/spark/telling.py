"""A job that tells where its Spark's configuration comes from."""

from __future__ import annotations

import jrs
from jrs import InvalidInput, Job
from jrs.recovery.spark import session

KEYS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.catalog.my_cat",
    "spark.executorEnv.X_Y",
    "spark.scheduler.mode",
    "spark.ui.enabled",
)


def tell(job: Job) -> dict[str, object]:
    """Return where the session's configuration comes from, and which calls are refused."""
    conf = {"spark.sql.catalog.my_cat": "org.example.Cat", "spark.executorEnv.X_Y": "1"}
    found = jrs.spark(job, conf, spark_sql_shuffle_partitions=3)
    refused = {}
    calls: dict[str, dict[str, str]] = {
        "other": {"spark_sql_shuffle_partitions": "4"},
        "same": {"spark_sql_shuffle_partitions": "3"},
    }
    for name, keywords in calls.items():
        try:
            jrs.spark(job, **keywords)
        except InvalidInput as error:
            refused[name] = str(error)
    try:
        session._check_known(found, ["spark.sql.catalog.my.cat"])
    except InvalidInput as error:
        refused["unknown"] = str(error)
    import in_a_zip  # type: ignore[import-not-found]

    def number(_: int) -> int:
        import in_a_zip

        return int(in_a_zip.NUMBER)

    rdd = found.sparkContext.parallelize([0], 1)
    return {
        "conf": {key: found.sparkContext.getConf().get(key) for key in KEYS},
        "refused": refused,
        "numbers": [in_a_zip.NUMBER, *rdd.map(number).collect()],
    }
