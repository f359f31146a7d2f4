"""Every requirement is borne by a test: one that CI runs names its number in its docstring.

The numbers are those that comments and docs go by: J of a job result store, S of stopping, N of
snapshots, F of stages that finish before others, R of state that is relocatable.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIREMENTS = {
    "J1": "a new leader gets the state of each job that it may have to recover",
    "J2": "a job id is unique for as long as its cluster lives, and only there",
    "J3": "results outlive their jobs, and are under the control of whoever reads them",
    "J4": "the result of a job that has ended can be had, also while it is cleaned up",
    "J5": "a result is dirty first, and clean when the job's resources are gone",
    "J6": "no job that has ended is started again",
    "J7": "a job's resources are cleaned up as one, by one component",
    "J8": "jobs of several stages, in a driver's own main",
    "J9": "opt-in, and an interface that others implement",
    "J10": "no failover makes a result unknown",
    "S1": "suspend: to a boundary, with windows left open; it can be resumed",
    "S2": "drain: everything that waits for a watermark is given",
    "S3": "stopping is synchronous, and FINISHED is said last",
    "S4": "stopping needs no option that there was not",
    "S5": "a cancel works while a stop is stuck",
    "S6": "what was kept can be restored several times, and by several jobs",
    "S7": "recover, rescale, change, upgrade, migrate, export, import, fork",
    "S8": "snapshots, which may share files, and backups, which do not",
    "N1": "there is one notion of a snapshot, and each may be recovered from",
    "N2": "no snapshot has side effects, and none is taken of what is not committed",
    "N3": "users delete and move through the system alone",
    "N4": "snapshots of users are kept beside all others",
    "N5": "the user names a format, and has a default",
    "N6": "users say what is wanted, not how to get there",
    "N7": "state can be read, and brought into another format, from outside",
    "N8": "incremental snapshots can be deleted in any order",
    "N9": "a matrix says what each format is good for",
    "F1": "snapshots while some stages have finished and others run",
    "F2": "what has finished is marked, and skipped on recovery",
    "F3": "a stage runs when all that it comes after has finished",
    "F4": "no new work before a finished stage",
    "F5": "the last rows are committed, whichever way a stage ends",
    "F6": "stages that end together have one last commit",
    "F7": "exactly once at the end: neither twice nor never",
    "R1": "cheap snapshots of large state, without a pause",
    "R2": "all state of a job is in its own folder",
    "R3": "a new job that goes on from old state is told from the old one's restart",
    "R4": "no chain of references that a wrong deletion breaks",
    "R5": "paths are relative",
    "R6": "state is moved after its cluster has failed",
}
LIMITS = {
    "S7": ("docs/concepts.md", "A job's state store is chosen once"),
    "N7": ("docs/concepts.md", "A job's state store is chosen once"),
}
"""What of a requirement can not be met: which document says so, with the reason, and in what
words."""


@functools.cache
def bearing() -> dict[str, str]:
    """Return what each test that CI runs says of itself."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                # A mark on one parameter leaves the others to CI.
                marks = {ast.unparse(each) for each in node.decorator_list}
                if "pytest.mark.soak" not in marks:
                    found[f"{path}::{node.name}"] = ast.get_docstring(node) or ""
    return found


@pytest.mark.parametrize("number", REQUIREMENTS)
def test_a_test_bears_it(number: str) -> None:
    """At least one test that CI runs names the requirement in its docstring."""
    named = re.compile(rf"\b{number}\b")

    assert [name for name, said in bearing().items() if named.search(said)], REQUIREMENTS[number]


def test_no_test_names_what_is_none() -> None:
    """A number that a docstring begins with is one of the list: a slip of the pen would bear
    nothing."""
    found = {
        number
        for said in bearing().values()
        if (first := re.match(r"((?:[A-Z][0-9]+(?:, )?)+):", said))
        for number in first[1].split(", ")
    }

    assert found
    assert found <= REQUIREMENTS.keys()


@pytest.mark.parametrize("number", LIMITS)
def test_what_can_not_be_met_is_documented(number: str) -> None:
    """What of a requirement can not be met is named in the docs."""
    document, words = LIMITS[number]

    assert number in REQUIREMENTS
    assert words in " ".join((ROOT / document).read_text(encoding="utf-8").split())
