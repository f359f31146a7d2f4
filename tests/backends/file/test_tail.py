"""How much of the log a process has to replay when it opens a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jrs.backends.file import replica as replica_module
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.folder import MARKER
from jrs.contract.operations import Create

SEAL_AT = 2_000
MOST = 6_000
BATCH = 1_000
"""More bytes than the lines of one commit have."""


def grow(root: Path) -> tuple[list[int], int]:
    """Return the size of the tail after each commit, and the size of the base at the end."""
    tails = []
    with FileBackend(root, seal_at=SEAL_AT) as backend:
        for number in range(200):
            backend.commit(Create(f"results/{number}", b"x" * 200))
            tails.append(backend.replica.segment.log.tail)
        return tails, backend.replica.segment.base.size


def test_the_tail_is_bounded_whatever_the_size_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without levels: a million results were an open of half a minute, which no call waits for,
    because the tail was let grow to the size of the base."""
    (tmp_path / MARKER).write_text(json.dumps({"format": "jrs", "version": 6}))
    monkeypatch.setattr(replica_module, "MOST_TAIL", MOST)
    tails, base = grow(tmp_path)
    assert base > 4 * MOST
    assert max(tails[:20]) > SEAL_AT
    assert max(tails) < MOST + BATCH


def test_with_levels_the_tail_does_not_grow_with_the_base(tmp_path: Path) -> None:
    """A new process replays no more in a large cluster than in a small one."""
    tails, base = grow(tmp_path)
    assert base > 10 * SEAL_AT
    assert max(tails) < SEAL_AT + BATCH
