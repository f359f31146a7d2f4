"""The watches of a file backend's handle. One at a time polls for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jrs.contract.watch import Watch

from ..shared.changes import Changes

_POLL = 0.01
"""Seconds between two looks for the commits of other processes."""
_OVERDUE = 0.1
"""Seconds after which another thread looks: the one that should may be in a signal handler."""


class Watches:
    """The watches of one handle. Safe for use by many threads.

    Commits of other processes are found by polling. One of the threads that wait does it for all,
    so that many of them cost hardly more than one. When it leaves, another one is woken to take
    over.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Held for an instant only, however slow the disk is.
        self._all: frozenset[FileWatch] = frozenset()
        self._waiting: set[FileWatch] = set()
        self._poller: FileWatch | None = None
        self._looked = time.monotonic()

    def __bool__(self) -> bool:
        return bool(self._all)

    def notice(self, key: str | None) -> None:
        """Tell the watches that a key has changed; None if any key may have changed."""
        for watch in self._all:
            watch.notice(key)

    def wake(self) -> None:
        """Wake the watches that have noticed changes, once for all the changes of a batch."""
        for watch in self._all:
            if watch.has_changed:
                watch.wake()

    def add(self, watch: FileWatch) -> None:
        """Have a watch notice changes from now on."""
        # A batch that is being applied may not report to it. It has the lock that the first read
        # of the new watch needs, so that this read finds what the batch changed.
        with self._lock:
            self._all |= {watch}

    def remove(self, watch: FileWatch) -> None:
        """Have a watch notice no further change."""
        with self._lock:
            self._all -= {watch}

    def forget(self) -> None:
        """Forget the threads that waited, in a forked child, which has none of them."""
        self._lock, self._waiting, self._poller = threading.Lock(), set(), None

    def polls(self, watch: FileWatch) -> bool:
        """Return whether a watch that waits is the one that has to poll."""
        with self._lock:
            self._waiting.add(watch)
            now = time.monotonic()
            if self._poller is None or now - self._looked > _OVERDUE:
                self._poller = watch
            if self._poller is not watch:
                return False
            self._looked = now
            return True

    def leave(self, watch: FileWatch) -> None:
        """Have another watch poll if this one, which does not wait any more, has done so."""
        with self._lock:
            self._waiting.discard(watch)
            if self._poller not in (watch, None):
                return
            self._poller = None
            for other in self._waiting:
                other.wake()
                return


class FileWatch(Watch):
    """A watch that commits of this handle wake; those of other processes are found at 100 Hz.

    Args:
        refresh: applies the commits of other processes; the watches notice what they change.
    """

    def __init__(self, watches: Watches, prefix: str, refresh: Callable[[], None]) -> None:
        self._watches = watches
        self._refresh = refresh
        self._prefix = prefix
        self._changes = Changes()
        self.has_changed = True
        self._awake = threading.Event()
        watches.add(self)

    def notice(self, key: str | None) -> None:
        """Record that `key` has changed, until `wake`; None if any key may have changed."""
        if key is None or key.startswith(self._prefix):
            self._changes.add(key)
            self.has_changed = True

    def wake(self) -> None:
        """Have the thread that waits look whether there was a change, or it has to poll."""
        if not self._awake.is_set():
            self._awake.set()

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        try:
            while not self._is_woken():
                left = end - time.monotonic()
                if polls := self._watches.polls(self):
                    self._refresh()
                self._awake.wait(max(0.0, min(left, _POLL if polls else _OVERDUE)))
                if left <= 0:
                    break
        finally:
            self._watches.leave(self)
        if not self.has_changed:
            return False
        self.has_changed = False
        return True

    def changes(self, timeout: float) -> frozenset[str] | None:
        return self._changes.take() if self.wait(timeout) else frozenset()

    def close(self) -> None:
        self._watches.remove(self)

    def _is_woken(self) -> bool:
        """Return whether there was a change; the next wait lasts until there is another one."""
        self._awake.clear()  # First: a change that is noticed from here on wakes it again.
        return self.has_changed
