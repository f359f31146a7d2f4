"""How much of the log a process has to replay when it opens a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from jrs.backends.file import replica as replica_module
from jrs.backends.file.backend import FileBackend
from jrs.contract.operations import Create

SEAL_AT = 2_000
MOST = 6_000
BATCH = 1_000
"""More bytes than the lines of one commit have."""


def test_the_tail_is_bounded_whatever_the_size_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million results were an open of half a minute, which no call waits for: the tail was let
    grow to the size of the base."""
    monkeypatch.setattr(replica_module, "MOST_TAIL", MOST)
    tails = []
    with FileBackend(tmp_path, seal_at=SEAL_AT) as backend:
        for number in range(200):
            backend.commit(Create(f"results/{number}", b"x" * 200))
            tails.append(backend.replica.segment.log.tail)
        base = backend.replica.segment.base.size

    assert base > 4 * MOST
    assert max(tails[:20]) > SEAL_AT
    assert max(tails) < MOST + BATCH
