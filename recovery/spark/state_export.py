"""The state of a streaming query, read through Spark: the content of a ``logical`` snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jrs.contract.errors import InvalidInput, Unavailable

from ..checkpoint_format import commit_log
from ..checkpoint_format.checkpoint import commit_of
from .configuration import require_java
from .defaults import DEFAULTS, LOCAL, STATE_FORM
from .error_reasons import may_pass, why
from .host_configuration import MASTER

# Imported inside functions: pyspark, since most masters and clients have no use for it.


def export_state(checkpoint: Path, batch: int, target: Path, *, spark: Any = None) -> None:
    """Write the rows of every stateful operator at a batch as Parquet: ``<target>/<op>/<store>/``.

    Args:
        spark: the session to use; None to use the process's own, or start one.

    Raises:
        InvalidInput: pyspark or Java is not installed, no session can start, or its Spark cannot
            read the state.
        Unavailable: no session can start now: a disk is full, or similar.
        UnreadableCheckpoint: the batch's commit cannot be read.
    """
    if not (checkpoint / "state").is_dir():
        return
    spark = _reader(spark or _session(), checkpoint, batch)
    from pyspark.errors import PySparkException

    where = str(checkpoint)
    try:
        operators = (
            spark.read.format("state-metadata")
            .load(where)
            .select("operatorId", "stateStoreName")
            .distinct()
            .collect()
        )
        for operator, store in sorted((row[0], row[1]) for row in operators):
            reader = spark.read.format("statestore").option("operatorId", operator)
            rows = reader.option("batchId", batch).option("storeName", store).load(where)
            rows.write.parquet(str(target / str(operator) / store))
    except PySparkException as error:
        says = str(error).splitlines()[0]
        raise InvalidInput(f"Spark cannot read the state of {checkpoint}: {says}") from error


def _reader(spark: Any, checkpoint: Path, batch: int) -> Any:
    """Return a session that reads the form of state which the checkpoint has. Spark takes the form
    from the session's settings, and does not record it in the checkpoint."""
    reader = spark.newSession()
    commit = commit_log.read(checkpoint / commit_of(batch))
    reader.conf.set(STATE_FORM, "2" if commit.state_ids else "1")
    return reader


def _session() -> Any:
    require_java()
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidInput("a logical snapshot needs Spark: pip install 'jrs[spark]'") from error
    # The files are on this host: a cluster that its configuration names has nothing to read.
    conf = {**DEFAULTS, **LOCAL, MASTER: "local[*]"}
    try:
        return SparkSession.builder.appName("jrs snapshot").config(map={**conf}).getOrCreate()
    except Exception as error:
        kind = Unavailable if may_pass(error) else InvalidInput
        raise kind(f"Spark cannot start for a snapshot: {why(error)}") from error
