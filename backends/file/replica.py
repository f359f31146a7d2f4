"""A replica: the state that follows from the log, read and appended to by one process.

The log is a sequence of segments, each named by its offset. A commit's version is the offset of its
line in the whole log, so versions only grow and depend on nothing but the order of the bytes. Every
process decides by replaying the log whether a commit is accepted, and all reach the same verdict. A
commit that loses, or that carries an old fence, has no effect, wherever and whenever it was
written.

Not thread-safe: `FileBackend` calls it under its lock.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

from jrs.contract.errors import (
    CorruptRecord,
    FolderReplaced,
    HandleClosed,
    JrsError,
    OutcomeUnknown,
    Unavailable,
    UnsupportedVersion,
)
from jrs.contract.operations import Record

from . import damage, segments
from .base import UNREADABLE
from .base.entries import TOP
from .compaction import TIMEOUT, Compaction
from .current_segment import CurrentSegment
from .format import lines
from .segment_log import SegmentLog, unavailable

_PAUSE = 1.0
"""Seconds between two replays of a segment that a read breaks off: each begins at its start."""
NEVER = 1 << 62
"""A size that no segment reaches, so that it is never sealed."""
MOST_TAIL = 64 << 20
"""Bytes of log up to which a segment grows with its base where there are no levels: a process that
opens the log replays them, in some 7 s of processor."""


class Replica:
    """One process's view of a cluster's log."""

    def __init__(
        self,
        folder: Path,
        *,
        seal_at: int,
        on_change: Callable[[str | None], None] | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        self.folder = folder
        self._compaction = compaction or Compaction(folder)
        self._seal_at = seal_at
        self._closed = False
        self._next_opening = 0.0
        self.segment = CurrentSegment(folder, self._compaction, on_change)

    @property
    def on_change(self) -> Callable[[str | None], None] | None:
        """Called with every key that changes; with None if any key may have changed."""
        return self.segment.on_change

    @on_change.setter
    def on_change(self, notify: Callable[[str | None], None] | None) -> None:
        self.segment.on_change = notify

    @property
    def start(self) -> int:
        """The offset of the newest segment."""
        return self.segment.log.start

    @property
    def held(self) -> tuple[int, ...]:
        """The descriptors whose locks a forked child must not keep."""
        return self._compaction.held

    def close(self) -> None:
        self._closed = True
        self.segment.close()

    # -- reading ---------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply every whole line that the log contains by now.

        Raises:
            CorruptRecord: a line was damaged after it was written.
            FolderReplaced: the log is not in its folder any more.
            Unavailable: the log cannot be read.
        """
        self._check_usable()
        while not self.step():
            pass

    def step(self) -> bool:
        """Read to the current end of the log, or of a segment; return whether all was read."""
        self.segment.move_on()
        log = self.segment.log
        end = log.named_end()
        if is_nameless := end is None:
            end = log.end()  # After the look for its name: what was swept has its seal by now.
        if end < log.applied:
            raise self.segment.replaced()  # By a copy, into the same file.
        if (end > log.applied or not log.trusted) and log.is_suspect:
            # Not only what is new: what was applied without trust may be missing on the disk, too.
            self.segment.renew(end)
            return False
        if end > log.synced and end > log.applied:
            # Another process wrote it: make it durable first, or a power cut could take back
            # commits that readers have already seen.
            if not is_nameless:
                log.sync_names()
            try:
                log.sync(end)
            except OutcomeUnknown as error:
                # This call itself wrote nothing.
                raise Unavailable(f"{self.folder}: a sync failed; retry") from error
            if log.is_suspect:
                return False  # Its writer could not sync it, and a later sync proves nothing.
        if end > log.applied:
            log.trusted = False
            log.replay(log.synced)
        if log.sealed is None and self.segment.following is not None:
            self.segment.pass_to_following()
        if log.sealed is None and is_nameless:
            raise self.segment.replaced()
        log.trusted = log.sealed is None
        return log.trusted

    def is_current(self) -> bool:
        """Return whether everything in the log is applied; changes nothing."""
        log = self.segment.log
        return (
            log.trusted
            and not self._closed
            and not log.failed
            and log.sealed is None
            and not (self.segment.pending and self._compaction.poll_is_due())
            and log.named_end() == log.applied
        )

    def get(self, key: str) -> Record | None:
        return self.segment.log.state_machine.overlay.get(key)

    def page(self, prefix: str, after: str | None, limit: int) -> list[Record]:
        inclusive = after is None or after < prefix
        start = prefix if after is None else max(prefix, after)
        page: list[Record] = []
        overlay = self.segment.log.state_machine.overlay
        for record in overlay.after(start, inclusive=inclusive, up_to=prefix + TOP):
            if not record.key.startswith(prefix) or len(page) == limit:
                break
            page.append(record)
        return page

    def damaged_behind(self, prefix: str, after: str | None, limit: int) -> tuple[str, str | None]:
        """Return the file whose damage may have hit a record of the page behind `after`, or "", and
        the last key of the page; None if there is no further one."""
        page = self.page(prefix, after, limit)
        last = page[-1].key if len(page) == limit else None
        overlay = self.segment.log.state_machine.overlay
        return overlay.damaged_between(after or prefix, last or prefix + TOP), last

    def created_since(self, prefix: str, version: int) -> list[Record]:
        """Return the records under a prefix of `version` and of later ones, in any order."""
        log = self.segment.log
        if version < log.start:
            overlay = log.state_machine.overlay
            records = overlay.after(prefix, inclusive=True, up_to=prefix + TOP)
            found = list(takewhile(lambda record: record.key.startswith(prefix), records))
        else:
            # A version is the offset of its commit. Which commits count, the state tells.
            found = list(filter(None, map(self._known, log.created_keys(prefix, version))))
        # Nothing says in which order a record comes whose line is damaged: it is held, and missing.
        sound = (record for record in found if record.value != UNREADABLE)
        return [record for record in sound if record.version >= version]

    def _known(self, key: str) -> Record | None:
        try:
            return self.get(key)
        except CorruptRecord:
            return None

    # -- appending -------------------------------------------------------------------------

    def append(self, batch: list[lines.Commit]) -> list[int | Exception]:
        """Append commits with one write and one sync; return each one's verdict.

        A verdict is `ACCEPTED`, `FENCED`, the index of the failing operation, or an exception if
        the line was not committed or its outcome is unknown.
        """
        while True:
            try:
                self._check_usable()
                self.segment.move_on()
                log = self.segment.log
                if not log.trusted or (log.named_end() or 0) < log.applied:
                    # Never append behind data that cannot be read, or to a replaced log.
                    self.catch_up()
                self.segment.log.sync_names()
            except (Unavailable, CorruptRecord, FolderReplaced) as error:
                return [error] * len(batch)
            except OSError as error:
                return [unavailable(error, self.folder)] * len(batch)
            log = self.segment.log
            if log.state_machine.overlay.below.answers:
                hidden = [log.state_machine.why_hidden(keys) for _, keys in batch]
                if any(hidden):
                    return self._append_rest(batch, hidden)
            verdicts = log.append([body for body, _ in batch])
            if verdicts is not None:
                return self._if_in_place(log, verdicts)
            # The segment was sealed before our lines, which have no effect there: try the next.

    def _if_in_place(
        self, log: SegmentLog, verdicts: list[int | Exception]
    ) -> list[int | Exception]:
        """Return the verdicts, if the folder was not replaced before the commits were durable."""
        try:
            if log.named_end() is None and not log.failed:
                self.catch_up()  # It may have been swept.
        except (OSError, JrsError) as error:
            unknown = OutcomeUnknown(f"written, but perhaps not to the folder of now: {error}")
            return [unknown] * len(verdicts)
        return verdicts

    def _append_rest(
        self, batch: list[lines.Commit], hidden: list[CorruptRecord | None]
    ) -> list[int | Exception]:
        """Append all commits except those that a damaged base makes impossible to evaluate."""
        rest = [commit for commit, why in zip(batch, hidden, strict=True) if not why]
        verdicts = iter(self.append(rest) if rest else ())
        return [why or next(verdicts) for why in hidden]

    def seal_if_due(self) -> None:
        """Seal the segment once its tail has `seal_at` bytes.

        Without levels, a seal writes the whole base. To amortize that, the tail has to be as large
        as the base, too, or as `MOST_TAIL`.

        If the seal fails, for example on a full disk, the commits before it are not affected.
        """
        segment = self.segment
        if segment.log.tail < self._seal_at or segment.pending:
            return
        if segment.log.form != segments.Form.LEVELS and segment.log.tail < min(
            segment.base.size, MOST_TAIL
        ):
            return
        with contextlib.suppress(Unavailable):
            segment.log.write_seal()  # The next process begins the next segment: no commit waits.

    def seal(self, timeout: float = TIMEOUT) -> None:
        """End the segment and move to the next one with its base, within `timeout` seconds."""
        self.catch_up_with_base(timeout)
        self.segment.log.write_seal()
        self.catch_up_with_base(timeout)

    def catch_up_with_base(self, timeout: float = TIMEOUT) -> None:
        """Catch up, and wait up to `timeout` seconds for a base that is being written."""
        self._compaction.timeout = timeout
        try:
            self.catch_up()
            while self.segment.pending:
                self.segment.await_base()
                self.catch_up()
        finally:
            self._compaction.timeout = TIMEOUT

    def _check_usable(self) -> None:
        if self._closed:
            raise HandleClosed
        log = self.segment.log
        if log.failed:
            now = time.monotonic()
            if log.broke_off and now < self._next_opening:
                raise Unavailable(f"{log.path}: a read failed a moment ago; nothing was changed")
            self._next_opening = now + _PAUSE
            self.segment.reopen()

    # -- checking --------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """Yield a line for each damage, and for each commit that is held because of it."""
        yield from self.segment.flaws
        log = self.segment.log
        for at in log.damaged_places():
            yield f"{log.path}: damaged at byte {at}, or data is missing before it"
        yield from self.segment.base.damage()
        for at, keys in log.state_machine.undecided.items():
            yield (
                f"{log.path}: the commit at byte {at} depends on damaged data; its keys are "
                f"held: {keys}"
            )

    def accept_damage(self, refuse: Callable[[], None]) -> list[str]:
        """Discard damaged parts of the log and the commits that cannot be evaluated.

        Returns the text that is still readable in them.

        Args:
            refuse: called before something is discarded; may raise.
        """
        accepted: list[str] = []
        with contextlib.suppress(CorruptRecord, Unavailable):
            self.catch_up_with_base(math.inf)  # Only commits of the newest segment can be examined.
        while True:
            log = self.segment.log
            places = [*log.damaged_places(), *log.state_machine.undecided]
            if places:
                refuse()
            more = damage.accept(log.path, places)
            accepted += more
            self._check_usable()
            self.segment.open_newest()
            try:
                self.catch_up()
            except UnsupportedVersion:
                raise
            except CorruptRecord:
                if not more:
                    raise
                continue
            if not self.segment.log.state_machine.undecided:
                return accepted
