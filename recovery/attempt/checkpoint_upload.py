"""CheckpointUpload: brings a stage's checkpoint into objects, batch by batch.

Before batch N counts, all is there that a query needs to run it: the state after batch N - 1, and
the plan of N. What the state becomes by N is complete only when Spark has noted N, and comes with
the next batch. So a query that resumes elsewhere repeats at most one batch, for its state alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from jrs.contract.errors import JobHeld
from jrs.records.objects import StoredFile

from ..checkpoint_format import checkpoint, plan_files
from ..storage.packed_copies import PrefixWriter, sha256_of

_TRIES = 50
"""Looks at a checkpoint whose old files Spark removes meanwhile."""

Identity = tuple[int, int, int]
"""Of a file that was uploaded: its size, its time of change and its inode."""


class CheckpointUpload:
    """Uploads the checkpoint of one stage. Not for several threads at once.

    Args:
        checkpoint: its folder on this host.
        known: the files that the newest manifest names.
    """

    def __init__(
        self, writer: PrefixWriter, stage: str, checkpoint: Path, known: tuple[StoredFile, ...] = ()
    ) -> None:
        self._writer = writer
        self._stage = stage
        self._checkpoint = checkpoint
        self._known: dict[str, tuple[StoredFile, Identity | None]] = {
            one.path: (one, None) for one in known
        }

    def put_planned(self, batch: int) -> tuple[StoredFile, ...]:
        """Upload what a query needs to run a batch that it has planned; return all its files.

        Raises:
            JobHeld: a file that it needs is missing.
            UnreadableCheckpoint: a file cannot be read.
            Unavailable: from the store; the call may be repeated.
        """
        return self._put(batch - 1 if batch else None, batch)

    def put_complete(self, batch: int) -> tuple[StoredFile, ...]:
        """Upload what a query needs to resume after a batch that it has completed; return all its
        files. Raises as `put_planned`."""
        return self._put(batch, None)

    # -- inside ----------------------------------------------------------------------------

    def _put(self, behind: int | None, planned: int | None) -> tuple[StoredFile, ...]:
        for _ in range(_TRIES):
            try:
                names = set() if behind is None else self._behind(behind)
                if planned is not None:
                    names.update(plan_files.of_batch(self._checkpoint, planned))
                return self._upload(sorted(names))
            except FileNotFoundError as error:
                missing = error.filename
        raise JobHeld(
            f"stage {self._stage!r}: {missing or self._checkpoint} is missing from its checkpoint"
        )

    def _behind(self, batch: int) -> set[str]:
        return set(checkpoint.select(self._checkpoint, batch).files)

    def _upload(self, names: list[str]) -> tuple[StoredFile, ...]:
        there: dict[str, tuple[StoredFile, Identity | None]] = {}
        missing: dict[str, Path] = {}
        seen: dict[str, Identity] = {}
        for name in names:
            path = self._checkpoint / name
            seen[name] = _identity(path)
            known = self._known.get(name)
            if known is not None and self._is_same(known, seen[name], path):
                there[name] = known[0], seen[name]
            else:
                missing[name] = path
        for one in self._writer.put_files(f"{self._stage}/ck", missing, together=True):
            there[one.path] = one, seen[one.path]
        # Exactly these: what no manifest names any more may be removed at any time.
        self._known = there
        return tuple(one for one, _ in there.values())

    def _is_same(
        self, known: tuple[StoredFile, Identity | None], found: Identity, path: Path
    ) -> bool:
        stored, identity = known
        if identity is not None:
            return identity == found
        return stored.size == found[0] and stored.sha256 == sha256_of(path)


def _identity(path: Path) -> Identity:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ino
