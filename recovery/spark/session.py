"""A job's SparkSession, and whether its JVM lives."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from jrs.contract.errors import CannotStartHere, InvalidInput

from ..attempt import entry_point
from ..attempt.context import AttemptContext
from ..attempt.job import Job, context_of
from ..files import permissions
from . import cluster, cluster_reach, configuration, host_configuration, jvm, lineage, prepared
from .job_configuration import PLAIN, conf_of, dotted, given_by_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Imported inside functions: pyspark, since attempts without Spark load this module, too.


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
    job's staging, or in ``JRS_SCRATCH`` or ``SPARK_LOCAL_DIRS`` of its host, and they are removed
    however it ends; ``spark.local.dir`` puts them elsewhere. On a cluster, the call that starts the
    session waits for executors; see docs/clusters.md.

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

    with _starting:
        if jvm.exit_status() is not None:
            jvm.forget()
        elif jvm.is_stopped():
            jvm.forget_session()
        started = SparkContext._active_spark_context is None or prepared.is_waiting()
        if started:
            found = _started(attempt, by_code)
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
    if host_configuration.is_local(str(context.master)):
        attempt.own.runs_here(cluster.application_of(context))
    else:
        cluster.introduce(attempt, found, first=started)
    return found


def require_pyspark() -> None:
    """Raise `CannotStartHere`, with how to install it, if there is no pyspark."""
    try:
        import pyspark  # noqa: F401 - only whether it can be imported
    except ImportError as error:
        raise CannotStartHere("this job needs Spark: pip install 'jrs[spark]'") from error


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
            gone = jvm.exit_status(wait=not hasattr(cause, "java_exception")) is not None
            return gone or jvm.is_stopped()
        if type(cause).__module__.startswith("pyspark.") and jvm.is_stopped():
            return True
    return jvm.exit_status() is not None


def cancel_work(job_id: str) -> None:
    """Cancel the Spark jobs of a job that runs in this process; harmless if there are none."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is not None and jvm.exit_status() is None:
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


def _started(attempt: AttemptContext, by_code: dict[str, str]) -> SparkSession:
    """Return a new session for the attempt, or the one that was prepared for it."""
    given = {**conf_of(attempt.spec.settings), **by_code}
    elsewhere = host_configuration.settings_found(os.environ)
    shared = permissions.is_shared(attempt.storage.root)
    conf = configuration.complete(given, elsewhere, shared=shared)
    conf.setdefault(configuration.NAME, f"jrs {attempt.job_id}")
    run = lineage.parent(attempt.backend.cluster, attempt.job_id, attempt.attempt, conf, elsewhere)
    conf |= run
    master = host_configuration.master_of(conf, elsewhere)
    found = prepared.take(conf, elsewhere)
    if found is None:
        configuration.require_java()
        cluster_reach.require_reachable(master)
        with cluster_reach.starting(master):
            found = configuration.start(conf, elsewhere, attempt.scratch(), shared=shared)
    for path in attempt.spec.settings.py_files:
        found.sparkContext.addPyFile(path)
    _started_with.clear()
    _started_with.update(by_code)
    # A session that was prepared ahead could not name the attempt that takes it.
    can_prepare = host_configuration.is_local(master) and not run
    to_record = prepared.to_record(given) if can_prepare else None
    attempt.own.starts_session(attempt.backend, attempt.fence, to_record)
    return found


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


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__
