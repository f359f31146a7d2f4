"""Only one room knows the format of Spark's files: no other module names parts of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from .test_layers import MODULES, ROOT

ROOM = "jrs.recovery.checkpoint_format"

WORDS = re.compile(
    r"_spark_metadata|\.(compact|changelog|delta)\b"
    r"|batchWatermarkMs|batchTimestampMs|logOffset|nextBatchWatermarkMs|stateUniqueIds"
    r"|sstFiles|logFiles|dfsSstFileName|dfsLogFileName|\bSSTs\b"
)
"""Words that occur in Spark's files or in their names, and nowhere else."""

FOLDERS = ("offsets", "commits")
"""The folders of a checkpoint's logs: nobody else joins them to a path."""

OUTSIDE = {
    name: path for name, path in MODULES.items() if name != ROOM and not name.startswith(f"{ROOM}.")
} | {
    f"{top}.{path.stem}": path
    for top in ("benchmarks", "examples")
    for path in sorted((ROOT / top).glob("*.py"))
}


def knows(text: str) -> Iterator[str]:
    """Yield the literals of a module that belong to the format, with their lines."""
    tree = ast.parse(text)
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            if WORDS.search(node.value):
                yield f"{node.lineno}: {node.value!r}"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            name = node.right.value if isinstance(node.right, ast.Constant) else None
            if name in FOLDERS:
                yield f"{node.lineno}: / {name!r}"


def test_nobody_else_knows_sparks_files() -> None:
    """A new version of Spark touches one room."""
    found = {module: list(knows(path.read_text())) for module, path in OUTSIDE.items()}

    assert {module: where for module, where in found.items() if where} == {}


@pytest.mark.parametrize(
    "text",
    [
        'LOG = "_spark_metadata"',
        'log = f"{table}/_spark_metadata/{batch}"',
        'end = json.loads(line)["logOffset"]',
        'newest = max(os.listdir(checkpoint / "offsets"))',
        'name = f"{batch}.compact"',
    ],
)
def test_what_counts_as_knowing(text: str) -> None:
    assert list(knows(text))


def test_the_room_is_found() -> None:
    """Otherwise the test above would pass without looking at anything."""
    found = [list(knows(path.read_text())) for name, path in MODULES.items() if name not in OUTSIDE]

    assert len(found) > 10
    assert sum(map(len, found)) > 10
    assert list(knows('"""A docstring of ``_spark_metadata``."""')) == []
