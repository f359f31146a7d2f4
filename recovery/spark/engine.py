"""The engine of attempts: Spark, loaded when a job first uses it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..attempt.engine import StreamHost, StreamSupervisor
from ..attempt.warm_plan import WarmPlan
from . import cluster, prepared
from .session import cancel_work, jvm_died, require_pyspark, session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PySparkEngine:
    """The engine of attempts on PySpark."""

    def prepare(self, plan: WarmPlan) -> None:
        require_pyspark()
        prepared.prepare(plan)

    def discard(self) -> None:
        """End what `prepare` has made."""
        prepared.discard()

    def session(self, run: StreamHost) -> SparkSession:
        return session_of(run.context)

    def supervise(self, run: StreamHost, *, draining: bool) -> StreamSupervisor:
        require_pyspark()
        from .streams import Streams  # It imports pyspark, which takes a second.

        return Streams(run, draining=draining)

    def check_output(self, run: StreamHost, output: Path) -> None:
        cluster.check_output(run.context, output)

    def jvm_died(self, error: BaseException) -> bool:
        return jvm_died(error)

    def cancel_work(self, job_id: str) -> None:
        cancel_work(job_id)


ENGINE = PySparkEngine()
