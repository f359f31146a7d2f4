"""A resource whose cleanup waits for a gate, which keeps a result dirty for that long."""

from __future__ import annotations

import os
import time
from pathlib import Path

from jrs import Resource

GATE = "JRS_DEMO_GATE"
"""The environment variable that names the file whose existence opens the gate."""
_PATIENCE = 120.0
_POLL = 0.02


class Hold(Resource):
    """An example of what is slow to remove, such as a table or a bucket."""

    name = "hold"
    prioritised = True

    def __init__(self, gate: Path, job_id: str) -> None:
        self._gate = gate
        self._job_id = job_id

    def clean(self, job_id: str) -> None:
        """Wait until the gate is open, if this is the job that the gate is for."""
        for _ in range(round(_PATIENCE / _POLL)):
            if job_id != self._job_id or self._gate.exists():
                return
            time.sleep(_POLL)
        raise TimeoutError(f"{self._gate} was not made")


def hold() -> Hold:
    """Return the demo's hold, for ``jrs master --resource jrs.demo.hold:hold``."""
    return Hold(Path(os.environ[GATE]), "flights")
