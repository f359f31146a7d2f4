"""What ``jrs top JOB`` draws."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jrs.cli.common import shortened, took, when
from jrs.cli.show import attempt_text, stage_text
from jrs.client.job_overview import NEWEST, JobOverview, StageLine
from jrs.client.overview import left_of
from jrs.client.stream_texts import StreamTexts
from jrs.contract.texts import one_line, printable, span
from jrs.records.stages import TAKEN_OVER

_COLOURS = {
    "RUNNING": "bold blue",
    "FINISHED": "bold green",
    "FAILED": "bold red",
    "HELD": "bold yellow",
    "SUSPENDED": "bold yellow",
}
_LONGEST = 400
"""Characters of one text."""

_NAME = 40
"""Characters of the first column."""
_FURTHER = " " * 10

Row = tuple[str, str]


def drawn_job(found: JobOverview, most: int) -> RenderableType:
    """Return a job as rich draws it.

    Args:
        most: stages that are shown, the newest ones.
    """
    line = found.line
    head = Text(printable(line.job_id), "bold")
    head.append(f"  {line.status or 'unknown'}", _COLOURS.get(line.status, "bold"))
    if line.state:
        head.append(f"  {line.state}", "yellow" if line.state == "dirty" else "dim")
    led = "default" if found.led or found.explained is None else "bold red"
    parts = [
        head,
        _table([*_facts(found), ("cluster", found.leader)], style=led),
        *_next(found),
        *_part("stages", [(one.name, _stage(one, found)) for one in found.stages[-most:]]),
        *_part("streams", list(_streams(found))),
        *_part("newest events", list(_events(found))),
    ]
    return Group(*parts)


def _facts(found: JobOverview) -> Iterator[Row]:
    line, attempt, explained = found.line, found.attempt, found.explained
    if found.reason:
        yield ("now" if explained is not None else "why"), found.reason
    yield from (("", one) for one in (explained.details if explained is not None else ()))
    if explained is None and (left := left_of(found.view)) not in ("", found.reason):
        yield "not cleaned up", left
    yield from (("problem", one) for one in found.view.problems)
    if attempt is not None:
        since = took(max(0.0, found.at - attempt.started_at))
        runs = f", for {since}" if found.runs and attempt.started_at else ""
        yield f"attempt {attempt.attempt}", attempt_text(attempt) + runs
    if line.started_at:
        yield "first started", when(line.started_at)
    if line.finished_at:
        yield "ended", when(line.finished_at)
    yield "snapshots", found.snapshots_problem or str(len(found.snapshots))


def _stage(one: StageLine, found: JobOverview) -> str:
    """Return the state of a stage with its times."""
    if one.summary is not None:
        told = stage_text(one.summary, last=found.line.attempt)
        at = f" {when(one.finished_at)}" if one.finished_at else ""
        return told if one.summary.attempt == TAKEN_OVER else f"{one.state}{at}, {told}"
    began = when(one.started_at) if one.started_at else ""
    if began and found.runs:
        began = f" since {began}, {span(found.at - one.started_at)}"
    elif began:
        began = f", begun {began}"
    return f"{one.state}{began}{f'; {one.step}' if one.step else ''}"


def _streams(found: JobOverview) -> Iterator[Row]:
    for stream in found.streams:
        for at, text in enumerate(StreamTexts.of(stream, found.at).lines()):
            yield (stream.stage if not at else "", text)


def _events(found: JobOverview) -> Iterator[Row]:
    """Yield the newest events, the newest first."""
    for one in reversed(found.history[-NEWEST:]):
        by = f"{one.by}, epoch {one.epoch}: " if one.by and one.epoch else f"{one.by or '-'}: "
        action = f" [{one.action}]" if one.action else ""
        yield when(one.at), f"{by}{shortened(one.text, _LONGEST)}{action}"


def _next(found: JobOverview) -> list[RenderableType]:
    """Return the commands, before what may be too high for the terminal: whole, to be copied."""
    if all(len(one.command) <= _NAME for one in found.steps):
        return _part("next", [(one.command, one.said) for one in found.steps])
    lines = [Text(f"{one.command}\n{_FURTHER}{one.said}") for one in found.steps]
    return [Text("\nnext", "bold"), *lines]


def _part(title: str, rows: list[Row]) -> list[RenderableType]:
    """Return a title and its rows; nothing without rows."""
    return [Text(f"\n{title}", "bold"), _table(rows)] if rows else []


def _table(rows: list[Row], *, style: str = "default") -> RenderableType:
    """Return rows of two columns; `style` is that of the last row."""
    drawn = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    longest = min(_NAME, max(len(_cell(name)) for name, _ in rows))
    # It is not folded: a further line would look like one of its own.
    drawn.add_column(no_wrap=True, overflow="ellipsis", width=longest)
    drawn.add_column(overflow="fold")
    for number, (name, value) in enumerate(rows, 1):
        shade = style if number == len(rows) else "default"
        drawn.add_row(Text(_cell(name), "dim"), Text(_cell(value), shade))
    return drawn


def _cell(text: str) -> str:
    return printable(shortened(one_line(text), _LONGEST))
