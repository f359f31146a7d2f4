"""Importing an entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.contract.errors import CannotStartHere, InvalidInput
from jrs.recovery.attempt.entry_point import load


@pytest.mark.parametrize(
    ("raised", "kind"), [("MemoryError", CannotStartHere), ("ValueError('x')", InvalidInput)]
)
def test_a_module_that_cannot_be_imported(
    tmp_path: Path, raised: str, kind: type[Exception]
) -> None:
    """For lack of memory: that is the host's, and no fault of the job."""
    module = tmp_path / "module.py"
    module.write_text(f"raise {raised}\n")

    with pytest.raises(kind, match="cannot be imported"):
        load(f"{module}:work")
