"""What a chaos test fails with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from jrs.testing.chaos.checking.verdict import Run, Violation
from jrs.testing.chaos.progress import told_of
from jrs.testing.chaos.strikes import never_hit

_SHOWN = 10
"""Violations that a message has."""


class ChaosFailure(AssertionError):
    """A chaos run that broke a promise.

    Attributes:
        violations: what its checks have found.
        report: the file that shows it.
    """

    def __init__(self, message: str, violations: Sequence[Violation], report: Path) -> None:
        self.violations = tuple(violations)
        self.report = report
        super().__init__(message)

    @classmethod
    def of(cls, run: Run, folder: Path, found: Sequence[Violation], again: str) -> Self:
        """Return the failure of a run whose files are in `folder`; `again` repeats it."""
        names = sorted({violation.check for violation in found})
        where = f"on {run.notes['backend']} under {run.notes['nemesis']}"
        lines = [f"{', '.join(names)}: broken {where}"]
        lines += [f"  {violation}" for violation in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"  and {len(found) - _SHOWN} more")
        lines += never_hit(run.notes)
        lines += told_of(run.notes)
        report = folder / "report.html"
        lines += [f"report: {report}", f"history: jrs chaos check {folder}"]
        if again:
            lines.append(f"again: {again}")
        return cls("\n".join(lines), found, report)
