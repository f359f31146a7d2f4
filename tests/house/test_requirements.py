"""Every requirement, and every fault that was mended, is borne by a test that CI runs: its
docstring names the number.

The numbers of requirements are those that comments and docs go by: J of a job result store, S of
stopping, N of snapshots, F of stages that finish before others, R of state that is relocatable.
Those of faults: A of how batches are committed, B of liveness and limits, C of shared storage, D of
the disk, S of the store and its protocol, U of what users run into, X of security.
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
    "J3": "results outlive their jobs, and their readers control them",
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
    "N4": "snapshots of users are kept next to all others",
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
    "R3": "a new job that resumes from old state is told from the old one's restart",
    "R4": "no chain of references that a wrong deletion breaks",
    "R5": "paths are relative",
    "R6": "state is moved after its cluster has failed",
}
FAULTS = {
    "A1": "an attempt writes below a place of its own, which nobody else uses",
    "A2": "what an attempt commits checks the fence of that attempt, also within one epoch",
    "A3": "an unknown outcome deletes nothing, and no batch is taken for another one",
    "A4": "a restore moves the head back and begins a generation",
    "A5": "every batch moves the head, also one without rows, and one that spreads the state",
    "A6": "a plan is durable before a function is called by it, and so is each later call's",
    "A7": "what a snapshot names is not removed by a sweep, also at the same moment",
    "A9": "what a host needs to resume a stream is in objects before a batch counts",
    "B1": "one process writes the next base, and no leader loses its lead meanwhile",
    "B2": "a job that ends its master's process ends few masters, and is found out",
    "B3": "no text is too long for a job to end, and no job has too many stages",
    "B4": "after a failed sync only what was written again counts, and the handle keeps working",
    "B5": "a leader looks at the jobs that something names, and reads nothing of those that rest",
    "B6": "a late write of a dead attempt is refused, also within one epoch",
    "B7": "no second attempt runs while a leader that hangs cannot end its own",
    "B8": "a cleanup that hangs holds up nothing but itself",
    "B9": "a cleaner that exits, or a runner that cannot start, is tried after growing delays",
    "B10": "an attempt ends with its master and its watchdog, however both die",
    "B11": "an attempt is found by a mark that nobody can make up",
    "B12": "a master that is PID 1 leaves no zombies",
    "B13": "many attempts are ended with few looks at all processes",
    "B14": "a job whose spec cannot be read can be canceled and cleaned up",
    "B15": "nobody can request a hold",
    "B16": "a new leader tries a cleanup again that was given up",
    "B17": "nothing is published behind a durable end of a job",
    "C1": "storage whose filesystem caches names is refused",
    "C2": "the sink runs where Python workers cannot import jrs",
    "C3": "executors of another user can use a storage that is shared with their group",
    "C4": "a dead driver's executors do not keep its successor waiting",
    "C5": "a cluster that the submit arguments name is no local master",
    "C6": "the module of an entry point reaches the executors",
    "C7": "Spark Connect is refused by name",
    "C8": "temporary files can be on a local disk, and go however the attempt ends",
    "C9": "output on a storage that executors do not share is not taken for whole",
    "C10": "the user interface is on where a cluster runs the job",
    "D1": "masters wait while the disk refuses to let them lead, and say why",
    "D2": "damage of a base costs the keys that it may have held, and no other",
    "D3": "no state in which a power cut leaves the log counts as damage",
    "D4": "a part of the log that was removed, doubled, swapped or zeroed is noticed",
    "D5": "masters wait at a damaged epoch, and an operator can restore it",
    "D6": "an interrupt between any two instructions wedges no handle",
    "D7": "processes that cannot be read are not taken for gone",
    "D8": "what disks, memory and numbers refuse is said in one line",
    "D9": "a leader with too much to do keeps the lead",
    "S1": "what could not be read back is refused when it is made",
    "S2": "a finished batch stage is not handed back behind work that is new",
    "S3": "results are listed, and expire, as they are, whatever is written meanwhile",
    "S4": "marking a result clean is no conflict with writing it",
    "S5": "a cancel leaves no record behind a job that is gone",
    "S6": "two versions share a cluster while it is upgraded",
    "S7": "the names that a record counts on are synced before it",
    "S8": "leases are evaluated by a clock that counts while a host sleeps",
    "S9": "a snapshot's entry is deleted before its files",
    "S10": "a commit ends at its deadline, also while the disk hangs",
    "U1": "a name of an application stands for one run, and a result that is handed back is said",
    "U2": "what is wrong with one host is no outcome of a job",
    "U3": "a job that failed is retried as another one, which takes over what it had finished",
    "U4": "a cluster knows its storage, and neither is used with an older copy of the other",
    "U5": "a key of Spark's configuration is taken as it is, or refused",
    "U6": "logs are bounded while a job runs, and outlive its cleanup",
    "U7": "what a job was, and how each attempt ended, is shown long after its end",
    "U8": "readers and the leader tell the same of a job, and say when no master leads",
    "U9": "no scheduled snapshot is taken while nothing is committed",
    "U10": "the system deletes only the snapshots that the system took",
    "U11": "a job has a format for its snapshots, and snapshots are converted",
    "U12": "a request for a job that has ended says so, and a repeated one changes nothing",
    "U13": "a master makes no archive of Spark's classes unasked",
    "U14": "the steps of stages are events of their master",
    "U15": "a master runs a bounded number of attempts at once",
    "U16": "the time of a job, an attempt and a stage is limited, over failovers",
    "U17": "each job has settings of its own, and its secrets are neither stored nor shown",
    "U18": "an application and its jobs are one unit, which is seen, canceled and ends as a whole",
    "U20": "what happens to a job is said in the words of its user",
    "U19": "small traps: units, wrong values, another call of a job that has ended, …",
    "X1": "nothing that is printed holds a control character or a forged line",
    "X2": "no snapshot that is restored writes outside of its job's folder",
    "X3": "masters can be told what code to run, and jobs get no credentials",
}
OF_BOTH = {
    "S1": ("records/test_made.py",),
    "S2": ("recovery/attempt/test_stages.py",),
    "S3": ("store/test_store_races.py",),
    "S4": ("store/test_store_races.py",),
    "S5": ("store/test_store_races.py",),
    "S6": (
        "recovery/attempt/test_fencing.py",
        "records/test_codec.py",
        "store/test_versions.py",
        "upgrade/test_rolling_upgrade.py",
    ),
    "S7": ("recovery/files/test_names.py",),
    "S8": ("recovery/attempt/test_file_lifeline.py", "backends/shared/test_lease.py"),
}
"""The numbers that are in both lists: the files whose tests mean the fault by them. All others mean
the requirement."""
LIMITS = {
    "S7": ("docs/concepts.md", "A job's state store is chosen once"),
    "N7": ("docs/concepts.md", "A job's state store is chosen once"),
}
"""What of a requirement cannot be met: which document says so, with the reason, and in what
words."""


@functools.cache
def bearing() -> dict[tuple[str, str], str]:
    """Return what each test that CI runs says of itself, by its file and its name."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path == Path(__file__):
            continue
        file = path.relative_to(ROOT / "tests").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                # A mark on one parameter leaves the others to CI.
                marks = {ast.unparse(each) for each in node.decorator_list}
                if "pytest.mark.soak" not in marks:
                    found[file, node.name] = ast.get_docstring(node) or ""
    return found


