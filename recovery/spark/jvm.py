"""The JVM behind this process's session: its Java, whether it lives, and forgetting one that has
ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

# Imported inside functions: pyspark, since attempts without Spark load this module, too.

_DYING = 5.0
"""Seconds in which a JVM that closed its sockets has ended."""


def find_java() -> str | None:
    """Return the Java that Spark starts; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def no_java() -> str:
    """Return where `find_java` has found none, for people."""
    home = os.environ.get("JAVA_HOME")
    return f"JAVA_HOME ({home}) holds no bin/java" if home else "there is no java on PATH"


def exit_status(*, wait: bool = False) -> int | None:
    """Return the exit status of the JVM that this process started; None while it lives.

    Args:
        wait: it may be about to end.
    """
    process = _process()
    if process is None:
        return None
    try:
        return process.wait(_DYING) if wait else process.poll()
    except subprocess.TimeoutExpired:
        return None


def is_stopped() -> bool:
    """Return whether Spark has stopped this process's session: its cluster ended it, or went."""
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    try:
        return context is not None and bool(context._jsc.sc().isStopped())
    except Exception:
        return False  # The JVM ends: that is noticed by its process.


def end() -> None:
    """End the JVM with its session, and forget both."""
    process = _process()
    if process is not None:
        process.kill()
        process.wait()
    forget()


def forget() -> None:
    """Let pyspark start a new JVM: by itself it continues with the one that died."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None
    forget_session()


def forget_session() -> None:
    """Let pyspark start a new session in the same JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _process() -> subprocess.Popen[bytes] | None:
    pyspark = sys.modules.get("pyspark")
    gateway: Any = None if pyspark is None else pyspark.SparkContext._gateway
    process = getattr(gateway, "proc", None)
    return process if isinstance(process, subprocess.Popen) else None
