"""Compaction: one process writes the next base, in a child of its own.

In format 3 commits and reads continue meanwhile, in the next segment. In format 2, and while a
small base is written without a child, all other calls wait.

The writer has a lock on the log's folder. If the writer dies, the kernel releases the lock and
the next process takes its turn. If the writer makes no progress for a while, another process writes
the base as well. That is safe, because every process writes the same bytes and the first one to
link the file wins.

A child writes a large base, because a merge in this process would keep the interpreter's lock and
delay its other threads, such as the heartbeat::

    python -m jrs.backends.file.base_writer FOLDER NICENESS
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jrs.contract.errors import FolderReplaced, Unavailable
from jrs.host import helper_process

from . import segments
from .format.folder import reached_by

_log = logging.getLogger("jrs.backends.file")

SMALL = 2 << 20
"""Bytes up to which this process merges by itself, which is faster than starting a child."""

TIMEOUT = 8.0
"""Seconds that one batch or read waits for the next base."""

_STALLED = 20.0
"""Seconds without progress after which another process writes the base as well."""

_POLL = 0.01
"""Seconds between two looks for a base that a caller waits for."""

_RETRY_AFTER = 10.0
"""Seconds after which a failed write of a base is tried again."""

_NICENESS = 5
"""Niceness of a child that no caller waits for, so that it does not delay commits."""


_unreaped: list[subprocess.Popen[bytes]] = []
"""Children that no caller waits for any more; the next `close` reaps them."""

_WRITER = "jrs.backends.file.base_writer"


class Compaction:
    """One replica's part in writing the next base.

    Args:
        folder: the folder of the log.
        in_process: write every base in this process, as the child does.
    """

    small = SMALL
    poll_interval = 0.05
    """Seconds between two checks for a base that no caller waits for."""

    def __init__(self, folder: Path, *, in_process: bool = False) -> None:
        self._folder = folder
        self.timeout = TIMEOUT
        self.in_process = in_process
        self._next_poll = self._next_try = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._has_failed = False
        self.ended: Callable[[bool], None] = lambda failed: None
        """Called with whether a base that no caller waits for could not be written."""
        self._progress: tuple[float, object] = (0.0, None)
        self.held: tuple[int, ...] = ()
        """The descriptor with the lock, which only the child that writes the base may inherit."""

    def await_base(
        self, start: int, size: int = 0, write: Callable[[], None] | None = None
    ) -> None:
        """Return once the segment at `start` has its base.

        Args:
            size: bytes to merge.
            write: writes the base in this process; None leaves every base to a child.

        Raises:
            Unavailable: it took longer than `timeout`, the child could not write the base, or was
                killed twice.
            OSError: this process could not write the base.
        """
        end = time.monotonic() + self.timeout
        killed = 0
        while segments.newest(self._folder) < start:
            if self.in_process and write is not None:
                write()
            elif self._child is not None:
                killed += self._poll_child(start, _POLL)
                if killed > 1:
                    raise Unavailable(
                        f"{self._folder}: the process that compacts a segment was killed {killed} "
                        "times; nothing was changed"
                    )
            elif self.begin(start, size, write):
                return
            if segments.newest(self._folder) >= start:
                break
            if time.monotonic() >= end:
                raise Unavailable(
                    f"{self._folder}: a large segment is being compacted; nothing was changed"
                )
            time.sleep(_POLL)
        self.close()

    def advance(self, start: int, check_place: Callable[[], None]) -> bool:
        """Advance the base of the segment at `start` without waiting; return whether it exists.

        Cheap: most calls only read the clock. If the base cannot be written, for example on a full
        disk, a later call tries again: nothing depends on it.

        Args:
            check_place: raises `FolderReplaced` if the folder is another one.

        Raises:
            FolderReplaced: in a copy, the base would never come.
        """
        now = time.monotonic()
        if now < self._next_poll:
            return False
        self._next_poll = now + self.poll_interval
        try:
            check_place()
            if segments.newest(self._folder) >= start:
                self._has_failed = False
                self.ended(False)
                self.close()
                return True
            if self._child is not None:
                self._poll_child(start, 0.0)
            elif now >= self._next_try:
                return self.begin(start)
        except FolderReplaced:
            raise
        except Exception as error:
            # Whatever else it is, the call that came by has nothing to do with it.
            if not self._has_failed:
                _log.warning("%s grows, because it is not compacted: %r", self._folder, error)
            self._has_failed = True
            self.ended(True)
            self._next_try = now + _RETRY_AFTER
        return False

    def poll_is_due(self) -> bool:
        """Return whether the next call of `advance` would check the files."""
        return time.monotonic() >= self._next_poll

    def begin(self, start: int, size: int = 0, write: Callable[[], None] | None = None) -> bool:
        """Write the next base, here or in a child, if it is our turn; return whether it exists."""
        with self._turn(start) as turn:
            if turn is None:
                return False  # Another process writes it.
            if segments.newest(self._folder) >= start:
                return True
            if write is not None and size <= self.small:
                write()
                return True
            self._child = _started(self._folder, turn, awaited=write is not None)
            return False

    def close(self) -> None:
        """Stop listening to the child, which ends by itself. Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            assert child.stderr is not None
            child.stderr.close()
            _unreaped.append(child)
        _unreaped[:] = [each for each in _unreaped if each.poll() is None]

    def _poll_child(self, start: int, timeout: float) -> bool:
        """Return whether the child was killed: any process may go next, and this one not at once.

        Raises:
            Unavailable: it could not write the base, or found nothing to do, as in a folder that
                was replaced. Then the next one would find no more.
        """
        child = self._child
        assert child is not None
        assert child.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = child.wait(timeout)
            why = child.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            self.close()
            if status > 0:
                raise Unavailable(why or f"{self._folder}: compacting it failed ({status})")
            if status == 0 and segments.newest(self._folder) < start:
                raise Unavailable(f"{self._folder}: has no segment to compact; nothing was changed")
            if status < 0:
                self._next_try = time.monotonic() + _RETRY_AFTER
                return True
        return False

    @contextlib.contextmanager
    def _turn(self, start: int) -> Iterator[int | None]:
        """Yield the locked folder; None if another process writes and makes progress."""
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.held = (fd,)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield fd if self._is_stalled(start) else None
            else:
                # A child that is killed each time must not fill the disk.
                segments.discard_begun(reached_by(fd, self._folder), start)
                yield fd
        finally:
            self.held = ()  # First: a child forked in between must not release another file.
            os.close(fd)

    def _is_stalled(self, start: int) -> bool:
        """Return whether the temporary files of the next base have not grown for a while."""
        sizes = []
        for name in os.listdir(self._folder):
            if name.startswith(f".{start:020}."):
                with contextlib.suppress(FileNotFoundError):
                    sizes.append((name, os.stat(self._folder / name).st_size))
        now, seen = time.monotonic(), (start, sorted(sizes))
        if seen != self._progress[1]:
            self._progress = (now, seen)
        elif now - self._progress[0] >= _STALLED:
            self._progress = (now, seen)
            return True
        return False


def _started(folder: Path, turn: int, *, awaited: bool) -> subprocess.Popen[bytes]:
    niceness = str(0 if awaited else _NICENESS)
    # The child inherits the lock and keeps it until it ends.
    return subprocess.Popen(
        helper_process.command(_WRITER, str(folder), niceness),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[turn],
        start_new_session=True,
        env={
            **os.environ,
            "PYTHONPATH": helper_process.search_path(),
            "PYTHONWARNINGS": "ignore",  # Its last line is the error.
        },
    )
