"""Take-overs of jobs on a real NFS server with two real clients, in user-mode-linux.

    ./dev long nfs                                  each of these trials once
    ./dev long nfs --options vers=4.2 --boots 10    a hundred take-overs with default options

Each boot is a machine of its own with ten jobs. On its first client their zombies run on, while a
leader on the second one takes them over. A rename alone must leak, or the trial shows nothing; else
nothing of a zombie may appear after the take-over, and nothing that it did before may be missing,
on the server or to the leader. Otherwise the exit status is 1. As root, on x86_64, with a checkout
and a temporary folder that are not below /dev, /mnt or /run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from jrs.testing.chaos import figures
from tests.chaos.nfs import uml
from tests.chaos.nfs.between_clients import planned
from tests.chaos.nfs.report import report
from tests.chaos.nfs.trial import Trial

OPTIONS = ("vers=4.2", "vers=4.2,actimeo=1", "vers=4.2,lookupcache=none", "vers=3,nolock")
PROGRAM = "./dev long nfs"


def main() -> int:
    first = OPTIONS[0]
    trials = planned(PROGRAM, "boots", OPTIONS, leaks=first, restarts=first)
    if missing := uml.missing():
        print(
            f"this needs NFS in user-mode-linux; not here: {', '.join(missing)}; on Debian: "
            "apt-get install user-mode-linux nfs-kernel-server nfs-common",
            file=sys.stderr,
        )
        return 2
    return max([run(trial) for trial in trials], default=0)


def run(trial: Trial) -> int:
    """Run a trial and print its line; return the exit status."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jrs-nfs-") as name:
        folder = Path(name)
        (folder / "trial.json").write_text(trial.as_json())
        timeout = 300 + trial.alone + trial.polled + trial.watched + 30 * trial.zombies
        program = ["tests.chaos.nfs.guest", name]
        printed = uml.boot(program, folder, disk_mb=1024, timeout=timeout)
        if not (folder / "verdict.json").exists():
            print(f"{printed}\nuser-mode-linux ended without a verdict", file=sys.stderr)
            return 2
        verdict = json.loads((folder / "verdict.json").read_text())
    machine = f"{figures.machine()}, Linux {verdict['kernel']} inside"
    return report(PROGRAM, machine, trial, verdict, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
