"""Take-overs of jobs on JuiceFS between two hosts, which have mounted it by FUSE.

    ./dev long juicefs-zombies                          each of these trials once
    ./dev long juicefs-zombies --options= --times 10    a hundred take-overs with default options

What is tried, and what must be 0, is as with NFS: see `tests.chaos.nfs`. It runs as root, in a
mount namespace of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jrs.testing.chaos import figures
from tests.chaos.nfs.between_clients import planned
from tests.chaos.nfs.report import report
from tests.chaos.nfs.trial import Trial

LONG = "--attr-cache=60 --entry-cache=60 --dir-entry-cache=60"
"""As long as the clients of NFS may cache names by default."""
OPTIONS = ("", LONG)
PROGRAM = "./dev long juicefs-zombies"


def main() -> int:
    trials = planned(PROGRAM, "times", OPTIONS, leaks=LONG, restarts="")
    return max([run(trial) for trial in trials], default=0)


def run(trial: Trial) -> int:
    """Run a trial and print its line; return the exit status."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jrs-juicefs-", dir=figures.scratch()) as name:
        folder = Path(name)
        (folder / "trial.json").write_text(trial.as_json())
        own = ("unshare", "--mount", "--propagation=private")
        program = (sys.executable, "-m", "tests.chaos.juicefs.inside", name)
        if status := subprocess.run([*own, *program], check=False).returncode:
            return status
        verdict = json.loads((folder / "verdict.json").read_text())
    lasted = time.monotonic() - began
    return report(PROGRAM, figures.machine(), trial, verdict, lasted)


if __name__ == "__main__":
    sys.exit(main())
