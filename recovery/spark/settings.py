"""Spark's settings, where neither the job nor ``spark-defaults.conf`` has any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


DEFAULTS = {
    # One port for each of a host's jobs; from the seventeenth on Spark would refuse to start.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Without it, stopping a query waits for its Python code for as long as that takes.
    "spark.sql.streaming.stopTimeout": "10s",
}


_STATE = "spark.sql.streaming.stateStore"


STREAMING = {
    # State that grows by what changed, in files whose names say which run wrote them.
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
