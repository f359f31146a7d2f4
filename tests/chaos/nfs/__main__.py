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

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from jrs.testing.chaos import figures
from tests.chaos.nfs import uml
from tests.chaos.nfs.trial import Trial

OPTIONS = ("vers=4.2", "vers=4.2,actimeo=1", "vers=4.2,lookupcache=none", "vers=3,nolock")
NEVER = ("late files", "late batches", "missed files", "missed batches", "unseen", "inconsistent")
"""The counts that must be 0: files in the new folder, and batches in the output, of a zombie that
was taken over; files and batches from before that are not there; what the leader's client does not
see as the server has it; checkpoints that a successor stumbles over."""


def main() -> int:
    options = parse()
    if missing := uml.missing():
        print(
            f"this needs NFS in user-mode-linux; not here: {', '.join(missing)}; on Debian: "
            "apt-get install user-mode-linux nfs-kernel-server nfs-common",
            file=sys.stderr,
        )
        return 2
    trials = [
        Trial(mount, options.zombies, options.plain, options.restarting)
        for mount in options.options or OPTIONS
        for _ in range(options.boots)
    ]
    if not options.options:
        trials.insert(0, Trial(OPTIONS[0], options.zombies, plain=True))
        trials.append(Trial(OPTIONS[0], options.zombies, restarting=True))
    return max([run(trial) for trial in trials], default=0)


def parse() -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="./dev long nfs")
    made.add_argument("--options", action="append", help="of the mounts (default: several)")
    made.add_argument("--boots", type=int, default=1, help="for each of them")
    made.add_argument("--zombies", type=int, default=10, help="for each boot")
    made.add_argument("--plain", action="store_true", help="take over by a rename alone")
    made.add_argument("--restarting", action="store_true", help="zombies begin their stage again")
    return made.parse_args()


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
    counts = summary(verdict)
    how = f"{trial.options}{' (a rename alone)' * trial.plain}{' restarting' * trial.restarting}"
    found = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    seconds = sorted(one["seconds"] for one in verdict["jobs"].values())
    machine = f"{figures.machine()}, Linux {verdict['kernel']} inside"
    took = f"seconds of a take-over {seconds[len(seconds) // 2]:.1f} (most {seconds[-1]:.1f})"
    lasted = f"{time.monotonic() - began:.0f} s"
    print(
        f"`./dev long nfs`: {how} | {figures.commit()} | {machine} | {found}, {took} | {lasted}",
        flush=True,
    )
    if trial.plain:
        return 0 if counts["late files"] and counts["late batches"] else 1
    for job, one in verdict["jobs"].items():
        for kind in NEVER:
            if one[kind]:
                print(f"{job}: {kind}: {one[kind]}", flush=True)
    return 1 if any(counts[kind] for kind in NEVER) else 0


def summary(verdict: dict[str, Any]) -> dict[str, int]:
    """Return the counts of a trial."""
    found: Counter[str] = Counter()
    for one in verdict["jobs"].values():
        found["zombies"] += 1
        for kind in ("batches before", "files owed"):
            found[kind] += one[kind]
        for kind in NEVER:
            found[kind] += one[kind] != "" if isinstance(one[kind], str) else len(one[kind])
        found["refused tries"] += len(one["refused"])
        found["left undeleted"] += one["left at return"]
    return dict(found)


if __name__ == "__main__":
    sys.exit(main())
