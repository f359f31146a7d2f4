"""A job that waits until it is ended, for leaders to be killed over."""

from __future__ import annotations

import threading

from jrs import Job


def wait(job: Job) -> None:
    threading.Event().wait()


def nothing(job: Job) -> None:
    pass
