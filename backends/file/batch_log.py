"""A log of batches (since format 3), of which each counts as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from jrs.contract.errors import CorruptRecord, OutcomeUnknown, Unavailable

from . import damage, segments
from .format import lines
from .format.batches import Batch, Damaged, Reader
from .segment_log import SegmentLog, unavailable


class BatchLog(SegmentLog):
    """The log of a segment since format 3."""

    def __init__(
        self,
        folder: Path,
        segment: segments.Segment,
        suspects: segments.Suspects,
        on_change: Callable[[str | None], None] | None,
    ) -> None:
        super().__init__(folder, segment, suspects, on_change)
        self._first = segment.first
        self.reader = Reader(self.fd, self.start, self._first, self.accepted)
        self.applied += self.reader.at

    def _replay(self, until: int) -> None:
        self._replay_batches(until)

    def _replay_batches(self, until: int, own: int = -1) -> list[int | Exception] | None:
        """Apply the whole batches up to `until` or a seal; return the verdicts on the batch at
        `own`."""
        verdicts = None
        try:
            for batch in self.reader.read(until - self.start):
                found = self._apply(batch)
                if self.start + batch.at == own:
                    verdicts = found
                self.applied = self.start + batch.following
                if self.sealed is not None:
                    return verdicts
        except OSError as error:
            raise unavailable(error, self.path) from error
        except Damaged as flaw:
            raise self.damaged(flaw.at, f"the batch at byte {flaw.at}", flaw.why) from None
        self.applied = self.start + self.reader.at
        return verdicts

    def _apply(self, batch: Batch) -> list[int | Exception]:
        verdicts: list[int | Exception] = []
        with self.evaluating():
            for version, line in batch.lines:
                body = line[9:]
                if body == lines.SEAL:
                    # Not below any version before it, even if lines were doubled.
                    self.sealed = max(self.start + batch.following, version + len(line) + 1)
                    break
                verdicts.append(self.state_machine.commit(body, version, version - self.start))
        return verdicts

    def _find_damage(self) -> Iterable[int]:
        return damage.damaged_batches(self.path, self.start, self._first)

    @property
    def most_lost(self) -> int:
        return self.reader.most_lost

    def _seal(self) -> bytes:
        return self.reader.batch([lines.SEAL])

    def append(self, bodies: list[bytes]) -> list[int | Exception] | None:
        data = self.reader.batch(bodies)
        try:
            written = os.write(self.fd, data)
        except OSError as error:
            return [unavailable(error, self.path)] * len(bodies)
        if written < len(data):
            failure = Unavailable(f"{self.path}: the disk is full; nothing was changed")
            return [failure] * len(bodies)
        end = self.start + os.lseek(self.fd, 0, os.SEEK_CUR)
        try:
            self.sync(end)
        except OutcomeUnknown as unknown:
            return [unknown] * len(bodies)
        try:
            self._check_synced(end - written)
            verdicts = self._replay_batches(end, own=end - written)
        except (OSError, Unavailable, CorruptRecord) as error:
            return [self._not_evaluated(error)] * len(bodies)
        if self.sealed is not None:
            return None
        if verdicts is None:
            self.trusted = False
            lost = OutcomeUnknown(f"{self.path}: the written batch is missing")
            return [lost] * len(bodies)
        return verdicts
