"""What a trial has shown: was the zombie fenced, and has its successor all that it had done?"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.chaos.nfs.trial import LOGS, Trial

MARGIN = 0.05
"""Seconds before the take-over within which something counts as done meanwhile."""

Deeds = list[tuple[float, str, str]]


def evaluate(trial: Trial, kernel: str) -> dict[str, Any]:
    """Return the verdict on each job of a trial."""
    leader = json.loads((LOGS / "leader").read_text())
    jobs = {
        job: judge_job(leader["jobs"][job], json.loads((LOGS / f"{job}.deeds").read_text()))
        for job in trial.jobs
    }
    rest = {name: value for name, value in leader.items() if name != "jobs"}
    return {"kernel": kernel, "jobs": jobs, **rest}


def judge_job(taken: dict[str, Any], deeds: Deeds) -> dict[str, Any]:
    """Compare what a leader found of one job, and what was added later, with the zombie's deeds."""
    first, last, seen = taken["at return"], taken["at end"], taken["seen"]
    before = [(what, name) for at, what, name in deeds if at < taken["begun"] - MARGIN]
    removed = {name for _, what, name in deeds if what == "removed"}
    owed = {name for what, name in before if what == "written"} - removed
    published = {name for what, name in before if what == "published"}
    late = {
        *(name for name, what in last["files"].items() if first["files"].get(name) != what),
        *(name for name in first["files"] if name not in last["files"]),
    }
    planned = seen.get("planned", -1)
    batches = {int(name.partition("=")[2]) for name in last["batches"]}
    published_to = max(batches, default=-1)
    commits = [int(name[8:]) for name in owed if name[8:].isdigit() and name[:8] == "commits/"]
    return {
        "seconds": taken["returned"] - taken["begun"],
        "refused": taken["refused"],
        "batches before": sum(what == "plan" for what, _ in before),
        "files owed": len(owed),
        "files linked": len(first["files"]),
        "late files": sorted(late),
        "late batches": sorted(set(last["batches"]) - set(first["batches"])),
        "missed files": sorted(owed - set(first["files"])),
        "missed batches": sorted(published - set(first["batches"])),
        "unseen": _unseen(first, seen),
        "inconsistent": _inconsistent(seen, max(commits, default=-1), published_to, planned),
        "left at return": taken["left at return"],
        "told": dict(_told(deeds, taken["returned"])),
        "last deed": max((at for at, what, _ in deeds if what in _DONE), default=0.0)
        - taken["returned"],
    }


_DONE = ("written", "published")


def _unseen(first: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """Return what the leader's client has missed or seen otherwise than it was."""
    names = {*first["files"], *seen["files"]}
    wrong = [name for name in names if first["files"].get(name) != seen["files"].get(name)]
    return sorted([*wrong, *set(first["batches"]) - set(seen["batches"])])


def _inconsistent(seen: dict[str, Any], commit: int, published: int, planned: int) -> str:
    """Return what a successor would stumble over, or an empty string."""
    if "error" in seen:
        return str(seen["error"])
    if not commit <= seen["committed"]:
        return f"batch {commit} was committed, the checkpoint is at {seen['committed']}"
    if seen["selected"] != seen["committed"]:
        return f"batch {seen['committed']} is committed, its state is of {seen['selected']}"
    if published > planned:
        return f"batch {published} is published, and {planned} the newest planned"
    return ""


def _told(deeds: Deeds, since: float) -> Counter[str]:
    """Return what the zombie was told after it was replaced, and how often."""
    return Counter(
        f"{what}: {name or 'done'}"
        for at, what, name in deeds
        if at > since and what not in (*_DONE, "removed", "purge")
    )
