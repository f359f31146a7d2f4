"""FileBackend: the implementation of the contract on a folder."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from jrs.contract.backend import Backend, Capabilities
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CorruptRecord,
    InvalidInput,
    Unavailable,
    UnsupportedVersion,
    WrongProcess,
    WrongState,
)
from jrs.contract.leadership import Leadership
from jrs.contract.operations import EPOCH_KEY, Fence, Op, Record
from jrs.contract.storage_place import folder_of
from jrs.contract.watch import Watch
from jrs.host.fork import forget_in_children

from ..shared.group_commit import GroupCommit
from . import leader
from .compaction import Compaction
from .format import lines
from .opening import open_folder
from .replica import Replica
from .segment_log import unavailable
from .watch import FileWatch, Watches

SEAL_AT = 8 << 20
"""Bytes of log at which a segment is sealed; a larger base delays the seal: see
`Replica.seal_if_due`."""

R = TypeVar("R")
T = TypeVar("T")
_PAGE = 1000
"""Records that are examined for damage at once."""


def open_file(url: str, cluster: str, create: bool = True) -> FileBackend:
    """Open ``file:///path``. The entry point of the scheme."""
    return FileBackend(folder_of(url), cluster, create=create)


class FileBackend(Backend):
    """A handle on a cluster's folder. Every handle of every process is a replica of the log.

    A handle refuses all calls in a forked child. Open another one there.
    """

    capabilities = Capabilities(
        max_value=512 * 1024,
        max_ops=128,
        max_key=512,
        min_ttl=0.2,
        max_ttl=3600.0,
        durable=True,
        multi_process=True,
        multi_host=False,
        may_omit=True,
    )

    def __init__(
        self,
        root: Path,
        cluster: str = "default",
        *,
        create: bool = True,
        seal_at: int = SEAL_AT,
        compaction: Callable[[Path], Compaction] = Compaction,
    ) -> None:
        root = root.absolute()  # The process may change its working directory.
        folder, self.marked_format = open_folder(root, cluster, create=create)
        self.url = root.resolve().as_uri()
        self.default_storage = root.resolve() / "storage"
        self.cluster = cluster
        self._leader_folder = folder / "leader"
        self._lock = threading.Lock()
        self._watches = Watches()
        self._notify = _weakly(self._changed)
        self._forked = False
        self.closed = False
        try:
            log = folder / "log"
            compacting = compaction(log)
            compacting.ended = _weakly(self._compacted)
            self.replica = Replica(log, seal_at=seal_at, compaction=compacting)
        except PermissionError as error:
            raise InvalidInput(
                f"no permission for {error.filename}: run as its owner, or choose another folder"
            ) from None
        except OSError as error:
            raise unavailable(error, folder) from error
        try:
            self._group = GroupCommit(
                self._append, self._lock, name=f"jrs-commits-{cluster}", size=lines.size
            )
        except Unavailable:
            self.replica.close()
            raise
        # Its users may drop it without `close`. The end of the process closes the files anyway.
        self._dropped = weakref.finalize(self, self.replica.close)
        self._dropped.atexit = False
        forget_in_children(self)

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        return self._read(lambda: self.replica.get(key), deadline)

    def _get_many(
        self, keys: Sequence[str], deadline: Deadline
    ) -> list[Record | CorruptRecord | None]:
        def read() -> list[Record | CorruptRecord | None]:
            found: list[Record | CorruptRecord | None] = []
            for key in keys:
                try:
                    found.append(self.replica.get(key))
                except CorruptRecord as error:
                    found.append(error)
            return found

        return self._read(read, deadline)

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        return self._read(lambda: self.replica.page(prefix, after, limit), deadline)

    def _created_since(self, prefix: str, version: int, deadline: Deadline) -> list[Record]:
        return self._read(lambda: self.replica.created_since(prefix, version), deadline)

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self._check_process()
        self._group.commit(lines.commit(ops, _pair(fence)), ops, deadline)

    def _commit_async(self, ops: tuple[Op, ...], fence: Fence | None) -> Future[None]:
        self._check_process()
        return self._group.commit_async(lines.commit(ops, _pair(fence)), ops)

    def watch(self, prefix: str) -> Watch:
        self._check_process()
        return FileWatch(self._watches, prefix, self._refresh)

    def _campaign(self, candidate: str, *, ttl: float, stop: threading.Event) -> Leadership | None:
        return leader.campaign(self, self._leader_folder, candidate, ttl, stop)

    def compact(self) -> None:
        """Seal the segment now and begin the next one. Any process may do so at any time."""
        # No deadline: the merge takes as long as it takes.
        self._alone(lambda: self.replica.seal(math.inf), Deadline.after(math.inf))

    def mark_format(self, version: int) -> None:
        """Do nothing: all clusters of the folder share the marker. The record of the format keeps
        older versions out of this cluster, and says what the cluster is complete in."""

    def check(self) -> Iterator[str]:
        def look() -> list[str]:
            with suppress(CorruptRecord):
                self.replica.catch_up_with_base(math.inf)
            return list(self.replica.problems())

        # No deadline: everything is read.
        yield from self._alone(look, Deadline.after(math.inf))

    def damaged_under(self, prefix: str, *, deadline: Deadline | None = None) -> str:
        after: str | None = None
        while True:
            look = partial(self.replica.damaged_behind, prefix, after, _PAGE)
            damaged, after = self._read(look, deadline or self._deadline())
            if damaged or after is None:
                return damaged

    def accept_damage(self) -> list[str]:
        accept = partial(self.replica.accept_damage, self._refuse_while_led)
        return self._alone(accept, Deadline.after(math.inf))

    def _refuse_while_led(self) -> None:
        try:
            name = leader.held_lock(self._leader_folder)
        except OSError as error:
            raise unavailable(error, self._leader_folder) from error
        if name is not None:
            raise WrongState(
                f"{self.url}: a master leads ({name}), which may have read what is damaged now: "
                "stop all masters of the cluster, wait until their attempts have ended, and repeat "
                "this; nothing was changed"
            )

    def overwrite(self, key: str, value: bytes) -> None:
        try:
            super().overwrite(key, value)
        except UnsupportedVersion:
            raise
        except CorruptRecord:
            # A damaged base hides the record: no operation on it could be evaluated.
            self._group.commit(lines.overwrite(key, value), (), self._deadline())

    def epochs(self) -> Iterator[int]:
        try:
            yield from leader.epochs(self._leader_folder)
        except OSError as error:
            raise unavailable(error, self._leader_folder) from error

    def close(self) -> None:
        if self._forked:
            return
        self.closed = True
        self._group.close(self.timeout)
        # A hanging disk keeps the lock; the process's end then closes the files.
        if self._lock.acquire(timeout=self.timeout):
            try:
                self.replica.close()
            finally:
                self._lock.release()

    def forget(self) -> Iterable[int]:
        self._forked = True
        self._watches.forget()
        self._dropped.detach()  # The child may have closed the files, and opened others.
        return self.replica.held

    # -- inside ----------------------------------------------------------------------------

    def _append(self, batch: list[lines.Commit]) -> list[int | Exception]:
        with self._listening():
            verdicts = self.replica.append(batch)
            if any(isinstance(verdict, int) for verdict in verdicts):
                self.replica.seal_if_due()
        return verdicts

    def _read(self, read: Callable[[], R], deadline: Deadline) -> R:
        """Return the result of `read` in the newest state.

        If the log has nothing new, the calling thread reads by itself, without a switch to the
        serving thread and back. The main thread never does so, because a signal handler could raise
        there while it has the lock. Only the serving thread applies new commits, because no
        signal handler interrupts it between two steps of one change.
        """
        self._check_process()
        if threading.current_thread() is not threading.main_thread():
            if not self._lock.acquire(timeout=deadline.bounded()):
                raise Unavailable(f"{self.url}: the disk did not answer within the deadline")
            try:
                if self.replica.is_current():
                    return read()
            except OSError as error:
                raise unavailable(error, self.replica.folder) from error
            finally:
                self._lock.release()

        def caught_up() -> R:
            self.replica.catch_up()
            return read()

        return self._alone(caught_up, deadline)

    def _alone(self, action: Callable[[], R], deadline: Deadline) -> R:
        """Run an action that changes the replica in the serving thread, between two batches."""
        self._check_process()

        def locked() -> R:
            with self._lock, self._listening():
                try:
                    return action()
                except OSError as error:
                    raise unavailable(error, self.replica.folder) from error

        return self._group.run(locked, deadline)

    def _check_process(self) -> None:
        if self._forked:
            raise WrongProcess(f"{self.url} was opened before a fork: open it again in the child")

    def _refresh(self) -> None:
        """Apply the commits of other processes, and wake the watches of the changed keys."""
        self._read(lambda: None, self._deadline())

    def _changed(self, key: str | None) -> None:
        self._watches.notice(key)

    def _compacted(self, failed: bool) -> None:
        if self.compaction_ended is not None:
            self.compaction_ended(failed)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Have the watches notice what the block changes in the replica, under its lock. Without
        watches, the replica reports no changes: a replay is faster."""
        notify = self._notify if self._watches else None
        if self.replica.on_change != notify:
            self.replica.on_change = notify
        try:
            yield
        finally:
            self._watches.wake()


def _weakly(method: Callable[[T], None]) -> Callable[[T], None]:
    """Return a call of a handle's method for its replica, which does not keep the handle alive."""
    reference = weakref.WeakMethod(method)

    def call(argument: T) -> None:
        if (found := reference()) is not None:
            found(argument)

    return call


def _pair(fence: Fence | None) -> tuple[str, int] | None:
    return None if fence is None else (EPOCH_KEY, fence.version)
