"""Uploads: what one attempt writes into the objects of its job, below a prefix of its own.

Nothing of it counts before a record names it. An attempt that was shut out may still upload: no
record will name that, and the leader removes it.
"""

from __future__ import annotations

import stat
from pathlib import Path

import attrs

from jrs.contract.errors import InvalidInput
from jrs.records.objects import BatchManifest, OutputManifest, StoredFile, StoredObject

from ..files.safe_listing import everything_below
from ..storage.batches import follow
from ..storage.objects import Objects
from ..storage.packed_copies import NONCE, PrefixWriter, attempts_prefix


class Uploads:
    """The uploads of one attempt.

    Args:
        token: random, so that no other attempt has the prefix.
    """

    def __init__(self, objects: Objects, job_id: str, epoch: int, attempt: int, token: str) -> None:
        self.objects = objects
        prefix = attempts_prefix(epoch, attempt) + token[:NONCE]
        self.writer = PrefixWriter(objects, job_id, prefix)
        self._job_id = job_id
        self._written: dict[str, dict[str, StoredFile]] = {}
        """By stage, what a call that failed has written of its output. No sweep removes it."""

    def put_output(self, stage: str, folder: Path) -> StoredObject:
        """Write the output of a batch stage; return its manifest, for the stage's record.

        Raises:
            InvalidInput: there is a link in it.
            Unavailable: from the store; the call may be repeated, and writes what is missing.
            OSError: a folder or a file cannot be read.
        """
        known = self._written.setdefault(stage, {})
        stored = self.writer.put_files(f"{stage}/out", _files(folder), known=known)
        named = self.writer.put_record(f"{stage}/out", OutputManifest(self._job_id, stage, stored))
        del self._written[stage]
        return named

    def put_batch(
        self, manifest: BatchManifest, before: tuple[BatchManifest, StoredObject] | None
    ) -> tuple[StoredObject, BatchManifest]:
        """Write the manifest of a batch, with all batches before it; return it, and how its head
        names it.

        Args:
            before: the manifest that the head names, and how; None before the first batch.

        Raises:
            CorruptRecord: an earlier manifest is missing, or was changed.
            Unavailable: from the store; the call may be repeated.
        """
        earlier = () if before is None else follow(self.objects, self.writer, *before)
        whole = attrs.evolve(manifest, earlier=earlier)
        return self.writer.put_record(f"{manifest.stage}/batch", whole), whole


def _files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder, by their paths in it."""
    files = {}
    for path in sorted(everything_below(folder)):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise InvalidInput(f"{path} is a link, and objects have none: write the file")
        if stat.S_ISREG(mode):
            files[str(path.relative_to(folder))] = path
    return files
