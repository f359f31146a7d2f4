"""The line that a trial prints, and its exit status."""

from __future__ import annotations

from collections import Counter
from typing import Any

from jrs.testing.chaos import figures
from tests.chaos.nfs.trial import Trial

NEVER = ("late files", "late batches", "missed files", "missed batches", "unseen", "inconsistent")
"""The counts that must be 0: files in the new folder, and batches in the output, of a zombie that
was taken over; files and batches from before that are not there; what the leader's client does not
see as the server has it; checkpoints that a successor stumbles over."""


def report(command: str, machine: str, trial: Trial, verdict: dict[str, Any], lasted: float) -> int:
    """Print the line of a trial; return the exit status.

    Args:
        command: what runs such trials.
        machine: on which it ran.
        lasted: seconds.
    """
    how = f"`{command}`: {trial.options}"
    how += f"{' (a rename alone)' * trial.plain}{' restarting' * trial.restarting}"
    counts = summary(verdict)
    found = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    seconds = sorted(one["seconds"] for one in verdict["jobs"].values())
    took = f"seconds of a take-over {seconds[len(seconds) // 2]:.1f} (most {seconds[-1]:.1f})"
    print(f"{how} | {figures.commit()} | {machine} | {found}, {took} | {lasted:.0f} s", flush=True)
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
