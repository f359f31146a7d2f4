"""A log of lines (before format 3), of which each counts by itself."""

from __future__ import annotations

import os
from collections.abc import Iterable

from jrs.contract.errors import CorruptRecord, OutcomeUnknown, Unavailable

from . import damage
from .format import lines
from .segment_log import CHUNK, SegmentLog, unavailable


class LineLog(SegmentLog):
    """The log of a segment of format 2."""

    def _replay(self, until: int) -> None:
        chunk = CHUNK
        while self.applied < until and self.sealed is None:
            try:
                data = os.pread(self.fd, min(chunk, until - self.applied), self.tail)
            except OSError as error:
                raise unavailable(error, self.path) from error
            whole = data.rfind(b"\n") + 1
            if not whole:
                if len(data) < chunk:
                    if lines.lost_its_newline(data) and not self.accepted(self.tail):
                        self._pass_over(data, self.applied)
                    return  # The tail is still being written, or was torn.
                chunk *= 2
                continue
            at = self.applied
            for line in data[: whole - 1].split(b"\n"):
                following = at + len(line) + 1
                if line != lines.MARK:
                    body = lines.checked(line)
                    if body is None:
                        self._pass_over(line, at)
                    elif body == lines.SEAL:
                        self.sealed = following
                        self.applied = following
                        return
                    else:
                        self._commit(body, at)
                at = self.applied = following

    def _commit(self, body: bytes, version: int) -> int | Exception:
        with self.evaluating():
            return self.state_machine.commit(body, version, version - self.start)

    def _pass_over(self, line: bytes, offset: int) -> None:
        at = offset - self.start
        if not lines.is_remnant(line) and not self.accepted(at):
            raise self.damaged(at, f"the line at byte {at}", "its checksum does not match")

    def _find_damage(self) -> Iterable[int]:
        return damage.damaged_lines(self.path)

    def _seal(self) -> bytes:
        return lines.BATCH + lines.sealed(lines.SEAL)

    def append(self, bodies: list[bytes]) -> list[int | Exception] | None:
        batch = [lines.sealed(body) for body in bodies]
        data = lines.BATCH + b"".join(batch)
        try:
            written = os.write(self.fd, data)
            failure = Unavailable("the write came back short; nothing was changed")
        except OSError as error:
            written = 0
            failure = unavailable(error, self.path)
        if not written:
            return [failure] * len(batch)
        if written < len(data):
            failure = Unavailable(f"{self.path}: the disk is full; nothing was changed")
        end = self.start + os.lseek(self.fd, 0, os.SEEK_CUR)
        begin = end - written
        try:
            self.sync(end)
        except OutcomeUnknown as unknown:
            return [unknown] * len(batch)
        try:
            self._check_synced(begin)
            self.replay(begin)
            if self.sealed is not None:
                return None
            back = os.pread(self.fd, written, begin - self.start)
            # A torn remnant of another writer ends at our mark: skip it, as every reader does.
            self.applied = begin
            verdicts: list[int | Exception] = []
            at = len(lines.BATCH)
            as_written = back == data
            for line in batch:
                if as_written or back[at : at + len(line)] == line:
                    verdicts.append(self._commit(line[9:-1], begin + at))
                else:
                    verdicts.append(failure)
                at += len(line)
        except (OSError, Unavailable, CorruptRecord) as error:
            return [self._not_evaluated(error)] * len(batch)
        if written == len(data):
            self.applied = end
        else:
            # Whole lines only: every reader, this one included, evaluates our torn line later.
            self.applied = begin + back.rfind(b"\n") + 1
        return verdicts
