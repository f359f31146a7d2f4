"""The end of a leader's process, where user code in it does not end: it is said, then done."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

from jrs.contract.masks import masked
from jrs.contract.runtime import daemon, start_thread

from ..attempt.job_log import printed
from ..rules.events import EventKind
from .context import LeaderContext

EXIT_DEPOSED = 76
"""Exit status of a leader that ended itself because user code in its process did not end."""

_exit = os._exit
"""Not the one that leaves last words: the storage that has them may hang."""

_log = printed("jrs.master", logging.Formatter("jrs: %(message)s"))


_SAYING = 2.0
"""Seconds for saying it: logging and the standard streams may block."""
_SAYING_LOST = 0.02
"""The share of the ttl for that after a loss: another master is about to lead."""


def end_process(
    context: LeaderContext, jobs: Sequence[str], error: BaseException | None = None
) -> None:
    """End this process with `EXIT_DEPOSED`, and say why: no code of the program's own runs, and
    nothing else would show what its main has raised.

    Args:
        jobs: whose attempt is not known to have ended.
        error: what is in flight in the thread that leads.
    """
    names = ["main"] * context.main_runs.is_set() + [f"job {job_id!r}" for job_id in jobs]
    what = " and ".join(names) or "an attempt"

    def say() -> None:
        context.emit(EventKind.DEPOSED, "", f"{what} did not end; this process ends itself")
        raised = [] if error is None else traceback.format_exception(error)
        shown = masked("".join(["; raised meanwhile:\n", *raised]).rstrip()) if raised else ""
        said = "%s did not end, so this process ends itself, with exit status %s%s"
        _log.error(said, what, EXIT_DEPOSED, shown)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()

    lost = context.leadership.lost.is_set()
    try:
        speaker = daemon(say, "jrs-process-end")
        start_thread(speaker)
        speaker.join((context.ttl or 0.0) * _SAYING_LOST if lost else _SAYING)
    finally:
        _exit(EXIT_DEPOSED)
