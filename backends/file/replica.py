"""A replica: the state that follows from the log, and the only code that reads or appends the log.

The log is a sequence of segments, each named by its offset. A commit's version is the offset of its
line in the whole log, so versions only grow and depend on nothing but the order of the bytes. Every
process decides by replaying the log whether a commit is accepted, and all reach the same verdict. A
commit that loses, or that carries an old fence, has no effect, wherever and whenever it was
written.

Not thread-safe: `FileBackend` calls it under its lock.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from jrs.contract.errors import CorruptRecord, OutcomeUnknown, Unavailable, UnsupportedVersion
from jrs.contract.operations import Record

from . import check, lines, segments
from .base import Base
from .batches import Batch, Damaged, Reader
from .compaction import PATIENCE, Compaction
from .folder import sync_folder
from .judge import Judge
from .overlay import Layer

_CHUNK = 4 << 20
NEVER = 1 << 62
"""A size that no segment reaches, so that it is never sealed."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


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
        self._on_change = on_change
        self._fd = -1
        self._broken: str | None = None
        self._failed = False
        """Whether a sync failed: the next call first opens the newest segment again."""
        self._suspects: set[int] = set()
        self._sealed: int | None = None
        self._following: int | None = None
        """The segment that continued this one when it was opened, or None."""
        self._trusted = False
        self._base = Base(None)
        self._judge = Judge(self._base, folder, 0, self._accepted, on_change)
        self._pending = False
        """Whether this segment continues another one, because its base is still being written."""
        self._start = self._applied = self._synced = 0
        self._form = segments.OLD_FORM
        self._first = b""
        self._reader: Reader | None = None
        """Reads the log, in the new form."""
        self.flaws: list[str] = []
        """Flaws of the segment's files besides its log and its base."""
        self.damaged_at: int | None = None
        """The byte of the log at which damage stopped the reading, or None."""
        self._open_newest()

    @property
    def on_change(self) -> Callable[[str | None], None] | None:
        """Called with every key that changes; with None if any key may have changed."""
        return self._on_change

    @on_change.setter
    def on_change(self, told: Callable[[str | None], None] | None) -> None:
        self._on_change = self._judge.on_change = told

    # -- reading ---------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply every whole line that the log contains by now.

        Raises:
            CorruptRecord: a line was damaged after it was written.
            Unavailable: the log cannot be read.
        """
        self._check_usable()
        while not self.step():
            pass

    def step(self) -> bool:
        """Read to the current end of the log, or of a segment; return whether all was read."""
        self._move_on()
        size = self._start + os.fstat(self._fd).st_size
        if size > self._synced and size > self._applied:
            if self._is_suspect():
                self._renew(size)
                return False
            # Another process wrote it: make it durable first, or a power cut could take back
            # commits that readers have already seen.
            try:
                self._sync(size)
            except OutcomeUnknown as error:
                # This call itself wrote nothing.
                raise Unavailable(f"{self.folder}: a sync failed; retry") from error
        if size > self._applied:
            self._trusted = False
            self._replay(self._synced)
        if self._sealed is None and self._following is not None:
            self._pass_to_following()
        self._trusted = self._sealed is None
        return self._trusted

    def _pass_to_following(self) -> None:
        """Move to the segment that continues this one, although the seal is missing.

        Raises:
            CorruptRecord: no operator has accepted the damage.
        """
        at = self._applied - self._start
        if not self._accepted(at):
            raise self._damaged(
                at,
                f"the log behind byte {at}",
                f"the segment at {self._following} continues this one, and no seal ends it",
            )
        self._sealed = self._following

    def is_current(self) -> bool:
        """Return whether everything in the log is applied; changes nothing."""
        return (
            self._trusted
            and self._broken is None
            and not self._failed
            and self._sealed is None
            and not (self._pending and self._compaction.glances())
            and self._start + os.fstat(self._fd).st_size <= self._applied
        )

    def get(self, key: str) -> Record | None:
        return self._judge.overlay.get(key)

    def page(self, prefix: str, after: str | None, limit: int) -> list[Record]:
        inclusive = after is None or after < prefix
        start = prefix if after is None else max(prefix, after)
        page: list[Record] = []
        for record in self._judge.overlay.after(start, inclusive=inclusive):
            if not record.key.startswith(prefix) or len(page) == limit:
                break
            page.append(record)
        return page

    # -- appending -------------------------------------------------------------------------

    def append(self, batch: list[lines.Commit]) -> list[int | Exception]:
        """Append commits with one write and one sync; return each one's verdict.

        A verdict is `ACCEPTED`, `FENCED`, the index of the failing operation, or an exception if
        the line was not committed or its outcome is unknown.
        """
        while True:
            try:
                self._check_usable()
                self._move_on()
                if not self._trusted:
                    # Never append behind data that cannot be read.
                    self.catch_up()
            except (Unavailable, CorruptRecord) as error:
                return [error] * len(batch)
            if self._judge.overlay.below.answers:
                hidden = [self._judge.why_hidden(keys) for _, keys in batch]
                if any(hidden):
                    return self._append_rest(batch, hidden)
            verdicts = self._append_to_segment([body for body, _ in batch])
            if verdicts is not None:
                return verdicts
            # The segment was sealed before our lines, which have no effect there: try the next.

    def _append_rest(
        self, batch: list[lines.Commit], hidden: list[CorruptRecord | None]
    ) -> list[int | Exception]:
        """Append all commits except those that a damaged base makes impossible to judge."""
        rest = [commit for commit, why in zip(batch, hidden, strict=True) if not why]
        verdicts = iter(self.append(rest) if rest else ())
        return [why or next(verdicts) for why in hidden]

    def _append_to_segment(self, bodies: list[bytes]) -> list[int | Exception] | None:
        if self._reader is not None:
            return self._append_batch(self._reader, bodies)
        batch = [lines.sealed(body) for body in bodies]
        data = lines.BATCH + b"".join(batch)
        try:
            written = os.write(self._fd, data)
            failure = Unavailable("the write came back short; nothing was changed")
        except OSError as error:
            written = 0
            failure = _unavailable(error, self._log_path)
        if not written:
            return [failure] * len(batch)
        if written < len(data):
            failure = Unavailable(f"{self._log_path}: the disk is full; nothing was changed")
        end = self._start + os.lseek(self._fd, 0, os.SEEK_CUR)
        begin = end - written
        try:
            self._sync(end)
        except OutcomeUnknown as unknown:
            return [unknown] * len(batch)
        try:
            if self._applied != begin and self._is_suspect():
                raise Unavailable("another process could not sync the log before it")
            self._replay(begin)
            if self._sealed is not None:
                return None
            back = os.pread(self._fd, written, begin - self._start)
        except (Unavailable, CorruptRecord) as error:
            self._trusted = False
            return [OutcomeUnknown(f"written, but cannot be judged: {error}")] * len(batch)
        if self._applied != begin:
            # A torn remnant of another writer ends at our mark: skip it, as every reader does.
            self._applied = begin
        verdicts: list[int | Exception] = []
        at = len(lines.BATCH)
        as_written = back == data
        for line in batch:
            if as_written or back[at : at + len(line)] == line:
                number = begin + at
                verdicts.append(self._judge.commit(line[9:-1], number, number - self._start))
            else:
                verdicts.append(failure)
            at += len(line)
        if written == len(data):
            self._applied = end
        else:
            # Whole lines only: every reader, this one included, judges our torn line later.
            self._applied = begin + back.rfind(b"\n") + 1
        return verdicts

    def _append_batch(self, reader: Reader, bodies: list[bytes]) -> list[int | Exception] | None:
        """Append a batch of the new form, which is applied as a whole or not at all."""
        data = reader.batch(bodies)
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            return [_unavailable(error, self._log_path)] * len(bodies)
        if written < len(data):
            failure = Unavailable(f"{self._log_path}: the disk is full; nothing was changed")
            return [failure] * len(bodies)
        end = self._start + os.lseek(self._fd, 0, os.SEEK_CUR)
        try:
            self._sync(end)
        except OutcomeUnknown as unknown:
            return [unknown] * len(bodies)
        try:
            if self._applied != end - written and self._is_suspect():
                raise Unavailable("another process could not sync the log before it")
            verdicts = self._replay_batches(reader, end, own=end - written)
        except (Unavailable, CorruptRecord) as error:
            self._trusted = False
            return [OutcomeUnknown(f"written, but cannot be judged: {error}")] * len(bodies)
        if self._sealed is not None:
            return None
        if verdicts is None:
            self._trusted = False
            lost = OutcomeUnknown(f"{self._log_path}: the written batch is missing")
            return [lost] * len(bodies)
        return verdicts

    def seal_if_due(self) -> None:
        """Seal the segment once its tail is larger than its base, so that rewriting is amortized.

        If the seal fails, for example on a full disk, the commits before it are not affected.
        """
        if self._applied - self._start < max(self._seal_at, self._base.size) or self._pending:
            return
        with contextlib.suppress(Unavailable):
            self._write_seal()  # The next process begins the new segment: no commit waits for it.

    def seal(self, patience: float = PATIENCE) -> None:
        """End the segment and move to the next one with its base, within `patience` seconds."""
        self.settle(patience)
        self._write_seal()
        self.settle(patience)

    def settle(self, patience: float = PATIENCE) -> None:
        """Catch up, and wait up to `patience` seconds for a base that is being written."""
        self._compaction.patience = patience
        try:
            self.catch_up()
            while self._pending:
                self._await_base()
                self.catch_up()
        finally:
            self._compaction.patience = PATIENCE

    def _write_seal(self) -> None:
        if self._reader is None:
            data = lines.BATCH + lines.sealed(lines.SEAL)
        else:
            data = self._reader.batch([lines.SEAL])
        self._trusted = False
        try:
            os.write(self._fd, data)
        except OSError as error:
            raise _unavailable(error, self._log_path) from error

    def damaged_places(self) -> list[int]:
        """Return the offsets of all damage in the log that no operator has accepted yet."""
        if self._form == segments.NEW_FORM:
            found = check.damaged_batches(self._log_path, self._start, self._first)
        else:
            found = list(check.damaged_lines(self._log_path))
        if self.damaged_at is not None and self.damaged_at not in found:
            found.append(self.damaged_at)  # Only the following segment shows this damage.
        return [at for at in found if not self._accepted(at)]

    def problems(self) -> Iterator[str]:
        """Yield a line for each damage, and for each commit that is held because of it."""
        yield from self.flaws
        places = self.damaged_places()
        for at in places:
            yield f"{self._log_path}: damaged at byte {at}, or data is missing before it"
        yield from self._base.damage()
        for at, keys in self._judge.unjudged.items():
            yield (
                f"{self._log_path}: the commit at byte {at} depends on damaged data; its keys are "
                f"held: {keys}"
            )

    def accept_damage(self) -> list[str]:
        """Discard damaged parts of the log and the commits that cannot be judged.

        Returns the text that is still readable in them.
        """
        accepted: list[str] = []
        with contextlib.suppress(CorruptRecord, Unavailable):
            self.settle(math.inf)  # Only commits of the newest segment can be examined.
        while True:
            places = [*self.damaged_places(), *self._judge.unjudged]
            more = check.accept(self._log_path, places)
            accepted += more
            self.reload()
            try:
                self.catch_up()
            except UnsupportedVersion:
                raise
            except CorruptRecord:
                if not more:
                    raise
                continue
            if not self._judge.unjudged:
                return accepted

    def close(self) -> None:
        self._broken = self._broken or "this handle is closed"
        self._compaction.close()
        self._close_segment()

    # -- replay ----------------------------------------------------------------------------

    def _replay(self, until: int) -> None:
        """Apply the whole lines that are not applied yet, up to `until` or a seal."""
        if until - self._applied < _CHUNK:
            self._replay_lines(until)
            return
        # Millions of small tuples that all stay: garbage collections would find nothing.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._replay_lines(until)
        finally:
            if collecting:
                gc.enable()

    def _replay_lines(self, until: int) -> None:
        if self._reader is not None:
            self._replay_batches(self._reader, until)
            return
        chunk = _CHUNK
        while self._applied < until and self._sealed is None:
            try:
                data = os.pread(
                    self._fd, min(chunk, until - self._applied), self._applied - self._start
                )
            except OSError as error:
                raise _unavailable(error, self._log_path) from error
            whole = data.rfind(b"\n") + 1
            if not whole:
                if len(data) < chunk:
                    if lines.lost_its_newline(data) and not self._accepted(
                        self._applied - self._start
                    ):
                        self._pass_over(data, self._applied)
                    return  # The tail is still being written, or was torn.
                chunk *= 2
                continue
            at = self._applied
            for line in data[: whole - 1].split(b"\n"):
                following = at + len(line) + 1
                if line != lines.MARK:
                    body = lines.checked(line)
                    if body is None:
                        self._pass_over(line, at)
                    elif body == lines.SEAL:
                        self._sealed = following
                        self._applied = following
                        return
                    else:
                        self._judge.commit(body, at, at - self._start)
                at = self._applied = following

    def _replay_batches(
        self, reader: Reader, until: int, own: int = -1
    ) -> list[int | Exception] | None:
        """Apply the whole batches up to `until` or a seal; return the verdicts on the batch at
        `own`."""
        verdicts = None
        try:
            for batch in reader.read(until - self._start):
                found = self._apply_batch(batch)
                if self._start + batch.at == own:
                    verdicts = found
                self._applied = self._start + batch.following
                if self._sealed is not None:
                    return verdicts
        except OSError as error:
            raise _unavailable(error, self._log_path) from error
        except Damaged as damage:
            raise self._damaged(damage.at, f"the batch at byte {damage.at}", damage.why) from None
        self._applied = self._start + reader.at
        return verdicts

    def _apply_batch(self, batch: Batch) -> list[int | Exception]:
        verdicts: list[int | Exception] = []
        for version, line in batch.lines:
            body = line[9:]
            if body == lines.SEAL:
                # Not below any version before it, even if lines were doubled.
                self._sealed = max(self._start + batch.following, version + len(line) + 1)
                break
            verdicts.append(self._judge.commit(body, version, version - self._start))
        return verdicts

    def _accepted(self, at: int) -> bool:
        return check.marker(self._log_path, at).exists()

    def _pass_over(self, line: bytes, at: int) -> None:
        at -= self._start
        if not lines.is_remnant(line) and not self._accepted(at):
            raise self._damaged(at, f"the line at byte {at}", "its checksum does not match")

    def _damaged(self, at: int, what: str, why: str) -> CorruptRecord:
        self.damaged_at = at
        return CorruptRecord(
            f"{self._log_path}: {what} was damaged after it was written ({why}), so nothing behind "
            "it can be trusted; restore it from a copy, or discard the damage with "
            "'jrs fsck --accept-damage'"
        )

    # -- segments --------------------------------------------------------------------------

    @property
    def _log_path(self) -> Path:
        return segments.log_path(self.folder, self._start, self._form)

    @property
    def form(self) -> int:
        """The form of the newest segment."""
        return self._form

    @property
    def tail_bytes(self) -> int:
        """Applied bytes of the segment, which a new reader has to replay."""
        return self._applied - self._start

    @property
    def base(self) -> Base:
        return self._base

    @property
    def log_path(self) -> Path:
        return self._log_path

    @property
    def start(self) -> int:
        """The offset of the newest segment."""
        return self._start

    def _move_on(self) -> None:
        """Move on from a sealed segment, and from a base that has been replaced."""
        while (sealed := self._sealed) is not None:
            if self._following not in (None, sealed):
                self._sealed = None
                self._pass_to_following()
            else:
                self._roll(sealed)
        if self._pending and self._compaction.attend(self._start):
            self._change_base()

    def _roll(self, sealed: int) -> None:
        """Move to the segment behind a seal."""
        try:
            if self._pending:  # Only one base is written at a time.
                self._await_base()
                return
            if self._may_go_on(sealed):
                following = segments.open_next(
                    self.folder, sealed, self._identity, self._judge.overlay
                )
                if following is not None:
                    os.close(self._fd)
                    self._begin(following, pending=True)
                    return
            else:
                self._compaction.await_base(sealed, self._weight(sealed), self._write_base)
            self._open_newest()
        except OSError as error:
            raise _unavailable(error, self.folder) from error
        if self._start != sealed and self.on_change is not None:
            self.on_change(None)  # Other processes were a segment ahead: any key may have changed.
        self._sweep()

    def _weight(self, sealed: int) -> int:
        """Return the bytes that go into the next base."""
        return self._base.size + sealed - self._start

    def _may_go_on(self, sealed: int) -> bool:
        """Return whether the next segment may begin before its base is written."""
        return (
            self._form == segments.NEW_FORM
            and not self._compaction.here
            and self._weight(sealed) > self._compaction.small
            and not self._is_suspect()
            and segments.newest(self.folder) < sealed
        )

    def _await_base(self) -> None:
        """Wait for the base of this segment, which is still being written."""
        try:
            self._compaction.await_base(self._start)
        except OSError as error:
            raise _unavailable(error, self.folder) from error
        self._change_base()

    def _change_base(self) -> None:
        """Switch to the base of this segment, which has been written by now."""
        try:
            following = segments.open_newest(self.folder)
        except OSError as error:
            raise _unavailable(error, self.folder) from error
        os.close(following.fd)
        if following.start != self._start:
            following.base.close()
            self._open_newest()
            if self.on_change is not None:
                self.on_change(None)  # Other processes were a segment ahead.
        else:
            self._judge.overlay.close()
            self._judge.lie_on(following.base)
            self._keep(following.base)
            self._pending = False
            self.flaws = following.flaws
        self._sweep()

    def _sweep(self) -> None:
        with contextlib.suppress(OSError):
            # Another process may have linked the base: its name has to be durable before the
            # files that it replaces are removed.
            sync_folder(self.folder)
            segments.sweep(self.folder, self._start)

    def _write_base(self) -> None:
        assert self._sealed is not None
        changes = self._judge.changes.after("", inclusive=True)
        segments.write_base(
            self.folder, self._sealed, self._base, changes, self._next_form(), self._identity
        )

    def _next_form(self) -> int:
        """Return the form of the next segment, which is never older than the form of this one.

        It follows from the state at the seal, so that every process chooses the same form.
        """
        if self._form == segments.NEW_FORM:
            return segments.NEW_FORM
        overlay = self._judge.overlay
        stored = overlay.changes.get(segments.VERSION_KEY)
        if stored is not None:
            overlay.check_known(segments.VERSION_KEY, stored)
            return segments.form_at(None if stored[0] is None else lines.unescape(stored[0]))
        # A process that knows only the old form may have written the base after the raise.
        try:
            record = overlay.below.get(segments.VERSION_KEY)
        except CorruptRecord:
            return segments.OLD_FORM
        return segments.form_at(None if record is None else record.value)

    @property
    def _identity(self) -> bytes:
        header = segments.Header.parse(self._first)
        return b"" if header is None else header.identity

    def reload(self) -> None:
        """Discard all state and read it again, after an operator has accepted damage."""
        self._check_usable()
        self._open_newest()

    def _open_newest(self) -> None:
        """Open the newest base and its log, and discard all state."""
        segment = segments.open_newest(self.folder)
        self._close_segment()
        self._begin(segment)

    def _begin(self, segment: segments.Segment, *, pending: bool = False) -> None:
        """Begin to read an open segment."""
        self._pending = pending
        self._start, self._form, self._fd = segment.start, segment.form, segment.fd
        self._first, self.flaws = segment.first, segment.flaws
        self._following = segment.following
        self._judge = Judge(
            segment.base, self._log_path, self._start, self._accepted, self._on_change
        )
        self._keep(segment.base)
        self.damaged_at = None
        self._trusted = False
        self._applied = self._synced = self._start
        self._sealed = None
        self._reader = None
        if self._form == segments.NEW_FORM:
            self._reader = Reader(self._fd, self._start, self._first, self._accepted)
            self._applied += self._reader.at

    def _keep(self, base: Layer) -> None:
        if isinstance(base, Base):  # Otherwise the base below the overlay stays.
            self._base = base

    def _close_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._judge.overlay.close()

    def _sync(self, until: int) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            # The kernel has marked the pages clean: a second sync would succeed and prove nothing,
            # even in a process that opens the log later.
            self._suspects.add(self._start)
            with contextlib.suppress(OSError):
                segments.suspect_path(self.folder, self._start).touch(mode=0o600)
            path = self._log_path
            self._failed = True
            self._close_segment()
            raise OutcomeUnknown(
                f"{path}: the sync failed ({error.strerror}), so the commit may or may not be "
                "durable; read it back"
            ) from error
        self._synced = until

    def _is_suspect(self) -> bool:
        """Return whether a sync of this segment has failed, in this or another process."""
        start = self._start
        return start in self._suspects or segments.suspect_path(self.folder, start).exists()

    def _renew(self, size: int) -> None:
        """Seal a segment after a failed sync, and read it as far as possible.

        None of it is trusted or shown before it is in the next base, which is written and synced as
        a whole: the page cache may contain data that the disk does not have.
        """
        if self._pending:
            self._await_base()
            return
        self._replay(size)
        if self._sealed is None:
            self._write_seal()
            self._replay(self._start + os.fstat(self._fd).st_size)

    def _check_usable(self) -> None:
        if self._broken is not None:
            raise Unavailable(self._broken)
        if self._failed:
            try:
                self._open_newest()
            except OSError as error:
                raise _unavailable(error, self.folder) from error
            self._failed = False
            if self.on_change is not None:
                self.on_change(None)


def _unavailable(error: OSError, path: Path) -> Unavailable:
    if error.errno in _FULL:
        return Unavailable(f"{path}: the disk is full; nothing was changed")
    return Unavailable(f"{path}: {error.strerror}; nothing was changed")
