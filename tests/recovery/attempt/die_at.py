"""Run the job of test_stages.py as a leader of its own, and be killed at one step of a stage.

python die_at.py URL ROOT CALLS STEP
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jrs.records.model import JobSpec
from jrs.recovery.attempt.attempt_run import AttemptRun
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.run import run_attempt
from jrs.recovery.files.job_folders import JobStorage
from jrs.store.opening import open_backend
from tests.recovery import jobs

CLUSTER = "test"
STEPS = {
    "inside the function": (Path, "write_text", "after"),
    "before the sync": (JobStorage, "make_durable", "before"),
    "before the record": (AttemptRun, "commit_stages", "before"),
    "between record and rename": (JobStorage, "publish", "before"),
    "after the rename": (JobStorage, "publish", "after"),
}
"""The call that kills the process in the stage ``second``, before it is made or after it."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(method: Callable[..., Any], when: str) -> Callable[..., Any]:
    """Wrap a method so that it is the process's last act in the stage ``second``."""

    def wrapper(self: Any, *args: Any) -> Any:
        # What the call is about: a path, a stage's record or its list, or what is written.
        about = args[0][0] if isinstance(args[0], list) else args[0]
        if "second" not in str(getattr(about, "name", about)):
            return method(self, *args)
        if when == "after":
            method(self, *args)
        return die()

    return wrapper


def main() -> None:
    url, root, calls, step = sys.argv[1:]
    owner, name, when = STEPS[step]
    setattr(owner, name, deadly(getattr(owner, name), when))
    with open_backend(url, cluster=CLUSTER) as backend:
        leadership = backend.campaign("doomed", ttl=30.0, stop=threading.Event())
        assert leadership is not None
        storage = JobStorage(Path(root), CLUSTER)
        storage.take_over("job", leadership.epoch)
        spec = JobSpec("job", "given:directly", {"calls": calls})
        context = AttemptContext(spec, 1, leadership.fence, backend, storage, 0.0)
        run_attempt(context, jobs.two_stages)


if __name__ == "__main__":
    main()
