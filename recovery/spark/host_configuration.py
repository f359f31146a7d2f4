"""Spark's configuration on this host: spark-defaults.conf, PYSPARK_SUBMIT_ARGS, environment
variables."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from jrs.contract.errors import CannotStartHere, InvalidInput
from jrs.records.settings import properties_in

# Imported inside functions: pyspark, since attempts without Spark load this module, too.

MASTER = "spark.master"
CONF_DIR = "SPARK_CONF_DIR"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_API = "SPARK_API_MODE"
_CONNECT = (
    "Spark Connect: jrs needs a driver of its own, with its JVM, to fence what a replaced driver "
    "writes"
)


def settings_found(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Spark finds by itself, where a job sets nothing.

    They are those of ``spark-defaults.conf``, of ``PYSPARK_SUBMIT_ARGS``, and ``MASTER``. Settings
    that a session is given would hide them.

    Raises:
        CannotStartHere: what this host has cannot be read.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    parser.add_argument("--master")
    parser.add_argument("--remote")
    parser.add_argument("--properties-file", type=Path)
    try:
        given, _ = parser.parse_known_args(shlex.split(environment.get(_ARGUMENTS, "")))
    except (argparse.ArgumentError, ValueError) as error:
        raise CannotStartHere(f"{_ARGUMENTS} cannot be read: {error}") from None
    found = {}
    if "MASTER" in environment:
        found[MASTER] = environment["MASTER"]
    found |= _in_file(given.properties_file or _defaults(environment))
    found |= dict(one.split("=", 1) for one in given.conf if "=" in one)
    if given.master is not None:
        found[MASTER] = given.master
    if given.remote is not None:
        found["spark.remote"] = given.remote
    return found


def _in_file(path: Path | None) -> dict[str, str]:
    try:
        if path is None or not path.is_file():
            return {}
        text = path.read_text("utf-8", errors="replace")  # As Spark does.
    except OSError as error:
        raise CannotStartHere(f"{path} cannot be read: {error.strerror}") from None
    return properties_in(text)


def _defaults(environment: Mapping[str, str]) -> Path | None:
    try:
        home = environment.get("SPARK_HOME") or spark_home()
    except ImportError:
        home = None  # The doctor says that there is no pyspark.
    folder = configuration_folder(environment, home)
    return folder and folder / "spark-defaults.conf"


def configuration_folder(environment: Mapping[str, str], home: str | Path | None) -> Path | None:
    """Return the folder of Spark's configuration files, which need not exist."""
    folder = environment.get(CONF_DIR) or (home and os.path.join(home, "conf"))
    return Path(folder) if folder else None


def spark_home() -> Path:
    """Return the home of the Spark that pyspark starts. It needs pyspark."""
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def master_of(conf: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return the master that a session with this configuration has."""
    return conf.get(MASTER) or found.get(MASTER) or "local[*]"


def is_local(master: str) -> bool:
    """Return whether the executors of this master run on this host."""
    return master.startswith("local")


def refuse_connect(
    conf: Mapping[str, str], found: Mapping[str, str], environment: Mapping[str, str]
) -> None:
    """Refuse a session of Spark Connect, whose driver is a server that outlives the attempt.

    Raises:
        InvalidInput: the job asks for one.
        CannotStartHere: this host's environment does.
    """
    if why := _connects(conf):
        raise InvalidInput(f"{why} is {_CONNECT}: name a master, such as local[*] or spark://…")
    asks = {name for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED") if name in environment}
    if environment.get(_API, "classic").lower() != "classic":
        asks.add(_API)
    if asks:
        raise CannotStartHere(f"{min(asks)} is set on this host, which is {_CONNECT}: unset it")
    if MASTER not in conf and (why := _connects(found)):
        raise CannotStartHere(f"this host's Spark has {why}, which is {_CONNECT}: remove it")


def _connects(conf: Mapping[str, str]) -> str:
    """Return the setting that asks for Spark Connect; empty if none does."""
    if "spark.remote" in conf:
        return f"spark.remote={conf['spark.remote']}"
    if conf.get("spark.api.mode", "").lower() == "connect":
        return "spark.api.mode=connect"
    if conf.get(MASTER, "").startswith("sc://"):
        return f"{MASTER}={conf[MASTER]}"
    return ""
