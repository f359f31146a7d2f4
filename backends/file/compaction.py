"""Compaction: one process writes the next base, in a child of its own.

In format 3 commits and reads go on meanwhile, in the segment that follows; in format 2, and for
what is too small for a child, all others wait.

The writer holds a lock on the log's folder, which the kernel releases when it dies: then the next
process takes its turn. A writer that is stopped, and so makes no progress, is helped after a while.
That is safe, because whatever process writes a base, its bytes are the same, and the first one to
link it wins.

A large base is written by a child, since a merge in this process would keep its other threads, the
heartbeat among them, from the interpreter's lock::

    python -m jrs.backends.file.compaction FOLDER NICENESS
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jrs.contract.errors import Unavailable

from . import segments

SMALL = 2 << 20
"""Bytes that are merged here: that takes less time than to start a child."""

PATIENCE = 8.0
"""Seconds for which one batch or read waits for the next base."""

_STALLED = 20.0
"""Seconds without progress after which a writer is helped."""

_LOOK = 0.01
_AGAIN = 10.0
"""Seconds after which one that could not be written is tried again."""

_POLITE = 5
"""By how much a child for which nobody waits steps back behind those who commit."""


_left: list[subprocess.Popen[bytes]] = []
"""Children of which nobody waits for an answer; they are reaped when it is looked for them next."""

_WRITER = "jrs.backends.file.base_writer"


class Compaction:
    """What one replica does about the next base.

    Args:
        folder: of the log.
        here: write every base in this process: what the child does.
    """

    small = SMALL
    glance = 0.05
    """Seconds between two looks for a base that nobody waits for."""

    def __init__(self, folder: Path, *, here: bool = False) -> None:
        self._folder = folder
        self.patience = PATIENCE
        self.here = here
        self._next_glance = self._next_try = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._progress: tuple[float, object] = (0.0, None)

    def await_base(
        self, start: int, size: int = 0, write: Callable[[], None] | None = None
    ) -> None:
        """Return once the segment at `start` has its base.

        Args:
            size: bytes that are to be merged.
            write: writes the base, here and now; only a child does, without.

        Raises:
            Unavailable: it takes longer than `patience`; or a child could not write it.
            OSError: it could not be written here.
        """
        end = time.monotonic() + self.patience
        while segments.newest(self._folder) < start:
            if self.here and write is not None:
                write()
            elif self._child is not None:
                self._hear_child(_LOOK)
            elif self.begin(start, size, write):
                return
            if segments.newest(self._folder) >= start:
                break
            if time.monotonic() >= end:
                raise Unavailable(
                    f"{self._folder}: a large segment is being compacted; nothing was changed"
                )
            time.sleep(_LOOK)
        self.close()

    def attend(self, start: int) -> bool:
        """See to the base of the segment at `start` without waiting for it; return whether it is
        there. Cheap: most calls look at the clock alone. A base that cannot be written, on a full
        disk, is tried again now and then: nothing depends on it."""
        now = time.monotonic()
        if now < self._next_glance:
            return False
        self._next_glance = now + self.glance
        try:
            if segments.newest(self._folder) >= start:
                self.close()
                return True
            if self._child is not None:
                self._hear_child(0.0)
            elif now >= self._next_try:
                return self.begin(start)
        except (Unavailable, OSError):
            self._next_try = now + _AGAIN
        return False

    def glances(self) -> bool:
        """Return whether `attend` would look by now."""
        return time.monotonic() >= self._next_glance

    def begin(self, start: int, size: int = 0, write: Callable[[], None] | None = None) -> bool:
        """Write the next base, here or in a child, if it is our turn; return whether it is
        there."""
        with self._turn(start) as turn:
            if turn is None:
                return False  # Somebody else writes it.
            if segments.newest(self._folder) >= start:
                return True
            if write is not None and size <= self.small:
                write()
                return True
            self._child = _started(self._folder, turn, awaited=write is not None)
            return False

    def close(self) -> None:
        """Let go of a child: it ends by itself, if it is not through by now. Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            assert child.stderr is not None
            child.stderr.close()
            _left.append(child)
        _left[:] = [each for each in _left if each.poll() is None]

    def _hear_child(self, timeout: float) -> None:
        child = self._child
        assert child is not None
        assert child.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = child.wait(timeout)
            why = child.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            self.close()
            if status > 0:  # Below it was killed: the next turn is anybody's.
                raise Unavailable(why or f"{self._folder}: compacting it failed ({status})")

    @contextlib.contextmanager
    def _turn(self, start: int) -> Iterator[int | None]:
        """Yield the locked folder; None if another process writes, and makes progress."""
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield fd if self._is_stalled(start) else None
            else:
                yield fd
        finally:
            os.close(fd)

    def _is_stalled(self, start: int) -> bool:
        """Return whether what is written of the next base has not grown for a while."""
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
    niceness = str(0 if awaited else _POLITE)
    # It inherits the lock, and keeps it until it ends.
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", _WRITER, str(folder), niceness],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[turn],
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
