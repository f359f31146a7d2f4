"""How much of the log a process has to replay when it opens a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jrs.backends.file import replica as replica_module
from jrs.backends.file.backend import FileBackend
from jrs.backends.file.format.batches import head_at
from jrs.backends.file.format.folder import MARKER
from jrs.backends.file.format.lines import MARK
from jrs.backends.file.replica import NEVER
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


def test_large_values_in_flight_are_not_one_write(tmp_path: Path) -> None:
    """A process that opens the log has a whole write in memory. A commit is never divided."""
    value, large, parts = b"v" * 250_000, 5, 32
    with FileBackend(tmp_path, seal_at=NEVER) as backend:
        with backend._lock:  # The disk is slow: all that follow are in flight.
            sent = [
                backend.commit_async(
                    *(Create(f"k/{n}/{part}", value) for part in range(parts if n == large else 1))
                )
                for n in range(40)
            ]
        assert [commit.result() for commit in sent] == [None] * 40
        log = backend.replica.segment.log.path.read_bytes()
        versions = [backend.get(f"k/{n}/0") for n in range(40)]
    assert None not in versions
    assert sorted(versions, key=lambda one: one.version if one else 0) == versions
    heads = [head_at(log, at) for at in places(log, MARK)]
    sizes = [head.size for head in heads if head is not None]
    above = [size // len(value) for size in sizes if size > 17 * len(value)]
    assert above == [parts]
    assert len(sizes) < 10


def places(data: bytes, part: bytes) -> Iterator[int]:
    at = data.find(part)
    while at >= 0:
        yield at
        at = data.find(part, at + 1)
