"""A job's SparkSession, and whether its JVM lives. Imports pyspark only when a job uses it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jrs.contract import credentials
from jrs.contract.errors import InvalidInput

from ..attempt import entry_point
from ..attempt.context import AttemptContext
from ..attempt.job import Job, context_of
from . import class_data
from .settings import DEFAULTS, LOCAL, STREAMING

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


_DYING = 5.0
"""Seconds in which a JVM that closed its sockets has ended."""
_PROPERTY = re.compile(r"\s*([^\s#!=:][^\s=:]*)\s*[=:]?\s*(.*?)\s*")
_starting = threading.Lock()


def spark(job: Job, **conf: str) -> SparkSession:
    """Return the SparkSession of the job's attempt: started once, named after the job.

    The calling thread's Spark jobs get the job group and the tag ``jrs-<job id>``, so that they can
    be canceled together. `conf` (``spark_sql_shuffle_partitions="8"`` sets
    ``spark.sql.shuffle.partitions``) counts only for the call that starts the session. It and
    ``spark-defaults.conf`` override the defaults of jrs. An attempt in a process of its own keeps
    Spark's temporary files in the job's staging, so that they are removed with it however it ends;
    ``spark_local_dir`` puts them elsewhere.

    Raises:
        InvalidInput: pyspark or Java is not installed.
    """
    return session_of(context_of(job), **conf)


def session_of(attempt: AttemptContext, **conf: str) -> SparkSession:
    """Return the SparkSession of an attempt; see `spark`."""
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidInput("this job needs Spark: pip install 'jrs[spark]'") from error
    with _starting:
        if _gateway_exit() is not None:
            _forget_jvm()
        if SparkContext._active_spark_context is None:
            require_java()
            given = _configuration(attempt, conf)
            builder = SparkSession.builder.config(conf=given).appName(f"jrs {attempt.job_id}")
            with credentials.withheld():  # A driver's; an attempt has none.
                found = builder.getOrCreate()
        else:
            found = SparkSession.builder.getOrCreate()
    _pickle_by_value(attempt)
    context = found.sparkContext
    name = _name(attempt.job_id)
    title = f"job {attempt.job_id}, attempt {attempt.attempt}"
    context.setJobGroup(name, title, interruptOnCancel=True)
    context.addJobTag(name)
    return found


def require_java() -> None:
    """Raise `InvalidInput`, with how to install it, if there is no Java to run Spark on."""
    if class_data.find_java() is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME ({home}) holds no bin/java" if home else "there is no java on PATH"
        raise InvalidInput(
            f"Spark needs Java 17 or newer, but {where}: apt-get install openjdk-17-jre-headless, "
            "or set JAVA_HOME"
        )


def jvm_died(error: BaseException) -> bool:
    """Return whether `error` was raised because the JVM behind this process's Spark has died.

    A function that fails with its JVM has not failed by itself: its attempt has died.
    """
    if "pyspark" not in sys.modules:
        return False
    for cause in _chain(error):
        if getattr(cause, "getCondition", lambda: None)() == "JAVA_GATEWAY_EXITED":
            return True
        if type(cause).__module__ == "py4j.protocol" or isinstance(cause, ConnectionError):
            # Its sockets close a moment before its end is visible.
            return _gateway_exit(wait=not hasattr(cause, "java_exception")) is not None
    return _gateway_exit() is not None


def cancel_work(job_id: str) -> None:
    """Cancel the Spark jobs of a job that runs in this process; harmless if there are none."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is not None and _gateway_exit() is None:
        context.cancelJobGroup(_name(job_id))
        context.cancelJobsWithTag(_name(job_id))


def _name(job_id: str) -> str:
    return f"jrs-{job_id}"


def _pickle_by_value(attempt: AttemptContext) -> None:
    """Send the functions of an entry point in a file to Spark's workers by value, as those of a
    script: the workers could not import the file."""
    from pyspark import cloudpickle

    module = entry_point.from_file(attempt.spec.entry_point)
    if module is not None:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _configuration(attempt: AttemptContext, conf: dict[str, str]) -> SparkConf:
    from pyspark import SparkConf

    given = SparkConf()
    for key, value in conf.items():
        given.set(key.replace("_", "."), value)
    elsewhere = _spark_defaults()

    def default(key: str, value: str) -> None:
        if key not in elsewhere:
            given.setIfMissing(key, value)

    for key, value in DEFAULTS.items():
        default(key, value)
    if not any(key in elsewhere or given.contains(key) for key in STREAMING):
        for key, value in STREAMING.items():
            given.set(key, value)  # Together or not at all: other stores do not know version 2.
    if str(given.get("spark.master", elsewhere.get("spark.master", "local"))).startswith("local"):
        for key, value in LOCAL.items():
            default(key, value)
        if not given.contains("spark.pyspark.python") and "spark.pyspark.python" not in elsewhere:
            # Otherwise its workers are any python3 on the PATH, without the packages of this one.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = [class_data.options()]
    scratch = attempt.scratch()
    if scratch is not None and not given.contains("spark.local.dir"):
        given.set("spark.local.dir", str(scratch))
        java.append(f'"-Djava.io.tmpdir={scratch}"')
    options = "spark.driver.defaultJavaOptions"
    java.append(given.get(options, elsewhere.get(options, "")))
    given.set(options, " ".join(filter(None, java)))
    return given


def _spark_defaults() -> dict[str, str]:
    """Return the settings of ``spark-defaults.conf``; settings passed to Spark would hide them."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    path = Path(folder or "", "spark-defaults.conf")
    if not folder or not path.is_file():
        return {}
    found = map(_PROPERTY.fullmatch, path.read_text().splitlines())
    return {match[1]: match[2] for match in found if match is not None}


def _gateway_exit(*, wait: bool = False) -> int | None:
    """Return the exit status of the JVM that this process started; None while it lives."""
    pyspark = sys.modules.get("pyspark")
    gateway: Any = None if pyspark is None else pyspark.SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if not isinstance(process, subprocess.Popen):
        return None
    try:
        return process.wait(_DYING) if wait else process.poll()
    except subprocess.TimeoutExpired:
        return None


def _forget_jvm() -> None:
    """Let pyspark start a new JVM: by itself it continues with the one that died."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__
