"""The program of an attempt in a process of its own: it joins the attempt and Spark.

Its standard input is a socket by which its watchdog passes the launch to it, and before that, if
the process starts ahead of an attempt, the plan by which it prepares itself. It tells the watchdog
the time limits of its stages, and whether it was interrupted, through the descriptor PIPE:

    python -m jrs.recovery.attempt_main PIPE < socket
"""

from __future__ import annotations

import os
import sys
import time
import traceback

import attrs

from jrs.contract import masks
from jrs.contract.errors import CannotStartHere, Fenced, JrsError
from jrs.host import credentials
from jrs.records import traceparent
from jrs.records.model import JobSpec
from jrs.store.opening import open_backend

from .attempt import preloading, tracing
from .attempt.host import module_paths
from .attempt.launch import (
    EXIT_CANNOT_START,
    EXIT_DIED,
    EXIT_FENCED,
    EXIT_INTERRUPTED,
    EXIT_JVM_DIED,
    EXIT_NOT_UNDERSTOOD,
    Launch,
)
from .attempt.launch_socket import Kind, LaunchSocket, NotUnderstood, read
from .attempt.run import AttemptDied, JvmDied, run_attempt
from .attempt.triage import INTERRUPTIONS
from .attempt.warm_plan import WarmPlan
from .attempt.watchdog_pipe import WatchdogPipe
from .spark.engine import ENGINE, PySparkEngine

PROGRAM = "jrs.recovery.attempt_main"
"""The module that ``python -m`` runs for an attempt."""


def _launched(launches: LaunchSocket, pipe: int, engine: PySparkEngine) -> tuple[Launch, int]:
    """Return the launch and the descriptor of the pipe for reports.

    The lifeline's pipe, if there is one, stays open until this process ends.
    """
    message = launches.receive()
    if message is not None and message.kind is Kind.PLAN:
        plan = WarmPlan.from_line(read(message.descriptors[0]))
        files = preloading.load(plan.preload)
        engine.prepare(plan)
        message.close()
        launches.send(Kind.READY)
        message = launches.receive()
        if message is not None and (path := preloading.changed(files)):
            print(f"jrs: {path} changed after it was preloaded: starting again", file=sys.stderr)
            engine.discard()
            preloading.begin_again(message, pipe)
    if message is None:
        sys.exit(EXIT_DIED)  # The watchdog has died, and the kernel ends this process.
    launches.close()
    line, reports, *_ = message.descriptors
    launch = Launch.from_line(read(line))
    os.close(line)  # It has secrets, which a forked child could read.
    return launch, reports


def _continue_trace(launch: Launch, spec: JobSpec) -> None:
    """Let what the job's function starts or submits be a part of the job's trace."""
    if traceparent.VARIABLE not in launch.env:
        found = traceparent.of_job(spec.traceparent, launch.cluster, spec.job_id)
        os.environ[traceparent.VARIABLE] = found


def run_launch(
    launch: Launch, reports: int, watchdog: WatchdogPipe | None, engine: PySparkEngine
) -> int:
    """Run the attempt of a launch; return the exit status, which reports how it ended."""
    try:
        with credentials.lent(launch.secrets):
            opened = open_backend(launch.backend, cluster=launch.cluster, create=False)
        with opened as backend:
            context = attrs.evolve(launch.context(backend, reports), watchdog=watchdog)
            sys.path[:0] = module_paths(context.spec.settings.py_files)
            _continue_trace(launch, context.spec)
            run_attempt(context, engine=engine)
        return 0
    except Fenced as error:
        print(masks.masked(f"jrs: {error}"), file=sys.stderr)
        return EXIT_FENCED
    except CannotStartHere as error:
        print(masks.masked(f"jrs: {error}"), file=sys.stderr)
        return EXIT_CANNOT_START
    except INTERRUPTIONS as error:
        print(masks.masked(f"jrs: {error}"), file=sys.stderr)
        return EXIT_INTERRUPTED
    except (AttemptDied, JrsError) as error:
        print(masks.masked(traceback.format_exc()), end="", file=sys.stderr)
        return EXIT_JVM_DIED if isinstance(error, JvmDied) else EXIT_DIED


def main(pipe: int, engine: PySparkEngine = ENGINE) -> None:
    """Run the attempt of the launch; the exit status reports how it ended.

    Args:
        pipe: the descriptor by which the watchdog is told the time limits of stages, and of an
            interruption.
    """
    watchdog = WatchdogPipe(pipe, time.monotonic)
    try:
        launch, reports = _launched(LaunchSocket.inherited(), pipe, engine)
    except NotUnderstood as error:
        watchdog.report_refused()
        print(f"jrs: {error}", file=sys.stderr)
        sys.exit(EXIT_NOT_UNDERSTOOD)
    masks.hide(launch.job_secrets.values())
    os.environ.update(launch.job_secrets)
    status = run_launch(launch, reports, watchdog, engine)
    if status == EXIT_INTERRUPTED:
        watchdog.report_interrupted()
    tracing.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    # A JVM or threads that the function left running must not keep a finished attempt alive; the
    # watchdog ends the rest of its processes.
    os._exit(status)


if __name__ == "__main__":
    main(int(sys.argv.pop()))
