"""A job's SparkSession, and whether its JVM lives. Imports pyspark only when a job uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jrs.contract import credentials
from jrs.contract.errors import CannotStartHere, InvalidInput

from ..attempt import entry_point
from ..attempt.context import AttemptContext
from ..attempt.job import Job, context_of
from ..files import permissions
from . import class_data, cluster, reach, surroundings, worker_python
from .settings import (
    CLUSTER,
    DEFAULTS,
    LOCAL,
    PLAIN,
    STREAMING,
    conf_of,
    dotted,
    given_by_code,
)

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


_PYTHON = "spark.pyspark.python"
_DYING = 5.0
"""Seconds in which a JVM that closed its sockets has ended."""
_starting = threading.Lock()
_started_with: dict[str, str] = {}
"""What the job's code gave to start the running session."""


def spark(
    job: Job,
    conf: Mapping[str, str | float | bool] | None = None,
    /,
    **keywords: str | float | bool,
) -> SparkSession:
    """Return the SparkSession of the job's attempt: started once, named after the job.

    The calling thread's Spark jobs get the job group and the tag ``jrs-<job id>``, so that they can
    be canceled together. An attempt in a process of its own keeps Spark's temporary files in the
    job's staging, or in ``JRS_SCRATCH`` of its host, and they are removed however it ends;
    ``spark.local.dir`` puts them elsewhere. On a cluster, the call that starts the session waits
    for executors; see docs/clusters.md.

    Args:
        conf: Spark's configuration, by its own keys. It overrides the job's `JobSettings`, which
            override ``spark-defaults.conf``, which overrides the defaults of jrs. The call that
            starts the session decides; a later call may repeat what the session has.
        keywords: the same for keys that have no underscore:
            ``spark_sql_shuffle_partitions=8`` sets ``spark.sql.shuffle.partitions``. A keyword
            whose key Spark does not know is refused; write such a key in `conf`.

    Raises:
        InvalidInput: a key does not begin with ``spark.``, Spark does not know the key of a
            keyword, or the session runs with another value.
        CannotStartHere: pyspark or Java is not installed on this host, or the cluster's master
            cannot be reached from it. Let it through: the job starts on another host, or once this
            one has what it needs.

    Example::

        session = jrs.spark(job, {"spark.sql.catalog.my_cat": "org.example.Catalog"})
    """
    return session_of(context_of(job), conf, **keywords)


def session_of(
    attempt: AttemptContext,
    conf: Mapping[str, str | float | bool] | None = None,
    /,
    **keywords: str | float | bool,
) -> SparkSession:
    """Return the SparkSession of an attempt; see `spark`."""
    by_code = given_by_code(conf, keywords)
    require_pyspark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    started = False
    with _starting:
        if _gateway_exit() is not None:
            _forget_jvm()
        elif _is_stopped():
            _forget_session()
        if SparkContext._active_spark_context is None:
            require_java()
            elsewhere = surroundings.settings_found(os.environ)
            scratch = attempt.scratch()
            given = _configuration(attempt, by_code, elsewhere, scratch)
            master = surroundings.master_of(dict(given.getAll()), elsewhere)
            on_host = surroundings.is_local(master)
            named = _PYTHON in elsewhere or given.contains(_PYTHON)
            reach.require_reachable(master)
            builder = SparkSession.builder.config(conf=given)
            # Secrets of a driver; an attempt has none.
            with (
                credentials.withheld(),
                permissions.shared_by_children(attempt.storage.root),
                worker_python.this_one(scratch, on_host=on_host, named=named),
            ):
                found = builder.getOrCreate()
            for path in attempt.spec.settings.py_files:
                found.sparkContext.addPyFile(path)
            _started_with.clear()
            _started_with.update(by_code)
            started = True
        else:
            found = SparkSession.builder.getOrCreate()
            _check_same(found, by_code)
        _check_known(found, map(dotted, keywords))
    _pickle_by_value(attempt)
    context = found.sparkContext
    name = _name(attempt.job_id)
    title = f"job {attempt.job_id}, attempt {attempt.attempt}"
    context.setJobGroup(name, title, interruptOnCancel=True)
    context.addJobTag(name)
    if not surroundings.is_local(str(context.master)):
        cluster.introduce(attempt, found, first=started)
    return found


def require_pyspark() -> None:
    """Raise `CannotStartHere`, with how to install it, if there is no pyspark."""
    try:
        import pyspark  # noqa: F401 - only whether it can be imported
    except ImportError as error:
        raise CannotStartHere("this job needs Spark: pip install 'jrs[spark]'") from error


