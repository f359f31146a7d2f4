"""Recovery lists folders by `jrs.recovery.files.safe_listing`, which never passes over one."""

from __future__ import annotations

import ast

import pytest

from .test_layers import MODULES

A_SWEEP = "what it misses, the next sweep removes"

ALLOWED = {
    "jrs.recovery.attempt.stage_outputs": A_SWEEP,
    "jrs.recovery.files.job_folders": A_SWEEP,
    "jrs.recovery.files.removal": "it measures what is removed",
    "jrs.recovery.leader.fetched_checkpoints": A_SWEEP,
    "jrs.recovery.snapshots.deletion_notes": A_SWEEP,
    "jrs.recovery.snapshots.unnamed_blobs": A_SWEEP,
    "jrs.recovery.spark.class_data": "archives of classes: a session without one starts slower",
    "jrs.recovery.spark.cluster": "the job's own code: Spark names the module that is missing",
    "jrs.recovery.spark.probes": "a look of `jrs doctor` at files of its own",
}
"""Where a file that is missed does no harm, and why."""

PASSING_OVER = ("glob", "rglob")


def passing_over(source: str) -> list[int]:
    """Return the lines of the calls that pass over a folder that cannot be listed."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, of = node.func.attr, node.func.value
        is_walk = name == "walk" and isinstance(of, ast.Name) and of.id == "os"
        strict = any(one.arg == "onerror" for one in node.keywords)
        if name in PASSING_OVER or (is_walk and not strict):
            found.append(node.lineno)
    return found


def test_the_rule() -> None:
    assert passing_over("import os\nos.walk(a)\nb.rglob('*')\nos.walk(a, onerror=c)\nwalk(a)") == [
        2,
        3,
    ]


@pytest.mark.parametrize("name", [one for one in MODULES if one.startswith("jrs.recovery.")])
def test_nothing_is_passed_over(name: str) -> None:
    found = passing_over(MODULES[name].read_text(encoding="utf-8"))
    if name in ALLOWED:
        assert found, f"{name} needs no exception any more"
    else:
        assert found == [], f"{name}: list folders by jrs.recovery.files.safe_listing"
