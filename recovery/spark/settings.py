"""Spark's configuration: what a job sets, and jrs's defaults.

jrs's defaults are used where neither the job nor ``spark-defaults.conf`` sets a value.
"""

from __future__ import annotations

from collections.abc import Mapping

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.settings import JobSettings, check_conf_key


def conf_of(settings: JobSettings) -> dict[str, str]:
    """Return the configuration that a job's settings stand for."""
    conf = dict(settings.conf)
    for key, more in (("spark.jars.packages", settings.packages), ("spark.jars", settings.jars)):
        if more:
            conf[key] = ",".join(filter(None, (conf.get(key, ""), *more)))
    return conf


def given_by_code(
    conf: Mapping[str, object] | None, keywords: Mapping[str, object]
) -> dict[str, str]:
    """Return the configuration that a job's code gives as a mapping, as keywords, or both.

    Raises:
        InvalidInput: a key cannot be one of Spark's, or is given twice; a value is no text, number
            or flag.
    """
    if conf is not None and not isinstance(conf, Mapping):
        raise InvalidInput(f"the configuration must be a mapping, not {shown(conf)}")
    found: dict[str, str] = {}
    for name, value in keywords.items():
        if not name.startswith("spark_"):
            raise InvalidInput(
                f"not a key of Spark's configuration: {name}; write {{'spark.…': …}}, or a keyword "
                "such as spark_sql_shuffle_partitions"
            )
        found[dotted(name)] = _text(name, value)
    for key, value in (conf or {}).items():
        if not isinstance(key, str):
            raise InvalidInput(f"not a key of Spark's configuration: {shown(key)}")
        check_conf_key(key)
        if key in found:
            raise InvalidInput(f"{key} is given twice")
        found[key] = _text(key, value)
    return found


def dotted(keyword: str) -> str:
    """Return the key that a keyword stands for, if no part of the key has an underscore."""
    return keyword.replace("_", ".")


def _text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise InvalidInput(f"the value of {key} must be a text, a number or a flag, not "
                           f"{shown(value)}")  # fmt: skip
    return str(value)


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


PLAIN = frozenset(
    {
        "spark.app.name",
        "spark.home",
        "spark.jars",
        "spark.local.dir",
        "spark.master",
    }
)
"""Keys that Spark reads without declaring them."""
