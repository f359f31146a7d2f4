"""What the streaming demo sees of its streams: how far they are, its moments, and the board."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest
from rich.console import Console

from jrs.demo.board import Board, Line, step
from jrs.demo.progress import Progress, ProgressOf
from jrs.demo.screen import Screen
from jrs.demo.watching import Moment
from jrs.recovery.checkpoint_format.position import END_OF_TIME
from jrs.recovery.files.job_folders import JobStorage

pytest.importorskip("pyarrow")


def log(checkpoint: Path, batch: int, watermark: int, *files: int, committed: bool) -> None:
    """Write of a batch what Spark writes to its logs."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    meta = json.dumps({"batchWatermarkMs": watermark})
    sources = [json.dumps({"logOffset": number - 1}) if number else "-" for number in files]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", meta, *sources]))
    if committed:
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_how_far_a_stream_is(tmp_path: Path) -> None:
    """It is read from the logs of its checkpoint, on whatever epoch; when they are gone, what was
    seen last counts."""
    storage = JobStorage(tmp_path, "c")
    streams = storage.folder("delays") / "e2" / "streams"
    seen = ProgressOf(storage, "delays", ["jfk"])

    assert seen.look() == {"jfk": Progress()}

    log(streams / "jfk" / "ck", 0, 0, 1, 0, committed=True)

    assert seen.look() == {"jfk": Progress(1, 1, (1, 0))}

    log(streams / "jfk" / "ck", 1, 86_400_000, 2, 1, committed=False)
    now = Progress(2, 1, (2, 1), 86_400.0)

    assert seen.look() == {"jfk": now}
    assert (now.read(0), now.read(1), now.read(2)) == (2, 1, 0)

    (streams.parent).rename(streams.parent.with_name("e3"))

    assert seen.look() == {"jfk": now}

    streams = streams.parent.with_name("e3") / "streams"
    log(streams / "jfk" / "ck", 2, END_OF_TIME, 2, 1, committed=True)

    assert seen.look()["jfk"] == Progress(3, 3, (2, 1), None, flushing=True)

    streams.parent.rename(tmp_path / "gone")

    assert seen.look()["jfk"].committed == 3


def test_the_same_seed_draws_the_same_moments() -> None:
    one, same, other = (
        [Moment.drawn(chance) for _ in range(20)] for chance in map(random.Random, (1, 1, 2))
    )

    assert one == same
    assert one != other
    assert {moment.within for moment in one} == {True, False}


@pytest.mark.parametrize("within", [True, False])
def test_a_moment_comes_once_so_many_batches_are_committed(within: bool) -> None:
    moment, began = Moment(("jfk",), 2, within), Progress(planned=5, committed=4)

    assert not moment.has_come(began, Progress(planned=6, committed=5))
    assert moment.has_come(began, Progress(planned=6, committed=6)) is not within
    assert moment.has_come(began, Progress(planned=7, committed=6))


def test_where_a_stream_is_to_be_seen() -> None:
    def at(
        job: str, *, flushing: bool = False, bounded: bool = True, finished: bool = False
    ) -> str:
        names = {"jfk": None} if finished else {}
        return step("jfk", Progress(flushing=flushing), bounded=bounded, finished=names, job=job)

    assert at("running") == "catching up"
    assert at("running", bounded=False) == "running"
    assert at("running", flushing=True) == "flushing"
    assert at("suspended", flushing=True) == "suspended"
    assert at("recovering", finished=True) == "finished"


def test_the_board_is_drawn_on_a_terminal_only() -> None:
    """On a terminal the board is redrawn below the log; elsewhere nothing moves."""
    line = Line("jfk", "catching up", Progress(3, 2, (3,), 86_400.0, rows=1234), "Feb 03")
    board = Board("m1 leads, epoch 2", "1 leader killed", (line,))
    shown = {}
    for is_terminal in (True, False):
        file = io.StringIO()
        with Screen(Console(file=file, force_terminal=is_terminal, width=100)) as screen:
            screen.show(board)
            screen.doing("until it goes on …")
            screen.say("a line of the log")
        shown[is_terminal] = file.getvalue()

    for said in ("a line of the log", "m1 leads, epoch 2", "2 +1", "1,234", "Jan 02 00:00",
                 "until it goes on"):  # fmt: skip
        assert said in shown[True]
    assert shown[False] == "a line of the log\n"
    assert board.plain() == "jfk catching up at Feb 03 (2 batches)"
