"""Properties of a query that Spark's Python API does not expose, read from the JVM's objects.

`DataStreamWriter` has no getters. Its fields have had the same names since Spark 2. If one
is missing, Spark has changed, and the query is refused: to take it as not set would pass the check.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyspark

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import redacted
from jrs.host import filesystems
from jrs.records.model import StreamSink

from ..files.job_folders import JobStorage
from .sink import FORMAT
from .source import BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_spreading = threading.Lock()
_FUNCTION = "foreachBatch"
"""The name of the sink that calls a function with each batch."""
_FILES = {"avro", "csv", "json", "orc", "parquet", "text", "xml"}
"""Formats of Spark's file sink, whose log knows a batch by its number alone."""
_WITHOUT_NUMBERS = {"console", "kafka", "memory", "noop"}
"""Sinks that take each batch that they get, whatever its number."""
_LOCAL = re.compile(r"file:(//[^/]*)?(?=/)")
_SCHEME = re.compile(r"[^/:]+:")
# A "#" would follow the name of a column.
_TIMERS = re.compile(r"WithState.*, ProcessingTime(Timeout)?\b(?!#)")


def check_writer(
    writer: DataStreamWriter, stage: str, storage: JobStorage, output: Path, *, bounded: bool,
    begins: Callable[[], bool],
) -> None:  # fmt: skip
    """Raise `InvalidInput`, with the reason, for a query that could not be recovered.

    Args:
        storage: where the files of its job are.
        output: the stage's folder there.
        begins: returns whether the stage begins: one that has begun may keep what new ones must not
            have.
    """
    options = _peek(writer._jwrite, "extraOptions")
    source, mode = _sink(writer), str(_peek(writer._jwrite, "outputMode"))
    problem = ""
    if _option(options, "checkpointLocation") is not None:
        problem = "it sets checkpointLocation, which jrs sets: leave it out"
    elif str(_option(options, "asyncProgressTrackingEnabled")).lower() == "true":
        problem = (
            "asyncProgressTrackingEnabled commits batches later than it publishes them, so a "
            "failover would repeat some: leave it out"
        )
    elif source == "memory" and mode != "Complete":
        problem = "a memory sink forgets its rows with the driver: write to files instead"
    elif storage.objects is not None and (found := _problem_with_objects(writer, source)):
        problem = found
    elif source in _FILES and not filesystems.fences_names(storage.root):
        problem = (
            f"it writes with Spark's file sink, and {storage.root} is on a mount that caches "
            "names, where a driver that was replaced may still plan a batch and write it: write "
            f'with format("{FORMAT}"), or mount an NFS with lookupcache=none on every host'
        )
    elif source == FORMAT and mode != "Append":
        problem = (
            f'format("{FORMAT}") adds batch to batch, which in {mode.lower()} mode replace each '
            'other: use outputMode("append"), or foreachBatch'
        )
    elif source == FORMAT and (hidden := _hidden_column(writer)) and begins():
        problem = (
            f"it has a column {hidden!r}, and readers of its folders find the number of the batch "
            f'there, which format("{FORMAT}") adds as {BATCH!r}: rename the column'
        )
    elif source == FORMAT and (ignored := _ignored(writer, output)) and begins():
        problem = f'format("{FORMAT}") ignores {ignored}: leave it out, or use foreachBatch'
    elif bounded and _has_timers(writer):
        problem = (
            "its timers use processing time, so a bounded stage would end without their pending "
            "output: use timers of event time, or an unbounded stage"
        )
    elif re.search("Continuous|RealTime", str(_peek(writer._jwrite, "trigger"))):
        problem = (
            "its trigger runs it without batches, from which a failover resumes: use processingTime"
        )
    elif not bounded and re.search("OneTime|AvailableNow", str(_peek(writer._jwrite, "trigger"))):
        problem = "its trigger ends it by itself: call job.stream with bounded=True"
    if problem:
        raise InvalidInput(f"stage {stage!r} cannot be run: {problem}")


def _hidden_column(writer: DataStreamWriter) -> str | None:
    """Return the column that readers of the folders of the sink would not see, in any case."""
    return next((name for name in writer._df.columns if name.lower() == BATCH), None)


def _ignored(writer: DataStreamWriter, output: Path) -> str:
    """Return what the query asks of the sink of jrs that it does not do; empty if nothing. A name,
    and the path where it writes in any case, are no options of it."""
    if _peek(writer._jwrite, "partitioningColumns").isDefined():
        return "partitionBy"
    options = _peek(writer._jwrite, "extraOptions")
    names = set(str(options.keySet().mkString("\n")).splitlines())
    known = {"queryname", *(["path"] if str(_option(options, "path")) == str(output) else [])}
    return next((name for name in sorted(names) if name.lower() not in known), "")


