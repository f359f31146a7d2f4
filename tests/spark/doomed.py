"""A master that is killed -9 at a step of what it does about a job that is to stand.

    python doomed.py STEP COMMAND…

runs the command of a master, which is ``python -m jrs …``, in this process.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from jrs.cli import main
from jrs.recovery.actions import Actions
from jrs.recovery.attempts import Attempts
from jrs.recovery.state import JobState
from jrs.stops import JobStops

STEPS: dict[str, tuple[Any, str, str]] = {
    "decided": (Actions, "suspend", "before"),
    "attempt ended": (Attempts, "end", "after"),
    "pinned": (JobState, "pin", "after"),
    "noted": (JobStops, "note", "after"),
}
"""The call at which the master dies, before it is made or after it, in their order."""


def die_at(step: str) -> None:
    owner, name, when = STEPS[step]
    call = getattr(owner, name)

    def last(*args: Any, **options: Any) -> Any:
        if when == "after":
            call(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, last)


if __name__ == "__main__":
    die_at(sys.argv[1])
    sys.argv = sys.argv[4:]  # Behind "python -m": from the module's name on.
    sys.exit(main())
