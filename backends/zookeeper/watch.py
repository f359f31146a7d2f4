"""Watching: one-shot watches of ZooKeeper, one per directory, for any number of readers and keys.

Each commit writes the znodes of the directories that it changes, so one watch on such a znode fires
for every change below. A watch that has fired is set again before any reader is notified, so that
no change is missed in between; and only if a reader waits, and not too often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from jrs.contract.clock import Deadline
from jrs.contract.errors import HandleClosed, JrsError, Unavailable
from jrs.contract.watch import Watch

from ..shared.changes import Changes
from .layout import Layout, directory_of, prefix_of, touches
from .protocol import codec
from .protocol.connection import Connection
from .protocol.multi_read import Reading
from .protocol.request import Request

POLL = 5.0
"""Seconds after which a watch fires without a hint."""

_SILENCE = 15.0
"""Seconds of silence after which a watch reports that any key may have changed. Masters write
heartbeats more often, so a watch that sees them is never silent."""

_PAUSE = 0.01
"""Least seconds between two settings of one watch: changes in between are one hint."""
_RETRY = 0.25


class _Spot:
    """A znode that is watched or will be watched.

    Attributes:
        mark: the last reported transaction that wrote the znode; 0 while it is absent.
        armed: the watch is set and has not fired.
        set_at: when the watch was sent.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.mark = -1
        self.armed = False
        self.sending = False
        self.set_at = 0.0


class Hub:
    """The watches of one handle."""

    def __init__(self, connection: Connection, layout: Layout, directories: Iterable[str]) -> None:
        self._connection = connection
        self._layout = layout
        self._mutex = threading.Lock()
        self._directories = set(directories)
        self._spots: dict[str, _Spot] = {}
        self._watches: set[ZooKeeperWatch] = set()
        self._closed = False

    def watch(self, prefix: str) -> ZooKeeperWatch:
        watch = ZooKeeperWatch(self, prefix)
        with self._mutex:
            self._watches.add(watch)
        self.arm(watch)
        return watch

    def remove(self, watch: ZooKeeperWatch) -> None:
        with self._mutex:
            self._watches.discard(watch)

    def close(self) -> None:
        """Wake all readers, whose next wait then fails."""
        with self._mutex:
            self._closed = True
            watches = list(self._watches)
        for watch in watches:
            watch.ring()

    def arm(self, watch: ZooKeeperWatch) -> float:
        """Set the missing watches of `watch`; return after how many seconds to try again.

        Raises:
            HandleClosed: the handle is closed.
        """
        now = time.monotonic()
        due = []
        again = POLL
        with self._mutex:
            if self._closed:
                raise HandleClosed
            for path in self._paths(watch.prefix):
                spot = self._spots.setdefault(path, _Spot(path))
                if spot.armed:
                    continue
                wait = spot.set_at + (_RETRY if spot.sending else _PAUSE) - now
                if spot.sending or wait > 0:
                    again = min(again, max(wait, _PAUSE))
                    continue
                spot.sending, spot.set_at = True, now
                due.append(spot)
        for spot in due:
            self._connection.submit(
                Request(
                    codec.EXISTS,
                    codec.text(spot.path) + b"\1",
                    lambda request, spot=spot: self._set(spot, request),  # type: ignore[misc]
                    path=spot.path,
                    watcher=lambda event, spot=spot: self._fired(spot),  # type: ignore[misc]
                )
            )
        return again

    # -- from kazoo's threads --------------------------------------------------------------

    def _set(self, spot: _Spot, request: Request) -> None:
        with self._mutex:
            spot.sending = False
            spot.armed = request.error is None
            mark = codec.modified(request.reply) if request.error is None else spot.mark
            changed = mark != spot.mark
            spot.mark = mark
        if changed and spot.path == self._layout.map:
            self._read_directories()
        elif changed:
            self._tell(spot, hint=True, below=prefix_of(spot.path.rpartition("/")[2]))

    def _fired(self, spot: _Spot) -> None:
        with self._mutex:
            spot.armed = False
        self._tell(spot, hint=False)

    def _read_directories(self) -> None:
        try:
            Reading(
                self._connection,
                [codec.get_children(self._layout.map)],
                Deadline.after(POLL),
                self._know_directories,
            )
        except Unavailable:
            pass  # The connection is closed.

    def _know_directories(self, reading: Reading) -> None:
        try:
            (names,) = reading.answers()
        except JrsError:
            with self._mutex:  # The next reader that waits tries again.
                self._spots.pop(self._layout.map, None)
            return
        with self._mutex:
            self._directories.update(names if isinstance(names, list) else ())
            spot = self._spots.setdefault(self._layout.map, _Spot(self._layout.map))
        self._tell(spot, hint=True)

    def _tell(self, spot: _Spot, *, hint: bool, below: str = "") -> None:
        with self._mutex:
            concerned = [one for one in self._watches if spot.path in self._paths(one.prefix)]
        for watch in concerned:
            watch.ring(hint=hint, below=below)

    def _paths(self, prefix: str) -> list[str]:
        if "/" in prefix:
            return [self._layout.directory(directory_of(prefix))]
        names = [name for name in self._directories if touches(name, prefix)]
        return [self._layout.map, *(self._layout.directory(name) for name in names)]


class ZooKeeperWatch(Watch):
    """A watch that a `Hub` notifies; it also fires every few seconds without a hint."""

    def __init__(self, hub: Hub, prefix: str) -> None:
        self.prefix = prefix
        self._hub = hub
        self._hint = True
        self._changes = Changes()
        self._bell = threading.Event()
        self._poll_at = time.monotonic() + POLL
        self._heard_at = time.monotonic()

    def ring(self, *, hint: bool = False, below: str = "") -> None:
        """Wake the reader: to return if `hint` is True, otherwise to set its watches again.

        Args:
            below: the prefix of the changed keys; empty if any key may have changed.
        """
        if hint:
            self._changes.add(below or None)
            self._heard_at = time.monotonic()
        self._hint = self._hint or hint
        self._bell.set()

    def wait(self, timeout: float) -> bool:
        return self._wait(timeout, poll=True)

    def changes(self, timeout: float) -> frozenset[str] | None:
        silent_at = self._heard_at + _SILENCE
        if self._wait(min(timeout, max(0.0, silent_at - time.monotonic())), poll=False):
            return self._changes.take()
        now = time.monotonic()
        if now < silent_at:
            return frozenset()
        self._heard_at = now
        return None

    def _wait(self, timeout: float, *, poll: bool) -> bool:
        end = time.monotonic() + timeout
        while True:
            self._bell.clear()
            again = self._hub.arm(self)
            now = time.monotonic()
            if self._hint or (poll and now >= self._poll_at):
                self._hint = False
                self._poll_at = now + POLL
                return True
            if now >= end:
                return False
            self._bell.wait(min(again, end - now, self._poll_at - now if poll else POLL))

    def close(self) -> None:
        self._hub.remove(self)
