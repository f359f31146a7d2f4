"""One word for one thing, and plain English: words that are kept out of the code.

docs/concepts.md has the words that are used. The documentation has a test of its own.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from jrs.contract.backend import Backend
from jrs.store.stops import JobStops

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for top in ("jrs", "backends", "recovery")
    for path in (ROOT / top).rglob("*.py")
    if path.relative_to(ROOT).parts[:2] not in (("jrs", "backends"), ("jrs", "recovery"))
)
AROUND = sorted(
    path for top in ("tests", "examples", "benchmarks") for path in (ROOT / top).rglob("*.py")
)
"""What is not the product. Its texts may have any word: they are data of tests."""

PROSE = (
    "anew",
    "be it",
    "belongs? into",
    "beside",
    "can not",
    "comes? to stand",
    "for ever",
    "go on",
    "goes on",
    "in peace",
    "its like",
    "leads no more",
    "leaves? word",
    "somebody",
    "tenure",
    "warden",
    "what is told",
    "whoever",
)
"""What docstrings, comments and messages do without."""

NAMES = {
    "Again": "Replan",
    "Begun": "AttemptHandle",
    "Death": "RestartPlan",
    "Ended": "AttemptExit",
    "Finding": "Diagnostic, Violation",
    "Guard": "ShardGeneration",
    "Judged": "Evaluated",
    "Left": "PendingCleanup",
    "Opened": "OpenSnapshot",
    "Place": "ClusterRef, ReadContext, Provisioner, PrefixWriter",
    "STANDS": "QUIESCED",
    "Taken": "Capture",
    "Tracked": "JobMemory",
    "Usable": "RecoverySource",
    "Which": "SnapshotRef",
    "Wire": "BufferedSocket",
    "Wish": "SnapshotRequest, RestoreRequest",
    "check_new": "refuse_foreign_files",
    "claim": "reserve",
    "cluster_id": "cluster",
    "findings": "diagnostics",
    "gate": "write barrier",
    "hold": "acquire, keep",
    "judge": "evaluate",
    "judged": "evaluated",
    "left_over": "orphans",
    "make_usable": "ensure_recoverable",
    "patience": "grace, timeout",
    "pin": "take_scheduled_snapshot",
    "refusals": "error_mapping",
    "sights": "version cache",
    "stand": "suspend, quiesce",
    "standing": "suspended, quiesced",
    "stands": "is_stopped",
    "tenure": "lease",
    "warden": "watchdog",
    "wire": "codec",
}
"""Names that the field has another word for, and that word: see docs/concepts.md."""

KEPT = {
    ("Begun", "jrs/sidecar/"): "a read of a page, and no attempt",
    ("claim", "jrs/cli/snapshots.py"): "`--claim` uses a snapshot up, as in Flink",
    ("claim", "jrs/client/"): "`--claim`",
    ("claim", "jrs/records/snapshots.py"): "`--claim`; the name is stored",
    ("claim", "jrs/sidecar/snapshots.py"): "`--claim`",
    ("claim", "recovery/snapshots/"): "`--claim`",
    ("claim", "tests/killing/"): "`--claim`",
    ("claim", "tests/recovery/cleanup/"): "`--claim`",
    ("claim", "tests/recovery/snapshots/"): "`--claim`",
    ("cluster_id", "backends/etcd/"): "a field of etcd's answers",
    ("cluster_id", "recovery/application.py"): "the former keyword of `jrs.run`, which warns",
    ("gate", "jrs/demo/"): "a file for which a cleanup of the demo waits",
    ("gate", "tests/chaos/"): "a file for which a stage waits",
    ("gate", "tests/spark/"): "a file for which a stage waits",
    ("hold", "benchmarks/leading.py"): "the decision",
    ("hold", "jrs/demo/"): "the demo's resource, which keeps a result dirty",
    ("hold", "jrs/store/stops.py"): "the decision",
    ("hold", "recovery/attempt/run.py"): "the decision",
    ("hold", "recovery/leader/"): "the decision",
    ("hold", "tests/"): "the decision; or a file that keeps a job of a test from its end",
    ("judged", "tests/spark/"): "what a check of a trial has found",
    ("left_over", "jrs/cli/upkeep.py"): "a field of `FsckReport`, which is public",
    ("left_over", "recovery/inspect/fsck.py"): "a field of `FsckReport`, which is public",
    ("left_over", "tests/"): "a field of `FsckReport`, which is public",
    ("patience", "tests/spark/"): "how long a trial waits",
    ("pin", "tests/"): "keep the files of a checkpoint",
    ("refusals", "jrs/testing/chaos/checking/columns.py"): "the operations that were refused",
    ("wire", "tests/chaos/nfs/guest.py"): "connect the network of a machine",
}
"""Where such a name stays, and why."""

FORMER_MODULES = {
    "backends": ("ending", "gate", "refusals", "sights", "tenure", "wire"),
    "recovery/snapshots": (
        "left_over", "moving", "opening", "pending", "reading", "replacing", "taking",
    ),
}  # fmt: skip
"""Names of modules that the field has another word for, by room: `create`, `open`, `swap`, …"""

FORMER_CALLS = {
    JobStops: ("again", "change", "forget", "note", "step"),
    Backend: ("findings", "holds"),
}
"""Names of methods that the field has another word for. Elsewhere they are plain English, as are
`look`, `saw`, `say`, `tell`, `said` and `settle`, so no test keeps these out."""


def avoided(text: str) -> list[str]:
    """Return the words of a text that are avoided."""
    return re.findall(rf"\b(?:{'|'.join(PROSE)})\b", " ".join(text.split()), re.IGNORECASE)


def tokens(source: str) -> tuple[list[str], list[str], set[str]]:
    """Return the strings, the comments and the names of a module."""
    strings, comments, names = [], [], set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING:
            strings.append(token.string)
        elif token.type == tokenize.COMMENT:
            comments.append(token.string)
        elif token.type == tokenize.NAME:
            names.add(token.string)
    return strings, comments, names


def described(source: str) -> Iterator[str]:
    """Yield the docstrings of a module, and the names of its functions as words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
        elif isinstance(node, ast.FunctionDef):
            yield node.name.replace("_", " ")