def first_numbers(said: str) -> list[str]:
    """Return the numbers that a docstring begins with."""
    first = re.match(r"((?:[A-Z][0-9]+(?:, )?)+):", said)
    return first[1].split(", ") if first else []


@pytest.mark.parametrize("number", REQUIREMENTS)
def test_a_test_bears_it(number: str) -> None:
    """At least one test that CI runs names the requirement in its docstring."""
    named = re.compile(rf"\b{number}\b")
    of_a_fault = OF_BOTH.get(number, ())

    assert [
        name
        for (file, name), said in bearing().items()
        if file not in of_a_fault and named.search(said)
    ], REQUIREMENTS[number]


@pytest.mark.parametrize("number", FAULTS)
def test_a_test_bears_the_fault(number: str) -> None:
    """At least one test that CI runs begins its docstring with the fault's number; in each of the
    files that tell it from a requirement at least one does."""
    files = {file for (file, _), said in bearing().items() if number in first_numbers(said)}

    assert files, FAULTS[number]
    assert files >= set(OF_BOTH.get(number, ())), FAULTS[number]


def test_a_number_of_both_lists_is_told_apart() -> None:
    """Each number that is a requirement's and a fault's says which file means which."""
    assert OF_BOTH.keys() == REQUIREMENTS.keys() & FAULTS.keys()


def test_no_test_names_what_is_none() -> None:
    """A number that a docstring begins with is one of the lists: a slip of the pen would bear
    nothing."""
    found = {number for said in bearing().values() for number in first_numbers(said)}

    assert found
    assert found <= REQUIREMENTS.keys() | FAULTS.keys()


@pytest.mark.parametrize("number", LIMITS)
def test_what_cannot_be_met_is_documented(number: str) -> None:
    """What of a requirement cannot be met is named in the docs."""
    document, words = LIMITS[number]

    assert number in REQUIREMENTS
    assert words in " ".join((ROOT / document).read_text(encoding="utf-8").split())
