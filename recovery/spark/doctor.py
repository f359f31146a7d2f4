"""Whether jobs can run on Spark from this host: a job that `jrs doctor --spark` runs.

It runs as any job, so that its session starts as that of an attempt. Its diagnostics are lines of a
file that the doctor reads meanwhile: what was found stays known if the session never starts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import attrs

from jrs.contract.backend import Diagnostic
from jrs.contract.errors import CannotStartHere
from jrs.records.settings import JobSettings, local_path

from ..attempt.job import Job, context_of
from . import cluster_reach, host_configuration, jvm
from .error_reasons import why
from .job_configuration import conf_of
from .session import jvm_died

TESTED = ("4.1", "4.2", "4.3")
"""The releases of PySpark that tests run with, the oldest first."""
_LEAST_JAVA = 17
_ANSWERS = 10.0
"""Seconds in which a program answers."""
NO_SESSION = "correct what it names, in --conf, spark-defaults.conf or the environment"
"""What to do if no session starts."""
_FOLDERS = (
    ("event log", "spark.eventLog.dir", "/tmp/spark-events"),
    ("ui", "spark.ui.store.path", ""),
)
"""What Spark writes outside of the job's folder; the key, and Spark's default."""


@attrs.frozen
class Report:
    """The file that takes diagnostics, one line of JSON each."""

    path: Path

    def add(self, found: Diagnostic) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(attrs.asdict(found)) + "\n")

    def read(self) -> list[Diagnostic]:
        """Return what is there so far; a line that is being written counts later."""
        text = self.path.read_text() if self.path.exists() else ""
        return [
            Diagnostic(**json.loads(line)) for line in text.splitlines(True) if line[-1] == "\n"
        ]


def check(job: Job, report: str, timeout: float, known: bool) -> None:
    """Start a session as any attempt does, and report what it and its executors find.

    Args:
        report: the file of the `Report`.
        timeout: seconds to wait for the cluster's master, and then for executors.
        known: whether the job's files are where other jobs keep theirs.
    """
    told, context = Report(Path(report)), context_of(job)
    # Of its own first: without them there is no session.
    fit = True
    for found in (_java(), _pyspark(), *_configuration(context.spec.settings)):
        told.add(found)
        fit = fit and found.remedy is None
    if not fit:
        return
    from . import probes  # It imports pyspark.

    try:
        probes.run(context, told.add, timeout, known=known)
    except Exception as error:
        if jvm_died(error):
            raise  # What the JVM has printed says more.
        told.add(Diagnostic("session", why(error), NO_SESSION))


def _java() -> Diagnostic:
    java = jvm.find_java()
    if java is None:
        remedy = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
        return Diagnostic("java", jvm.no_java(), remedy)
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWERS, check=False
        )
        said = (done.stderr or done.stdout).strip().partition("\n")[0]
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    version = re.search(r'version "(\d+)', said)
    if version is None:
        return Diagnostic("java", f"{java} does not tell its version: {said}", "install Java 17")
    if int(version[1]) < _LEAST_JAVA:
        return Diagnostic("java", f"{java}: {said}", f"Spark needs Java {_LEAST_JAVA} or newer")
    return Diagnostic("java", f"{java}: {said}")


def _pyspark() -> Diagnostic:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Diagnostic("pyspark", "it is not installed", "pip install 'jrs[spark]'")
    try:
        arrow = metadata.version("pyarrow")
    except metadata.PackageNotFoundError:
        return Diagnostic("pyspark", f"{version}, without pyarrow", "pip install 'jrs[spark]'")
    said = f"{version}, with pyarrow {arrow}"
    least, newest = (tuple(map(int, one.split("."))) for one in (TESTED[0], TESTED[-1]))
    mine = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if mine < least:
        return Diagnostic("pyspark", said, f"jobs need PySpark {TESTED[0]} or newer")
    if mine > newest:
        said += f"; the newest that was tested is {TESTED[-1]}"
    return Diagnostic("pyspark", said)


def _configuration(settings: JobSettings) -> Iterator[Diagnostic]:
    """Check what the configuration names."""
    try:
        conf = {**host_configuration.settings_found(os.environ), **conf_of(settings)}
    except CannotStartHere as error:
        yield Diagnostic("session", str(error), NO_SESSION)
        return
    yield from _folders(conf)
    yield from _address(conf)


def _folders(conf: dict[str, str]) -> Iterator[Diagnostic]:
    """Check the folders of the event log and of the user interface, where they are configured."""
    logs = conf.get("spark.eventLog.enabled", "").lower() == "true"
    for name, key, default in _FOLDERS:
        place = conf.get(key, default if logs and name == "event log" else "")
        if not place or (name == "event log" and not logs):
            continue
        path = local_path(place)
        if path is None:
            yield Diagnostic(name, f"{place}, which only Spark can check, as the session starts")
        elif not os.path.isdir(path):
            yield Diagnostic(name, f"there is no folder {path}", f"create it, or set {key}")
        elif not os.access(path, os.W_OK | os.X_OK):
            yield Diagnostic(
                name, f"{path} is not writable for this user", f"let it write there, or set {key}"
            )
        else:
            yield Diagnostic(name, f"{path} is writable")


def _address(conf: dict[str, str]) -> Iterator[Diagnostic]:
    """Check that a server listens where the master of a cluster should be."""
    master = host_configuration.master_of(conf, {})
    if failed := cluster_reach.unreachable(master):
        yield Diagnostic(
            "master",
            f"{master} cannot be reached: {'; '.join(failed)}",
            cluster_reach.REMEDY,
        )
