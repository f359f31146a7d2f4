"""Tables on a narrow terminal."""

from __future__ import annotations

import re

import pytest
import rich.console

from jrs.cli.common import table


def test_no_name_and_no_text_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first column is for the next command; what is long elsewhere is folded."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(rich.console.Console, "is_terminal", True)
    name, word = "nightly-2026-11-20-with-a-long-name", "y" * 100

    table(["JOB", "STATUS", "FAILURE"], [[name, "FAILED", word], ["b", "FINISHED", ""]])

    said = re.sub("\x1b[^m]*m", "", capsys.readouterr().out)
    assert any(line.split()[:1] == [name] for line in said.splitlines())
    assert said.count("y") == len(word) + name.count("y")
    assert max(map(len, said.splitlines())) <= 60


def test_rows_become_lines_where_no_table_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody reads columns of one letter."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(rich.console.Console, "is_terminal", True)

    table(["JOB", "STATUS", "BEGUN", "NOTE"], [["nightly-2026-11-20", "FAILED", "11-20", ""]])

    assert capsys.readouterr().out == "job: nightly-2026-11-20\nstatus: FAILED\nbegun: 11-20\n\n"
