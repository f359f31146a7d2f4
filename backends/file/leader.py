"""Leadership on a folder: a lock detects dead leaders, and a heartbeat detects hanging ones.

Each leadership has a lock file of its own, named in the epoch record. The leader locks the file
before it increments the epoch, and the kernel releases the lock when the leader dies. So a
candidate that gets the lock knows that the leader is gone, and failover after a crash takes
milliseconds. A leader that hangs stops writing its heartbeat into the file. Candidates detect that
by their own clocks ("unchanged for ttl"), later than the leader itself (see `LeadershipLease`).
Safety depends on neither of them, but on the fence, which every commit checks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from jrs.contract.clock import Deadline, lease_time
from jrs.contract.errors import (
    Conflict,
    Fenced,
    FolderReplaced,
    JrsError,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Fence, Op, Record, create_or_update
from jrs.host.fork import forget_in_children
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord

from ..shared.lease import LeadershipLease
from .format.folder import give_to_owner

POLL = 0.01
"""Seconds between a candidate's checks of the lock: most of the failover time after a crash."""

_BEATS = 10
"""Heartbeats in one ttl."""


class Handle(Protocol):
    """The part of the folder's handle that a leadership needs."""

    @property
    def closed(self) -> bool: ...

    def get(self, key: str, *, deadline: Deadline | None = None) -> Record | None: ...

    def commit(self, *ops: Op) -> None: ...


class FileLeadership(LeadershipLease):
    """A locked lock file with the leader's heartbeat.

    Its lifeline has the lock: the process that ends the attempts of a dead leader keeps the lock
    until the attempts are dead, even in a PID namespace that the next leader does not see.
    """

    def __init__(
        self,
        backend: Handle,
        epoch: int,
        fence: Fence,
        lock: int,
        path: Path,
        ttl: float,
        sent: float,
    ) -> None:
        self._backend = backend
        self._lock = lock
        self._path = path
        self._beats = 0
        self._released = False
        forget_in_children(self)
        try:
            super().__init__(
                epoch,
                fence,
                ttl=ttl,
                sent=sent,
                beat=lambda deadline: self._write_beat(),
                end=self._unlock,
                held=lock,
                beats=_BEATS,
            )
        except BaseException:
            self._released = True  # The caller closes the lock: no child may close its number.
            raise

    def forget(self) -> Iterable[int]:
        """Release the lock in a child, which must not hold it when its parent dies."""
        self._ending = threading.Lock()  # A thread of the parent may have held the old one.
        held = () if self._released else (self._lock,)
        self._released = True
        return held

    def _write_beat(self) -> None:
        self._beats += 1
        try:
            os.pwrite(self._lock, _beat(self._beats, self._ttl), 0)
            replaced = self._is_replaced()
        except OSError as error:
            # The disk may recover. But a leader without a heartbeat must assume that it was
            # replaced, before its candidates do.
            raise Unavailable(f"no heartbeat in {self._path}: {error.strerror}") from error
        if self._backend.closed:
            raise Refused(f"the handle of the leader of epoch {self.epoch} is closed")
        if replaced:
            raise Fenced(f"epoch {self.epoch} is over: a newer epoch exists")

    def _unlock(self) -> None:
        if not self._released:
            self._released = True
            # Unlink it before closing: the process that ends our attempts may hold it longer.
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._lock)

    def _is_replaced(self) -> bool:
        """Return whether a newer epoch is known to exist.

        A successor removes the lock file. The epoch's record shows a successor that died before it
        removed the file. A slow read of the record does not fail the heartbeat: the read takes long
        while other threads keep the replica busy, and candidates see the file anyway.
        """
        if not os.fstat(self._lock).st_nlink:
            return True
        try:
            deadline = Deadline.after(self._ttl / 10)
            record = self._backend.get(EPOCH_KEY, deadline=deadline)
        except FolderReplaced:
            raise
        except JrsError:
            return False
        return record is None or record.version != self.fence.version


def campaign(
    backend: Handle, folder: Path, candidate: str, ttl: float, stop: threading.Event
) -> Leadership | None:
    """Wait until the leader is gone or hangs, then increment the epoch; None once stopped."""
    suspicion = _Suspicion(ttl)
    while not stop.is_set():
        record = backend.get(EPOCH_KEY)
        current = decode(EpochRecord, record.value, EPOCH_KEY) if record else None
        try:
            if (
                current is None
                or _is_free(folder / current.token)
                or suspicion.hangs(folder / current.token)
            ):
                won = _take(backend, folder, candidate, ttl, record, current)
                if won is not None:
                    return won
        except OSError as error:
            # A full disk, no free descriptor or a read-only disk may be temporary.
            raise Unavailable(f"{folder}: {error.strerror}; this process cannot lead") from error
        stop.wait(POLL)
    return None


def _take(
    backend: Handle,
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
        give_to_owner(lock, folder)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(lock, _beat(0, ttl), 0)
        value = encode(EpochRecord(epoch, candidate, token))
        bump = create_or_update(EPOCH_KEY, value, record and record.version)
        sent = lease_time()
        try:
            backend.commit(bump)
        except Conflict:
            _withdraw(lock, path)  # Another candidate won this epoch.
            return None
        except OutcomeUnknown:
            pass  # Read back: the token shows which candidate won.
        stored = backend.get(EPOCH_KEY)
        if stored is None or stored.value != value:
            _withdraw(lock, path)
            return None
        won = FileLeadership(backend, epoch, Fence(epoch, stored.version), lock, path, ttl, sent)
    except BaseException:
        _withdraw(lock, path)
        raise
    _sweep(folder, epoch, token)
    return won


def _withdraw(lock: int, path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    os.close(lock)


def _is_free(path: Path) -> bool:
    """Return whether the lock is free, because its holder resigned or died."""
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


def held_lock(folder: Path) -> str | None:
    """Return the name of a lock file whose leader leads, or whose attempts have not ended; or None.

    Raises:
        OSError: a lock file cannot be opened.
    """
    locks = sorted(folder.glob("*.lock")) if folder.is_dir() else ()
    return next((path.name for path in locks if not _is_free(path)), None)


def epochs(folder: Path) -> Iterator[int]:
    """Yield the epochs whose lock files exist."""
    for name in os.listdir(folder):
        number = name.partition("-")[0]
        if number.isdigit():
            yield int(number)


def _sweep(folder: Path, epoch: int, token: str) -> None:
    """Remove the lock files of older epochs, and other ones of this epoch, even if they are still
    locked: of candidates that lost, or of a leader whose epoch was lost with accepted damage."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            number = name.partition("-")[0]
            if number.isdigit() and int(number) <= epoch and name != token:
                with contextlib.suppress(OSError):
                    os.unlink(folder / name)


class _Suspicion:
    """Measures, by our own clock, how long the leader's heartbeat has not changed."""

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        self._seen: tuple[Path, bytes] | None = None
        self._since = 0.0

    def hangs(self, path: Path) -> bool:
        try:
            seen = (path, path.read_bytes())
        except OSError:
            return False
        now = lease_time()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since >= max(self._ttl, _ttl_of(seen[1]))


def _beat(number: int, ttl: float) -> bytes:
    """Return the content of a lock file: a number that changes, and the ttl in seconds."""
    return b"%020d %f\n" % (number, ttl)


def _ttl_of(beat: bytes) -> float:
    try:
        return float(beat.split()[1])
    except (IndexError, ValueError):
        return 0.0  # Not written yet: its holder is about to increment the epoch.