def _problem_with_objects(writer: DataStreamWriter, sink: str) -> str:
    """Return why a query cannot be run where its checkpoint is uploaded batch by batch; empty if
    it can."""
    if sink not in (FORMAT, _FUNCTION):
        return (
            f"it writes with the sink {sink!r}, whose commits jrs does not see, and the storage "
            "has objects, to which its checkpoint is uploaded before each commit: write with "
            f'format("{FORMAT}") or foreachBatch'
        )
    if _cleans_source(writer):
        return (
            "it sets cleanSource, so that its source forgets what a batch has read before the "
            "state of that batch is in the storage, which has objects: leave it out"
        )
    return ""


def _cleans_source(writer: DataStreamWriter) -> bool:
    """Return whether a file source of the query moves or deletes what it has read."""
    for node in _nodes(writer):
        if node.nodeName() == "StreamingRelation":
            options = node.dataSource().options()
            for name in str(options.keySet().mkString("\n")).splitlines():
                if name.lower() == "cleansource" and str(_option(options, name)).lower() != "off":
                    return True
    return False


def _nodes(writer: DataStreamWriter) -> Iterator[Any]:
    """Yield the nodes of the query's plan."""
    left = [_peek(writer._jwrite, "ds").queryExecution().analyzed()]
    while left:
        node = left.pop()
        yield node
        children = node.children()
        left += [children.apply(number) for number in range(children.size())]


def uses_sink(writer: DataStreamWriter) -> bool:
    """Return whether the query writes to the sink of jrs."""
    return _sink(writer) == FORMAT


@attrs.frozen
class _Guarded:
    """A function of `foreachBatch`, and what is done before each call."""

    function: Callable[[DataFrame, int], None]
    before: Callable[[int], None]

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.before(batch)
        self.function(frame, batch)


def guard_function(writer: DataStreamWriter, before: Callable[[int], None]) -> None:
    """Have something done before each call of a query's function (`foreachBatch`).

    Args:
        before: called with the number of the batch. What it raises the query dies of, and its
            function is not called.
    """
    gateway: Any = writer._spark._sc._gateway
    # A lambda of the JVM. All that it holds is a proxy of an object in Python's pool.
    proxy = _peek(_peek(writer._jwrite, "foreachBatchWriter"), "arg$1")
    handler = gateway.jvm.java.lang.reflect.Proxy.getInvocationHandler(proxy)
    found = gateway.gateway_property.pool[_peek(handler, "id")].func
    # A job in its master's own process may return the writer of an earlier attempt.
    function = found.function if isinstance(found, _Guarded) else found
    writer.foreachBatch(_Guarded(function, before))


def calls_function(writer: DataStreamWriter) -> bool:
    """Return whether the query calls a function with each batch (`foreachBatch`)."""
    return _sink(writer) == _FUNCTION


def path_of(writer: DataStreamWriter) -> Path | None:
    """Return the folder to which the query's sink writes; None if it sets no path."""
    path = _path(writer)
    return None if path is None else Path(path)


def remote_files(writer: DataStreamWriter) -> str | None:
    """Return where the query writes with Spark's file sink, if that is a place such as ``hdfs://…``
    which is no folder of this host; None otherwise."""
    path = _told_path(writer)
    if path is None or _sink(writer) not in _FILES or _LOCAL.match(path):
        return None
    is_remote = _SCHEME.match(path) or not _LOCAL.match(_default_filesystem(writer))
    return path if is_remote else None


def local_files(writer: DataStreamWriter) -> Path | None:
    """Return the folder of this host to which the query writes with Spark's file sink; None if it
    has another sink, or no path, or another place."""
    if _sink(writer) not in _FILES or remote_files(writer) is not None:
        return None
    return path_of(writer)


def sink_of(writer: DataStreamWriter) -> StreamSink:
    """Return the query's sink, for the record of its stage."""
    name, path = _sink(writer), _path(writer) or ""
    is_seen = name in {*_WITHOUT_NUMBERS, FORMAT, _FUNCTION} or local_files(writer) is not None
    place = redacted(path) if _SCHEME.match(path) else path
    return StreamSink(name, place, knows_batches=not is_seen)


def is_table(writer: DataStreamWriter) -> bool:
    """Return whether the query writes to a table in memory, which has the query's name."""
    return _sink(writer) == "memory"


def make_active(writer: DataStreamWriter) -> None:
    """Make the writer's session the calling thread's: Spark looks up data sources there."""
    session = writer._spark
    kind = session._get_j_spark_session_class(session._jvm)
    kind.setActiveSession(session._jsparkSession)


def trigger(writer: DataStreamWriter) -> Any:
    """Return the writer's trigger, for `set_trigger`."""
    return _peek(writer._jwrite, "trigger")


def set_trigger(writer: DataStreamWriter, trigger: Any) -> None:
    """Restore the writer's trigger."""
    writer._jwrite = writer._jwrite.trigger(trigger)


@contextlib.contextmanager
def spread(writer: DataStreamWriter, partitions: int | None) -> Iterator[None]:
    """Let the writer start a query with that many partitions, then restore the session's setting:
    other stages use the session, and other jobs may."""
    if partitions is None:
        yield
        return
    conf, name = writer._spark.conf, "spark.sql.shuffle.partitions"
    with _spreading:
        before = str(conf.get(name))
        conf.set(name, str(partitions))
        try:
            yield
        finally:
            conf.set(name, before)


