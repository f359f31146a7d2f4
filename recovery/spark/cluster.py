"""A session on a cluster: its application there, and whether its executors share the storage."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sys
import sysconfig
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from jrs.contract.errors import JobHeld, Unavailable
from jrs.records.attempts import SparkApplication

from ..attempt.context import AttemptContext
from ..attempt.job_log import log_of
from ..files import permissions
from ..files.disk_errors import writing
from . import error_reasons
from .host_configuration import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Imported inside functions: pyspark, since attempts without Spark load this module, too.

_UMASK = "start the workers with umask 0007"
_NOT_SHARED = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)
"""The errors of an executor that has no folder of that name, or may not write there. Any other one
passes: a full disk, a process without descriptors, a server that does not answer."""
_MOST_TASKS = 1024
"""Tasks of one look: on a larger cluster, not every executor gets one."""


@attrs.frozen
class Executor:
    """What one executor has found."""

    host: str
    user: str
    problem: str = ""
    """Why it cannot use the storage; empty if it can."""

    def __str__(self) -> str:
        state = self.problem or "shares the storage"
        return f"an executor on {self.host}, as user {self.user}: {state}"


_sent: set[tuple[str, str]] = set()
"""The modules that were sent, and to which application."""


def introduce(attempt: AttemptContext, session: SparkSession, *, first: bool) -> None:
    """Record the application of an attempt's session on a cluster, and send it the job's module.

    At first, wait for executors, and say which of them cannot use the storage.

    Raises:
        Fenced: a newer leader exists, or the attempt was shut out.
    """
    log, context = log_of(attempt), session.sparkContext
    _record(attempt, context, waiting=first)
    _send(attempt.spec.entry_point, context)
    if not first:
        return
    master = str(context.master)
    if master.startswith("spark:") and context.getConf().get("spark.cores.max") is None:
        log.warning("spark.cores.max is not set: the job takes all cores of %s", master)
    try:
        for one in look(attempt, context):
            if one.problem:
                log.warning("%s", one)
    except Exception as error:
        # The job may need neither Python on the executors nor the storage.
        log.warning("it is unknown whether the executors share the storage: %s", error)
    _record(attempt, context, waiting=False)


def application_of(context: SparkContext, *, waiting: bool = False) -> SparkApplication:
    """Return the application of a session."""
    return SparkApplication(
        str(context.applicationId), str(context.master), context.uiWebUrl or "", waiting=waiting
    )


def _record(attempt: AttemptContext, context: SparkContext, *, waiting: bool) -> None:
    application = application_of(context, waiting=waiting)
    attempt.own.runs_on(attempt.backend, attempt.fence, application)


def _send(entry_point: str, context: SparkContext) -> None:
    from pyspark import SparkFiles

    this = (str(context.applicationId), entry_point.rpartition(":")[0])
    if this not in _sent:
        _sent.add(this)
        files = Path(SparkFiles.getRootDirectory(), "jrs")
        if (module := module_to_send(entry_point, files)) is not None:
            context.addPyFile(str(module))


def check_output(attempt: AttemptContext, output: Path) -> None:
    """Raise `JobHeld` if a stage's output may lack what executors have written elsewhere. Wait
    while that cannot be found out.

    Spark itself does not notice: each executor has a folder of that name, and the driver's has no
    files. Other files the driver has written itself, so they are whole.
    """
    if any(path.is_dir() or path.name == "_SUCCESS" for path in output.iterdir()):
        # The output is complete, and would be thrown away with the attempt.
        attempt.until_stored(lambda: require_shared(attempt))


def require_shared(attempt: AttemptContext) -> None:
    """Raise `JobHeld` if this process's session is on a cluster, and an executor that it has now
    cannot use the storage: what such an executor writes is lost to the job.

    Raises:
        Unavailable: as `look`.
        Whatever else Spark raises if the executors cannot be asked.
    """
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None or is_local(str(context.master)):
        return
    if problems := [str(one) for one in look(attempt, context) if one.problem]:
        raise JobHeld(
            f"job {attempt.job_id!r} runs on a cluster whose executors do not share its storage: "
            f"{'; '.join(problems[:3])}; give the masters a --storage that all hosts mount"
        )


def look(attempt: AttemptContext, context: SparkContext) -> list[Executor]:
    """Return what the executors find of the storage: each executor that has a free core, once.

    Waits for executors.

    Raises:
        Unavailable: the driver itself, or an executor, cannot write there now, or be asked; the
            call may be repeated.
        Whatever else Spark raises if the executors cannot be asked.
    """
    epoch = attempt.storage.epoch_folder(attempt.job_id, attempt.epoch)
    seen = epoch / f".seen-{uuid.uuid4().hex}"
    with writing(f"making {seen}"):
        permissions.make(seen)
    rows = ask(context, _looking(str(seen)))
    found = {Executor(*row) for *row, _ in rows}
    numbers = {number for *_, number in rows if number}
    try:
        shutil.rmtree(seen)
    except OSError as error:
        if error.errno not in _NOT_SHARED:
            raise Unavailable(f"{seen} cannot be removed: {error}") from error
        problem = f"the driver cannot remove what it makes ({error.strerror}): {_UMASK}"
        found = {attrs.evolve(one, problem=one.problem or problem) for one in found}
    listed = sorted(found, key=lambda one: (one.host, one.user, one.problem))
    if numbers and numbers.isdisjoint(_NOT_SHARED):
        why = next(one for one in listed if one.problem)
        raise Unavailable(f"the storage cannot be written to now: {why}")
    return listed


def ask(context: SparkContext, function: Callable[[Iterable[Any]], Iterator[Any]]) -> list[Any]:
    """Return what a function yields on the executors that have a free core, on each at least once.

    Waits for executors.

    Raises:
        Unavailable: they cannot be asked now: the disk of a host is full, or similar.
        Whatever else Spark raises if the executors cannot be asked.
    """
    # Twice as many as cores: the first tasks go to all free cores at once.
    tasks = min(2 * max(2, context.defaultParallelism), _MOST_TASKS)
    with error_reasons.unavailable("the executors cannot be asked now"):
        return context.parallelize(range(tasks), tasks).mapPartitions(function).collect()


def _looking(folder: str) -> Callable[[Iterable[Any]], Iterator[tuple[str, str, str, int]]]:
    """Return the function that executors run: nested, so that it is sent by value.

    It yields an `Executor`, and the number of its error; 0 if there is none.
    """

    def run(_: Iterable[Any]) -> Iterator[tuple[str, str, str, int]]:
        time.sleep(0.05)  # Or the first executor is done with all tasks before another has one.
        problem, number = "", 0
        try:
            mine = os.path.join(folder, uuid.uuid4().hex)
            os.mkdir(mine)
            with open(os.path.join(mine, "file"), "w") as file:
                file.write("seen")
        except OSError as error:
            problem, number = f"{type(error).__name__}: {error.strerror}", error.errno or -1
        yield socket.gethostname(), str(os.getuid()), problem, number

    return run


def module_to_send(entry_point: str, folder: Path) -> Path | None:
    """Return a file with the entry point's module, for `SparkContext.addPyFile`.

    None if the workers cannot lack it: it is a file, whose functions are sent by value, or is
    installed, so that the workers' environment has to have it, too. Nor is jrs itself sent: no
    executor needs it.

    Args:
        folder: where the file is written, if the module is part of a package.
    """
    module = sys.modules.get(entry_point.rpartition(":")[0])
    if module is None or not module.__file__:
        return None
    path = Path(module.__file__)
    if not path.is_file() or _is_installed(path):
        return None  # A file that is missing is in an archive of --py-files.
    top, *inner = module.__name__.split(".")
    if top == __name__.partition(".")[0]:
        return None
    if not inner and path.name != "__init__.py":
        return path
    depth = len(inner) + (path.name == "__init__.py")
    root = path.parents[depth - 1]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{top}.zip"
    with zipfile.ZipFile(target, "w", strict_timestamps=False) as archive:
        for found in sorted(root.rglob("*")):
            inside = found.relative_to(root)
            if found.is_file() and not any(map(_is_left_out, inside.parts)):
                archive.write(found, os.path.join(top, inside))
    return target


def _is_left_out(name: str) -> bool:
    return name == "__pycache__" or name.startswith(".")


def _is_installed(path: Path) -> bool:
    places = sysconfig.get_paths()
    roots = (places[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.is_relative_to(root) for root in roots)
