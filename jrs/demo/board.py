"""The board: shows the progress of each stream of a job, and which master leads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import attrs
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jrs.contract.texts import counted
from jrs.demo.progress import Progress

_COLOURS = {
    "running": "green",
    "catching up": "green",
    "flushing": "magenta",
    "finished": "dim",
    "suspended": "yellow",
    "recovering": "red",
}


@attrs.frozen
class Line:
    """One stream."""

    name: str
    step: str
    progress: Progress
    newest: str
    """The time up to which it has read its input."""


@attrs.frozen
class Board:
    """The content of the board at one moment."""

    leader: str
    job: str
    lines: tuple[Line, ...]

    def plain(self) -> str:
        """Return the board in one line."""
        return ", ".join(
            f"{line.name} {line.step} at {line.newest} "
            f"({counted(line.progress.committed, 'batch', 'batches')})"
            for line in self.lines
        )

    def __rich__(self) -> RenderableType:
        table = Table("stream", "step", "batches", "rows out", "read up to", "watermark")
        table.box = box.SIMPLE_HEAD
        for column in table.columns[2:]:
            column.justify = "right"
        for line in self.lines:
            progress = line.progress
            running = "" if progress.planned == progress.committed else " +1"
            table.add_row(
                line.name,
                Text(line.step, _COLOURS.get(line.step, "")),
                f"{progress.committed}{running}",
                f"{progress.rows:,}",
                line.newest,
                _moment(progress),
            )
        return Group(Text(f"\n{self.leader}; {self.job}", "bold"), table)


def step(
    name: str, progress: Progress, *, bounded: bool, finished: Mapping[str, object], job: str
) -> str:
    """Return the step at which the board shows a stream.

    Args:
        finished: the job's finished stages, by name.
        job: ``running``, or the reason why the job does not run.
    """
    if name in finished:
        return "finished"
    if job != "running":
        return job
    if progress.flushing:
        return "flushing"
    return "catching up" if bounded else "running"


def _moment(progress: Progress) -> str:
    if progress.flushing:
        return "the end of time"
    if progress.watermark is None:
        return "-"
    return f"{datetime.fromtimestamp(progress.watermark, UTC):%b %d %H:%M}"
