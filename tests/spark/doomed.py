"""A master that is killed -9 at a step of suspending a job.

    python doomed.py STEP COMMAND…

runs the command of a master, which is ``python -m jrs …``, in this process.
"""

from __future__ import annotations

import sys
from typing import Any

from jrs.cli import main
from jrs.recovery.leader.actions import Actions
from jrs.recovery.leader.attempts import Attempts
from jrs.recovery.leader.recovery_point import RecoveryPoints
from jrs.store.stops import JobStops

STEPS: dict[str, tuple[Any, str, str]] = {
    "decided": (Actions, "suspend", "before"),
    "attempt ended": (Attempts, "end", "after"),
    "pinned": (RecoveryPoints, "take_scheduled_snapshot", "after"),
    "noted": (JobStops, "update", "after"),
}
"""The call at which the master dies, before it is made or after it, in their order."""


if __name__ == "__main__":
    from dying import die_at  # type: ignore[import-not-found]  # It lies next to this file.

    die_at(STEPS[sys.argv[1]])
    sys.argv = sys.argv[4:]  # Behind "python -m": from the module's name on.
    sys.exit(main())