def require_java() -> None:
    """Raise `CannotStartHere`, with how to install it, if there is no Java to run Spark on."""
    if class_data.find_java() is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME ({home}) holds no bin/java" if home else "there is no java on PATH"
        raise CannotStartHere(
            f"Spark needs Java 17 or newer, but {where}: apt-get install openjdk-17-jre-headless, "
            "or set JAVA_HOME"
        )


def jvm_died(error: BaseException) -> bool:
    """Return whether `error` was raised because the JVM behind this process's Spark has died, or
    Spark has stopped the session by itself.

    A function that fails with its JVM has not failed by itself: its attempt has died.
    """
    if "pyspark" not in sys.modules:
        return False
    for cause in _chain(error):
        if getattr(cause, "getCondition", lambda: None)() == "JAVA_GATEWAY_EXITED":
            return True
        if type(cause).__module__ == "py4j.protocol" or isinstance(cause, ConnectionError):
            # Its sockets close a moment before its end is visible.
            gone = _gateway_exit(wait=not hasattr(cause, "java_exception")) is not None
            return gone or _is_stopped()
        if type(cause).__module__.startswith("pyspark.") and _is_stopped():
            return True
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


def _check_same(session: SparkSession, by_code: dict[str, str]) -> None:
    """Raise `InvalidInput` unless the session runs with what a later call gives."""
    started = session.sparkContext.getConf()
    for key, value in by_code.items():
        running = _started_with.get(key) or started.get(key) or session.conf.get(key, None)
        if value not in (running, session.conf.get(key, None)):
            raise InvalidInput(
                f"the SparkSession runs with {key}={running}, not {value}: give the configuration "
                "in the call that starts it"
            )


def _check_known(session: SparkSession, keys: Iterable[str]) -> None:
    """Raise `InvalidInput` unless Spark knows these keys, which were given as keywords."""
    registry = session.sparkContext._jvm.org.apache.spark.internal.config.ConfigEntry  # type: ignore[union-attr]
    for key in keys:
        if key not in PLAIN and registry.findEntry(key) is None:
            raise InvalidInput(
                f"Spark does not know {key}: if a part of the key has an underscore, or the key is "
                "not one of Spark's own, give a mapping: jrs.spark(job, {'spark.…': …})"
            )


def _configuration(
    attempt: AttemptContext,
    by_code: dict[str, str],
    elsewhere: dict[str, str],
    scratch: Path | None,
) -> SparkConf:
    """Return the configuration of a session that is about to start.

    Args:
        elsewhere: what Spark finds by itself.
        scratch: for temporary files.

    Raises:
        InvalidInput, CannotStartHere: it would be a session of Spark Connect.
    """
    from pyspark import SparkConf

    conf = {**conf_of(attempt.spec.settings), **by_code}
    surroundings.refuse_connect(conf, elsewhere, os.environ)
    given = SparkConf()
    for key, value in conf.items():
        given.set(key, value)
    given.setIfMissing("spark.app.name", f"jrs {attempt.job_id}")
    on_host = surroundings.is_local(surroundings.master_of(conf, elsewhere))
    for key, value in {**DEFAULTS, **(LOCAL if on_host else CLUSTER)}.items():
        if key not in elsewhere:
            given.setIfMissing(key, value)
    if not any(key in elsewhere or given.contains(key) for key in STREAMING):
        for key, value in STREAMING.items():
            given.set(key, value)  # Together or not at all: other stores do not know version 2.
    umask = "spark.hadoop.fs.permissions.umask-mode"
    if umask not in elsewhere and permissions.is_shared(attempt.storage.root):
        # Hadoop sets the permissions of what it creates, whatever the process's umask is.
        given.setIfMissing(umask, "007")
    java = [class_data.options()]
    if scratch is not None and not given.contains("spark.local.dir"):
        given.set("spark.local.dir", str(scratch))
        java.append(f'"-Djava.io.tmpdir={scratch}"')
    options = "spark.driver.defaultJavaOptions"
    java.append(given.get(options, elsewhere.get(options, "")))
    given.set(options, " ".join(filter(None, java)))
    return given


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

    SparkContext._gateway = SparkContext._jvm = None
    _forget_session()


def _is_stopped() -> bool:
    """Return whether Spark has stopped this process's session: its cluster ended it, or went."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    try:
        return context is not None and bool(context._jsc.sc().isStopped())
    except Exception:
        return False  # The JVM ends: that is noticed by its process.


def _forget_session() -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__
