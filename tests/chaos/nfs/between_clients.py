"""Trials of take-overs between two clients, whatever filesystem they share."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.chaos.nfs import verdict
from tests.chaos.nfs.trial import Trial

Start = Callable[..., subprocess.Popen[bytes]]
"""Starts a module with its arguments on the client of that number, mounted with those options."""


def planned(
    program: str, times: str, mounts: Sequence[str], *, leaks: str, restarts: str
) -> list[Trial]:
    """Return the trials that the command line asks for.

    Args:
        program: its name.
        times: the name of the option for how often each is tried.
        mounts: the options of mounts that are tried without any option.
        leaks: those with which a rename alone has to leak.
        restarts: those with which zombies begin their stage again.
    """
    made = argparse.ArgumentParser(prog=program)
    made.add_argument("--options", action="append", help="of the mounts (default: several)")
    made.add_argument(f"--{times}", dest="times", type=int, default=1, help="for each of them")
    made.add_argument("--zombies", type=int, default=10, help="for each trial")
    made.add_argument("--plain", action="store_true", help="take over by a rename alone")
    made.add_argument("--restarting", action="store_true", help="zombies begin their stage again")
    asked = made.parse_args()
    trials = [
        Trial(mount, asked.zombies, asked.plain, asked.restarting)
        for mount in asked.options or mounts
        for _ in range(asked.times)
    ]
    if not asked.options:
        trials.insert(0, Trial(leaks, asked.zombies, plain=True))
        trials.append(Trial(restarts, asked.zombies, restarting=True))
    return trials


def play(told: Path, start: Start) -> dict[str, Any]:
    """Play the trial of a file, and return the verdict.

    Raises:
        RuntimeError: the leader or the zombies have failed.
    """
    trial = Trial.from_json(told.read_text())
    zombies = start(0, trial.options, "tests.chaos.nfs.zombies", str(told))
    time.sleep(trial.alone)
    leader = start(1, trial.options, "tests.chaos.nfs.leader", str(told))
    status = leader.wait()
    trial.over.touch()
    if status or zombies.wait():
        raise RuntimeError(f"the leader ended with {status}, the zombies with {zombies.poll()}")
    return verdict.evaluate(trial, Path("/proc/version").read_text().split()[2])
