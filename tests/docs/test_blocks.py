"""Blocks of the documentation that need something of their own, and neither Spark nor a master."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pytest

from examples import jdbc
from tests.docs import session
from tests.docs.session import ROOT
from tests.docs.test_docs import BLOCKS, marked

Add = Callable[..., None]


def recipes() -> dict[str, Add]:
    """Return the recipe's function, and that of the example, which has the same statements."""
    [text] = marked("recipes.md")
    names: dict[str, Any] = {}
    exec(text, names)
    for name in ("RESERVE", "REPEATED", "TAKE_BACK"):
        assert names[name] == getattr(jdbc, name)
    return {"page": names["add"], "example": jdbc.add}


@attrs.frozen
class Table:
    """The table of the recipe on SQLite. `tests/spark/test_jdbc.py` has the same statements on
    PostgreSQL, in a stream whose leader dies."""

    add: Add
    database: sqlite3.Connection

    def write(self, epoch: int, generation: int, batch: int, row: int) -> list[int]:
        """Write a batch of one row by the recipe; return the rows of all batches."""
        self.database.execute("DELETE FROM own")
        self.database.execute("INSERT INTO own VALUES (?, 0, 0)", (row,))

        def run(statement: str, *values: object) -> int:
            return self.database.execute(statement, values).rowcount

        with self.database:
            self.add(run, "payments-1", epoch, generation, batch, "own")
        return [row for (row,) in self.database.execute("SELECT id FROM payments ORDER BY id")]


@pytest.fixture(params=["page", "example"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    add = recipes()[request.param]
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in jdbc.TABLES:
            database.execute(statement)
        database.execute("CREATE TABLE own (id bigint, customer bigint, cents bigint)")

        yield Table(add, database)


def test_the_recipe_takes_each_batch_once(table: Table) -> None:
    """A batch that a new leader repeats is in the table once; a restore takes rows back."""
    table.write(1, 1, 0, 10)
    assert table.write(1, 1, 1, 11) == [10, 11]
    assert table.write(2, 1, 1, 99) == [10, 11]
    with pytest.raises(RuntimeError):  # By the older driver, after the newer one has repeated it.
        table.write(1, 1, 2, 99)
    assert table.write(2, 1, 2, 12) == [10, 11, 12]
    assert table.write(2, 2, 1, 21) == [10, 21]


@pytest.mark.parametrize(
    ("epoch", "generation", "batch"),
    [(1, 1, 3), (1, 2, 3), (58, 1, 3), (58, 1, 9), (70, 1, 9), (70, 2, 8)],
    ids=str,
)
def test_the_recipe_skips_nothing_of_another_cluster(
    table: Table, epoch: int, generation: int, batch: int
) -> None:
    """The job continues where epochs begin at 1 again, or from an older backup: none of its batches
    counts as repeated."""
    table.write(58, 2, 8, 8)
    table.write(58, 2, 9, 9)

    with pytest.raises(RuntimeError):
        table.write(epoch, generation, batch, 99)
    [forget] = re.findall(r"`(DELETE FROM progress .+?)`", (ROOT / "docs/recipes.md").read_text())
    table.database.execute(forget)
    assert table.write(epoch, generation, 9, 10) == [8, 10]


[COMPLETION] = (block for block in BLOCKS if block.kind == "bash")


@pytest.mark.parametrize(
    ("line", "shell"),
    list(zip(COMPLETION.text.splitlines(), ("bash", "zsh", "fish"), strict=True)),
    ids=("bash", "zsh", "fish"),
)
def test_completion_is_set_up(line: str, shell: str, tmp_path: Path) -> None:
    """The line for the start-up file of a shell, in that shell; elsewhere, what it evaluates."""
    programs = session.environment(tmp_path / "bin")
    if shutil.which(shell) is None:
        said = session.shell(f"_JRS_COMPLETE={shell}_source jrs", tmp_path, programs, timeout=60)
        assert "_JRS_COMPLETE" in said
        return
    known = {"bash": "complete -p jrs", "zsh": "print $_comps[jrs]", "fish": "complete -c jrs"}
    start = {"bash": "", "zsh": "autoload -Uz compinit && compinit -u\n", "fish": ""}
    done = subprocess.run(
        [shell, "-c", f"PATH={programs}:$PATH\n{start[shell]}{line}\n{known[shell]}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )

    assert done.stderr == ""
    assert "jrs" in done.stdout