@contextlib.contextmanager
def other_settings(writer: DataStreamWriter, settings: dict[str, str]) -> Iterator[None]:
    """Let the calling thread use a copy of the writer's session with some other settings; then it
    uses the writer's. A query that another thread starts meanwhile does not get them."""
    session = writer._spark
    kind = session._get_j_spark_session_class(session._jvm)
    own = session._jsparkSession.cloneSession()
    for name, value in settings.items():
        own.conf().set(name, value)
    kind.setActiveSession(own)
    try:
        yield
    finally:
        make_active(writer)


def is_over(query: StreamingQuery) -> bool:
    """Return whether an inactive query has really ended.

    A query whose Python did not end in time continues with it, and until then Spark starts no other
    query on its checkpoint.
    """
    return not query._jsq.streamingQuery().queryExecutionThread().isAlive()


def for_state_only(writer: DataStreamWriter) -> DataStreamWriter:
    """Return a writer of the same query that runs only the planned batch and discards its rows."""
    options = _peek(writer._jwrite, "extraOptions")
    found = writer._df.writeStream.format("noop").trigger(once=True)
    found._jwrite = found._jwrite.outputMode(_peek(writer._jwrite, "outputMode"))
    for name in ("queryName", "checkpointLocation"):
        if (value := _option(options, name)) is not None:
            found = found.option(name, str(value))
    return found


def is_caught_up(query: StreamingQuery, *, has_run: bool) -> bool:
    """Return whether a query that ends by itself has processed all input, and was not stopped
    before.

    Args:
        has_run: whether it has committed a batch; Spark takes all input of a source that reports no
            end in a single batch.
    """
    execution = query._jsq.streamingQuery()
    in_one = has_run and "SingleBatch" in str(_peek(execution, "triggerExecutor"))
    return in_one or _peek(execution, "noNewData") is not False


def holds_back(writer: DataStreamWriter) -> str | None:
    """Return why the query holds back rows that no watermark flushes, or None if it does not."""
    # Not for a started query: only its own thread may be the first to plan it.
    if str(_peek(writer._jwrite, "outputMode")) == "Complete":
        return (
            "in complete mode no row is ever final, so there is nothing to flush: suspend it, or "
            "cancel it"
        )
    if _has_timers(writer):
        return "its timers use processing time, which no watermark moves: suspend it, or cancel it"
    return None


def keeps_one_partition(writer: DataStreamWriter) -> bool:
    """Return whether all state of the query is in one partition, however many there are: the state
    of an aggregation without a key, or of a limit."""
    for node in _nodes(writer):
        kind = node.nodeName()
        if node.isStreaming() and (
            kind == "GlobalLimit" or (kind == "Aggregate" and node.groupingExpressions().isEmpty())
        ):
            return True
    return False


def _has_timers(writer: DataStreamWriter) -> bool:
    """Return whether the query has timers of processing time."""
    return _TIMERS.search(printed(writer)) is not None


def printed(writer: DataStreamWriter) -> str:
    """Return the query's plan as Spark prints it."""
    return str(_peek(writer._jwrite, "ds").queryExecution().analyzed().toString())


def _sink(writer: DataStreamWriter) -> str:
    """Return the name of the query's sink. Spark takes the names of data sources in any case."""
    name = str(_peek(writer._jwrite, "source"))
    return name if name == _FUNCTION else name.lower()


def _path(writer: DataStreamWriter) -> str | None:
    """Return the path that the query sets for its sink; that of a folder of this host without its
    scheme. As Hadoop reads it, nothing is escaped, with a scheme or without."""
    path = _told_path(writer)
    return None if path is None else _LOCAL.sub("", path)


def _told_path(writer: DataStreamWriter) -> str | None:
    """Return the path that the query sets for its sink, as it sets it."""
    path = _option(_peek(writer._jwrite, "extraOptions"), "path")
    return None if path is None else str(path)


def _default_filesystem(writer: DataStreamWriter) -> str:
    """Return the URL of the filesystem on which a path without a scheme is."""
    session: Any = writer._spark._jsparkSession
    return str(session.sessionState().newHadoopConf().get("fs.defaultFS"))


def _option(options: Any, name: str) -> Any:
    if options is None or not options.contains(name):
        return None
    return options.get(name).get()


def _peek(of: Any, name: str) -> Any:
    for field in _fields(of):
        if field.getName() == name:
            field.setAccessible(True)
            return field.get(of)
    raise InvalidInput(
        f"jrs cannot run streams on PySpark {pyspark.__version__}: Spark's "
        f"{of.getClass().getSimpleName()} has no field {name!r} there; install a PySpark that the "
        "README of jrs names"
    )


def _fields(of: Any) -> Iterator[Any]:
    kind = of.getClass()
    while kind is not None:
        yield from kind.getDeclaredFields()
        kind = kind.getSuperclass()
