"""The Spark side: a job's SparkSession. The only place that imports pyspark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from jrs.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jrs.recovery.job import Job

_DEFAULTS = {
    # A driver that fails over is judged by how long its JVM takes to start.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_starting = threading.Lock()


def session(job: Job, **conf: str) -> SparkSession:
    """Return the SparkSession of the job's attempt: started once, named after the job.

    The calling thread's Spark jobs get the job group and the tag ``jrs-<job id>``, so that they can
    be canceled together. `conf` (``spark_sql_shuffle_partitions="8"`` sets
    ``spark.sql.shuffle.partitions``) counts only for the call that starts the session; defaults of
    jrs give way to it and to ``spark-defaults.conf``.

    Raises:
        InvalidInput: pyspark is not installed.
    """
    try:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidInput("this job needs Spark: pip install 'jrs[spark]'") from error
    with _starting:
        found = SparkSession.getActiveSession()
        if found is None:
            given = SparkConf()
            for key, value in _DEFAULTS.items():
                given.setIfMissing(key, value)
            for key, value in conf.items():
                given.set(key.replace("_", "."), value)
            builder = SparkSession.builder.config(conf=given).appName(f"jrs {job.job_id}")
            found = builder.getOrCreate()
    context = found.sparkContext
    name = f"jrs-{job.job_id}"
    context.setJobGroup(name, f"job {job.job_id}, attempt {job.attempt}", interruptOnCancel=True)
    context.addJobTag(name)
    return found


def cancel_work(job_id: str) -> None:
    """Cancel the Spark jobs of a job that runs in this process; harmless if there are none."""
    import sys

    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is not None:
        context.cancelJobGroup(f"jrs-{job_id}")
