"""The checkpoints that releases of Spark wrote; see ``tests/fixtures/make_checkpoints.py``."""

from __future__ import annotations

from pathlib import Path

import attrs

CHECKPOINTS = Path(__file__).parents[2] / "fixtures" / "checkpoints"
PLACE = Path("/tmp/jrs fixtures")
"""Where they were made: the logs of files name this folder."""
BATCHES = 7
KEYS = ("a b", "plain", "x%3Ay", "ö+%25")
"""The names of the table's folders on disk, behind ``key=``."""


@attrs.frozen
class Made:
    """The files of one query of one release."""

    release: str
    query: str

    def __str__(self) -> str:
        return f"{self.release}-{self.query}"

    @property
    def folder(self) -> Path:
        return CHECKPOINTS / self.release / self.query

    @property
    def ck(self) -> Path:
        return self.folder / "ck"

    @property
    def table(self) -> Path:
        return self.folder / "out" / "hourly"

    @property
    def place(self) -> Path:
        """Where it was made."""
        return PLACE / self.query


MADE = [
    Made(release.name, query.name)
    for release in sorted(CHECKPOINTS.iterdir())
    for query in sorted(release.iterdir())
]
