"""The program of an attempt in a process of its own: it joins the attempt and Spark.

It reads its launch from standard input, written by its watchdog, and tells the watchdog the time
limits of its stages through the descriptor LIMITS:

    python -m jrs.recovery.process_attempt LIMITS < launch
"""

from __future__ import annotations

import os
import sys
import time
import traceback

import attrs

from jrs.contract import credentials, masks
from jrs.contract.errors import CannotStartHere, Fenced, JrsError
from jrs.store.opening import open_backend

from .attempt.host import module_paths
from .attempt.launch import EXIT_CANNOT_START, EXIT_DIED, EXIT_FENCED, EXIT_JVM_DIED, Launch
from .attempt.run import AttemptDied, JvmDied, run_attempt
from .attempt.stage_timer import StageTimer
from .spark.engine import ENGINE

PROGRAM = "jrs.recovery.process_attempt"
"""The module that ``python -m`` runs for an attempt."""


def _forget_input() -> None:
    """Keep processes that inherit standard input from reading the launch again."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, sys.stdin.fileno())
    os.close(null)


def main() -> None:
    """Run the attempt described on standard input; the exit status reports how it ended."""
    timer = StageTimer(int(sys.argv.pop()), time.monotonic)
    launch = Launch.from_line(sys.stdin.buffer.readline())
    _forget_input()
    masks.hide(launch.job_secrets.values())
    os.environ.update(launch.job_secrets)
    with credentials.lent(launch.secrets):
        opened = open_backend(launch.backend, cluster=launch.cluster, create=False)
    with opened as backend:
        try:
            context = attrs.evolve(launch.context(backend), timer=timer)
            sys.path[:0] = module_paths(context.spec.settings.py_files)
            run_attempt(context, engine=ENGINE)
            status = 0
        except Fenced as error:
            print(masks.masked(f"jrs: {error}"), file=sys.stderr)
            status = EXIT_FENCED
        except CannotStartHere as error:
            print(masks.masked(f"jrs: {error}"), file=sys.stderr)
            status = EXIT_CANNOT_START
        except (AttemptDied, JrsError) as error:
            print(masks.masked(traceback.format_exc()), end="", file=sys.stderr)
            status = EXIT_JVM_DIED if isinstance(error, JvmDied) else EXIT_DIED
    sys.stdout.flush()
    sys.stderr.flush()
    # A JVM or threads that the function left running must not keep a finished attempt alive; the
    # watchdog ends the rest of its processes.
    os._exit(status)


if __name__ == "__main__":
    main()
