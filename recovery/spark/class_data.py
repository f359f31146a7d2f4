"""Class-data sharing: an archive of Spark's parsed and checked classes. With it, Spark's JVM starts
in about half the time (JEP 350).

A failover of a job on Spark mostly consists of the start of a JVM that loads some 20,000 classes. A
session that finds no archive requests one. ``jrs prepare`` makes it, or a master of the same host
and user that runs with ``--prepare``, while nothing else wants the processor. Making one takes a
JVM for a minute, so a master does not do it within a small limit of memory. An archive fits one
Spark and one Java, takes some 190 MB in ``~/.cache/jrs``, and may be deleted at any time; a JVM
that it does not fit ignores it. The process that makes one deletes those that no session has used
for 30 days, such as those of a Java or a Spark that was upgraded. The environment variable
``JRS_CLASS_DATA`` names another folder, or is ``off``.

Java shares no classes if the class path has a folder with files, and Spark puts its configuration
folder there. Where that holds files, no archive can be made.

    python -m jrs.recovery.spark.class_data [--idle]    makes it; ends with its standard input
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.contract.runtime import JrsThread, start_thread
from jrs.host import credentials

from ..files.sync import sync
from ..processes import memory
from . import jvm, warm_up
from .defaults import LOCAL, STREAMING
from .host_configuration import CONF_DIR, configuration_folder, spark_home

# Imported inside functions: pyspark, since every master loads this module.

FOLDER = "JRS_CLASS_DATA"
"""The environment variable that names the archives' folder, or is ``off``."""
_LOOK = 10.0
"""Seconds between two checks for requests of sessions."""
_UNUSED = 30 * 86400.0
"""Seconds after which an archive that no session has used is deleted."""
_PATIENCE = 900.0
"""Seconds after which making an archive is given up."""
NEEDS = 512 * 1024 * 1024
"""The memory that making an archive needs, in bytes: about 300 MB of a JVM and 70 MB of Python,
and room for what else runs within the limit."""
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Messages about an archive that does not fit do not belong in a job's output."""


def options() -> str:
    """Return the JVM options to share classes; if no archive exists, request one, return none."""
    archive = place()
    if archive is None or _hindrance():
        return ""
    try:
        if archive.is_file():
            with suppress(OSError):
                os.utime(archive)  # It is in use: see `delete_unused`.
            return f'"-XX:SharedArchiveFile={archive}" {_QUIET}'
        if not _failed(archive).exists():
            archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _wanted(archive).touch()
    except OSError:
        pass  # The folder is another user's, or cannot be written: Spark starts as before.
    return ""


def place() -> Path | None:
    """Return the path of the archive for this Python's Spark and this Java; it need not exist.

    None if archives are off, or Spark or Java is missing.
    """
    folder = _folder()
    try:
        import pyspark
    except ImportError:
        return None
    java = jvm.find_java()
    if folder is None or java is None:
        return None
    java = os.path.realpath(java)
    home = spark_home()
    # A Java or Spark that was reinstalled at the same path ignores the old one's archive.
    made_for = f"{java} {os.stat(java).st_mtime_ns} {home} {_installed_at(home)}"
    if CONF_DIR in os.environ:
        made_for += f" {os.environ[CONF_DIR]}"  # On the class path, as the home's own.
    key = hashlib.sha256(made_for.encode()).hexdigest()[:12]
    return folder / f"spark-{pyspark.__version__}-{key}.jsa"


def _installed_at(home: Path) -> int:
    try:
        return os.stat(home / "jars").st_mtime_ns
    except OSError:
        return 0  # Spark was built from source: its jars are elsewhere.


def _hindrance() -> str | None:
    """Return why this host's Spark can have no archive; None if it can."""
    conf = configuration_folder(os.environ, spark_home())
    try:
        if conf is None or not any(conf.iterdir()):
            return None
    except OSError:
        return None  # There is none, or Java cannot see into it, either.
    return (
        f"Spark's configuration folder {conf} holds files, and Java shares no classes if the class "
        "path has such a folder; without it, give the configuration by jrs submit --conf"
    )


def delete_unused(archive: Path, now: float) -> None:
    """Delete the archives next to one that no session has used for a month. A JVM that has one of
    them mapped keeps it.

    Args:
        now: in seconds since 1970.
    """
    for other in archive.parent.glob("spark-*.jsa"):
        with suppress(OSError):  # It is another user's, or was just deleted.
            if other != archive and now - other.stat().st_mtime > _UNUSED:
                other.unlink()
                other.with_suffix(".lock").unlink(missing_ok=True)


def make() -> Path:
    """Return the archive; if it does not exist, a process of its own makes it. Idempotent.

    Raises:
        InvalidInput: Spark or Java is missing, archives are off, or this Spark can have none.
        Unavailable: it could not be made, with the reason.
    """
    archive = place()
    if archive is None:
        raise InvalidInput(
            f"nothing to prepare: Spark or Java is not installed, or {FOLDER} is off"
        )
    hindrance = _hindrance()
    if hindrance is not None:
        raise InvalidInput(f"nothing to prepare: {hindrance}")
    if not archive.is_file():
        try:
            archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _failed(archive).unlink(missing_ok=True)
            _wanted(archive).touch()
        except OSError as error:
            raise Unavailable(f"{archive} cannot be written: {error.strerror}") from None
        with _maker() as maker:
            try:
                maker.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                raise Unavailable(f"{archive} was not made in {_PATIENCE:.0f} s") from None
    if not archive.is_file():
        why = _failed(archive)
        said = why.read_text(encoding="utf-8") if why.is_file() else "its maker was killed"
        raise Unavailable(f"{archive} could not be made: {said}")
    return archive


