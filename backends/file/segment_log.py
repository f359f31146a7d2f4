"""The log of one segment: replays what all processes have written, and appends to it.

The forms of a log differ in what they append at once and in how they tell damage from the remains
of a crash: see `line_log` and `batch_log`.
"""

from __future__ import annotations

import errno
import gc
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jrs.contract.errors import CorruptRecord, OutcomeUnknown, Unavailable, UnsupportedVersion
from jrs.contract.operations import EPOCH_KEY

from . import damage, segments
from .format import lines
from .format.folder import sync_folder
from .state_machine import StateMachine

CHUNK = 4 << 20
_LONGEST_KEY = 1024
"""Bytes of a key with what is around it, and more."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


class SegmentLog(ABC):
    """The log of an open segment, and the state that follows from it.

    Offsets are those in the whole log, and `at` is a byte of the segment's file.
    """

    def __init__(
        self,
        folder: Path,
        segment: segments.Segment,
        suspects: segments.Suspects,
        on_change: Callable[[str | None], None] | None,
    ) -> None:
        self.form = segment.form
        self.start = segment.start
        """The offset of the segment."""
        self.fd = segment.fd
        self.path = segments.log_path(folder, self.start, self.form)
        self._name = str(self.path)
        self._file = segment.file
        self.state_machine = StateMachine(
            segment.base, self.path, self.start, self.accepted, on_change
        )
        if segment.epoch is not None:
            self.state_machine.changes.set(EPOCH_KEY, segment.epoch)
        self.applied = self.start
        """The offset up to which the log is applied."""
        self.synced = self.start
        self.sealed: int | None = None
        """The offset behind the seal, once it is applied."""
        self.trusted = False
        """Whether everything was applied at the last look, so that appending is safe."""
        self.failed = False
        """Whether it was discarded."""
        self.broke_off = False
        """Whether it was discarded in the middle of a replay."""
        self._is_named = False
        self.damaged_at: int | None = None
        """The byte at which damage stopped the replay, or None."""
        self._suspects = suspects

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Discard the log if an error breaks the evaluation off: to evaluate a batch again, of
        which a part is applied, could accept what every other process refuses."""
        try:
            yield
        except UnsupportedVersion:
            raise  # At each call, so that no caller sees the state.
        except BaseException:
            self.broke_off = True
            self.discard()
            raise

    def discard(self) -> None:
        """Close the log, whose state has to be replayed from its base. Idempotent."""
        self.failed = True
        self.close()

    def close(self) -> None:
        """Close the log and the layers below it. Idempotent."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.state_machine.overlay.close()

    @property
    def tail(self) -> int:
        """Applied bytes of the segment, which a new reader has to replay."""
        return self.applied - self.start

    def end(self) -> int:
        """Return the offset at which the log ends now."""
        return self.start + os.fstat(self.fd).st_size

    def named_end(self, folder: Path | None = None) -> int | None:
        """Return the offset at which the log ends now; None if its name leads to no file or to
        another one: it was swept behind its seal, or the folder was replaced.

        Args:
            folder: another path of its folder, or of the one that has its name now.
        """
        try:
            found = os.lstat(self._name if folder is None else folder / self.path.name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        # The number of a file that is open is not given to another one.
        if found.st_ino != self._file.st_ino or found.st_dev != self._file.st_dev:
            return None
        return self.start + found.st_size

    # -- replay ----------------------------------------------------------------------------

    def replay(self, until: int) -> None:
        """Apply everything complete that is not applied yet, up to `until` or a seal.

        Raises:
            CorruptRecord: at damage that no operator has accepted.
            Unavailable: the log cannot be read.
        """
        if until - self.applied < CHUNK:
            self._replay(until)
            return
        # Millions of small tuples that all stay: garbage collections would find nothing.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._replay(until)
        finally:
            if collecting:
                gc.enable()

    @abstractmethod
    def _replay(self, until: int) -> None: ...

    def damaged(self, at: int, what: str, why: str) -> CorruptRecord:
        """Return the error for damage at byte `at`, which nobody has accepted."""
        self.damaged_at = at
        return CorruptRecord(
            f"{self.path}: {what} was damaged after it was written ({why}), so nothing behind "
            "it can be trusted; restore it from a copy, or discard the damage with "
            "'jrs fsck --accept-damage'"
        )

    def damaged_places(self) -> list[int]:
        """Return the bytes of all damage that no operator has accepted yet."""
        found = list(self._find_damage())
        if self.damaged_at is not None and self.damaged_at not in found:
            found.append(self.damaged_at)  # Only the following segment shows this damage.
        return [at for at in found if not self.accepted(at)]

    @abstractmethod
    def _find_damage(self) -> Iterable[int]:
        """Yield the bytes at which the file is damaged; reads all of it."""

    def accepted(self, at: int) -> bool:
        """Return whether an operator has accepted the damage at byte `at`."""
        return damage.acceptance_mark(self.path, at).exists()

    def created_keys(self, prefix: str, since: int) -> set[str]:
        """Return the keys under a prefix that commits from the offset `since` on were to create,
        whether they were accepted or not.

        Raises:
            Unavailable: the log cannot be read.
        """
        created = lines.creating(prefix)
        keys: set[str] = set()
        # Behind lost data, commits keep their versions, and lie nearer to the start of the file.
        at, end = max(0, since - self.start - self.most_lost), self.applied - self.start
        while at < end:
            try:
                data = os.pread(self.fd, min(CHUNK, end - at), at)
            except OSError as error:
                raise unavailable(error, self.path) from error
            keys.update(found[1].decode() for found in created.finditer(data))
            if at + len(data) >= end or not data:
                break
            at += max(len(data) - _LONGEST_KEY, 1)  # A key may lie across the end of what was read.
        return keys

    @property
    def most_lost(self) -> int:
        """The largest number of lost bytes before a commit whose version tells of them."""
        return 0

    # -- appending -------------------------------------------------------------------------

    @abstractmethod
    def append(self, bodies: list[bytes]) -> list[int | Exception] | None:
        """Append commits with one write and one sync; return each one's verdict.

        Returns None if the segment was sealed before them, so that they have no effect.
        """

    def write_seal(self) -> None:
        """End the segment, without a sync."""
        self.trusted = False
        try:
            os.write(self.fd, self._seal())
        except OSError as error:
            raise unavailable(error, self.path) from error

    @abstractmethod
    def _seal(self) -> bytes: ...

    def sync_names(self) -> None:
        """Make the names of the log and of its folder durable, once: another process may have just
        made them, and have died before it synced them.

        Raises:
            Unavailable: nothing was changed.
        """
        if self._is_named:
            return
        try:
            sync_folder(self.path.parent)
            sync_folder(self.path.parent.parent)
        except OSError as error:
            raise unavailable(error, self.path) from error
        self._is_named = True

    def sync(self, until: int) -> None:
        """Make the log durable up to `until`.

        Raises:
            OutcomeUnknown: the sync failed, and the log is closed.
        """
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            # The kernel has marked the pages clean: a second sync would succeed and prove nothing,
            # even in a process that opens the log later.
            self._suspects.add(self.start)
            self.discard()
            raise OutcomeUnknown(
                f"{self.path}: the sync failed ({error.strerror}), so the commit may or may not be "
                "durable; read it back"
            ) from error
        self.synced = until

    @property
    def is_suspect(self) -> bool:
        """Return whether a sync of this segment has failed, in this or another process."""
        return self.start in self._suspects

    def _check_synced(self, begin: int) -> None:
        """Refuse to trust what others wrote in front of `begin`, if they could not sync it."""
        if self.applied != begin and self.is_suspect:
            raise Unavailable("another process could not sync the log before it")

    def _not_evaluated(self, error: Exception) -> OutcomeUnknown:
        self.trusted = False
        return OutcomeUnknown(f"written, but cannot be evaluated: {error}")


def unavailable(error: OSError, path: Path) -> Unavailable:
    """Return the error for a file operation that failed and changed nothing."""
    if error.errno in _FULL:
        return Unavailable(f"{path}: the disk is full; nothing was changed")
    return Unavailable(f"{path}: {error.strerror}; nothing was changed")
