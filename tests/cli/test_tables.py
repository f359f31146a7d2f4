"""Tables and texts on a narrow terminal."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest
import rich.console

from jrs import Client, JobResult, JobStatus, connect
from jrs.cli.common import table, took
from jrs.cli.top import drawn_cluster
from jrs.cli.top_job import drawn_job
from jrs.client import overview as overviews
from jrs.client.job_overview import job_overview
from jrs.client.overview import overview
from jrs.records import keys
from jrs.records.model import Failure, JobSpec
from tests.cli.conftest import Jrs
from tests.recovery.conftest import memory, root
from tests.recovery.support import FaultyMemory, spoil

__all__ = ["memory", "root"]

LONG = "ledger-of-" * 11 + "2026-11-2"
JAVA = "Py4JJavaError: calling o45.save failed.\n:" + "\n\tat a.b.C(D.java)" * 100


def on(columns: int, drawn: Any) -> list[str]:
    """Return the lines of what is drawn on a terminal of that width."""
    console = rich.console.Console(width=columns, file=io.StringIO(), color_system=None)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


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

    note = "held: no master could start it so far: m1"
    table(["JOB", "STATUS", "RESULT", "BEGUN", "TOOK", ""],
          [["nightly-2026-11-20", "FAILED", "", "11-20", "-", note]])  # fmt: skip

    assert capsys.readouterr().out == (
        "nightly-2026-11-20\n"
        "  status: FAILED; begun: 11-20\n"
        "  held: no master could start it so far:\n"
        "          m1\n"
    )


def test_each_job_is_a_line_of_a_screen(memory: FaultyMemory) -> None:
    """However long its id and its reason are: both ends of the id are shown. The counts are above
    all parts, since the lower ones may be below the screen."""
    client = Client(memory)
    for number in range(2):
        failure = Failure("exception", JAVA)
        result = JobResult(f"{LONG}{number}", JobStatus.FAILED, None, failure,
                           finished_at=time.time())  # fmt: skip
        client.results.create_dirty(result, None)
    for columns in (40, 80, 200):
        lines = on(columns, drawn_cluster(overview(client), 15, live=True))
        jobs = [line for line in lines if line.startswith("ledger-of-")]
        ends = [line.partition(" ")[0][-7:] for line in jobs]
        assert sorted(ends) == ["6-11-20"] * 2 + ["6-11-21"] * 2
        assert max(map(len, lines)) <= columns
        assert "2 not cleaned up, 2 failed in the last day" in " ".join(lines[:4])
    whole = "".join(on(80, drawn_cluster(overview(client), 15, live=False)))
    assert "\\n" not in whole


def test_a_number_says_where_it_is_not_that_of_all_jobs(
    memory: FaultyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among very many jobs `jrs top` has the one that is held, live and printed once."""
    monkeypatch.setattr(overviews, "MOST", 3)
    client = Client(memory)
    for number in range(9):
        client.submit_spec(JobSpec(f"job-{number}", "m:f"))
    client.submit_spec(JobSpec("z-broken", "m:f"))
    spoil(memory, keys.JOBS + "z-broken")

    for live in (True, False):
        drawn = "\n".join(on(100, drawn_cluster(overview(client), 15, live=live)))
        assert "waiting: 3+" in drawn
        assert "held: 1\n" in drawn
        assert "z-broken" in drawn
        assert "Where a number has a +, there may be more jobs" in drawn


def test_commands_are_whole(memory: FaultyMemory) -> None:
    """One copies them."""
    client = Client(memory)
    client.submit_spec(JobSpec(f"{LONG}0", "m:f"))
    said = "".join(on(80, drawn_job(job_overview(client, f"{LONG}0"), 15)))
    assert f"jrscancel{LONG}0" in said.replace(" ", "")


def test_a_failure_of_several_lines(url: str, jrs_here: Jrs) -> None:
    """It is one line in a list, and has its lines where all of it is shown; with its letters."""
    with connect(url) as client:
        spec = JobSpec("job", "m:f", {"city": "Zürich"})
        failure = Failure("exception", JAVA, f"Traceback:\n{JAVA}")
        client.results.create_dirty(
            JobResult("job", JobStatus.FAILED, None, failure, finished_at=9.0, spec=spec),
            None,
        )
    assert "calling o45.save failed. : at a.b.C(D.java) at" in jrs_here("list").stdout
    shown = jrs_here("show", "job").stdout
    assert '"Zürich"' in shown
    assert sum(line.split() == ["at", "a.b.C(D.java)"] for line in shown.splitlines()) == 200
    for command in ("list", "show", "explain", "history", "top"):
        said = jrs_here(command, *(["job"] if command != "list" else [])).stdout
        assert "o45.save" in said
        assert "\\n" not in said
        assert "\\t" not in said


def test_how_long_weeks_are() -> None:
    assert [took(one) for one in (0.004, 59.9, 3700.0, 21 * 86400.0)] == [
        "0.0 s", "59.9 s", "1 h 01 min", "21 d 00 h",
    ]  # fmt: skip
