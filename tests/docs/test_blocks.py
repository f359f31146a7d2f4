"""Blocks of the documentation that need something of their own, and neither Spark nor a master."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from examples import jdbc
from tests.docs import session
from tests.docs.test_docs import BLOCKS, marked


def test_the_recipe_takes_each_batch_once() -> None:
    """The statements of the recipe, on SQLite. `tests/spark/test_jdbc.py` runs the same ones on
    PostgreSQL, in a stream whose leader dies."""
    [statements] = marked("recipes.md")
    names: dict[str, str] = {}
    exec(statements, names)
    assert (names["RESERVE"], names["TAKE_BACK"]) == (jdbc.RESERVE, jdbc.TAKE_BACK)

    with sqlite3.connect(":memory:") as database:
        for table in jdbc.TABLES:
            database.execute(table)
        # By job, epoch, generation and batch: new, repeated, by an older driver, after a restore.
        tried = [(1, 1, 0), (2, 1, 1), (2, 1, 1), (1, 1, 2), (2, 2, 1)]
        changed = [database.execute(names["RESERVE"], ("job", *one)).rowcount for one in tried]
        database.executemany("INSERT INTO payments VALUES (0, 0, 0, 'job', ?)", [(0,), (1,), (2,)])
        taken_back = database.execute(names["TAKE_BACK"], ("job", 1)).rowcount

    assert [bool(count > 0) for count in changed] == [True, True, False, False, True]
    assert taken_back == 2


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
