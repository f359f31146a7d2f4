"""Bringing a query to a batch boundary, and ending it there."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.contract.clock import Deadline
from jrs.contract.runtime import Runtime

from .checkpoint_reads import position

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_BOUNDARY = 10.0
"""Seconds in which a query may reach a batch boundary by itself before it is stopped."""


def stop_at_boundary(query: StreamingQuery, checkpoint: Path) -> None:
    """Stop a query between two batches: while it waits for its trigger, or when it has just
    committed one of the batches that it runs without a pause. Raises nothing."""
    deadline = Deadline.after(_BOUNDARY)
    try:
        before = position(checkpoint).committed
        # Spark reports no boundary, so ask it.
        while query.isActive and query.status["isTriggerActive"] and not deadline.expired:
            if position(checkpoint).committed > before:
                break
            time.sleep(0.01)
    except Exception:
        pass  # Its JVM is gone, and the query with it; or its checkpoint cannot be read now.
    stop(query)


def stop(query: StreamingQuery) -> None:
    """Stop a query. Raises nothing."""
    try:
        query.stop()
    except Exception:
        pass  # It did not end in time, or its JVM is gone: its process group is ended in any case.


class Stopper:
    """The thread that stops the queries of one stage while other stages are checked."""

    def __init__(self, runtime: Runtime, stage: str) -> None:
        self._runtime = runtime
        self._stage = stage
        self._thread: threading.Thread | None = None

    def begin(self, query: StreamingQuery, checkpoint: Path) -> bool:
        """Have the thread stop a query at a boundary; return whether it does that from now on.

        It does not if it is stopping one already, or the system gives this process no thread. Call
        this again while the query runs: the thread may have ended without stopping it.
        """
        if self._thread is not None and self._thread.is_alive():
            return False
        thread = self._runtime.thread(
            partial(stop_at_boundary, query, checkpoint), f"jrs-stop-{self._stage}"
        )
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True
