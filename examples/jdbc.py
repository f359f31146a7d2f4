"""A stream into PostgreSQL, each row once: the rows' transaction says which batch they are.

    export JRS_BACKEND=file:///tmp/jrs-payments
    jrs master &
    jrs submit payments-1 examples/jdbc.py:payments --arg source=/data/payments \\
        --arg url=jdbc:postgresql://localhost/shop?user=etl

The password belongs in the file that PostgreSQL's driver reads, ``~/.pgpass``. The driver is
Debian's ``libpostgresql-jdbc-java``.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import jrs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DRIVER = "/usr/share/java/postgresql.jar"
TABLES = (
    "CREATE TABLE IF NOT EXISTS payments"
    " (id bigint, customer bigint, cents bigint, job text, batch bigint)",
    "CREATE TABLE IF NOT EXISTS progress"
    " (job text PRIMARY KEY, epoch bigint, generation bigint, batch bigint)",
)
RESERVE = """
    INSERT INTO progress AS done VALUES (?, ?, ?, ?) ON CONFLICT (job) DO UPDATE
    SET epoch = excluded.epoch, generation = excluded.generation, batch = excluded.batch
    WHERE done.epoch <= excluded.epoch
    AND (done.generation, done.batch) < (excluded.generation, excluded.batch)
"""
"""Changes no row if the batch is in the table already, or if a newer leader has written one."""
TAKE_BACK = "DELETE FROM payments WHERE job = ? AND batch >= ?"
"""Deletes what the table has of batches that a restore has taken back."""
DROP_LEFT_OVER = """
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE starts_with(tablename, '{prefix}') LOOP
            EXECUTE format('DROP TABLE IF EXISTS %I', name);
        END LOOP;
    END $$
"""
"""Drops the tables that an attempt which was killed has left."""


def payments(job: jrs.Job, source: str, url: str) -> Any:
    """Write each row of the JSON files in `source` into the table `payments`, once."""
    spark = session(job)
    for statement in (*TABLES, DROP_LEFT_OVER.format(prefix=staging(job))):
        execute(spark, url, statement)

    def build(stage: jrs.StreamStage) -> DataStreamWriter:
        reader = spark.readStream.schema("id long, customer long, cents long")
        rows = reader.option("maxFilesPerTrigger", 1).json(stage.files(source))
        generation = stage.generation
        return rows.writeStream.foreachBatch(
            lambda frame, batch: write(job, frame, generation, batch, url)
        )

    return job.stream("payments", build, bounded=True).result()


def session(job: jrs.Job) -> SparkSession:
    """Return the session; the JVM's own class path has the driver, for `DriverManager`."""
    return jrs.spark(job, spark_driver_extraClassPath=DRIVER)


def write(job: jrs.Job, frame: DataFrame, generation: int, batch: int, url: str) -> None:
    """Add a batch to the table, in one transaction with its epoch, generation and number.

    Executors write the rows to a table of this attempt's own first: a transaction has one
    connection.
    """
    spark = frame.sparkSession
    own = f"{staging(job)}{job.epoch}_{job.attempt}_{batch}"
    frame.write.jdbc(url, own, mode="overwrite")
    try:
        execute(
            spark,
            url,
            (RESERVE, job.job_id, job.epoch, generation, batch),
            (TAKE_BACK, job.job_id, batch),
            (
                f"INSERT INTO payments SELECT id, customer, cents, ?, ? FROM {own}",
                job.job_id,
                batch,
            ),
        )
    finally:
        execute(spark, url, f"DROP TABLE {own}")


def staging(job: jrs.Job) -> str:
    """Return what the names of the job's own tables begin with."""
    return f"staging_{zlib.crc32(job.job_id.encode()):08x}_"


def execute(spark: SparkSession, url: str, *statements: str | tuple[Any, ...]) -> None:
    """Run statements in one transaction; leave the rest out if the first one has parameters and no
    effect.

    `spark._jvm` is private to PySpark, but the way to a JDBC connection that needs no package.
    """
    connection = spark._jvm.java.sql.DriverManager.getConnection(url)  # type: ignore[union-attr]
    try:
        connection.setAutoCommit(False)
        for number, statement in enumerate(statements):
            text, *values = (statement,) if isinstance(statement, str) else statement
            prepared = connection.prepareStatement(text)
            for place, value in enumerate(values, 1):
                prepared.setObject(place, value)
            if prepared.executeUpdate() == 0 and values and number == 0:
                return
        connection.commit()
    finally:
        connection.close()  # What was not committed is rolled back.
