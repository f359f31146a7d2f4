"""ExportRecord: how far the history was exported to a receiver."""

from __future__ import annotations

import attrs

from jrs.records.stored import Stored

MOST_OPEN = 4096
"""Attempts that have started and not ended, of which an export keeps track."""


@attrs.frozen
class ExportRecord(Stored):
    """How far the history was exported, written by the leader alone, under its fence, after the
    receiver has taken everything up to there."""

    cursor: str
    """The place in the feed up to which it was exported; see `jrs.store.feed`."""
    open: dict[str, int] = attrs.field(factory=dict)
    """The attempts whose start was exported and whose end was not: their numbers, by job."""
    gaps: int = 0
    """How often events were swept from the feed before they were exported."""
    refused: int = 0
    """How many events the receiver has refused for good: they were left out."""
