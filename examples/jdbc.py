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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
REPEATED = """
    UPDATE progress SET epoch = ?
    WHERE job = ? AND epoch <= ? AND generation = ? AND batch = ?
"""
TAKE_BACK = "DELETE FROM payments WHERE job = ? AND batch >= ?"
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
        with transaction(spark, url) as run:
            add(run, job.job_id, job.epoch, generation, batch, own)
    finally:
        execute(spark, url, f"DROP TABLE {own}")


def add(
    run: Callable[..., int], job: str, epoch: int, generation: int, batch: int, rows: str
) -> None:
    """Copy a batch from the table `rows`, unless `payments` has it already.

    Args:
        run: runs a statement with these values, in one transaction; returns how many rows it
            changed.

    Raises:
        RuntimeError: `progress` has a later batch, or that of a newer leader.
    """
    if run(RESERVE, job, epoch, generation, batch):
        run(TAKE_BACK, job, batch)
        columns = "id, customer, cents"
        run(f"INSERT INTO payments SELECT {columns}, ?, ? FROM {rows}", job, batch)
    elif not run(REPEATED, epoch, job, epoch, generation, batch):
        raise RuntimeError(
            f"batch {batch} of {job}, generation {generation}, is not written in epoch {epoch}: "
            "progress has a newer epoch or a later batch. Either a newer leader has replaced this "
            "attempt, or the row is of another cluster or of after a backup: see docs/recipes.md"
        )


def staging(job: jrs.Job) -> str:
    """Return what the names of the job's own tables begin with."""
    return f"staging_{zlib.crc32(job.job_id.encode()):08x}_"


def execute(spark: SparkSession, url: str, statement: str) -> None:
    """Run a statement in a transaction of its own."""
    with transaction(spark, url) as run:
        run(statement)


@contextmanager
def transaction(spark: SparkSession, url: str) -> Iterator[Callable[..., int]]:
    """Yield what runs a statement and returns how many rows it changed; commit at the end.

    `spark._jvm` is private to PySpark, but the way to a JDBC connection that needs no package.
    """
    connection = spark._jvm.java.sql.DriverManager.getConnection(url)  # type: ignore[union-attr]

    def run(statement: str, *values: Any) -> int:
        prepared = connection.prepareStatement(statement)
        for place, value in enumerate(values, 1):
            prepared.setObject(place, value)
        return int(prepared.executeUpdate())

    try:
        connection.setAutoCommit(False)
        yield run
        connection.commit()
    finally:
        connection.close()  # What was not committed is rolled back.
