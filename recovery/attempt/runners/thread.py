"""The thread runner: attempts in the master's own process and SparkSession.

For the application mode, where the master is the driver. A thread cannot be killed: ending it sets
its job's `lost` event, cancels its Spark work, and waits. Whatever it still does is fenced.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from jrs.contract.clock import Deadline
from jrs.contract.errors import CannotStartHere, Fenced, JrsError
from jrs.contract.runtime import JrsThread
from jrs.contract.texts import error_text

from ..context import AttemptContext
from ..engine import NO_SPARK, SparkEngine
from ..run import AttemptDied, run_attempt
from ..stop_watcher import NotBegun
from ..triage import INTERRUPTIONS
from . import AttemptExit, OnEnd, Runner, RunningAttempt

_LOCK_LIMIT = 7.5  # Half of the default ttl.

IN_THREADS: dict[threading.Thread, AttemptContext] = {}
"""The attempts that run in threads of this process now."""


class ThreadRunner(Runner):
    """Runs each attempt in a thread of its own.

    Args:
        lock_limit: seconds of processor time for which an attempt may keep the interpreter's lock
            before the process ends itself: less than it takes to lose the leadership.
        engine: the attempts' access to Spark.
    """

    def __init__(self, lock_limit: float = _LOCK_LIMIT, engine: SparkEngine = NO_SPARK) -> None:
        self._lock_limit = lock_limit
        self._engine = engine

    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        return ThreadAttempt(context, function, on_end, self._lock_limit, self._engine)


class ThreadAttempt(RunningAttempt):
    """An attempt in a thread."""

    def __init__(
        self,
        context: AttemptContext,
        function: Callable[..., Any] | None,
        on_end: OnEnd,
        lock_limit: float,
        engine: SparkEngine,
    ) -> None:
        self._context = context
        self._lock_limit = lock_limit
        self._engine = engine
        self._function = function
        self._on_end = on_end
        self._thread = JrsThread(
            target=self._run, name=f"jrs-attempt-{context.spec.job_id}", daemon=True
        )
        self._thread.start()

    def end(self, deadline: Deadline) -> bool:
        self._context.lost.set()
        self._engine.cancel_work(self._context.spec.job_id)
        self._thread.join(deadline.bounded())
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with ExitStack() as stack:
                IN_THREADS[threading.current_thread()] = self._context
                stack.callback(IN_THREADS.pop, threading.current_thread())
                self._leave_last_words(stack)
                run_attempt(self._context, self._function, self._engine)
            ended = AttemptExit()
        except Fenced as error:
            ended = AttemptExit(message=str(error), fenced=True)
        except CannotStartHere as error:
            ended = AttemptExit(message=str(error), cannot_start=True)
        except NotBegun as error:
            ended = AttemptExit(message=str(error), begun=False)
        except INTERRUPTIONS as error:
            ended = AttemptExit(message=str(error), detail=traceback.format_exc(), interrupted=True)
        except BaseException as error:  # An unreported end would look like a long run.
            known = isinstance(error, (AttemptDied, JrsError))
            message = str(error) if known else error_text(error)
            ended = AttemptExit(message=message, detail=traceback.format_exc())
        self._on_end(ended)

    def _leave_last_words(self, stack: ExitStack) -> None:
        """Have this process leave its last words.

        Raises:
            NotBegun: the storage or the host has no room for them.
        """
        words, job_id = self._context.last_words, self._context.spec.job_id
        if words is None:
            return
        try:
            stack.enter_context(words.attempt(job_id, self._lock_limit))
        except (OSError, RuntimeError) as error:
            raise NotBegun(f"job {job_id!r} cannot be started now: {error}") from error
