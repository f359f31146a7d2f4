"""What a job sets of Spark's configuration: by its settings, and by its code."""

from __future__ import annotations

from collections.abc import Mapping

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import shown
from jrs.records.settings import JobSettings, check_conf_key

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
