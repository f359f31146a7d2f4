"""jrs's defaults of Spark's configuration.

They are used where neither the job nor ``spark-defaults.conf`` sets a value.
"""

from __future__ import annotations

DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    # Without it, stopping a query waits for its Python code, however long that takes.
    "spark.sql.streaming.stopTimeout": "10s",
}

_STATE = "spark.sql.streaming.stateStore"
STATE_FORM = f"{_STATE}.checkpointFormatVersion"
"""2: the names of the state's files have a unique id of the run that wrote them; 1: they do not."""

STREAMING = {
    # State grows only by its changes, in files whose names identify the run that wrote them.
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    STATE_FORM: "2",
}

LOCAL = {
    # Each job of a host would need a port; from the seventeenth on Spark would refuse to start.
    "spark.ui.enabled": "false",
    # A host whose own name does not resolve can run local Spark, too.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""For executors on the driver's host."""

CLUSTER = {
    # Any free port: see above. `jrs show` has the address.
    "spark.ui.port": "0",
    # Executors of a driver that is cut off hold their cores that many heartbeats of 10 s. Spark's
    # default is 60; the next attempt would wait for ten minutes.
    "spark.executor.heartbeat.maxFailures": "6",
}
"""For executors on other hosts."""
