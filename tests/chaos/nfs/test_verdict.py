"""The evaluation of take-overs on NFS: it notices each fault that it is there to find."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.nfs.report import NEVER, summary
from tests.chaos.nfs.verdict import Deeds, judge_job

FILES = {"offsets/0": (3, 1), "offsets/1": (3, 2), "commits/0": (3, 1)}
BEGUN = 100.0
DEEDS: Deeds = [
    (90.0, "written", "offsets/0"),
    (91.0, "published", "batch=0"),
    (92.0, "written", "commits/0"),
    (93.0, "written", "offsets/1"),
    (94.0, "written", "state/old"),
    (95.0, "removed", "state/old"),
    (99.99, "written", "commits/1"),  # Too late to be owed.
    (101.5, "no plan", "ESTALE"),
]


def taken() -> dict[str, Any]:
    """Return what a leader found at a take-over as it has to be."""
    there = {"files": dict(FILES), "batches": ["batch=0"]}
    return {
        "begun": BEGUN,
        "returned": 101.0,
        "refused": [],
        "left at return": 0,
        "at return": there,
        "at end": copy.deepcopy(there),
        "seen": {**copy.deepcopy(there), "planned": 1, "committed": 0, "selected": 0},
    }


def faults(found: dict[str, Any], deeds: Deeds = DEEDS) -> list[str]:
    verdict = judge_job(found, deeds)
    counts = summary({"jobs": {"job": verdict}})
    assert [kind for kind in NEVER if verdict[kind]] == [kind for kind in NEVER if counts[kind]]
    return [kind for kind in NEVER if counts[kind]]


def test_no_fault() -> None:
    assert faults(taken()) == []
    verdict = judge_job(taken(), DEEDS)
    assert verdict["files owed"] == 3
    assert verdict["told"] == {"no plan: ESTALE": 1}


def add_file(found: dict[str, Any]) -> None:
    found["at end"]["files"]["offsets/2"] = (3, 3)


def change_file(found: dict[str, Any]) -> None:
    found["at end"]["files"]["offsets/1"] = (3, 9)


def remove_file(found: dict[str, Any]) -> None:
    del found["at end"]["files"]["offsets/1"]


def publish(found: dict[str, Any]) -> None:
    found["at end"]["batches"].append("batch=1")


def publish_unplanned(found: dict[str, Any]) -> None:
    for when in ("at return", "at end", "seen"):
        found[when]["batches"].append("batch=2")


def miss_file(found: dict[str, Any]) -> None:
    for when in ("at return", "at end", "seen"):
        del found[when]["files"]["offsets/1"]


def miss_batch(found: dict[str, Any]) -> None:
    for when in ("at return", "at end", "seen"):
        found[when]["batches"].remove("batch=0")


def see_less(found: dict[str, Any]) -> None:
    del found["seen"]["files"]["commits/0"]


def see_another_size(found: dict[str, Any]) -> None:
    found["seen"]["files"]["commits/0"] = (0, 1)


def lose_the_state(found: dict[str, Any]) -> None:
    found["seen"]["selected"] = -1


def be_behind(found: dict[str, Any]) -> None:
    found["seen"] |= {"committed": -1, "selected": -1}


def be_damaged(found: dict[str, Any]) -> None:
    found["seen"]["error"] = "UnreadableCheckpoint: no"


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        *((act, ["late files"]) for act in (add_file, change_file, remove_file)),
        (publish, ["late batches"]),
        (miss_file, ["missed files"]),
        (miss_batch, ["missed batches"]),
        *((act, ["unseen"]) for act in (see_less, see_another_size)),
        *((act, ["inconsistent"]) for act in (lose_the_state, be_behind, be_damaged)),
        (publish_unplanned, ["inconsistent"]),
    ],
)
def test_a_fault(fault: Callable[[dict[str, Any]], None], named: list[str]) -> None:
    found = taken()
    fault(found)
    assert faults(found) == named
