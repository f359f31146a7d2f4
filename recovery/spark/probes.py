"""What a session and its executors find, for `doctor`: a real session, real tasks, real files."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow
import pyspark
from pyspark import SparkContext

from jrs.contract.backend import Diagnostic
from jrs.contract.texts import counted

from ..attempt.context import AttemptContext
from ..attempt.scratch import LOCAL_DIRS
from ..files import permissions
from . import cluster, host_configuration
from .by_value import sink_by_value
from .configuration import LOCAL_DIR
from .error_reasons import why
from .session import session_of
from .sink import JrsSink
from .start_watch import StartWatch, Tell, address_of, executors_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL = 0.2
_SETTLED = 2.0
"""Seconds without another executor, after which no more are waited for."""
_WRITTEN = 1 << 20
"""Bytes that an executor writes to find out whether it has space."""
_GIB = 1024**3
_SAME_PYTHON = (
    "set PYSPARK_PYTHON, for the masters of jrs, to the name of a Python {}.{} with pyspark and "
    "pyarrow that all workers have"
)


@attrs.frozen
class Seen:
    """What one executor has found."""

    host: str
    user: str
    python: str
    pyspark: str
    arrow: str
    """The version of pyarrow; empty if it cannot be imported."""
    has_jrs: bool
    storage: str
    """Why it cannot use the storage; empty if it can."""
    scratch: str
    """Why it has no place for temporary files; empty if it has."""

    def __str__(self) -> str:
        return f"an executor on {self.host}, as user {self.user}"


def run(attempt: AttemptContext, tell: Tell, timeout: float, *, known: bool) -> None:
    """Start the session of an attempt, and tell what it finds.

    Args:
        timeout, known: as of `doctor.check`.

    Raises:
        Whatever Spark raises.
    """
    with StartWatch(tell, timeout) as watch:
        session = session_of(attempt)
    context = session.sparkContext
    if host_configuration.is_local(str(context.master)):
        watch.tell_master(context)
    elif not watch.executors:
        return
    tell(_executors(context))
    tell(_driver(context))
    tell(_scratch(attempt, context))
    folder = attempt.storage.epoch_folder(attempt.job_id, attempt.epoch) / "seen"
    permissions.make(folder)
    try:
        seen = _ask(context, folder)
    except Exception as error:
        tell(Diagnostic("python", f"executors cannot run Python: {why(error)}", _remedy()))
        return
    for found in (*_packages(seen), *_sink(context, seen)):
        tell(found)
    if known or host_configuration.is_local(str(context.master)):
        for found in _files(session, folder, seen):
            tell(found)
    else:
        tell(_unknown_storage())


# -- the session ---------------------------------------------------------------------------------


def _executors(context: SparkContext) -> Diagnostic:
    """Tell the executors, once no more come."""
    if host_configuration.is_local(str(context.master)):
        cores = counted(context.defaultParallelism, "core", "cores")
        return Diagnostic("executors", f"threads of the driver, on {cores}")
    since, found = time.monotonic(), executors_of(context)
    while time.monotonic() - since < _SETTLED:
        time.sleep(_POLL)
        if len(newer := executors_of(context)) > len(found):
            since, found = time.monotonic(), newer
    cores = counted(sum(one.totalCores() for one in found), "core", "cores")
    said = f"{counted(len(found), 'executor', 'executors')} with {cores}"
    if str(context.master).startswith("spark:") and not context.getConf().get("spark.cores.max"):
        said += "; spark.cores.max is not set: a job takes all cores"
    return Diagnostic("executors", said)


def _driver(context: SparkContext) -> Diagnostic:
    return Diagnostic("driver", f"executors reach it at {address_of(context)}")


def _scratch(attempt: AttemptContext, context: SparkContext) -> Diagnostic:
    jvm: Any = context._jvm
    utils = jvm.org.apache.spark.util.Utils
    folder = Path(utils.getConfiguredLocalDirs(context._jsc.sc().conf())[0])
    named = str(context.getConf().get(LOCAL_DIR, str(folder))).partition(",")[0]
    if folder != Path(named):  # A variable comes before the setting, and that file before jrs.
        said = f"{folder}: jrs does not remove there what killed attempts leave"
        return Diagnostic("scratch", said, f"remove {LOCAL_DIRS} from spark-env.sh")
    free = f"{shutil.disk_usage(folder).free / _GIB:.1f} GiB are free"
    if folder.is_relative_to(attempt.storage.root):
        advice = "; JRS_SCRATCH names a local disk instead"
        return Diagnostic("scratch", f"in the storage of the job, {free}{advice}")
    return Diagnostic("scratch", f"{folder}, {free}")


# -- the executors -------------------------------------------------------------------------------


def _ask(context: SparkContext, folder: Path) -> list[Seen]:
    token = uuid.uuid4().hex
    (folder / "driver").write_text(token)
    if permissions.is_shared(folder):
        (folder / "driver").chmod(0o660)  # As what Spark writes there.
    rows = cluster.ask(context, _probing(str(folder), token))
    return [Seen(*row) for row in sorted(set(rows))]


def _probing(folder: str, token: str) -> Callable[[Iterable[Any]], Iterator[tuple[Any, ...]]]:
    """Return the function that executors run: nested, so that it is sent by value."""

    def probe(_: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        time.sleep(0.05)  # Or the first executor is done with all tasks before another has one.
        try:
            import pyarrow  # This executor may lack it.

            arrow = pyarrow.__version__
        except ImportError:
            arrow = ""
        storage = scratch = ""
        try:
            with open(os.path.join(folder, "driver")) as file:
                if file.read() != token:
                    storage = "it reads another file than the driver wrote"
            mine = os.path.join(folder, "executor-" + uuid.uuid4().hex)
            os.mkdir(mine)
            with open(os.path.join(mine, "file"), "w") as file:
                file.write(token)
        except OSError as error:
            storage = f"{type(error).__name__}: {error.strerror}: {error.filename}"
        for place in os.environ.get(LOCAL_DIRS, "").split(","):
            try:
                with tempfile.TemporaryFile(dir=place or None) as file:
                    file.write(bytes(_WRITTEN))
                    file.flush()
                    os.fsync(file.fileno())  # Some filesystems say only then that they are full.
            except OSError as error:
                scratch = f"{place or 'its temporary folder'}: {error.strerror}"
        yield (
            socket.gethostname(), str(os.getuid()), platform.python_version(),
            pyspark.__version__, arrow, importlib.util.find_spec("jrs") is not None,
            storage, scratch,
        )  # fmt: skip

    return probe


def _remedy() -> str:
    return _SAME_PYTHON.format(*sys.version_info[:2])


def _packages(seen: list[Seen]) -> Iterator[Diagnostic]:
    mine = "{}.{}".format(*sys.version_info[:2])
    other = [one for one in seen if one.python.rpartition(".")[0] != mine]
    if other:  # Spark itself refuses that.
        yield Diagnostic("python", f"{other[0]} has Python {other[0].python}", _remedy())
    else:
        yield Diagnostic("python", f"{mine} here and on all executors")
    here = (pyspark.__version__, pyarrow.__version__)
    for one in seen:
        if not one.arrow:
            yield Diagnostic(
                "packages", f"{one} has no pyarrow", f"install pyarrow {here[1]} there"
            )
        elif one.pyspark != here[0]:
            said = f"{one} has pyspark {one.pyspark}, and the driver {here[0]}"
            yield Diagnostic("packages", said, f"install pyspark {here[0]} there")
    if all(one.arrow and one.pyspark == here[0] for one in seen):
        arrows = ", ".join(sorted({one.arrow for one in seen}))
        yield Diagnostic("packages", f"all executors have pyspark {here[0]} and pyarrow {arrows}")
    for one in seen:
        if one.scratch:
            yield Diagnostic(
                "scratch",
                f"{one}: {one.scratch}",
                "let Spark's workers write there, and free space",
            )


def _sink(context: SparkContext, seen: list[Seen]) -> Iterator[Diagnostic]:
    """Check that executors can unpack the streaming sink, whether they have jrs or not."""
    kind: Any = JrsSink

    def unpacked(_: Iterable[Any]) -> Iterator[str]:
        yield str(kind.name())

    if not all(one.arrow for one in seen):
        return
    try:
        with sink_by_value():
            cluster.ask(context, unpacked)
    except Exception as error:
        yield Diagnostic(
            "sink",
            f"executors cannot unpack the streaming sink: {why(error)}",
            "give the workers the versions of Python, pyspark and pyarrow that the driver has",
        )
        return
    without = "" if all(one.has_jrs for one in seen) else ", which have no jrs"
    yield Diagnostic("sink", f"the streaming sink arrives by value at the executors{without}")


def _removing(folders: list[str]) -> Callable[[Iterable[Any]], Iterator[None]]:
    """Return the function by which executors remove what they have made."""

    def remove(_: Iterable[Any]) -> Iterator[None]:
        time.sleep(0.05)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        yield None

    return remove


def _unknown_storage() -> Diagnostic:
    return Diagnostic(
        "files",
        "it is not known where jobs keep their files, so nothing is known of who shares them",
        "give --storage, or --backend of a cluster whose masters have run",
    )


def _files(session: SparkSession, folder: Path, seen: list[Seen]) -> Iterator[Diagnostic]:
    """Check that the driver and the executors can use each other's files in the storage."""
    root = folder.parents[3]
    blind = [f"{one}: {one.storage}" for one in seen if one.storage]
    if blind:
        yield Diagnostic(
            "files",
            f"executors cannot use {root}: {'; '.join(blind[:3])}",
            "mount it on all hosts under the same path, and share it with a group if the workers "
            "run as another user: see docs/clusters.md",
        )
        return
    table, links = folder / "table", ""
    try:
        session.range(0, 2 * len(seen), 1, 2 * len(seen)).write.parquet(str(table))
        # Python and the JVM create files in their own ways.
        for path in (*folder.glob("executor-*/file"), *table.glob("part-*")):
            path.read_bytes()
            try:
                os.link(path, path.with_name("link"))
                path.with_name("link").unlink()
            except OSError as error:
                links = error.strerror or str(error)
            path.rename(path.with_name("renamed"))
        shutil.rmtree(folder)
    except OSError as error:
        # Also what they made for the first look at the storage; see `cluster.look`.
        made = [folder, *folder.parent.glob(".seen-*")]
        cluster.ask(session.sparkContext, _removing([str(path) for path in made]))
        yield Diagnostic(
            "files",
            f"the driver cannot change what executors make in {root}: {error.strerror}: "
            f"{error.filename}",
            "start the workers with umask 0007, and give both users one group: see "
            "docs/clusters.md",
        )
        return
    users = ", ".join(sorted({one.user for one in seen}))
    yield Diagnostic("files", f"the driver and the executors, of user {users}, share {root}")
    if links:
        said = f"the driver cannot link what executors make ({links})"
        yield Diagnostic("links", f"{said}: a take-over and a snapshot copy the files")
    else:
        yield Diagnostic("links", "the driver can link what executors make")