def prose(path: Path) -> tuple[Iterable[str], set[str]]:
    """Return the strings and the comments of a module, and its names."""
    strings, comments, names = tokens(path.read_text())
    return (*strings, *comments), names


def prose_around(path: Path) -> tuple[Iterable[str], set[str]]:
    """Return the docstrings and the comments of what is not the product, and its names."""
    source = path.read_text()
    _, comments, names = tokens(source)
    return (*comments, *described(source)), names


@pytest.mark.parametrize(
    ("paths", "read"), [(SOURCES, prose), (AROUND, prose_around)], ids=["product", "around"]
)
def test_plain_words(
    paths: Sequence[Path], read: Callable[[Path], tuple[Iterable[str], set[str]]]
) -> None:
    """No word that is avoided is in the prose or the names of a module."""
    found = {}
    for path in paths:
        texts, names = read(path)
        where = str(path.relative_to(ROOT))
        former = sorted(name for name in names & NAMES.keys() if kept(name, where) is None)
        words = [*(word for text in texts for word in avoided(text)), *former]
        if words:
            found[where] = words

    assert found == {}


def kept(name: str, where: str) -> tuple[str, str] | None:
    """Return the exception by which a file may use a former name; None if there is none."""
    return next((one for one in KEPT if one[0] == name and where.startswith(one[1])), None)


def test_each_exception_is_needed() -> None:
    """An exception that no file needs any more is taken out of the list."""
    used = {
        kept(name, str(path.relative_to(ROOT)))
        for path in (*SOURCES, *AROUND)
        for name in tokens(path.read_text())[2] & NAMES.keys()
    }
    assert KEPT.keys() - used == set()


def test_no_former_name_of_a_module_or_a_call() -> None:
    """Rooms and classes whose names were changed keep the new ones."""
    assert [
        f"{room}/{name}.py"
        for room, names in FORMER_MODULES.items()
        for name in names
        if [*(ROOT / room).rglob(f"{name}.py")]
    ] == []
    assert [
        (owner.__name__, name)
        for owner, names in FORMER_CALLS.items()
        for name in names
        if hasattr(owner, name)
    ] == []
