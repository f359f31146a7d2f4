"""Registering ``format("jrs")`` with a session of Spark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registering = threading.Lock()
_known: WeakSet[SparkSession] = WeakSet()
"""The sessions that know the format: Spark warns of a second registration."""


def register_format(session: SparkSession) -> None:
    """Have a session know ``format("jrs")``, which reads the output of stages, and the tables of a
    cluster. Idempotent.

    The first call in a session takes Spark about a second, in which it looks for other formats. A
    stream of a job that writes by ``format("jrs")`` makes this call itself.

    **The output of a stage.** The options ``backend``, ``job`` and ``stage`` say what is read: the
    files that `JobHandle.files` returns when the table is loaded; with a schema of your own, when
    it is scanned. ``cluster`` and ``storage`` are as there. ``folder`` chooses one of several
    tables of a stage by its folder in the stage's output, such as ``eu/orders``. The columns are
    those of the newest file of a stream, and of all files of a batch stage; a schema of your own
    names columns in any case, and what a file lacks is null; a column that no file has is refused.
    Of more than 1,000 files only some are searched for a column, and a warning says if none of them
    has it; a batch stage with that many writes needs a schema of your own. Of a stream, ``batch``
    has the number of the batch. The files must be Parquet. The driver needs jrs; executors need
    pyspark and pyarrow, and have to see the jobs' files.

    ``spark.read.parquet(*map(str, job.files(stage).paths))`` reads the same files, and faster, as
    the rows do not pass through Python. Read by it what is new since a cursor.

    **A table of a cluster.** The options ``backend`` and ``table`` say what is read: ``results``,
    ``jobs``, ``stages``, ``attempts``, ``snapshots`` or ``history``; ``cluster`` is as in
    `jrs.connect`. docs/tables.md has their columns. ``job``, ``prefix``, ``status``, ``since`` and
    ``until`` choose jobs, so that fewer are read. Results are read in up to ``partitions`` (2)
    ranges of job ids at a time. Executors need jrs and access to the backend; with ``read`` as
    ``driver`` the rows are read where the query is planned, and have to fit into its memory.

    **The history as a stream.** ``readStream`` with the options ``backend`` and ``table`` as
    ``history`` reads what happens to all jobs and to the cluster, each event once. ``job``,
    ``prefix`` and ``after``, a cursor of `Client.history_after`, choose what is read.

    Example::

        jrs.register_format(spark)
        words = (
            spark.read.format("jrs")
            .options(backend="file:///var/lib/jrs", job="live", stage="words")
            .load()
        )
        results = spark.read.format("jrs").options(backend=url, table="results", status="FAILED")
        results.load().groupBy("code").count().show()
    """
    # They import pyspark, which this module may be imported without.
    from .by_value import sink_by_value
    from .sink import JrsSink

    with _registering:
        if session not in _known:
            with sink_by_value():
                session.dataSource.register(JrsSink)
            _known.add(session)
