"""Leadership on a folder: a lock the kernel releases at death, and a heartbeat for who hangs.

Each leadership has a lock file of its own, named in the epoch record. Its holder locks it before
the epoch is bumped, so that a candidate that can take the lock knows the holder is gone: failover
after a crash takes milliseconds. A holder that is alive but hangs stops writing its heartbeat into
that file; candidates judge it by their own clock ("unchanged for ttl"), later than it judges itself
(see `LeadershipLease`). Neither is trusted for safety: that is the fence, checked where commits are
judged.
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
from jrs.contract.errors import Conflict, Fenced, JrsError, OutcomeUnknown, Refused, Unavailable
from jrs.contract.fork import forget_in_children
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Create, Fence, Op, Record, Update
from jrs.records.codec import decode, encode
from jrs.records.model import EpochRecord

from ..shared.lease import LeadershipLease

POLL = 0.01
"""Seconds between a candidate's looks at the lock: most of the failover time after a crash."""

_BEATS = 10
"""Heartbeats in one ttl."""


class Handle(Protocol):
    """The handle on the folder, as far as leading needs it."""

    @property
    def closed(self) -> bool: ...

    def get(self, key: str, *, deadline: Deadline | None = None) -> Record | None: ...

    def commit(self, *ops: Op) -> None: ...


class FileLeadership(LeadershipLease):
    """A locked lock file, and the heartbeat that is written into it.

    Its lifeline holds the lock: what ends the attempts of a leader that died keeps the lock until
    they are dead, also in a PID namespace that the next leader does not see.
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

    def forget(self) -> Iterable[int]:
        """A child must not hold the lock when its parent dies."""
        self._ending = threading.Lock()  # A thread that is not here may have held it.
        held = () if self._released else (self._lock,)
        self._released = True
        return held

    def _write_beat(self) -> None:
        self._beats += 1
        try:
            os.pwrite(self._lock, _beat(self._beats, self._ttl), 0)
            replaced = self._is_replaced()
        except OSError as error:
            # The disk may come back; but a leader that cannot show that it is alive has to
            # assume, before its candidates do, that it has been replaced.
            raise Unavailable(f"no heartbeat in {self._path}: {error.strerror}") from error
        if self._backend.closed:
            raise Refused(f"the handle of the leader of epoch {self.epoch} is closed")
        if replaced:
            raise Fenced(f"epoch {self.epoch} is over: a newer epoch exists")

    def _unlock(self) -> None:
        if not self._released:
            self._released = True
            # Before it is closed: what ends our attempts may hold it for longer.
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._lock)

    def _is_replaced(self) -> bool:
        """Return whether a newer epoch is known to exist.

        The lock file tells, which a successor removes. The epoch's record tells too, of a successor
        that died before it removed the file. The heartbeat does not depend on that answer: it takes
        long while other threads of this process keep the replica busy, and candidates see the file.
        """
        if not os.fstat(self._lock).st_nlink:
            return True
        try:
            deadline = Deadline.after(self._ttl / 10)
            record = self._backend.get(EPOCH_KEY, deadline=deadline)
        except JrsError:
            return False
        return record is None or record.version != self.fence.version


def campaign(
    backend: Handle, folder: Path, candidate: str, ttl: float, stop: threading.Event
) -> Leadership | None:
    """Wait until the current leader is gone or hangs, then bump the epoch; None once stopped."""
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
            # A full disk, no descriptor left, a disk that can be read only: it may pass.
            raise Unavailable(f"{folder}: {error.strerror}; nobody can lead from here") from error
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
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(lock, _beat(0, ttl), 0)
        value = encode(EpochRecord(epoch, candidate, token))
        bump: Op = Update(EPOCH_KEY, value, record.version) if record else Create(EPOCH_KEY, value)
        sent = lease_time()
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
        won = FileLeadership(backend, epoch, Fence(epoch, stored.version), lock, path, ttl, sent)
    except BaseException:
        _withdraw(lock, path)
        raise
    _sweep(folder, epoch)
    return won


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


def epochs(folder: Path) -> Iterator[int]:
    """Yield the epochs whose lock files exist."""
    for name in os.listdir(folder):
        number = name.partition("-")[0]
        if number.isdigit():
            yield int(number)


def _sweep(folder: Path, epoch: int) -> None:
    """Remove the lock files of older epochs; a file that is still locked is just unlinked."""
    with contextlib.suppress(OSError):
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
        now = lease_time()
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
