"""Leadership on a folder: a lock the kernel releases at death, and a heartbeat for who hangs.

Each leadership has a lock file of its own, named in the epoch record. Its holder locks it before
the epoch is bumped, so that a candidate that can take the lock knows the holder is gone: failover
after a crash takes milliseconds. A holder that is alive but hangs stops writing its heartbeat into
that file; candidates judge it by their own monotonic clock ("unchanged for ttl"). Neither is
trusted for safety: that is the fence, checked where commits are judged.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jrs.backend import EPOCH_KEY, Create, Fence, Leadership, Op, Record, Update
from jrs.clock import Deadline
from jrs.codec import decode, encode
from jrs.errors import Conflict, JrsError, OutcomeUnknown
from jrs.fork import forget_in_children
from jrs.model import EpochRecord

if TYPE_CHECKING:
    from jrs.backends.file.backend import FileBackend

POLL = 0.01
"""Seconds between a candidate's looks at the lock: most of the failover time after a crash."""


class FileLeadership(Leadership):
    """A locked lock file and the thread that writes its heartbeat."""

    def __init__(self, backend: FileBackend, epoch: int, fence: Fence, lock: int, path: Path,
                 ttl: float) -> None:  # fmt: skip
        self.epoch = epoch
        self.fence = fence
        self.lost = threading.Event()
        self._backend = backend
        self._lock = lock
        self._path = path
        self._ttl = ttl
        self._release = threading.Lock()
        self._released = False
        self._thread = threading.Thread(
            target=self._heartbeat, name=f"jrs-heartbeat-e{epoch}", daemon=True
        )
        forget_in_children(self)
        self._thread.start()

    def forget(self) -> Iterable[int]:
        """A child must not hold the lock when its parent dies."""
        self._release = threading.Lock()  # A thread that is not here may have held it.
        held = () if self._released else (self._lock,)
        self._released = True
        return held

    def resign(self) -> None:
        self.lost.set()
        if self._thread is not threading.current_thread():
            self._thread.join(self._ttl)
        with self._release:
            if not self._released:
                self._released = True
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
                os.close(self._lock)

    def _heartbeat(self) -> None:
        beat = 0
        good = time.monotonic()
        while not self.lost.wait(self._ttl / 10):
            beat += 1
            try:
                os.pwrite(self._lock, _beat(beat, self._ttl), 0)
                # Not the backend's own timeout: candidates do not wait for that, either.
                deadline = Deadline.after(self._ttl * 0.3)
                record = self._backend.get(EPOCH_KEY, deadline=deadline)
                if record is None or record.version != self.fence.version:
                    break
                good = time.monotonic()
            except (JrsError, OSError):
                # The disk may come back; but a leader that can not show that it is alive has to
                # assume, before its candidates do, that it has been replaced.
                if time.monotonic() - good > self._ttl * 0.7:
                    break
        self.lost.set()


def campaign(
    backend: FileBackend, folder: Path, candidate: str, ttl: float, stop: threading.Event
) -> Leadership | None:
    """Wait until the current leader is gone or hangs, then bump the epoch; None once stopped."""
    suspicion = _Suspicion(ttl)
    while not stop.is_set():
        record = backend.get(EPOCH_KEY)
        current = decode(EpochRecord, record.value, EPOCH_KEY) if record else None
        if (
            current is None
            or _is_free(folder / current.token)
            or suspicion.hangs(folder / current.token)
        ):
            won = _take(backend, folder, candidate, ttl, record, current)
            if won is not None:
                return won
        stop.wait(POLL)
    return None


def _take(
    backend: FileBackend,
    folder: Path,
    candidate: str,
    ttl: float,
    record: Record | None,
    current: EpochRecord | None,
) -> Leadership | None:
    epoch = current.epoch + 1 if current else 1
    token = f"{epoch}-{uuid.uuid4().hex}.lock"
    path = folder / token
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(lock, _beat(0, ttl), 0)
        value = encode(EpochRecord(epoch, candidate, token))
        bump: Op = Update(EPOCH_KEY, value, record.version) if record else Create(EPOCH_KEY, value)
        try:
            backend.commit(bump)
        except Conflict:
            _withdraw(lock, path)  # Somebody else won this epoch.
            return None
        except OutcomeUnknown:
            pass  # Read back: the token tells whether it was us.
        stored = backend.get(EPOCH_KEY)
        if stored is None or stored.value != value:
            _withdraw(lock, path)
            return None
    except BaseException:
        _withdraw(lock, path)
        raise
    _sweep(folder, epoch)
    return FileLeadership(backend, epoch, Fence(epoch, stored.version), lock, path, ttl)


def _withdraw(lock: int, path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(lock)


def _is_free(path: Path) -> bool:
    """Return whether nobody holds the lock: its holder resigned or died."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def _sweep(folder: Path, epoch: int) -> None:
    """Remove the lock files of older epochs; a file that is still locked is just unlinked."""
    for name in os.listdir(folder):
        number = name.partition("-")[0]
        if number.isdigit() and int(number) < epoch:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)


class _Suspicion:
    """Judges a holder by how long, on our own clock, its heartbeat has not changed."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._seen: tuple[Path, bytes] | None = None
        self._since = 0.0

    def hangs(self, path: Path) -> bool:
        try:
            seen = (path, path.read_bytes())
        except OSError:
            return False
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= max(self._ttl, _ttl_of(seen[1]))


def _beat(number: int, ttl: float) -> bytes:
    """Return what a lock file holds: a number that changes, and its holder's ttl in seconds."""
    return b"%020d %f\n" % (number, ttl)


def _ttl_of(beat: bytes) -> float:
    try:
        return float(beat.split()[1])
    except (IndexError, ValueError):
        return 0.0  # Not written yet: its holder is about to bump the epoch.