class Background:
    """Makes the archives that sessions request, while a master runs; a context manager.

    Args:
        emit: called with a text when it begins, has ended, or does not begin for lack of memory.
    """

    def __init__(self, emit: Callable[[str], None], look: float = _LOOK) -> None:
        self._emit = emit
        self._look = look
        self._over = threading.Event()
        self._tried: dict[Path, int] = {}
        self._thread = JrsThread(target=self._run, name="jrs-class-data", daemon=True)

    def __enter__(self) -> Self:
        start_thread(self._thread)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._look):
            try:
                if self._is_asked():
                    self._make()
            except OSError:
                continue  # No process, or no folder, at the moment.

    def _make(self) -> None:
        limit = memory.usable()
        if limit < NEEDS:
            self._emit(
                f"the archive of Spark's classes is not made: that needs {NEEDS >> 20} MB, and "
                f"only {limit >> 20} MB may be used here; run jrs prepare where there is more"
            )
            return
        archive = place()
        self._emit(f"making the archive of Spark's classes, {archive}")
        with _maker("--idle") as maker:
            while maker.poll() is None and not self._over.wait(0.5):
                pass
        made = archive is not None and archive.is_file()
        self._emit(f"the archive of Spark's classes is {'made' if made else 'not made'}")

    def _is_asked(self) -> bool:
        """Return whether a session has requested an archive since the last one was made."""
        folder = _folder()
        wanted = folder.glob("*.wanted") if folder is not None else ()
        asked = {path: path.stat().st_mtime_ns for path in wanted}
        if asked.items() <= self._tried.items():
            return False
        self._tried = asked
        return True


def _folder() -> Path | None:
    asked = os.environ.get(FOLDER)
    if asked == "off":
        return None
    if asked:
        return Path(asked).absolute()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jrs"
    except RuntimeError:
        return None  # The user has no home.


def _wanted(archive: Path) -> Path:
    return archive.with_suffix(".wanted")


def _failed(archive: Path) -> Path:
    return archive.with_suffix(".failed")


def _maker(*arguments: str) -> subprocess.Popen[bytes]:
    """Start the process that makes an archive; it ends with the ``with``, and with this process."""
    return subprocess.Popen(
        [sys.executable, "-m", "jrs.recovery.spark.class_data", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=credentials.without_secrets(os.environ),
    )


# -- the maker's process ---------------------------------------------------------------------


def main() -> None:
    """Make the requested archive, unless another process makes it."""
    os.setpgid(0, 0)
    JrsThread(target=_end_with_stdin, name="jrs-end", daemon=True).start()
    if "--idle" in sys.argv[1:]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    archive = place()
    if archive is None or not _wanted(archive).exists():
        return
    half, work = archive.with_suffix(".half"), archive.with_suffix(".work")
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not archive.is_file() and _wanted(archive).exists():
                shutil.rmtree(work, ignore_errors=True)  # A killed process may have left it.
                _train(half, work)
                sync(half)
                os.rename(half, archive)
                delete_unused(archive, time.time())
        except Exception as error:
            _failed(archive).write_text(str(error), encoding="utf-8")
        finally:
            half.unlink(missing_ok=True)
            shutil.rmtree(work, ignore_errors=True)
            _wanted(archive).unlink(missing_ok=True)


def _end_with_stdin() -> None:
    """End this process and its JVM when the process that started it ends: stdin is its pipe."""
    while os.read(0, 4096):  # Not by a file object, whose lock the interpreter needs at its end.
        pass
    os.killpg(0, signal.SIGKILL)


def _train(target: Path, folder: Path) -> None:
    """Do a little of what jobs do, in a JVM that writes its loaded classes when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    folder.mkdir(mode=0o700)
    conf = {
        **LOCAL,
        **STREAMING,
        "spark.master": "local[2]",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.defaultJavaOptions": (
            f'"-XX:ArchiveClassesAtExit={target}" "-Djava.io.tmpdir={folder}" {_QUIET}'
        ),
    }
    try:
        session = SparkSession.builder.config(map={**conf}).getOrCreate()
        warm_up.work_like_a_job(session, folder)
        session.stop()
    except Exception as error:
        # Read its text now: that of an error of the JVM ends with the JVM. Of two lines, the second
        # names the cause: in the first, Py4J says which call failed.
        lines = str(error).splitlines()
        why = next((line.strip(": ") for line in reversed(lines[:2]) if line.strip()), "no reason")
        raise RuntimeError(f"{type(error).__name__}: {why}") from None
    finally:
        if (gateway := SparkContext._gateway) is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(_PATIENCE)  # It writes the archive when it ends.
    if not target.is_file():
        raise RuntimeError("this Java writes no archive of classes")


if __name__ == "__main__":
    main()
