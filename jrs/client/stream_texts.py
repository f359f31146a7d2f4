"""What a stream does now, in words: for the command line and for the page."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from jrs.contract.texts import size_text, span, when
from jrs.records.heads import StreamProgress
from jrs.store.streams import StreamStatus

_UNKNOWN = "unknown"


@attrs.frozen
class StreamTexts:
    """A stream, part by part. What is unknown says so."""

    stage: str
    newest: str
    """Its newest batch, and how long ago that was."""
    rows: str
    """What was read, by which batch, and how long that took."""
    rates: str
    """How fast rows arrived, and how fast they were processed."""
    watermark: str
    behind: str
    """How far it was behind its sources."""
    state: str
    """The rows in its state, and the memory that they took."""

    @classmethod
    def of(cls, status: StreamStatus, now: float) -> StreamTexts:
        """Return the texts of a stream at a moment, in seconds since 1970."""
        found = status.progress or StreamProgress(-1)
        return cls(
            status.stage, _newest(status, now), _rows(found), _rates(found),
            _UNKNOWN if found.watermark is None else when(found.watermark),
            _behind(found), _state(found),
        )  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield lines for a terminal: what is unknown is left out, but for the lag."""
        yield self.newest
        if self.rows != _UNKNOWN:
            yield f"{self.rows}; {self.rates}" if self.rates != _UNKNOWN else self.rows
            yield f"behind its sources: {self.behind}"
        if self.watermark != _UNKNOWN:
            yield f"watermark {self.watermark}"
        if self.state != _UNKNOWN:
            yield f"state: {self.state}"


def _newest(status: StreamStatus, now: float) -> str:
    if status.problem:
        return f"cannot be read: {status.problem}"
    if status.batch is None:
        return "no batch is recorded"
    ago = "" if status.batch_at is None else f" {span(now - status.batch_at)} ago"
    return f"batch {status.batch}, {'begun' if status.by_function else 'committed'}{ago}"


def _rows(found: StreamProgress) -> str:
    if found.rows is None:
        return _UNKNOWN
    took = "" if found.seconds is None else f" in {_rounded(found.seconds)} s"
    return f"batch {found.batch}: {_counted(found.rows)}{took}"


def _rates(found: StreamProgress) -> str:
    parts = [
        f"{_rounded(rate)}/s {what}"
        for rate, what in (
            (found.rows_per_second, "in"),
            (found.processed_per_second, "processed"),
        )
        if rate is not None
    ]
    return ", ".join(parts) or _UNKNOWN


def _behind(found: StreamProgress) -> str:
    parts = []
    if found.offsets_behind is not None:
        parts.append(f"{found.offsets_behind:,} records in a partition")
    if found.files_behind is not None:
        parts.append(f"{found.files_behind:,} files")
    return ", ".join(parts) or _UNKNOWN


def _state(found: StreamProgress) -> str:
    if found.state_rows is None:
        return _UNKNOWN
    memory = "" if found.state_bytes is None else f", {size_text(found.state_bytes)}"
    return f"{_counted(found.state_rows)}{memory}"


def _counted(number: int) -> str:
    return f"{number:,} {'row' if number == 1 else 'rows'}"


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
