"""Watching a session that starts on a cluster, whose master may be silent and have no executor."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from pyspark import SparkContext

from jrs.contract.backend import Diagnostic
from jrs.contract.runtime import JrsThread

from ..attempt.launch import EXIT_DIED
from . import host_configuration

Tell = Callable[[Diagnostic], None]
_POLL = 0.2


class StartWatch:
    """Bounds the time that a session on a cluster waits for its master, and for executors.

    Spark itself waits for executors without end.
    """

    def __init__(self, tell: Tell, timeout: float) -> None:
        self.executors = False
        """Whether executors have come."""
        self._tell = tell
        self._timeout = timeout
        self._over = threading.Event()
        self._thread = JrsThread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def tell_master(self, context: SparkContext) -> None:
        where = f"{context.master}, as {context.applicationId}"
        self._tell(Diagnostic("master", f"{where}, Spark {context.version}"))

    def _run(self) -> None:
        # The time of the JVM is this host's and not the cluster's.
        while SparkContext._gateway is None:
            if self._over.wait(_POLL):
                return
        context = self._until(_started)
        if context is None:
            if not self._over.is_set():
                self._tell(_no_session(self._timeout))
                sys.stderr.flush()
                os._exit(EXIT_DIED)  # The call into the JVM cannot be interrupted.
            return
        if host_configuration.is_local(str(context.master)):
            return
        self.tell_master(context)
        self.executors = self._until(lambda: executors_of(context)) is not None
        if not self.executors and not self._over.is_set():
            self._tell(_no_executor(context, self._timeout))
        while not self.executors and not self._over.wait(_POLL):
            context.cancelAllJobs()  # The session's start waits for one.

    def _until(self, condition: Callable[[], Any]) -> Any:
        """Return what the condition gives, once that is true; None after the time."""
        end = time.monotonic() + self._timeout
        while not (found := condition()):
            if time.monotonic() > end:
                return None
            if self._over.wait(_POLL):
                return condition() or None
        return found


def _started() -> SparkContext | None:
    context = SparkContext._active_spark_context
    # It is named before its JVM has a context.
    return context if getattr(context, "_jsc", None) is not None else None


def _no_session(timeout: float) -> Diagnostic:
    return Diagnostic(
        "master",
        f"no session after {timeout:g} s",
        "check spark.master, the network, and whether the cluster accepts applications; or wait "
        "for longer with --timeout",
    )


def executors_of(context: SparkContext) -> list[Any]:
    """Return what Spark knows of each executor; in local mode, of the driver."""
    listed = context._jsc.sc().statusStore().executorList(True)
    found = [listed.apply(at) for at in range(listed.size())]
    local = host_configuration.is_local(str(context.master))
    return [one for one in found if local or one.id() != "driver"]


def _no_executor(context: SparkContext, timeout: float) -> Diagnostic:
    return Diagnostic(
        "executors",
        f"{context.master} gave no executor in {timeout:g} s",
        "check on its page that workers are alive and have free cores and memory "
        "(spark.cores.max, spark.executor.memory), and that they reach the driver at "
        f"{address_of(context)} (SPARK_LOCAL_IP, spark.driver.host)",
    )


def address_of(context: SparkContext) -> str:
    conf = context.getConf()
    return f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
