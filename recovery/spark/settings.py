"""jrs's defaults for Spark, used where neither the job nor ``spark-defaults.conf`` sets a value."""

from __future__ import annotations

DEFAULTS = {
    # Each job of a host would need a port; from the seventeenth on Spark would refuse to start.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without it, stopping a query waits for its Python code, however long that takes.
    "spark.sql.streaming.stopTimeout": "10s",
}


_STATE = "spark.sql.streaming.stateStore"


STREAMING = {
    # State grows only by its changes, in files whose names identify the run that wrote them.
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.checkpointFormatVersion": "2",
}


LOCAL = {
    # A host whose own name does not resolve can run local Spark, too.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
