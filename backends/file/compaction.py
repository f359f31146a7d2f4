"""Compaction: one process writes the next base, in a child of its own; all others wait for it.

The writer holds a lock on the log's folder, which the kernel releases when it dies: then the next
process takes its turn. A writer that is stopped, and so makes no progress, is helped after a while.
That is safe, because whatever process writes a base, its bytes are the same, and the first one to
link it wins.

A large base is written by a child, since a merge in this process would keep its other threads, the
heartbeat among them, from the interpreter's lock::

    python -m jrs.backends.file.compaction FOLDER
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

from jrs.backends.file import segments
from jrs.errors import JrsError, Unavailable

SMALL = 2 << 20
"""Bytes that are merged here: that takes less time than to start a child."""

PATIENCE = 8.0
"""Seconds for which one batch or read waits for the next base."""

_STALLED = 20.0
"""Seconds without progress after which a writer is helped."""

_LOOK = 0.01


class Compaction:
    """What one replica does about the next base.

    Args:
        folder: of the log.
        here: write every base in this process: what the child does.
    """

    def __init__(self, folder: Path, *, here: bool = False) -> None:
        self._folder = folder
        self.patience = PATIENCE
        self._here = here
        self._child: subprocess.Popen[bytes] | None = None
        self._progress: tuple[float, object] = (0.0, None)

    def await_base(self, start: int, size: int, write: Callable[[], None]) -> None:
        """Return once the segment at `start` has begun.

        Args:
            size: bytes that are to be merged.
            write: begins the segment, here and now.

        Raises:
            Unavailable: it takes longer than `patience`; or a child could not write it.
            OSError: it could not be written here.
        """
        end = time.monotonic() + self.patience
        while segments.newest(self._folder) < start:
            if self._here:
                write()
            elif self._child is not None:
                self._await_child()
            else:
                with self._turn(start) as turn:
                    if turn is None:
                        pass  # Somebody else writes it.
                    elif segments.newest(self._folder) >= start:
                        return
                    elif size < SMALL:
                        write()
                    else:
                        self._child = _started(self._folder, turn)
            if time.monotonic() >= end:
                raise Unavailable(
                    f"{self._folder}: a large segment is being compacted; nothing was changed"
                )
            time.sleep(_LOOK)
        self.close()

    def close(self) -> None:
        """Wait for a child that has done its work; leave one that has not to do it. Idempotent."""
        child, self._child = self._child, None
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)
            assert child.stderr is not None
            child.stderr.close()

    def _await_child(self) -> None:
        child = self._child
        assert child is not None
        assert child.stderr is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            if child.wait(_LOOK):
                why = child.stderr.read(4096).decode(errors="replace").strip()
                self.close()
                raise Unavailable(why or f"{self._folder}: the child that compacts it was killed")
            self.close()

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


def _started(folder: Path, turn: int) -> subprocess.Popen[bytes]:
    # It inherits the lock, and keeps it until it ends.
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[turn],
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def main(folder: Path) -> None:
    """Write the next base of the log in `folder`, if its newest segment is sealed."""
    from jrs.backends.file.replica import Replica

    replica = Replica(folder, seal_at=1 << 62, compaction=Compaction(folder, here=True))
    try:
        replica.catch_up()
    finally:
        replica.close()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except (JrsError, OSError) as error:
        sys.exit(str(error))
