"""The segment that a replica reads and appends to, and the way from each to the next.

Behind a seal the next segment lies on a base. A small base is written first. In format 3 the next
segment begins before a large one is written, and is *pending* until then: the layer below it is the
sealed segment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jrs.contract.errors import CorruptRecord, FolderReplaced
from jrs.contract.operations import EPOCH_KEY

from . import segments
from .base import Base
from .base.overlay import Layer, Stored
from .batch_log import BatchLog
from .compaction import Compaction
from .format import lines
from .format.folder import pinned, sync_folder
from .line_log import LineLog
from .segment_log import SegmentLog, unavailable

_LONGEST_EPOCH = 2048
"""Bytes of the longest record of the epoch that a header has; it is ten times shorter, unless the
name of a leader is very long."""


class CurrentSegment:
    """The newest segment that this process knows of."""

    log: SegmentLog
    base: Base
    """The newest base: of this segment, or while it is pending, of the sealed one."""
    pending: bool
    """Whether this segment continues another one, because its base is still being written."""
    flaws: list[str]
    """Flaws of the segment's files besides its log and its base."""
    following: int | None
    """The segment that continued this one when it was opened, or None."""

    def __init__(
        self,
        folder: Path,
        compaction: Compaction,
        on_change: Callable[[str | None], None] | None = None,
    ) -> None:
        self.folder = folder
        self._compaction = compaction
        self._on_change = on_change
        self._suspects = segments.Suspects(folder)
        self._begin(segments.open_newest(folder))

    @property
    def on_change(self) -> Callable[[str | None], None] | None:
        """Called with every key that changes; with None if any key may have changed."""
        return self._on_change

    @on_change.setter
    def on_change(self, notify: Callable[[str | None], None] | None) -> None:
        self._on_change = self.log.state_machine.on_change = notify

    def close(self) -> None:
        self._compaction.close()
        self.log.close()

    # -- opening ---------------------------------------------------------------------------

    def open_newest(self) -> None:
        """Open the newest base and its log, and discard all state."""
        segment = self._open_newest()
        self.log.close()
        self._begin(segment)

    def _open_newest(self) -> segments.Segment:
        self._check_place()
        segment = segments.open_newest(self.folder)
        header = segments.Header.parse(segment.first, self.folder)
        if self._identity and header is not None and header.identity != self._identity:
            segment.close()
            raise self.replaced()
        return segment

    def _check_place(self) -> None:
        """Raise `FolderReplaced` unless the folder has this segment or one that follows it."""
        with self._place():
            pass

    @contextlib.contextmanager
    def _place(self) -> Iterator[Path]:
        """Yield a path of the folder that has this segment or one that follows it; no other folder
        gets this path later, so that what is written or removed by it is in no copy.

        Raises:
            FolderReplaced: the folder has none of them.
            Unavailable: the folder cannot be read.
        """
        with contextlib.ExitStack() as opened:
            try:
                folder = opened.enter_context(pinned(self.folder))
                # A copy that went on may have been sealed elsewhere: what follows begins at the
                # seal.
                following = self.log.sealed or self.log.start + 1
                if self.log.named_end(folder) is None and segments.newest(folder) < following:
                    raise self.replaced()
            except (FileNotFoundError, NotADirectoryError):
                raise self.replaced() from None
            except OSError as error:
                raise unavailable(error, self.folder) from error
            yield folder

    def replaced(self) -> FolderReplaced:
        """Return the error for a log that is not in its folder any more."""
        what = "replaced" if self.folder.is_dir() else "moved or removed"
        return FolderReplaced(
            f"{self.folder} was {what} while this process had it open; nothing was changed. Open "
            "it again, with a new handle or a new process"
        )

    def reopen(self) -> None:
        """Open the newest segment after a failed sync has closed this one, or if other processes
        were a segment ahead."""
        try:
            self.open_newest()
        except OSError as error:
            raise unavailable(error, self.folder) from error
        self._note_any_change()

    def _begin(self, segment: segments.Segment, *, pending: bool = False) -> None:
        """Begin to read an open segment."""
        kind = LineLog if segment.form == segments.Form.LINES else BatchLog
        self.log = kind(self.folder, segment, self._suspects, self._on_change)
        self.pending = pending
        self.flaws = segment.flaws
        self.following = segment.following
        header = segments.Header.parse(segment.first, self.log.path)
        self._identity = b"" if header is None else header.identity
        self._keep(segment.base)

    def _keep(self, base: Layer) -> None:
        if isinstance(base, Base):  # Otherwise the base below the overlay stays.
            self.base = base

    def _note_any_change(self) -> None:
        if self._on_change is not None:
            self._on_change(None)

    # -- moving on -------------------------------------------------------------------------

    def move_on(self) -> None:
        """Move on from a sealed segment, and from a base that has been replaced."""
        while (sealed := self.log.sealed) is not None:
            if self.following not in (None, sealed):
                self.log.sealed = None
                self.pass_to_following()
            else:
                self._roll(sealed)
        if self.pending and self._compaction.advance(self.log.start, self._check_place):
            self._change_base()

    def pass_to_following(self) -> None:
        """Move to the segment that continues this one, although the seal is missing.

        Raises:
            CorruptRecord: no operator has accepted the damage.
        """
        at = self.log.tail
        if not self.log.accepted(at):
            raise self.log.damaged(
                at,
                f"the log behind byte {at}",
                f"the segment at {self.following} continues this one, and no seal ends it",
            )
        self.log.sealed = self.following

    def _roll(self, sealed: int) -> None:
        """Move to the segment behind a seal."""
        self._check_place()
        try:
            if self.pending:  # Only one base is written at a time.
                self.await_base()
                return
            if self._may_begin_pending(sealed):
                below = self.log.state_machine.overlay
                with self._place() as place:
                    header = self._next_header(sealed)
                    following = segments.open_next(self.folder, header, below, place)
                if following is not None:
                    os.close(self.log.fd)  # Only the log: its state is the layer below.
                    self._begin(following, pending=True)
                    return
            else:
                self._compaction.await_base(sealed, self._weight(sealed), self._write_base)
            self.open_newest()
        except OSError as error:
            raise unavailable(error, self.folder) from error
        if self.log.start != sealed:
            self._note_any_change()  # Other processes were a segment ahead.
        self._sweep()

    def _may_begin_pending(self, sealed: int) -> bool:
        """Return whether the next segment may begin before its base is written."""
        return (
            self.log.form != segments.Form.LINES
            and not self._compaction.in_process
            and self._weight(sealed) > self._compaction.small
            and not self.log.is_suspect
            and segments.newest(self.folder) < sealed
        )

    def _weight(self, sealed: int) -> int:
        """Return the bytes that go into the next base."""
        tail = sealed - self.log.start
        if self._next_form() == segments.Form.LEVELS:
            return self.base.bytes_merged_with(tail)
        return self.base.size + tail

    def renew(self, end: int) -> None:
        """Seal a segment after a failed sync, and read it as far as possible.

        None of it is trusted or shown before it is in the next base, which is written and synced as
        a whole: the page cache may contain data that the disk does not have. If the seal or the
        base cannot be written, nothing is trusted, and the next call has to renew it again.
        """
        self.log.trusted = False
        if self.pending:
            self.await_base()
            return
        self.log.replay(end)
        if self.log.sealed is None:
            self.log.write_seal()
            self.log.replay(self.log.end())

    # -- bases -----------------------------------------------------------------------------

    def await_base(self) -> None:
        """Wait for the base of this segment, which is still being written."""
        try:
            self._compaction.await_base(self.log.start)
        except OSError as error:
            raise unavailable(error, self.folder) from error
        self._change_base()

    def _change_base(self) -> None:
        """Switch to the base of this segment, which has been written by now."""
        try:
            following = self._open_newest()
        except OSError as error:
            raise unavailable(error, self.folder) from error
        os.close(following.fd)
        if following.start != self.log.start:
            following.base.close()
            self.reopen()
        else:
            state = self.log.state_machine
            state.overlay.close()
            state.lie_on(following.base)
            self._keep(following.base)
            self.pending = False
            self.flaws = following.flaws
        self._sweep()

    def _sweep(self) -> None:
        with contextlib.suppress(OSError), pinned(self.folder) as folder:
            # Another process may have linked the base: its name has to be durable before the
            # files that it replaces are removed.
            sync_folder(folder)
            if self.log.named_end(folder) is not None:
                runs = (start for start, _ in self.base.names)
                segments.sweep(folder, self.log.start, runs)

    def _write_base(self) -> None:
        """Write the base of the next segment in this process."""
        assert self.log.sealed is not None
        changes = self.log.state_machine.changes.after("", inclusive=True)
        header = self._next_header(self.log.sealed)
        weight = self.log.sealed - self.log.start
        with self._place() as folder:
            segments.write_base(folder, header, self.base, changes, weight=weight)

    def _next_header(self, sealed: int) -> segments.Header:
        form = self._next_form()
        epoch = self._epoch_at_the_seal() if form == segments.Form.LEVELS else None
        return segments.Header(sealed, self._identity, form, epoch=epoch)

    def _epoch_at_the_seal(self) -> Stored | None:
        """Return the epoch's record for the header of the next segment."""
        try:
            record = self.log.state_machine.overlay.get(EPOCH_KEY)
        except CorruptRecord:
            return None
        value = b"" if record is None else lines.escape(record.value)
        return None if record is None or len(value) > _LONGEST_EPOCH else (value, record.version)

    def _next_form(self) -> segments.Form:
        """Return the form of the next segment, which is never older than the form of this one.

        It follows from the state at the seal, so that every process chooses the same form.
        """
        if self.log.form == segments.Form.LEVELS:
            return segments.Form.LEVELS
        try:
            return max(self.log.form, self._form_at_the_seal())
        except CorruptRecord:
            if self.log.form == segments.Form.LINES:
                raise
            return self.log.form

    def _form_at_the_seal(self) -> segments.Form:
        overlay = self.log.state_machine.overlay
        stored = overlay.changes.get(segments.VERSION_KEY)
        if stored is not None:
            overlay.check_known(segments.VERSION_KEY, stored)
            return segments.form_at(None if stored[0] is None else lines.unescape(stored[0]))
        # A process that knows only logs of lines may have written the base after the raise.
        try:
            record = overlay.below.get(segments.VERSION_KEY)
        except CorruptRecord:
            return segments.Form.LINES
        return segments.form_at(None if record is None else record.value)
