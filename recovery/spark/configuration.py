"""The configuration of a session, and starting one by it.

A session may be started before there is a job for it. So what it is started with is put together in
two steps: what a job and its host decide, by which two sessions are compared, and what only the
process decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.contract.errors import CannotStartHere
from jrs.host import credentials, environment

from ..attempt.scratch import LOCAL_DIRS
from ..files import permissions
from . import class_data, host_configuration, jvm, numpy_converters, worker_python
from .defaults import CLUSTER, DEFAULTS, LOCAL, STREAMING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Imported inside functions: pyspark, since attempts without Spark load this module, too.

NAME = "spark.app.name"
LOCAL_DIR = "spark.local.dir"
_PYTHON = "spark.pyspark.python"
_UMASK = "spark.hadoop.fs.permissions.umask-mode"
_JAVA = "spark.driver.defaultJavaOptions"


def complete(given: Mapping[str, str], found: Mapping[str, str], *, shared: bool) -> dict[str, str]:
    """Return what a session is started with: what is given, and jrs's defaults.

    Args:
        given: by the job.
        found: what Spark finds by itself on this host.
        shared: whether the group of the storage may change what the session makes.

    Raises:
        InvalidInput, CannotStartHere: it would be a session of Spark Connect.
    """
    host_configuration.refuse_connect(given, found, os.environ)
    on_host = host_configuration.is_local(host_configuration.master_of(given, found))
    defaults = {**DEFAULTS, **(LOCAL if on_host else CLUSTER)}
    if not any(key in found or key in given for key in STREAMING):
        defaults |= STREAMING  # Together or not at all: other stores do not know version 2.
    if shared:
        # Hadoop sets the permissions of what it creates, whatever the process's umask is.
        defaults[_UMASK] = "007"
    return {**{key: value for key, value in defaults.items() if key not in found}, **given}


def start(
    conf: Mapping[str, str],
    found: Mapping[str, str],
    scratch: tuple[Path, ...],
    *,
    shared: bool,
    java: str = "",
) -> SparkSession:
    """Start a session, and its JVM.

    Args:
        conf: as `complete` returns it.
        scratch: folders for temporary files, which last as long as the session.
        java: further options of the JVM.

    Raises:
        Whatever Spark raises, also where there is no Java: see `require_java`.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    numpy_converters.spare_others()
    options = dict(conf)
    driver = [class_data.options(), java]
    is_own = bool(scratch) and LOCAL_DIR not in conf
    if is_own:
        options[LOCAL_DIR] = ",".join(map(str, scratch))
        driver.append(f'"-Djava.io.tmpdir={scratch[0]}"')
    driver.append(conf.get(_JAVA, found.get(_JAVA, "")))
    options[_JAVA] = " ".join(filter(None, driver))
    given = SparkConf()
    for key, value in options.items():
        given.set(key, value)
    on_host = host_configuration.is_local(host_configuration.master_of(conf, found))
    named = _PYTHON in found or _PYTHON in conf
    with ExitStack() as changed:
        changed.enter_context(credentials.withheld())  # Secrets of a driver; an attempt has none.
        changed.enter_context(permissions.for_children(shared=shared))
        folder = next(iter(scratch), None)
        changed.enter_context(worker_python.this_one(folder, on_host=on_host, named=named))
        if is_own:  # Spark takes the variable first, where jrs removes nothing.
            changed.enter_context(environment.changed(LOCAL_DIRS, options[LOCAL_DIR]))
        return SparkSession.builder.config(conf=given).getOrCreate()


def require_java() -> None:
    """Raise `CannotStartHere`, with how to install it, if there is no Java to run Spark on."""
    if jvm.find_java() is None:
        raise CannotStartHere(
            f"Spark needs Java 17 or newer, but {jvm.no_java()}: "
            "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
        )
