"""A session whose executors run on other hosts: what it is called there, and what they can see."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from jrs.contract.errors import JobHeld
from jrs.records.attempts import SparkApplication

from ..attempt.context import AttemptContext
from ..attempt.job_log import log_of
from ..files import permissions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_TASKS = 64
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


_found: list[Executor] = []
"""What the executors of this process's session have found."""


def introduce(attempt: AttemptContext, session: SparkSession, *, first: bool) -> None:
    """Record the application of an attempt's session on a cluster.

    At first, send the module of the job's function to the executors, wait for them, and see whether
    they share the storage.

    Raises:
        Fenced: a newer leader exists, or the attempt was shut out.
    """
    if not first:
        _record(attempt, session, waiting=False)
        return
    _record(attempt, session, waiting=True)
    from pyspark import SparkFiles

    log, context = log_of(attempt), session.sparkContext
    master = str(context.master)
    if master.startswith("spark:") and context.getConf().get("spark.cores.max") is None:
        log.warning("spark.cores.max is not set: the job takes all cores of %s", master)
    files = Path(SparkFiles.getRootDirectory(), "jrs")
    if (sent := module_to_send(attempt.spec.entry_point, files)) is not None:
        context.addPyFile(str(sent))
    _found.clear()
    try:
        _found.extend(look(session, attempt.storage.folder(attempt.job_id)))
    except Exception as error:
        # The job may need neither Python on the executors nor the storage.
        log.warning("it is unknown whether the executors share the storage: %s", error)
    for one in _found:
        if one.problem:
            log.warning("%s", one)
    _record(attempt, session, waiting=False)


def _record(attempt: AttemptContext, session: SparkSession, *, waiting: bool) -> None:
    context = session.sparkContext
    application = SparkApplication(
        str(context.applicationId), str(context.master), context.uiWebUrl or "", waiting=waiting
    )
    attempt.own.runs_on(attempt.backend, attempt.fence, application)


def require_shared(job_id: str) -> None:
    """Raise `JobHeld` if an executor cannot use the storage: its files would be lost to the job."""
    if problems := [str(one) for one in _found if one.problem]:
        raise JobHeld(
            f"job {job_id!r} runs on a cluster whose executors do not share its storage: "
            f"{'; '.join(problems[:3])}; give the masters a --storage that all hosts mount"
        )


def check_output(job_id: str, output: Path) -> None:
    """Raise `JobHeld` if a stage's output may lack what executors have written elsewhere.

    Spark itself does not notice: each executor has a folder of that name, and the driver's has no
    files. Files that the driver has written itself are whole.
    """
    if any(path.is_dir() for path in output.iterdir()):
        require_shared(job_id)


def look(session: SparkSession, folder: Path) -> list[Executor]:
    """Return what the executors find of a folder of the driver's: each executor once.

    Waits for executors. `folder` is unchanged afterwards.

    Raises:
        OSError: what an executor has made cannot be removed by the driver, or nothing can be
            written.
    """
    context = session.sparkContext
    seen = folder / f".seen-{uuid.uuid4().hex}"
    permissions.make(seen)
    try:
        tasks = min(max(2, context.defaultParallelism), _MOST_TASKS)
        rows = context.parallelize(range(tasks), tasks).mapPartitions(_looking(str(seen))).collect()
    finally:
        shutil.rmtree(seen)
    return sorted({Executor(*row) for row in rows}, key=lambda one: (one.host, one.user))


def _looking(folder: str) -> Callable[[Iterable[Any]], Iterator[tuple[str, str, str]]]:
    """Return the function that executors run: nested, so that it is sent by value."""

    def run(_: Iterable[Any]) -> Iterator[tuple[str, str, str]]:
        import os
        import socket
        import uuid

        problem = ""
        try:
            mine = os.path.join(folder, uuid.uuid4().hex)
            os.mkdir(mine)
            with open(os.path.join(mine, "file"), "w") as file:
                file.write("seen")
        except OSError as error:
            problem = f"{type(error).__name__}: {error.strerror}"
        yield socket.gethostname(), str(os.getuid()), problem

    return run


def module_to_send(entry_point: str, folder: Path) -> Path | None:
    """Return a file with the entry point's module, for `SparkContext.addPyFile`.

    None if the workers cannot lack it: it is a file, whose functions are sent by value, or is
    installed, so that the workers' environment has to have it, too.

    Args:
        folder: where the file is written, if the module is part of a package.
    """
    module = sys.modules.get(entry_point.rpartition(":")[0])
    if module is None or module.__name__ not in sys.modules or not module.__file__:
        return None
    path = Path(module.__file__)
    if _is_installed(path):
        return None
    top, *inner = module.__name__.split(".")
    if not inner and path.name != "__init__.py":
        return path
    depth = len(inner) + (path.name == "__init__.py")
    root = path.parents[depth - 1]
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{top}.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for found in sorted(root.rglob("*")):
            if found.is_file() and "__pycache__" not in found.parts:
                archive.write(found, os.path.join(top, found.relative_to(root)))
    return target


def _is_installed(path: Path) -> bool:
    places = sysconfig.get_paths()
    roots = (places[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(path.is_relative_to(root) for root in roots)
