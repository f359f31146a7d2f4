"""Changes: the names that a watch has received and its reader has not taken yet."""

from __future__ import annotations

import threading

_MOST = 10_000
"""Most names that are kept. After more names, any key may have changed."""


class Changes:
    """The names of the keys that changed since the last `take`. Safe for use by many threads.

    At first any key may have changed, as the contract requires of a new watch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] | None = None

    def add(self, name: str | None) -> None:
        """Record that `name` changed; None if any key may have changed."""
        with self._lock:
            if name is None or self._names is None or len(self._names) >= _MOST:
                self._names = None
            else:
                self._names.add(name)

    def take(self) -> frozenset[str] | None:
        """Return the names and clear them; None if any key may have changed."""
        with self._lock:
            names, self._names = self._names, set()
            return None if names is None else frozenset(names)
