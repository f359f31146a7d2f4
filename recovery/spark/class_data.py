"""Class-data sharing: an archive of Spark's classes, parsed and checked, so that its JVM starts in
about half the time (JEP 350).

A failover of a job on Spark is for the most part the start of a JVM that loads some 20,000 classes.
A session that finds no archive leaves word; a master of the same host and user then makes one,
while nothing else wants the processor, or ``jrs prepare`` does. An archive is of one Spark and one
Java, is some 190 MB in ``~/.cache/jrs``, and may be deleted at any time; a JVM that it does not fit
ignores it. The environment variable ``JRS_CLASS_DATA`` names another folder, or is ``off``.

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
from pathlib import Path
from typing import TYPE_CHECKING, Self

from jrs.contract import credentials
from jrs.contract.errors import InvalidInput, Unavailable

from ..files.transfer import sync
from .settings import LOCAL, STREAMING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "JRS_CLASS_DATA"
"""The environment variable that names the archives' folder, or is ``off``."""
_LOOK = 10.0
"""Seconds between two looks for what sessions have asked for."""
_PATIENCE = 900.0
"""Seconds after which an archive is taken to never be finished."""
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that does not fit is of no interest to the reader of a job's output."""


def options() -> str:
    """Return the options with which a JVM shares classes. Nothing where there is no archive: then
    word is left that one is wanted."""
    archive = place()
    if archive is None:
        return ""
    if archive.is_file():
        return f'"-XX:SharedArchiveFile={archive}" {_QUIET}'
    if not _failed(archive).exists():
        try:
            archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _wanted(archive).touch()
        except OSError:
            pass  # A host where nothing can be kept starts Spark as before.
    return ""


def place() -> Path | None:
    """Return where the archive of this Python's Spark and of this Java is, or would be.

    None if there is to be none, or there is no Spark or no Java.
    """
    folder = _folder()
    try:
        import pyspark
        from pyspark.find_spark_home import _find_spark_home
    except ImportError:
        return None
    java = find_java()
    if folder is None or java is None:
        return None
    java = os.path.realpath(java)
    home = Path(_find_spark_home())
    # A Java or a Spark that was installed again, at the same place, passes over the old one's.
    made_for = f"{java} {os.stat(java).st_mtime_ns} {home} {_installed_at(home)}"
    key = hashlib.sha256(made_for.encode()).hexdigest()[:12]
    return folder / f"spark-{pyspark.__version__}-{key}.jsa"


def _installed_at(home: Path) -> int:
    try:
        return os.stat(home / "jars").st_mtime_ns
    except OSError:
        return 0  # Built from source: its jars are elsewhere.


def find_java() -> str | None:
    """Return the Java that Spark starts; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def make() -> Path:
    """Return the archive; made, by a process of its own, unless it is there. Idempotent.

    Raises:
        InvalidInput: there is no Spark or no Java, or archives are off.
        Unavailable: it could not be made; says why.
    """
    archive = place()
    if archive is None:
        raise InvalidInput(
            f"nothing to prepare: Spark or Java is not installed, or {FOLDER} is off"
        )
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
    """Makes what sessions have asked for, for as long as a master runs; a context manager."""

    def __init__(self, look: float = _LOOK) -> None:
        self._look = look
        self._over = threading.Event()
        self._tried: dict[Path, int] = {}
        self._thread = threading.Thread(target=self._run, name="jrs-class-data", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._look):
            try:
                if self._is_asked():
                    with _maker("--idle") as maker:
                        while maker.poll() is None and not self._over.wait(0.5):
                            pass
            except OSError:
                continue  # No process, or no folder, at the moment.

    def _is_asked(self) -> bool:
        """Return whether a session has asked since the last time that one was made."""
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
        return None  # A user without a home.


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
    """Make the archive that is wanted, unless another process is at it."""
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_stdin, name="jrs-end", daemon=True).start()
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
                shutil.rmtree(work, ignore_errors=True)  # Of one that was killed.
                _train(half, work)
                sync(half)
                os.rename(half, archive)
        except Exception as error:
            _failed(archive).write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        finally:
            half.unlink(missing_ok=True)
            shutil.rmtree(work, ignore_errors=True)
            _wanted(archive).unlink(missing_ok=True)


def _end_with_stdin() -> None:
    """End with whoever started this, and the JVM with it: it has no other way to notice."""
    while os.read(0, 4096):  # Not by a file object, whose lock the interpreter wants at its end.
        pass
    os.killpg(0, signal.SIGKILL)


def _train(target: Path, folder: Path) -> None:
    """Do a little of what jobs do, in a JVM that writes the classes it has loaded when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    folder.mkdir(mode=0o700)
    conf = {
        **LOCAL,
        **STREAMING,
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.defaultJavaOptions": (
            f'"-XX:ArchiveClassesAtExit={target}" "-Djava.io.tmpdir={folder}" {_QUIET}'
        ),
    }
    try:
        _work_like_a_job(SparkSession.builder.config(map=conf).getOrCreate(), folder)
    finally:
        if (gateway := SparkContext._gateway) is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(_PATIENCE)  # It is at its end that it writes the archive.
    if not target.is_file():
        raise RuntimeError("this Java writes no archive of classes")


def _work_like_a_job(session: SparkSession, folder: Path) -> None:
    from pyspark.sql import functions as F

    rows = session.range(0, 1000, 1, 2).selectExpr(
        "timestamp_seconds(id * 60) as at", "cast(id % 3 as string) as key", "id as value"
    )
    rows.write.parquet(str(folder / "in"))
    stream = session.readStream.schema(rows.schema).parquet(str(folder / "in"))
    window = F.window("at", "10 minutes")
    sums = stream.withWatermark("at", "20 minutes").groupBy(window, "key").agg(F.sum("value"))
    query = (
        sums.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "ck"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    names = session.createDataFrame([("0", "zero"), ("1", "one")], ["key", "name"])
    joined = session.read.parquet(str(folder / "in")).join(names, "key", "left")
    joined.groupBy("name").agg(F.count("*"), F.max("at")).orderBy("name").collect()
    session.stop()


if __name__ == "__main__":
    main()
