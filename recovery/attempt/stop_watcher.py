"""StopWatcher: the attempt's part in a stop: it notices the request and stops its stages.

The leader does the rest: it ends the attempt once its stages are suspended, or when the grace
period is over, and records that the job is suspended. So an attempt that hangs cannot keep its job
from stopping.
"""

from __future__ import annotations

import threading
import traceback

from jrs.contract.errors import Fenced, JrsError, Unavailable
from jrs.contract.texts import error_text
from jrs.records.model import StopMode, StopRecord, StopState
from jrs.store.stop_transitions import StopEvent

from ..snapshots.catalog import SnapshotCatalog
from ..snapshots.scheduled import take_scheduled_snapshot
from .attempt_run import AttemptRun

_LOOK = 0.5
"""Seconds between two checks for a request."""


class NotBegun(Unavailable):
    """This process cannot run an attempt now, because the system lacks resources. The job is not at
    fault; its function was not called."""


class StopWatcher:
    """Checks for a stop while the job's function runs; a context manager.

    Raises:
        NotBegun: on entry, if the system gives this process no thread.
    """

    def __init__(self, run: AttemptRun) -> None:
        self._run = run
        self._context = run.context
        self._stops = self._context.stops
        self._over = threading.Event()
        self._last_reported = ""
        self._thread = self._context.runtime.thread(self._watch, "jrs-stop-watch")

    def __enter__(self) -> StopWatcher:
        try:
            self._thread.start()
        except RuntimeError as error:
            raise NotBegun(
                f"job {self._context.job_id!r} cannot be started now: {error}"
            ) from error
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        done: StopRecord | None = None
        while not self._over.wait(_LOOK):
            try:
                stop = self._stops.get(self._context.job_id)
                if stop is None or stop.state is not StopState.REQUESTED:
                    continue
                new = done is None or done.requested_at != stop.requested_at
                if new:
                    self._begin(stop)
                    done = stop
                elif stop.mode is StopMode.DRAIN:
                    self._drain(stop)  # There may be new stages to drain.
                self._stops.report_progress(
                    self._context.job_id, self._run.steps(), self._context.fence
                )
            except Fenced:
                return  # Every further write of this attempt is refused as well.
            except (JrsError, OSError):
                continue  # The next check begins again; a request is not lost.
            except Exception as error:
                self._say(error)  # A fault: without this thread, the job could not be stopped.

    def _say(self, error: Exception) -> None:
        """Report why a stop is not carried out, once for each reason."""
        why = f"a stop is not carried out: {error_text(error)}"
        if why != self._last_reported:
            self._last_reported = why
            traceback.print_exception(error)
            self._context.reporter.waiting(why)

    def _begin(self, stop: StopRecord) -> None:
        if stop.mode is StopMode.SUSPEND:
            self._run.suspend()
            steps = self._run.steps()
            self._stops.advance(stop, StopEvent.QUIESCE, self._context.fence, stages=steps)
        elif stop.mode is StopMode.DRAIN:
            # The last state that can be resumed: the end of a stream cannot.
            context = self._context
            take_scheduled_snapshot(
                SnapshotCatalog(context.backend, context.storage, historian=context.historian),
                stop.job_id,
                context.spec.snapshots,
                context.fence,
            )
            self._drain(stop)

    def _drain(self, stop: StopRecord) -> None:
        why = self._run.drain()
        if why is not None:
            self._stops.advance(stop, StopEvent.REFUSE, self._context.fence, reason=why)
