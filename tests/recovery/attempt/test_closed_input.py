"""Closing the input of a streaming stage."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jrs.contract.errors import InvalidInput, Unavailable
from jrs.recovery.attempt import closed_input
from tests.recovery.lead import Lead
from tests.recovery.support import FaultyMemory


def test_a_disk_that_is_full(
    memory: FaultyMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails no job: the next attempt closes the input."""
    context, source = Lead(memory, tmp_path / "jobs").context(), tmp_path / "in"
    source.mkdir()
    (source / "a.json").write_text("1")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match=r"cannot be closed: .* No space left"):
            closed_input.close(context, "sums", source)
    assert not list((context.storage.folder("job") / "in" / "sums").iterdir())
    folder = closed_input.close(context, "sums", source)

    assert [path.name for path in folder.iterdir()] == ["a.json"]
    with pytest.raises(InvalidInput, match="not a folder"):
        closed_input.close(context, "sums", tmp_path / "missing")
