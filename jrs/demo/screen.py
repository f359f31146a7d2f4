"""The output of the demos: a line for each event, a live board below, and tables at the end."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jrs.records.model import JobResult, Json
from jrs.testing.masters import MasterEvent

_COLOURS = {
    "attempt": "cyan",
    "clean": "green",
    "decision": "yellow",
    "elected": "magenta",
    "leading": "magenta",
    "stage": "green",
}
_SILENT = {"resigned", "stage-begun", "batch-committed", "published"}
"""Kinds of events that do not matter for the story."""
_STAGE = {"stage-finished", "stage-skipped"}


class Screen:
    """Prints from any thread: on a terminal in color above a live board, otherwise plain text."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            # Wrapped lines are hard to search; a file has no width.
            self._console.width = 200
        self._began = time.monotonic()
        self._board: RenderableType | None = None
        self._spinner = Spinner("dots")
        self._live = Live(
            console=self._console, get_renderable=self._below, refresh_per_second=8, transient=True
        )
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def act(self, title: str, text: str) -> None:
        """Begin a part of the story."""
        with self._lock:
            self._console.print(f"\n[bold]{title}[/bold]\n[dim]{escape(text)}[/dim]")

    def doing(self, text: str) -> None:
        """Show on a terminal what the demo waits for."""
        self._spinner.update(text=Text(text, "dim"))

    def show(self, board: RenderableType | None) -> None:
        """Show `board` at the bottom of a terminal, until another board or None replaces it."""
        self._board = board

    def event(self, event: MasterEvent) -> None:
        """Show an event of a master."""
        if event.kind not in _SILENT:
            what, message = event.kind, event.message
            if what in _STAGE:
                what, message = "stage", message.removeprefix("stage ")
            colour = _COLOURS.get(what, "")
            if what == "decision":
                message, _, what = message.removesuffix("]").rpartition(" [")
            self.line(event.master, event.epoch, event.job_id, what, message, colour)

    def line(
        self, master: str, epoch: int, job_id: str, what: str, message: str, colour: str = ""
    ) -> None:
        """Show one line of the log."""
        where = f"{master:<5} epoch {epoch}" if epoch else f"{master:<13}"
        shown = f"[{colour}]{what:<8}[/{colour}]" if colour else f"{what:<8}"
        with self._lock:
            self._console.print(
                f"[dim]{self._at()}[/dim]  {where}  "
                f"[bold]{job_id:<8}[/bold] {shown}  {escape(message)}",
                soft_wrap=True,
            )

    def kill(self, master: str, when: str) -> None:
        """Show a kill."""
        with self._lock:
            self._console.print(
                f"[dim]{self._at()}[/dim]  [bold red]kill -9 {master}: {escape(when)}[/bold red]",
                soft_wrap=True,
            )

    def say(self, text: str, style: str = "") -> None:
        """Print a separate line. On a terminal it stays one: a link that is cut opens nothing."""
        with self._lock:
            self._console.print(escape(text), style=style or None, soft_wrap=True)

    def verdict(self, differences: list[str], *, other: str, equal: str) -> None:
        """Show the differences of two outcomes, or that they are equal."""
        if not differences:
            self.say(f"\nEQUAL: {equal}", "bold green")
            return
        self.say(f"\nDIFFERENT from {other}:", "bold red")
        for difference in differences:
            self.say(f"  {difference}")

    def report(self, worst: Json) -> None:
        """Show the result of the pipeline."""
        table = Table("", "airline", "route", "to", "flights", "mean delay", "late", "bad weather")
        for column in (0, 4, 5, 6, 7):
            table.columns[column].justify = "right"
        for row in worst:
            table.add_row(
                str(row["rank"]),
                row["airline"],
                row["route"],
                row["to"],
                str(row["flights"]),
                f"{row['mean_delay']:.1f} min",
                f"{row['late']:.0%}",
                f"{row['in_bad_weather']:.0%}",
            )
        self.table("The ten worst carrier-route pairs out of New York in 2013", table)

    def jobs(self, results: list[JobResult]) -> None:
        """Show the duration of each job."""
        table = Table("job", "status", "attempts", "stages run, by attempt", "skipped on recovery")
        for result in results:
            attempts = range(1, result.attempt + 1)
            by_attempt = [[s.name for s in result.stages if s.attempt == a] for a in attempts]
            skipped = [s.name for s in result.stages if s.attempt < result.attempt]
            table.add_row(
                result.job_id,
                result.status.name,
                str(result.attempt),
                "\n".join(f"{a}: {', '.join(s) or '-'}" for a, s in enumerate(by_attempt, 1)),
                ", ".join(skipped) or "-",
            )
        self.table("The jobs", table)

    def failovers(self, rows: list[tuple[str, dict[str, float]]]) -> None:
        """Show the measured times of each kill."""
        names = list(dict.fromkeys(name for _, times in rows for name in times))
        table = Table("killed", *names)
        for column in table.columns[1:]:
            column.justify = "right"
        for killed, times in rows:
            table.add_row(killed, *(_span(times.get(name)) for name in names))
        self.table("Failover: time since kill -9", table)

    @property
    def is_live(self) -> bool:
        """Whether the output is a terminal, so that a board can be shown."""
        return self._console.is_terminal

    def table(self, title: str, table: Table) -> None:
        """Show a table."""
        with self._lock:
            self._console.print(f"\n[bold]{title}[/bold]")
            table.box = box.SIMPLE_HEAD
            self._console.print(table)

    def _below(self) -> RenderableType:
        return self._spinner if self._board is None else Group(self._board, self._spinner)

    def _at(self) -> str:
        return f"{time.monotonic() - self._began:6.1f} s"


def _span(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
